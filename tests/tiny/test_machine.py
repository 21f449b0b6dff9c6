"""The record of a machine, its allocator, its ceilings and the doctor's words."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

from breakeven.lab import allocator, ceilings, doctor, machine, procfs


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return machine.environment()


def test_the_record_is_plain_data_with_the_versions_that_count(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record)) == record
    assert record["packages"]["torch"] == torch.__version__
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["torch_threads"] == torch.get_num_threads()
    assert 1 <= record["cores"] <= record["cores_listed"] == os.cpu_count()
    assert record["memory"] > 1 << 28
    assert all(size > 0 for size in record["caches"].values())


def test_the_record_names_no_host_and_no_user(record: dict[str, Any]) -> None:
    text = json.dumps(record)
    for private in (os.uname().nodename, str(Path.home())):
        if len(private) > 3:
            assert private not in text


def test_nothing_is_imported_for_a_version() -> None:
    code = (
        "import sys; from breakeven.lab import machine; machine.environment()\n"
        "heavy = {'transformers', 'onnxruntime', 'openvino', 'onnx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu", "another"),
        ("cpu_model", "1-2-3"),
        ("cores", 99),
        ("isa", []),
        ("caches", {"L1d": 1}),
        ("memory", 1 << 50),
    ],
)
def test_another_machine_has_another_name(record: dict[str, Any], name: str, value: object) -> None:
    assert machine.machine_id(record) == record["machine"]
    assert machine.machine_id({**record, name: value}) != record["machine"]


def test_versions_and_load_do_not_change_the_machine(record: dict[str, Any]) -> None:
    moved = {**record, "kernel": "x", "packages": {}, "load": [9.0], "torch_threads": 1}
    assert machine.machine_id(moved) == record["machine"]


@pytest.mark.parametrize("gigabytes", [4, 8, 16, 24, 32, 48, 64, 96, 256, 1000])
def test_memory_sold_as_one_size_is_one_size(gigabytes: int) -> None:
    sold = gigabytes << 30
    classes = {machine._size_class(int(sold * (1 - share))) for share in (0.0, 0.01, 0.03, 0.06)}
    assert len(classes) == 1
    assert machine._size_class(sold // 2) != machine._size_class(sold)


def fake_groups(root: Path, *, own: str, files: dict[str, str]) -> None:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(f"12:cpu:/x\n0::{own}\n")
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"a/b/cpu.max": "max 100000\n"}, None),
        ({"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ({"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "150000 100000\n"}, 0.5),
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"a/b/cpu.max": "garbage"}, None),
    ],
)
def test_a_container_s_share_of_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: float | None
) -> None:
    fake_groups(tmp_path, own="/a/b", files=files)
    monkeypatch.setattr(procfs, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    assert machine.quota() == expected
    allowed = len(procfs.allowed_cores())
    assert machine.usable_cores() == (min(allowed, max(1, int(expected))) if expected else allowed)


def test_a_container_s_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a/memory.max": "1000000", "a/memory.current": "400000", "a/b/memory.max": "max"}
    fake_groups(tmp_path, own="/a/b", files=files)
    (tmp_path / "proc" / "meminfo").write_text(
        "MemTotal:  8000 kB\nMemAvailable:  4000 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"
    )
    monkeypatch.setattr(procfs, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    assert machine.memory_limit() == 1_000_000
    assert machine.memory_available() == 600_000
    assert machine.environment()["swap"] == 6 << 10


def test_a_machine_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "SYS_CPU", tmp_path)
    bare = machine.environment()
    assert bare["cpu"] and bare["cores"] >= 1 and bare["memory"] > 0
    assert bare["caches"] == {} and bare["governor"] is None and bare["hypervisor"] is None
    assert len(bare["gaps"]) == 4 and re.fullmatch("[0-9a-f]{12}", bare["machine"])


def test_arm_machines_have_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nFeatures\t: fp asimd sve bf16\n"
        "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    )
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    found = machine._processor()
    assert found["cpu"] == "0x41 0xd4f" and found["isa"] == ["asimd", "bf16", "sve"]
    assert found["hypervisor"] is None


# ------------------------------------------------------------------------------ allocator

KEEP = """
import ctypes
from breakeven.lab import allocator
library = ctypes.CDLL(None)
before = allocator._faults_of_a_block(library)
assert allocator.keep_freed_pages()
print(before, max(allocator._faults_of_a_block(library) for _ in range(3)))
"""


def test_freed_pages_are_kept_once_told() -> None:
    """In a fresh process, as the setting is for good; 8 MiB are above the default threshold."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    told = subprocess.run(
        [sys.executable, "-c", KEEP], capture_output=True, text=True, check=True, env=environment
    )
    before, after = map(int, told.stdout.split())
    assert before > 1000
    assert after < 100


