"""One trustworthy block of samples, and pairs of blocks in random order.

A block is opened with untimed calls, holds only inputs whose values this process has not seen, and
is bracketed by readings of page faults, run-queue wait, other processes' processor time and the
compiler's counter, so that a sample which contains a compile or outside load is known as such.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import torch

from breakeven.lab import procfs, statistics
from breakeven.lab.accuracy import State
from breakeven.lab.subjects.subject import Inputs, Size, Subject

SAMPLE_SECONDS = 50e-6
"""Shortest sample: 1,000 times the clock's 30-50 ns, so its own cost stays below 0.1 %."""
BLOCK_SECONDS = 0.06
"""Aimed length of a block: six scheduler ticks, so that other processes' time can be seen."""
WARM_CALLS = 2
MOST_CALLS = 400
MOST_INPUT_BYTES = 512 << 20
PREPARE_SECONDS = 0.25
"""Longest time spent on making the inputs of one block."""
ATTEMPTS = 3
"""How often a contended block is tried before it is kept as contended."""


class Shape(msgspec.Struct, frozen=True):
    """How a block is cut: `samples` samples of `batch` calls each, after `warm` untimed calls."""

    samples: int
    batch: int
    warm: int = WARM_CALLS


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One block as measured; the fields are those of `records.Block`."""

    seconds: list[float]
    batch: int
    faults: float
    others: float
    waited: float
    wall: float
    compiles: int
    contended: bool


class Side(Protocol):
    """Something that can run blocks: a callable here, or one in a partner process."""

    def block(self, size: Size, seed: int, shape: Shape, /) -> Measured:
        """Run one block with inputs made from `seed` on."""
        ...


class Seeds:
    """Seeds that never repeat within a process."""

    def __init__(self, start: int = 1) -> None:
        self._next = start

    def take(self, count: int) -> int:
        """The first of `count` fresh seeds."""
        first = self._next
        self._next += count
        return first


class Here:
    """A callable in this process.

    `compiles` reads the compiler's counter; `check` sees the seed and the answer of the last timed
    call after the block, untimed.
    """

    def __init__(
        self,
        subject: Subject,
        call: Callable[..., Any],
        *,
        compiles: Callable[[], int | None] = lambda: None,
        check: Callable[[Size, int, Any], None] | None = None,
        threads: int | None = None,
    ) -> None:
        self.subject, self.call = subject, call
        self._compiles, self._check, self._threads = compiles, check, threads
        changes = subject.mutates or subject.mode == "training"
        self.restore = State(subject, subject.model).restore if changes else None

    def prepare(self, size: Size, seed: int, count: int) -> list[Inputs]:
        """`count` fresh argument sets."""
        return [self.subject.inputs(size, seed + i) for i in range(count)]

    def block(self, size: Size, seed: int, shape: Shape) -> Measured:
        """Run one block; see `Side.block`."""
        inputs = self.prepare(size, seed, shape.warm + shape.samples * shape.batch)
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        for one in inputs[: shape.warm]:
            self.call(*one.args, **one.kwargs)
            if self.restore:
                self.restore()
        timed = [(one.args, one.kwargs) for one in inputs[shape.warm :]]
        before, reading = self._compiles() or 0, procfs.Reading()
        seconds, answer = timed_calls(self.call, timed, shape.batch, self.restore)
        wall, faults, others, waited = reading.since()
        after = self._compiles() or 0
        if self._check is not None:
            self._check(size, seed + len(inputs) - 1, answer)
        return Measured(
            seconds=seconds,
            batch=shape.batch,
            faults=faults / len(timed),
            others=others,
            waited=waited,
            wall=wall,
            compiles=after - before,
            contended=statistics.contended(others, waited, wall, torch.get_num_threads()),
        )


def timed_calls(
    call: Callable[..., Any],
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]],
    batch: int,
    restore: Callable[[], None] | None,
) -> tuple[list[float], Any]:
    """Times of `batch` calls together (s), and the last answer.

    The garbage collector rests while calls are timed. An answer lives until the next call has
    returned, as in a caller's own loop.
    """
    clock = time.perf_counter
    seconds: list[float] = []
    answer: Any = None
    collecting = gc.isenabled()
    gc.disable()
    try:
        for first in range(0, len(arguments), batch):
            group = arguments[first : first + batch]
            start = clock()
            for args, kwargs in group:
                answer = call(*args, **kwargs)
            seconds.append(clock() - start)
            if restore is not None:
                restore()
    finally:
        if collecting:
            gc.enable()
    return seconds, answer


def calibrate(side: Here, size: Size, seeds: Seeds, block_seconds: float = BLOCK_SECONDS) -> Shape:
    """How to cut blocks for a callable, from a few calls of it and of its inputs' making."""
    start = time.perf_counter()
    inputs = side.prepare(size, seeds.take(5), 5)
    making = (time.perf_counter() - start) / 5
    seconds, _ = timed_calls(side.call, [(i.args, i.kwargs) for i in inputs], 1, side.restore)
    each = max(min(seconds[1:]), 1e-7)
    weight = sum(tensor.nbytes for tensor in inputs[0].tensors())
    batch = 1 if side.restore else max(1, math.ceil(SAMPLE_SECONDS / each))
    most = min(MOST_CALLS, MOST_INPUT_BYTES // max(weight, 1), int(PREPARE_SECONDS / making))
    calls = max(3 * batch, min(math.ceil(block_seconds / each), most))
    return Shape(samples=max(3, calls // batch), batch=batch)


def alternate(
    eager: Side,
    compiled: Side,
    size: Size,
    seeds: Seeds,
    shapes: tuple[Shape, Shape],
    *,
    pairs: int,
    seconds: float,
    order: random.Random,
) -> Iterator[tuple[str, int, Measured]]:
    """Blocks of both sides in random order within each pair: (role, pair, block).

    Ends after `pairs` pairs or `seconds`, whichever is first, but not before two pairs. A contended
    block is tried again; each try is yielded.
    """
    sides = {"eager": (eager, shapes[0]), "compiled": (compiled, shapes[1])}
    end = time.perf_counter() + seconds
    for pair in range(pairs):
        roles = ["eager", "compiled"]
        order.shuffle(roles)
        for role in roles:
            side, shape = sides[role]
            for _ in range(ATTEMPTS):
                calls = shape.warm + shape.samples * shape.batch
                measured = side.block(size, seeds.take(calls), shape)
                yield role, pair, measured
                if not measured.contended:
                    break
        if pair >= 1 and time.perf_counter() > end:
            return


def denormals(inputs: Inputs) -> float:
    """The largest share of denormal values among the floating inputs: 0 to 1.

    A denormal is non-zero and smaller than the dtype's smallest normal number; arithmetic on them
    can be a hundred times slower, so a speedup measured on them says little.
    """
    shares = [0.0]
    for tensor in inputs.tensors():
        if tensor.is_floating_point() and tensor.numel():
            small = (tensor != 0) & (tensor.abs() < torch.finfo(tensor.dtype).tiny)
            shares.append(float(small.float().mean()))
    return max(shares)
