"""Probes that tell a compiled callable from one that only looks fast.

Each probe calls the callable outside timed blocks and returns what it found; a finding replaces the
cell's numbers by an outcome. Planted cheats in the tests pin each of them.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from breakeven.lab import procfs
from breakeven.lab.accuracy import (
    Comparison,
    References,
    clone,
    owned,
    put,
    same,
    single_thread,
)
from breakeven.lab.measure import Here, Seeds
from breakeven.lab.records import OutcomeKind
from breakeven.lab.subjects.subject import Inputs, Size

Finding = tuple[OutcomeKind, str]

REPEATS = 5
MEMO_SPEEDUP = 3.0
"""Repeated values have to be this much faster than fresh ones to be called memoized."""
DEFER_SETTLE_SECONDS = 0.1
LEAK_CALLS, LEAST_LEAK_CALLS = 30, 6
LEAK_SECONDS = 0.75
"""Longest time for the calls of one stretch, the first `LEAST_LEAK_CALLS` apart."""
LEAK_BYTES = 128 << 10
"""Growth per call that is called a leak: above allocator noise, an eighth of the planted 1 MB."""


def examine(side: Here, references: References, size: Size, seeds: Seeds) -> Finding | None:
    """The first dishonesty found, or None."""
    if side.restore is not None:
        return None
    first, second = (side.subject.inputs(size, seeds.take(1)) for _ in range(2))
    return (
        _deferred(side, references, first)
        or _inert(side, references, first, second)
        or _by_pointer(side, references, size, seeds)
        or _by_content(side, size, seeds)
    )


def leak(side: Here, size: Size, seeds: Seeds) -> float:
    """Growth of resident memory per call (bytes), zero where it is within the allocator's noise.

    Two stretches have to grow alike, so that a pool which fills once is not called a leak.
    """
    inputs = side.subject.inputs(size, seeds.take(1))
    _called(side, inputs)
    grown = [_growth(side, inputs) for _ in range(2)]
    return min(grown) if min(grown) > max(LEAK_BYTES, max(grown) / 2) else 0.0


def _growth(side: Here, inputs: Inputs) -> float:
    """Growth of resident memory per call (bytes) over one stretch of calls."""
    before, end = procfs.resident(), time.perf_counter() + LEAK_SECONDS
    for count in range(1, LEAK_CALLS + 1):
        _called(side, inputs)
        if count >= LEAST_LEAK_CALLS and time.perf_counter() > end:
            break
    return (procfs.resident() - before) / count


def _called(side: Here, inputs: Inputs) -> None:
    side.call(*inputs.args, **inputs.kwargs)
    if side.restore is not None:
        side.restore()


def _deferred(side: Here, references: References, inputs: Inputs) -> Finding | None:
    answer = side.call(*inputs.args, **inputs.kwargs)
    early = owned(answer)
    lazy = Comparison(answer, references.eager(inputs)).structure
    if "returned a" in lazy and "where eager returns a Tensor" in lazy:
        return "defers", f"it {lazy}, so its work may happen after the call"
    time.sleep(DEFER_SETTLE_SECONDS)
    if not same(early, answer):
        return "defers", "its answer still changed after the call had returned"
    return None


def _inert(side: Here, references: References, first: Inputs, second: Inputs) -> Finding | None:
    ours = [owned(side.call(*i.args, **i.kwargs)) for i in (first, second)]
    theirs = [references.eager(i) for i in (first, second)]
    if same(*ours) and not same(*theirs):
        return "does nothing", "two different inputs gave the same answer, in eager they do not"
    return None


def _by_pointer(side: Here, references: References, size: Size, seeds: Seeds) -> Finding | None:
    inputs = clone(side.subject.inputs(size, seeds.take(1)))  # not the subject's own memory
    before = owned(side.call(*inputs.args, **inputs.kwargs))
    fresh = side.subject.inputs(size, seeds.take(1))
    refilled = list(map(_refill, inputs.tensors(), fresh.tensors()))
    if not any(refilled):
        return None
    after = owned(side.call(*inputs.args, **inputs.kwargs))
    eager = references.eager(inputs)
    if same(before, after) and not same(eager, before) and _far(after, eager):
        return "memoizes", "new values at the same address gave the old answer (by pointer)"
    return None


def _refill(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Write new values at the address of the old ones; False where that cannot be done."""
    try:
        put(old, new)
    except RuntimeError:
        return False
    return old.numel() > 0


def _by_content(side: Here, size: Size, seeds: Seeds) -> Finding | None:
    fresh = [side.subject.inputs(size, seeds.take(1)) for _ in range(REPEATS)]
    known = side.subject.inputs(size, seeds.take(1))
    side.call(*known.args, **known.kwargs)
    repeated = [clone(known) for _ in range(REPEATS)]
    slow, fast = [], []
    for new, old in zip(fresh, repeated, strict=True):
        slow.append(_once(side, new))
        fast.append(_once(side, old))
    ratio = statistics.median(slow) / max(statistics.median(fast), 1e-9)
    if ratio > MEMO_SPEEDUP and max(fast) < min(slow):
        return (
            "memoizes",
            f"values seen before are {ratio:.0f}x faster than fresh ones (by content)",
        )
    return None


def _once(side: Here, inputs: Inputs) -> float:
    start = time.perf_counter()
    side.call(*inputs.args, **inputs.kwargs)
    return time.perf_counter() - start


def _far(a: Any, b: Any) -> bool:
    with single_thread(False):
        comparison = Comparison(a, b)
    return bool(comparison.structure) or comparison.inexact > 0 or comparison.error > 1e-3
