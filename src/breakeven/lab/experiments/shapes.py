"""Experiment `shapes`: what changing sizes cost under each policy, and what each loses per call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from breakeven.lab import amortize, statistics
from breakeven.lab.experiments.evidence import (
    Evidence,
    Process,
    each,
    interval,
    worst_accuracy,
)
from breakeven.lab.records import Call
from breakeven.lab.results import Interval, PolicyRow, ShapeCall, SizeRow
from breakeven.lab.subjects.subject import Size

POLICIES = ("automatic", "static", "dynamic", "bucket")


class Walk:
    """One process's walk through the trace, with a steady time for any size of it."""

    def __init__(self, process: Process, base: Process | None) -> None:
        self.process = process
        self.calls = process.calls("shapes")
        self._base = base
        sizes = {repr(block.size): block.size for block in process.blocks(part="shape")}
        self.measured = list(sizes.values())

    @property
    def seconds(self) -> float:
        """Time (s) of the whole walk."""
        return math.fsum(call.seconds for call in self.calls)

    def steady(self, size: Size) -> float | None:
        """Time per call (s) at a size: measured there, else on a line between measured sizes.

        Where no size was measured apart, the walk's own repeated calls stand in.
        """
        points = sorted(
            (volume(at), seconds)
            for at in self.measured
            if (seconds := self.process.median("compiled", part="shape", size=at)) is not None
        )
        if not points:
            points = self._repeated()
        if not points:
            return None
        return float(np.interp(volume(size), [p[0] for p in points], [p[1] for p in points]))

    def _repeated(self) -> list[tuple[float, float]]:
        """Median time at each size that the walk came back to."""
        times: dict[float, list[float]] = {}
        for call in self.calls:
            if not call.new and not call.compiles:
                times.setdefault(volume(call.size), []).append(call.seconds)
        return sorted((at, sorted(s)[len(s) // 2]) for at, s in times.items())

    def transitions(self) -> list[float]:
        """Cost (s) of each first call at a size, eager's own taken off."""
        eager = (
            {repr(call.size): call for call in self._base.calls("shapes") if call.new}
            if (self._base)
            else {}
        )
        base = Walk(self._base, None) if self._base else None
        costs = []
        for call in self.calls:
            steady = self.steady(call.size)
            if not call.new or steady is None:
                continue
            own = eager.get(repr(call.size))
            theirs = base.steady(call.size) if base else None
            if own is not None and theirs is not None:
                costs.append(amortize.transition_cost(call.seconds, steady, own.seconds, theirs))
            else:
                costs.append(call.seconds - steady)
        return costs


def volume(size: Size) -> float:
    """Product of the sizes: what a line between sizes runs over."""
    return float(math.prod(size.values()))


def policies(evidence: Evidence, compilers: Sequence[str]) -> list[PolicyRow]:
    """One row per compiler and policy that was walked, eager's first."""
    base = next(iter(walks(evidence, "eager", "automatic", None)), None)
    whole = base.calls if base else []
    rows = []
    for compiler in compilers:
        for policy in POLICIES:
            found = evidence.find(compiler, policy=policy, work="shapes", ok=False)
            if not found:
                continue
            failed = next((p for p in found if p.outcome.outcome != "ok"), None)
            if failed is not None:
                rows.append(
                    PolicyRow(
                        compiler=compiler,
                        policy=policy,
                        outcome=failed.outcome.outcome,
                        detail=failed.outcome.detail,
                    )
                )
                continue
            broken = next((text for p in found if (text := p.note("walk"))), "")
            if broken:
                rows.append(
                    PolicyRow(compiler=compiler, policy=policy, outcome="crash", detail=broken)
                )
                continue
            rows.append(_policy(evidence, compiler, policy, base, whole))
    return rows


def walks(evidence: Evidence, compiler: str, policy: str, base: Process | None) -> list[Walk]:
    """The walks of a compiler under a policy, in order of their processes."""
    processes = evidence.find(compiler, policy=policy, work="shapes")
    return [Walk(p, base) for p in processes if p.calls("shapes") and not p.note("walk")]


def calls(evidence: Evidence, compiler: str) -> list[ShapeCall]:
    """Every step of the first walk under each policy, cumulative time beside."""
    found = []
    for policy in POLICIES:
        for walk in walks(evidence, compiler, policy, None)[:1]:
            total = 0.0
            for call in walk.calls:
                total += call.seconds
                found.append(_step(compiler, policy, call, total))
    return found


def sizes(evidence: Evidence, compiler: str) -> list[SizeRow]:
    """Steady state at each measured size, and the loss against the static policy."""
    rows = []
    for policy in POLICIES:
        found = walks(evidence, compiler, policy, None)
        measured = {repr(size): size for walk in found for size in walk.measured}
        for size in sorted(measured.values(), key=volume):
            ms = statistics.quantity_interval(_times(found, "compiled", size))
            eager = statistics.quantity_interval(_times(found, "eager", size))
            rows.append(
                SizeRow(
                    compiler=compiler,
                    policy=policy,
                    size=size,
                    ms=interval(ms, 1e3),
                    eager_ms=interval(eager, 1e3),
                    loss=_loss(evidence, compiler, policy, [size]),
                )
            )
    return rows


def _times(found: list[Walk], role: str, size: Size) -> list[float]:
    times = [walk.process.median(role, part="shape", size=size) for walk in found]
    return [time for time in times if time is not None]


def _policy(
    evidence: Evidence, compiler: str, policy: str, base: Walk | None, whole: list[Call]
) -> PolicyRow:
    found = walks(evidence, compiler, policy, base.process if base else None)
    estimated = policy == "static" and compiler != "eager"
    sums = [_transition_sum(walk, whole, estimated) for walk in found]
    after = [_after_first(walk, whole, estimated) for walk in found]
    colds = _colds(evidence, compiler, policy, found)
    cold = math.fsum(colds) / len(colds) if colds else 0.0
    recompiles = [call for walk in found[:1] for call in walk.calls if call.compiles]
    accuracy, worst = worst_accuracy([walk.process for walk in found], "shapes")
    eager_total = base.seconds + (base.process.cold() or 0.0) if base else None
    after_first = statistics.quantity_interval([a for a in after if a is not None])
    total = statistics.quantity_interval([a + cold for a in after if a is not None])
    return PolicyRow(
        compiler=compiler,
        policy=policy,
        total=interval(total),
        total_after_first=interval(after_first),
        transition=interval(statistics.mean_interval(sums)) if compiler != "eager" else None,
        recompiles=sum(call.compiles for call in recompiles),
        reasons=list(dict.fromkeys(call.reason for call in recompiles if call.reason))[:5],
        saving=_saving(eager_total, total.estimate if total else None, compiler),
        cut=_cut(evidence, compiler, policy, base, whole, sums),
        loss=_loss(evidence, compiler, policy, None),
        memory_growth=_growth(found),
        accuracy="baseline" if compiler == "eager" else accuracy,
        error=worst.compiled if worst else None,
        estimated=estimated,
    )


def _transition_sum(walk: Walk, whole: list[Call], carried: bool) -> float:
    """Sum of transition costs; `carried` over to every distinct size of the whole trace."""
    costs = walk.transitions()
    if not carried or not costs:
        return math.fsum(costs)
    distinct = len({repr(call.size) for call in whole if call.new})
    return math.fsum(costs) / len(costs) * distinct


def _after_first(walk: Walk, whole: list[Call], carried: bool) -> float | None:
    """Time of the whole trace without the first compile (s)."""
    if not carried:
        return walk.seconds
    times = [walk.steady(call.size) for call in whole]
    if not times or any(time is None for time in times):
        return None
    return math.fsum(t for t in times if t is not None) + _transition_sum(walk, whole, True)


def _colds(evidence: Evidence, compiler: str, policy: str, found: list[Walk]) -> list[float]:
    """Cold starts with a warm toolchain, so that policies compare; else the walks' own."""
    warm = evidence.find(compiler, policy=policy, state="toolchain-warm")
    return each(warm, Process.cold) or each([walk.process for walk in found], Process.cold)


def _saving(eager: float | None, total: float | None, compiler: str) -> float | None:
    if eager is None or total is None or compiler == "eager":
        return None
    return eager - total


def _cut(
    evidence: Evidence,
    compiler: str,
    policy: str,
    base: Walk | None,
    whole: list[Call],
    sums: list[float],
) -> Interval | None:
    static = walks(evidence, compiler, "static", base.process if base else None)
    if policy == "static" or not static or not sums:
        return None
    carried = [_transition_sum(walk, whole, True) for walk in static]
    return interval(amortize.transition_cut(carried, sums))


def _loss(evidence: Evidence, compiler: str, policy: str, at: list[Size] | None) -> Interval | None:
    """Steady-state time over static's, over the sizes measured under both (geometric mean)."""
    if policy == "static":
        return None
    static = walks(evidence, compiler, "static", None)
    found = walks(evidence, compiler, policy, None)
    if not static or not found:
        return None
    known = {repr(size) for walk in static for size in walk.measured}
    both = [s for s in (at or found[0].measured) if repr(s) in known]
    if not both:
        return None
    return interval(statistics.quotient_interval(_log_speed(static, both), _log_speed(found, both)))


def _log_speed(found: list[Walk], sizes_: list[Size]) -> list[float]:
    values = []
    for walk in found:
        ratios = [walk.process.log_ratio(part="shape", size=size) for size in sizes_]
        kept = [ratio for ratio in ratios if ratio is not None]
        if kept:
            values.append(math.fsum(kept) / len(kept))
    return values


def _growth(found: list[Walk]) -> int | None:
    texts = [walk.process.note("walk-growth") for walk in found]
    return max((int(text) for text in texts if text), default=None)


def _step(compiler: str, policy: str, call: Call, total: float) -> ShapeCall:
    return ShapeCall(
        compiler=compiler,
        policy=policy,
        index=call.index,
        size=call.size,
        seconds=call.seconds,
        cumulative=total,
        new=call.new,
        compiles=call.compiles,
        reason=call.reason,
    )
