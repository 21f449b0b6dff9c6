"""What this machine can do at most: bytes moved by footprint, and floating-point work.

Both come from small kernels in LLVM IR, one Python thread a core: ctypes gives up the interpreter's
lock during a call. A kernel repeats its work inside, so that the cost of a call does not count.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import torch

from breakeven.lab import machine, procfs

SMALLEST, LARGEST = 16 << 10, 512 << 20
RUN_SECONDS = 8e-3
"""Aimed length of one run: a thread is woken in some 50 us, so 1 % of it at most."""
RUNS = 4
"""Runs of one figure; the best counts, because a ceiling is looked for."""
MOST_FLOPS_PER_CYCLE_LANE = 8
"""Four FMA units of two operations each: no core on the market has more."""
HIGHEST_CLOCK = 7e9
"""Hz; above every core sold (overclocking records aside)."""

Curve = list[tuple[int, float]]
"""(footprint in bytes, bytes per second), footprints ascending."""


class Kernel:
    """Machine code of one function `void(ptr, i64, i64)`; it lives as long as this object."""

    def __init__(self, text: str) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple().create_target_machine(
            features=features, opt=3, jit=True
        )
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, target)
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.call = kind(self._engine.get_function_address("kernel"))


def bandwidth_curve(threads: int, largest: int = LARGEST) -> Curve:
    """Bytes per second of `a = b + s*c` (f32) for footprints of 16 KiB to 512 MiB.

    The footprint is that of all three arrays and all threads together, each thread having its own
    slice. Counted are the bytes that the program names, two reads and one write of 4 bytes; the
    read that a cache adds before a write is not (the convention of STREAM, McCalpin 1995). A
    callable that mostly reads can therefore come out above the curve.

    Args:
        threads: how many cores move bytes at once.
        largest: where to stop (bytes); never above an eighth of the memory that is available.
    """
    largest = min(largest, machine.memory_available() // 8)
    kernel = _triad()
    buffers = [_aligned(largest // threads) for _ in range(threads)]
    curve = []
    for size in itertools.takewhile(lambda s: s <= largest, (SMALLEST << i for i in range(40))):
        vectors = size // threads // (3 * LANES * 4)
        if vectors < 1:
            continue
        moved = vectors * 3 * LANES * 4 * threads
        rate = _best_rate([(kernel, address, vectors) for _, address in buffers], moved)
        curve.append((size, rate))
    return curve


def bandwidth_at(curve: Curve, footprint: float) -> float:
    """Bytes per second at a footprint: straight lines over log(footprint), flat outside.

    Raises:
        ValueError: the curve is empty.
    """
    if not curve:
        raise ValueError("a bandwidth curve needs one point at least")
    sizes = [math.log(size) for size, _ in curve]
    at = math.log(max(footprint, 1.0))
    return float(np.interp(at, sizes, [rate for _, rate in curve]))


def fma_peak(threads: int) -> float:
    """Floating-point operations per second (f32), a fused multiply-add being two.

    Every vector width of the host is tried, with more independent accumulators than any core's
    units times latency ask for (16: four units, four cycles), as registers allow; the best counts.
    """
    best = 0.0
    for lanes, accumulators in _vectors():
        kernel = _fma(lanes, accumulators)
        room = [_aligned(lanes * 4 * (accumulators + 2)) for _ in range(threads)]
        for array, _ in room:
            array[:] = 0.5
        flops = 2 * lanes * accumulators * UNROLL * threads
        best = max(best, _best_rate([(kernel, address, 1) for _, address in room], flops))
    return best


def sgemm_rate(threads: int, size: int = 1536) -> float:
    """Floating-point operations per second of a large square matrix product through torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        a, b = torch.full((size, size), 0.5), torch.full((size, size), 0.5)
        out = torch.empty(size, size)
        times = []
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return 2.0 * size**3 / min(times[1:])


def implausible(peak: float, sgemm: float, threads: int) -> str:
    """Why a measured peak cannot be right, one sentence; empty where it can."""
    lanes = max(lanes for lanes, _ in _vectors())
    most = MOST_FLOPS_PER_CYCLE_LANE * lanes * HIGHEST_CLOCK * threads
    if peak > most:
        return f"The peak of {peak:.3g} flop/s is above what {threads} cores of any make can do."
    if sgemm > 1.1 * peak:
        return (
            f"A matrix product reached {sgemm:.3g} flop/s, more than the peak of {peak:.3g}: "
            "other load slowed the measurement, or the product used a narrower type."
        )
    return ""


def _best_rate(work: list[tuple[Kernel, int, int]], amount: float) -> float:
    """Best of `RUNS` rates (amount per second) with as many repeats as fill `RUN_SECONDS`."""
    repeats, seconds = 1, _together(work, 1)
    while seconds < RUN_SECONDS / 4:
        repeats *= 4 if seconds < RUN_SECONDS / 16 else 2
        seconds = _together(work, repeats)
    repeats = max(1, round(repeats * RUN_SECONDS / seconds))
    return amount * repeats / min(_together(work, repeats) for _ in range(RUNS))


