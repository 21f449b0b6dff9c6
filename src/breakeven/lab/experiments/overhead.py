"""Experiment `overhead`: what compiling costs in each state, and when it has paid."""

from __future__ import annotations

import math
from typing import cast

import msgspec
import numpy as np

from breakeven.lab import amortize, statistics
from breakeven.lab.experiments.evidence import Evidence, Process, each, interval
from breakeven.lab.records import PhaseRecord, ReplayRecord
from breakeven.lab.results import BreakEven, Curve, Interval, PhasePart, PhaseRow, Row, Start

STATES = ("machine-cold", "toolchain-warm", "disk-warm")
IN_PROCESS = "in-process"
PREFIX = "inprocess-"


def with_costs(evidence: Evidence, row: Row, calls: int) -> Row:
    """The row with its starts, break-even counts and totals at `calls`."""
    if row.outcome != "ok":
        return row
    starts = [start(evidence, row.compiler, state) for state in (*STATES, IN_PROCESS)]
    state, total = total_at(evidence, row.compiler, calls)
    _, eager = total_at(evidence, "eager", calls)
    return msgspec.structs.replace(
        row,
        starts=[one for one in starts if one.cold is not None],
        total_at_calls=total,
        total_state=state,
        saving_at_calls=None if total is None or eager is None else eager - total,
    )


def start(evidence: Evidence, compiler: str, state: str) -> Start:
    """Cold start and break-even count of one state."""
    prefix = PREFIX if state == IN_PROCESS else ""
    processes = _processes(evidence, compiler, state)
    cold = statistics.quantity_interval(each(processes, lambda p: p.cold(prefix)))
    if compiler == "eager":
        return Start(state=state, cold=interval(cold))
    told = [r.program.cache for p in processes if (r := p.program()) is not None]
    return Start(
        state=state,
        artifact=", ".join(dict.fromkeys(c for c in told if c != "none")) if not prefix else "",
        cold=interval(cold),
        break_even=_break_even(evidence, compiler, state),
    )


def total_at(evidence: Evidence, compiler: str, calls: int) -> tuple[str, float | None]:
    """The coldest state that was measured, and the time (s) of a start in it and `calls` calls."""
    for state in STATES:
        cost = _cost(evidence, compiler, state)
        mean = _mean(evidence, compiler)
        if cost is not None and mean is not None:
            return state, cost + calls * mean
    return "", None


def phases(evidence: Evidence, compiler: str) -> list[PhaseRow]:
    """Phases of one process in each state; what is not exposed is "unattributed"."""
    rows = []
    for state in STATES:
        for process in evidence.starts(compiler, state):
            record = next(iter(process.all(PhaseRecord)), None)
            total = process.cold()
            if record is None or total is None:
                continue
            parts = [PhasePart(p.name, p.stage, p.seconds) for p in record.phases if p.seconds > 0]
            rest = total - math.fsum(part.seconds for part in parts)
            if rest > 0:
                parts.append(PhasePart("unattributed", "unattributed", rest))
            rows.append(PhaseRow(compiler=compiler, state=state, total=total, parts=parts))
            break
    return rows


def curve(evidence: Evidence, compiler: str, calls: int) -> Curve | None:
    """Cumulative time from the coldest measured start on, with the fan of the gain's interval."""
    state = next((s for s in STATES if _cost(evidence, compiler, s) is not None), None)
    mean = _mean(evidence, compiler)
    if state is None or mean is None:
        return None
    cost = _cost(evidence, compiler, state)
    assert cost is not None
    counts = amortize.log_spaced_counts(max(10 * calls, 1000))
    gain = None
    if compiler != "eager":
        eager, compiled = evidence.means(compiler)
        gain = statistics.mean_interval([e - c for e, c in zip(eager, compiled, strict=True)])
    cost = max(cost, 0.0)
    fan = amortize.cumulative(cost, mean, counts, gain)
    replay = _replay(evidence, compiler)
    return Curve(
        compiler=compiler,
        state=state,
        counts=[float(count) for count in fan.counts],
        seconds=fan.seconds,
        low=fan.low,
        high=fan.high,
        replayed=replay[0][-1] if replay else 0,
        replay_counts=[float(count) for count in replay[0]] if replay else [],
        replay_seconds=[cost + seconds for seconds in replay[2]] if replay else [],
    )


def _processes(evidence: Evidence, compiler: str, state: str) -> list[Process]:
    if state == IN_PROCESS:
        return evidence.find(compiler, work="inprocess")
    return evidence.starts(compiler, state)


