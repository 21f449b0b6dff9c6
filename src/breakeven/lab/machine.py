"""The machine a study runs on, as a plain record.

The record holds no name of a host or a user. Two records with the same "machine" come from the same
kind of machine as far as a model's speed can tell.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from breakeven.knobs import CXX
from breakeven.lab import procfs

SYS_CPU = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")

INSTRUCTION_SETS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "avx10",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "amx_fp16",
    "asimd",
    "asimdhp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
    "sme",
)
"""Extensions that change which kernels a compiler picks, as Linux spells them on x86 and Arm."""

PACKAGES = (
    "breakeven",
    "torch",
    "numpy",
    "scipy",
    "llvmlite",
    "onnxruntime",
    "openvino",
    "onnx",
    "onnxscript",
    "transformers",
    "timm",
    "torchvision",
    "triton",
)
"""Distributions whose version can move a figure; read from metadata, nothing is imported."""


def environment() -> dict[str, Any]:
    """What decides about speed here, as plain data (strings, numbers, lists, dicts).

    Keys: machine (see `machine_id`), cpu, cpu_model (family-model-stepping), vendor, architecture,
    cores (those this process may use), cores_listed, quota (cores' worth of time that a container
    allows, None without a limit), caches (bytes by level, one instance), isa, memory (bytes), swap
    (bytes in use), hypervisor, governor, turbo (None where unknown), kernel, libc, python, cxx,
    packages, torch_threads, load (1, 5 and 15 minutes), gaps (figures this kernel does not keep).
    """
    found: dict[str, Any] = {
        **_processor(),
        "cores": usable_cores(),
        "cores_listed": os.cpu_count() or 1,
        "quota": quota(),
        "caches": caches(),
        "memory": memory_limit(),
        "swap": _meminfo("SwapTotal") - _meminfo("SwapFree"),
        "governor": _text(SYS_CPU / "cpu0/cpufreq/scaling_governor") or None,
        "turbo": _turbo(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "python": platform.python_version(),
        "cxx": _cxx(),
        "packages": _packages(),
        "torch_threads": torch.get_num_threads(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "gaps": procfs.gaps(),
    }
    return {"machine": machine_id(found), **found}


def machine_id(record: dict[str, Any]) -> str:
    """12 hex digits of processor, instruction sets, usable cores, caches and size of memory.

    Memory counts in steps of a quarter of a power of two, rounded up, as firmware and kernel keep
    some of what was bought.
    """
    names = ("cpu", "cpu_model", "architecture", "isa", "cores", "quota", "caches")
    text = repr([*(record[name] for name in names), _size_class(int(record["memory"]))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _size_class(size: int) -> int:
    quarter = 1 << max(size.bit_length() - 3, 0)
    return -(-size // quarter) * quarter


def usable_cores() -> int:
    """Cores this process can keep busy: its affinity, or a container's quota where that is less."""
    limit = quota()
    allowed = len(procfs.allowed_cores())
    return allowed if limit is None else max(1, min(allowed, int(limit)))


def quota() -> float | None:
    """Cores' worth of time a control group allows (cgroup v2, then v1), or None without a limit."""
    limits = []
    for folder in _own_groups():
        words = _text(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit():
            limits.append(int(words[0]) / int(words[1]))
    old = _text(CGROUP / "cpu/cpu.cfs_quota_us"), _text(CGROUP / "cpu/cpu.cfs_period_us")
    if old[0].isdigit() and old[1].isdigit():
        limits.append(int(old[0]) / int(old[1]))
    return min(limits) if limits else None


def memory_limit() -> int:
    """Bytes of memory this process may use: the machine's, or a container's limit below it."""
    total = _meminfo("MemTotal")
    if not total and hasattr(os, "sysconf"):
        total = os.sysconf("SC_PHYS_PAGES") * procfs.PAGE
    texts = [_text(folder / "memory.max") for folder in _own_groups()]
    texts.append(_text(CGROUP / "memory/memory.limit_in_bytes"))
    return min([total, *(int(text) for text in texts if text.isdigit())])


def memory_available() -> int:
    """Bytes that can be had without swapping; the container's use is taken off its limit."""
    free = _meminfo("MemAvailable") or memory_limit() // 2
    for folder in _own_groups():
        limit, used = _text(folder / "memory.max"), _text(folder / "memory.current")
        if limit.isdigit() and used.isdigit():
            free = min(free, int(limit) - int(used))
    return max(free, 0)


def _own_groups() -> list[Path]:
    """Folders of this process's control group (v2) and of all above it."""
    match = re.search(r"^0::/(.*)$", _text(Path(procfs.PROC) / "self/cgroup"), re.MULTILINE)
    folder = CGROUP / (match[1] if match else "")
    above = [parent for parent in folder.parents if parent.is_relative_to(CGROUP)]
    return [folder, *above]


def caches() -> dict[str, int]:
    """Bytes of one cache of each level, e.g. {"L1d": 49152, "L2": 2097152, "L3": 503316480}."""
    found = {}
    for index in sorted(SYS_CPU.glob("cpu0/cache/index*")):
        level, kind = _text(index / "level"), _text(index / "type")
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size"))
        if not size or not level or (level == "1" and kind == "Instruction"):
            continue
        unit = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[2]]
        found[f"L{level}" + ("d" if level == "1" else "")] = int(size[1]) * unit
    return found


def _processor() -> dict[str, Any]:
    """Name, vendor, architecture, instruction sets and hypervisor flag from /proc/cpuinfo."""
    first = _text(Path(procfs.PROC) / "cpuinfo").split("\n\n", 1)[0]
    fields = {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in first.splitlines())
        if colon
    }
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    arm = " ".join(fields[n] for n in ("CPU implementer", "CPU part") if n in fields)
    name = fields.get("model name") or arm or platform.processor() or platform.machine()
    return {
        "cpu": name,
        "cpu_model": "-".join(fields.get(n, "?") for n in ("cpu family", "model", "stepping")),
        "vendor": fields.get("vendor_id", ""),
        "architecture": platform.machine(),
        "isa": [one for one in INSTRUCTION_SETS if one in flags],
        "hypervisor": ("hypervisor" in flags) if flags and "flags" in fields else None,
    }


def _turbo() -> bool | None:
    no_turbo = _text(SYS_CPU / "intel_pstate/no_turbo")
    boost = _text(SYS_CPU / "cpufreq/boost")
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    return boost == "1" if boost in ("0", "1") else None


def _cxx() -> str:
    """First line of the C++ compiler's version, empty without one: TorchInductor calls it."""
    found = shutil.which(CXX.get())
    if not found:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        command = [found, "--version"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return told.stdout.partition("\n")[0].strip()
    return ""


def _packages() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _meminfo(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", _text(Path(procfs.PROC) / "meminfo"), re.MULTILINE)
    return int(match[1]) << 10 if match else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