def test_another_library_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1.2"))
    assert allocator.keep_freed_pages() is False


def test_an_allocator_that_takes_no_notice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_faults_of_a_block", lambda library: 2048)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: _Deaf())
    assert allocator.keep_freed_pages() is False


class _Deaf:
    def mallopt(self, name: int, value: int) -> int:
        return 1


# ------------------------------------------------------------------------------ ceilings


def test_the_peak_is_plausible_and_above_a_matrix_product() -> None:
    """One thread: between one flop a cycle at 0.2 GHz and what no core can exceed.

    Load from outside can halve either figure, so the product is held against the best of three.
    """
    peak = max(ceilings.fma_peak(1) for _ in range(3))
    assert peak > 2e8
    assert ceilings.implausible(peak, 0.0, 1) == ""
    assert ceilings.sgemm_rate(1, 768) < 1.3 * peak
    before = torch.get_num_threads()
    ceilings.sgemm_rate(1, 64)
    assert torch.get_num_threads() == before


def test_the_fma_kernel_does_the_work_it_is_credited_with() -> None:
    """Every accumulator goes through exactly `repeats * UNROLL` steps of a = a * x + y."""
    for lanes, accumulators in ceilings._vectors():
        kernel = ceilings._fma(lanes, accumulators)
        array, address = ceilings._aligned(lanes * 4 * (accumulators + 2))
        offset = (address - array.ctypes.data) // 4
        view = array[offset : offset + lanes * (accumulators + 2)].reshape(-1, lanes)
        view[:accumulators] = 0.0
        view[accumulators], view[accumulators + 1] = 1.0, 1.0
        kernel.call(address, 1, 5)
        assert (view[:accumulators] == 5 * ceilings.UNROLL).all()


def test_the_triad_reads_and_writes_what_is_counted() -> None:
    kernel = ceilings._triad()
    vectors = 3
    length = vectors * ceilings.LANES
    array, address = ceilings._aligned(3 * length * 4)
    offset = (address - array.ctypes.data) // 4
    array[offset : offset + 3 * length] = range(3 * length)
    kernel.call(address, vectors, 2)
    a, b, c = array[offset : offset + 3 * length].reshape(3, length)
    assert (a == b + 0.5 * c).all()
    assert (b == range(length, 2 * length)).all() and (c == range(2 * length, 3 * length)).all()
    assert (array[offset + 3 * length :] == 0.25).all() and (array[:offset] == 0.25).all()


def test_a_short_curve() -> None:
    curve = ceilings.bandwidth_curve(1, 256 << 10)
    assert [size for size, _ in curve] == [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10]
    assert all(1e8 < rate < 5e12 for _, rate in curve)


def test_a_curve_keeps_within_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_available", lambda: 1 << 20)
    assert max(size for size, _ in ceilings.bandwidth_curve(2)) <= 1 << 17


def test_reading_a_curve() -> None:
    curve = [(1 << 10, 100.0), (1 << 20, 50.0), (1 << 30, 10.0)]
    at = [ceilings.bandwidth_at(curve, size) for size in (0, 1, 1 << 10, 1 << 20, 1 << 30, 1e18)]
    assert at == [100.0, 100.0, 100.0, 50.0, 10.0, 10.0]
    assert ceilings.bandwidth_at(curve, 1 << 15) == pytest.approx(75.0)
    with pytest.raises(ValueError, match="one point"):
        ceilings.bandwidth_at([], 1.0)