def _costs(evidence: Evidence, compiler: str, state: str) -> list[float]:
    overall = _mean(evidence, compiler)
    prefix = PREFIX if state == IN_PROCESS else ""
    costs = []
    for process in _processes(evidence, compiler, state):
        mean = process.mean("compiled", "kept" if prefix else "as-it-comes") or overall
        cost = None if mean is None else process.cost(mean, prefix)
        if cost is not None:
            costs.append(cost)
    return costs


def _cost(evidence: Evidence, compiler: str, state: str) -> float | None:
    """C in one state; eager has no states, so all its first processes stand for each."""
    costs = _costs(evidence, compiler, state)
    if compiler == "eager" and not costs:
        costs = [c for s in STATES for c in _costs(evidence, compiler, s)]
    return math.fsum(costs) / len(costs) if costs else None


def _mean(evidence: Evidence, compiler: str) -> float | None:
    """Mean time per call; of a compiler on eager's scale, so that drift between processes cancels.

    Totals and curves of all choices then share one eager time per call: eager's own mean over the
    compiler's ratio of means.
    """
    own = [m for p in evidence.steady("eager") if (m := p.mean("compiled")) is not None]
    if not own:
        own = list(evidence.means(compiler)[0])
    if not own:
        return None
    base = math.fsum(own) / len(own)
    if compiler == "eager":
        return base
    eager, compiled = evidence.means(compiler)
    if not eager:
        return None
    return base * math.fsum(compiled) / math.fsum(eager)


def _break_even(evidence: Evidence, compiler: str, state: str) -> BreakEven:
    eager, compiled = evidence.means(compiler)
    eager_costs = _eager_costs(evidence, state)
    found = amortize.break_even(
        _costs(evidence, compiler, state), eager_costs, eager, compiled, noise=evidence.noise
    )
    calls = None
    if found.kind == "calls" and found.estimate is not None:
        calls = Interval(estimate=found.estimate, low=found.low, high=found.high, n=found.n)
    elif found.kind == "may never" and found.low is not None:
        calls = Interval(estimate=found.low, low=found.low, high=None, n=found.n)
    return BreakEven(
        kind=cast(str, found.kind),  # type: ignore[arg-type]
        calls=calls,
        confirmed=_confirmed(evidence, compiler, state, found),
    )


def _eager_costs(evidence: Evidence, state: str) -> list[float]:
    """E: eager knows fresh processes, whatever lies on disk, and later starts in a process."""
    states = (IN_PROCESS,) if state == IN_PROCESS else STATES
    return [cost for one in states for cost in _costs(evidence, "eager", one)]


def _confirmed(evidence: Evidence, compiler: str, state: str, found: amortize.BreakEven) -> bool:
    replay = _replay(evidence, compiler)
    cost, eager_costs = _cost(evidence, compiler, state), _eager_costs(evidence, state)
    if replay is None or cost is None or not eager_costs:
        return False
    eager_cost = math.fsum(eager_costs) / len(eager_costs)
    counts, eager, compiled = replay
    crossed = amortize.crossing(
        counts, [eager_cost + s for s in eager], [cost + s for s in compiled]
    )
    return amortize.confirms(found, crossed, counts[-1])


def _replay(evidence: Evidence, compiler: str) -> tuple[list[int], list[float], list[float]] | None:
    """Replayed counts with cumulative times of eager and compiled, on one set of counts.

    Eager's are those of the first replay of any compiler: its calls are replayed beside theirs.
    """
    if compiler == "eager":
        beside = (_replay(evidence, one) for one in evidence.compilers() if one != "eager")
        first = next((replay for replay in beside if replay is not None), None)
        return None if first is None else (first[0], first[1], first[1])
    for process in evidence.find(compiler, work="replay"):
        sides = {record.role: record for record in process.all(ReplayRecord)}
        if len(sides) == 2 and all(record.counts for record in sides.values()):
            counts = sorted({n for record in sides.values() for n in record.counts})
            most = min(record.counts[-1] for record in sides.values())
            counts = [n for n in counts if n <= most]
            return counts, _at(sides["eager"], counts), _at(sides["compiled"], counts)
    return None


def _at(record: ReplayRecord, counts: list[int]) -> list[float]:
    known = [0, *record.counts], [0.0, *record.cumulative]
    return [float(value) for value in np.interp(counts, *known)]