def _together(work: list[tuple[Kernel, int, int]], repeats: int) -> float:
    """Seconds from the first start to the last end of all kernels, one thread and core each."""
    cores = _spread_cores()
    gate = threading.Barrier(len(work))
    spans: list[tuple[float, float]] = []

    def one(kernel: Kernel, address: int, length: int, core: int) -> None:
        with suppress(OSError, AttributeError):
            os.sched_setaffinity(0, {core})
        gate.wait()
        start = time.perf_counter()
        kernel.call(address, length, repeats)
        spans.append((start, time.perf_counter()))

    threads = [
        threading.Thread(target=one, args=(*item, cores[i % len(cores)]))
        for i, item in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _spread_cores() -> list[int]:
    """The processors this process may use, one of each physical core before their siblings."""
    allowed = sorted(procfs.allowed_cores())
    firsts: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for core in allowed:
        path = machine.SYS_CPU / f"cpu{core}/topology/thread_siblings_list"
        shared = path.read_text().strip() if path.exists() else str(core)
        (siblings if shared in seen else firsts).append(core)
        seen.add(shared)
    return firsts + siblings


def _aligned(size: int) -> tuple[np.ndarray[Any, np.dtype[np.float32]], int]:
    """A zeroed f32 array of `size` bytes and a little more, and an address in it at a page's start.

    Pages are touched here, so that no run pays for them.
    """
    array = np.full(size // 4 + 2048, 0.25, dtype=np.float32)
    return array, -(-array.ctypes.data // 4096) * 4096


def _vectors() -> list[tuple[int, int]]:
    """(f32 lanes, accumulators) of every vector width the host has."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return [(16, 24), (8, 24)]
    if features.get("avx2") and features.get("fma"):
        return [(8, 12), (4, 12)]
    return [(4, 24 if features.get("neon") else 12)]


LANES = 16
"""Vector length of the triad; LLVM splits it where the host's vectors are shorter."""
UNROLL = 8
"""Rounds over the accumulators in one turn of the loop."""


@cache
def _fma(lanes: int, accumulators: int) -> Kernel:
    """`acc[i] = fma(acc[i], x, y)`, over and over; x, y and acc come from memory, so none folds.

    With x = y = 0.5 every accumulator tends to 1: neither denormals nor infinities arise.
    """
    vector = f"<{lanes} x float>"
    each = range(accumulators)
    lines = [
        f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
        "define void @kernel(ptr %data, i64 %length, i64 %repeats) {",
        "entry:",
        *(f"  %p{i} = getelementptr {vector}, ptr %data, i64 {i}" for i in range(accumulators + 2)),
        *(f"  %start{i} = load {vector}, ptr %p{i}" for i in each),
        f"  %x = load {vector}, ptr %p{accumulators}",
        f"  %y = load {vector}, ptr %p{accumulators + 1}",
        "  br label %loop",
        "loop:",
        "  %turn = phi i64 [0, %entry], [%next, %loop]",
        *(f"  %a{i}r0 = phi {vector} [%start{i}, %entry], [%a{i}r{UNROLL}, %loop]" for i in each),
        *(
            f"  %a{i}r{r + 1} = call {vector} @llvm.fmuladd.v{lanes}f32"
            f"({vector} %a{i}r{r}, {vector} %x, {vector} %y)"
            for r in range(UNROLL)
            for i in each
        ),
        "  %next = add i64 %turn, 1",
        "  %more = icmp slt i64 %next, %repeats",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *(f"  store {vector} %a{i}r{UNROLL}, ptr %p{i}" for i in each),
        "  ret void",
        "}",
    ]
    return Kernel("\n".join(lines))


@cache
def _triad() -> Kernel:
    """`a[i] = b[i] + s*c[i]` over three arrays in a row of `length` vectors, `repeats` times."""
    vector = f"<{LANES} x float>"
    operands = f"{vector} %vc, {vector} splat (float 0.5), {vector} %vb"
    return Kernel(f"""
declare {vector} @llvm.fmuladd.v{LANES}f32({vector}, {vector}, {vector})
define void @kernel(ptr %a, i64 %length, i64 %repeats) {{
entry:
  %b = getelementptr {vector}, ptr %a, i64 %length
  %c = getelementptr {vector}, ptr %b, i64 %length
  br label %again
again:
  %turn = phi i64 [0, %entry], [%turns, %end]
  br label %loop
loop:
  %i = phi i64 [0, %again], [%next, %loop]
  %pa = getelementptr {vector}, ptr %a, i64 %i
  %pb = getelementptr {vector}, ptr %b, i64 %i
  %pc = getelementptr {vector}, ptr %c, i64 %i
  %vb = load {vector}, ptr %pb, align 64
  %vc = load {vector}, ptr %pc, align 64
  %va = call {vector} @llvm.fmuladd.v{LANES}f32({operands})
  store {vector} %va, ptr %pa, align 64
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %length
  br i1 %more, label %loop, label %end
end:
  %turns = add i64 %turn, 1
  %again_more = icmp slt i64 %turns, %repeats
  br i1 %again_more, label %again, label %done
done:
  ret void
}}
""")


Timer = Callable[[], float]


def timer_resolution(clock: Timer = time.perf_counter) -> float:
    """The smallest step (s) that two readings of the clock show, its own cost included."""
    steps = []
    for _ in range(1000):
        start = clock()
        while (end := clock()) == start:
            pass
        steps.append(end - start)
    return sorted(steps)[len(steps) // 2]
