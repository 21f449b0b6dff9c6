"""A look at the machine before a study: how finely it measures, what it can do, what disturbs."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from breakeven.lab import ceilings, machine, procfs, statistics
from breakeven.lab import format as words
from breakeven.lab.statistics import Pair, Samples

BLOCK_SECONDS = 0.02
SLOWEST_BLOCK = 0.1
"""s; under load a loop of two threads can take fifty times as long, and has then told enough."""
LISTEN_SECONDS = 0.5
"""How long others are listened to: half a second shows 2 % of a core against ticks of 10 ms."""
MOST_OTHERS = 0.1
"""Cores' worth of other work that is too much: a 60 ms block then often holds a scheduler tick."""
MOST_NOISE = 0.03
MOST_RESOLUTION = 1e-6
LEAST_DISK, LEAST_MEMORY, MOST_SWAP = 4 << 30, 2 << 30, 64 << 20
"""Bytes: a machine-cold cell of TorchInductor writes some 200 MB; eager and g++ take 1-2 GB."""
SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")


class Concern(msgspec.Struct, frozen=True):
    """Something that makes figures worse, and what to do about it."""

    found: str
    remedy: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; seconds, bytes, bytes/s and flop/s.

    `noise_floor` is a relative difference, `others` the cores' worth of work of other processes,
    `bandwidth` the curve of `ceilings.bandwidth_curve` at `threads`, `peak` that of
    `ceilings.fma_peak`, `sgemm` a large matrix product through torch, its cross check.
    """

    environment: dict[str, Any]
    threads: int
    noise_floor: float
    timer_resolution: float
    others: float
    bandwidth: list[tuple[int, float]]
    peak: float
    sgemm: float
    seconds: float
    warnings: list[Concern]


def examine(quick: bool = False) -> Examination:
    """Measure this machine: some 6 s, or 3 s with `quick` (curve to 64 MiB, less of the rest)."""
    start = time.perf_counter()
    environment = machine.environment()
    threads = environment["cores"]
    others = others_now()
    noise = noise_floor(groups=3 if quick else 8)
    resolution = ceilings.timer_resolution()
    peak, sgemm = ceilings.fma_peak(threads), ceilings.sgemm_rate(threads)
    curve = ceilings.bandwidth_curve(threads, (64 << 20) if quick else ceilings.LARGEST)
    warnings = [
        *_disturbances(environment, others, noise, resolution),
        *_limits(environment),
        *_room(environment),
    ]
    if implausible := ceilings.implausible(peak, sgemm, threads):
        warnings.append(Concern(implausible, "Run `breakeven doctor` again on a quiet machine."))
    return Examination(
        environment=environment,
        threads=threads,
        noise_floor=noise,
        timer_resolution=resolution,
        others=others,
        bandwidth=curve,
        peak=peak,
        sgemm=sgemm,
        seconds=time.perf_counter() - start,
        warnings=warnings,
    )


def render(examination: Examination) -> RenderableType:
    """What was found, for `rich.console.Console.print`."""
    environment = examination.environment
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in (
        ("processor", f"{environment['cpu']} ({environment['architecture']})"),
        ("instruction sets", " ".join(environment["isa"]) or words.NONE),
        ("cores", f"{environment['cores']} usable of {environment['cores_listed']} listed"),
        ("caches", ", ".join(_cache(*one) for one in environment["caches"].items()) or words.NONE),
        ("memory", words.size_bytes(environment["memory"])),
        ("others", f"{examination.others:.2f} cores; load average {environment['load'][0]}"),
        ("noise floor", f"{words.percent(examination.noise_floor)} (within one process)"),
        ("clock step", f"{examination.timer_resolution * 1e9:,.0f} ns"),
        (
            "peak (f32)",
            f"{words.operations(examination.peak)}flop/s; matrix product "
            f"{words.operations(examination.sgemm)}flop/s; {examination.threads} threads",
        ),
        ("bandwidth", "  ".join(_point(*one) for one in examination.bandwidth)),
    ):
        facts.add_row(name, value)
    concerns = [Text(f"! {one.found} {one.remedy}", "yellow") for one in examination.warnings]
    return Group(facts, *concerns)


def _cache(name: str, size: int) -> str:
    return f"{name} {words.size_bytes(size)}"


def _point(size: int, rate: float) -> str:
    text = f"{words.size_bytes(size)}: {words.number(rate / 1e9)} GB/s"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def others_now() -> float:
    """Cores' worth of work that other processes do while this one sleeps for half a second."""
    reading = procfs.Reading()
    time.sleep(LISTEN_SECONDS)
    wall, _, others, _ = reading.since()
    return others / wall