def test_a_peak_that_cannot_be() -> None:
    assert "any make" in ceilings.implausible(1e16, 1e12, 1)
    assert "narrower" in ceilings.implausible(1e11, 2e11, 1)
    assert ceilings.implausible(1e11, 0.9e11, 1) == ""


def test_cores_are_spread_before_their_siblings_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for core, shared in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{shared}\n")
    monkeypatch.setattr(machine, "SYS_CPU", tmp_path)
    monkeypatch.setattr(procfs, "allowed_cores", lambda: {0, 1, 2, 3})
    assert ceilings._spread_cores() == [0, 1, 2, 3]
    monkeypatch.setattr(procfs, "allowed_cores", lambda: {0, 2, 3, 9})
    assert ceilings._spread_cores() == [0, 3, 9, 2]


def test_measuring_leaves_this_thread_where_it_may_run() -> None:
    before = os.sched_getaffinity(0)
    ceilings.bandwidth_curve(2, 32 << 10)
    assert os.sched_getaffinity(0) == before


def test_the_clock_s_step() -> None:
    assert 0.0 < ceilings.timer_resolution() < 1e-4
    ticks = iter(range(10**6))
    assert ceilings.timer_resolution(lambda: next(ticks) // 3 * 1.0) == 1.0


# ------------------------------------------------------------------------------ doctor


def healthy(record: dict[str, Any], **changes: object) -> dict[str, Any]:
    good = {"governor": "performance", "swap": 0, "gaps": [], "cxx": "g++", "load": [0.0] * 3}
    cores = {"cores": 2, "cores_listed": 2, "torch_threads": 2}
    return {**record, **good, **cores, **changes}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, ""),
        ({"governor": "powersave"}, "governor"),
        ({"cores": 1, "torch_threads": 1}, "1 of 2 cores"),
        ({"torch_threads": 1}, "torch uses 1"),
        ({"cxx": ""}, "C++"),
        ({"gaps": ["Waiting is not known."]}, "Waiting"),
        ({"swap": 1 << 30}, "swapped"),
    ],
)
def test_what_the_doctor_warns_of(
    record: dict[str, Any], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], word: str
) -> None:
    monkeypatch.setattr(machine, "memory_available", lambda: 8 << 30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: _Disk(20 << 30))
    found = healthy(record, **changes)
    concerns = [
        *doctor._disturbances(found, others=0.0, noise=0.01, resolution=5e-8),
        *doctor._limits(found),
        *doctor._room(found),
    ]
    assert len(concerns) == bool(word)
    assert all(word in one.found and one.remedy for one in concerns)


class _Disk:
    def __init__(self, free: int) -> None:
        self.free = free


def test_noise_load_clock_and_room(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = healthy(record)
    words = [c.found for c in doctor._disturbances(found, others=1.0, noise=0.2, resolution=1e-5)]
    assert len(words) == 3 and "1.0 cores" in words[0] and "20.0%" in words[1]
    monkeypatch.setattr(machine, "memory_available", lambda: 1 << 30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: _Disk(1 << 30))
    assert len(doctor._room(found)) == 2


def test_a_noisy_loop_has_a_higher_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(spread: float) -> Any:
        state = iter(range(10**9))
        return lambda loop, calls: [1e-3 * (1 + spread * math.sin(next(state) * 1.7))] * 3

    monkeypatch.setattr(doctor, "_times", times(0.0))
    assert doctor.noise_floor(groups=3) == 0.01
    monkeypatch.setattr(doctor, "_times", times(0.3))
    assert doctor.noise_floor(groups=3) > 0.05


def test_a_quick_examination_shows_itself() -> None:
    found = doctor.examine(quick=True)
    assert found.bandwidth[-1][0] <= 64 << 20 and found.threads == machine.usable_cores()
    assert found.peak > 0 and found.sgemm > 0 and found.noise_floor >= 0.01
    assert msgspec.json.decode(msgspec.json.encode(found), type=doctor.Examination) == found
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(doctor.render(found))
    console.file.close()
    text = console.export_text()
    for word in ("processor", "noise floor", "bandwidth", "GB/s", "flop/s"):
        assert word in text
    assert all(one.found.split()[0] in text for one in found.warnings)