def noise_floor(groups: int, pairs: int = 4) -> float:
    """How far two equal eager loops seem to differ, by the rule a study's verdicts use.

    Each group stands for a process: `pairs` pairs of blocks in random order. Within one process the
    spread is smaller than between fresh ones, so that a study's own floor can be higher.
    """
    x, w, b = torch.linspace(-3, 3, 256 * 1024).view(256, 1024), torch.ones(1024), torch.ones(1024)

    def loop() -> Any:
        return torch.tanh(torch.nn.functional.gelu(x * w + b)) + x

    order = random.Random(0)
    with torch.inference_mode():
        calls = _calls_in(loop, BLOCK_SECONDS)
        ratios = []
        for _ in range(groups):
            found = [_pair(loop, calls, order) for _ in range(pairs)]
            ratios.append(statistics.pair_log_ratio(found))
    return statistics.noise_floor([ratio for ratio in ratios if ratio is not None])


def _calls_in(loop: Callable[[], Any], seconds: float) -> int:
    times = _times(loop, 5)
    return max(3, min(10_000, round(seconds / max(min(times), 1e-7))))


def _pair(loop: Callable[[], Any], calls: int, order: random.Random) -> Pair:
    blocks = [Samples(_times(loop, calls)) for _ in range(2)]
    order.shuffle(blocks)
    return Pair(eager=blocks[0], compiled=blocks[1])


def _times(loop: Callable[[], Any], calls: int) -> list[float]:
    times: list[float] = []
    while len(times) < calls and (len(times) < 3 or sum(times) < SLOWEST_BLOCK):
        start = time.perf_counter()
        loop()
        times.append(time.perf_counter() - start)
    return times


def _disturbances(
    environment: dict[str, Any], others: float, noise: float, resolution: float
) -> list[Concern]:
    """What makes figures noisy now."""
    found = []
    if others > MOST_OTHERS:
        found.append(
            Concern(
                f"Other processes use {others:.1f} cores (load average {environment['load'][0]}).",
                "Stop them, or measure later: contended blocks are set aside, which takes longer.",
            )
        )
    if noise > MOST_NOISE:
        found.append(
            Concern(
                f"Two equal loops seemed to differ by up to {noise:.1%}.",
                "Smaller gains cannot be told apart here; quiet the machine or fix its clock.",
            )
        )
    if resolution > MOST_RESOLUTION:
        found.append(
            Concern(
                f"The clock moves in steps of {resolution * 1e6:.1f} us.",
                "Small subjects are timed in batches; check /sys/devices/system/clocksource.",
            )
        )
    governor = environment["governor"]
    if governor in SLOW_GOVERNORS:
        found.append(
            Concern(
                f"The frequency governor is {governor}, which changes the clock with the load.",
                "Set it to performance: `sudo cpupower frequency-set -g performance`.",
            )
        )
    return found


def _limits(environment: dict[str, Any]) -> list[Concern]:
    """What is smaller or missing than it looks."""
    found = []
    cores, listed = environment["cores"], environment["cores_listed"]
    if cores < listed:
        found.append(
            Concern(
                f"This process may use {cores} of {listed} cores (affinity or container).",
                "Studies use that many threads; widen the limit to measure with more.",
            )
        )
    if environment["torch_threads"] != cores:
        found.append(
            Concern(
                f"torch uses {environment['torch_threads']} threads by default, of {cores} cores.",
                "Studies set the number themselves; `--threads` sweeps over others.",
            )
        )
    if not environment["cxx"]:
        found.append(
            Concern(
                "No C++ compiler was found, which TorchInductor needs.",
                "Install g++, or set CXX to one; without it Inductor is listed as unavailable.",
            )
        )
    found += [Concern(gap, "Blocks are then not checked for it.") for gap in environment["gaps"]]
    return found


def _room(environment: dict[str, Any]) -> list[Concern]:
    """Too little memory or disk for compilers at work."""
    found = []
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if free < LEAST_DISK:
        found.append(
            Concern(
                f"{folder} has {free / 2**30:.1f} GiB left.",
                "Make room there, or set TMPDIR to another disk: cold cells fill it.",
            )
        )
    available = machine.memory_available()
    if available < LEAST_MEMORY:
        found.append(
            Concern(
                f"{available / 2**30:.1f} GiB of memory is available.",
                "Close programs: a model, eager beside it and a C++ compiler need 2 GiB and more.",
            )
        )
    if environment["swap"] > MOST_SWAP:
        found.append(
            Concern(
                f"{environment['swap'] / 2**30:.1f} GiB has been swapped out.",
                "Free memory and run `sudo swapoff -a && sudo swapon -a` before a study.",
            )
        )
    return found
