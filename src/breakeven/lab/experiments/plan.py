"""Which cells a study consists of, and which of them matter most.

The first process of a compiler answers most: accuracy, steady state, cold start, its own way with
shapes. Then come intervals, the other policies, cold repeats, replay and ablations.
"""

from __future__ import annotations

import enum
import random

import msgspec

from breakeven.lab.compilers.compiler import Compiler
from breakeven.lab.describe import Facts
from breakeven.lab.records import Cell, Policy, State
from breakeven.lab.subjects.subject import Size

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ONCE = ("inductor-freezing", "inductor-freezing-max-autotune")
"""Compilers measured in one process only: each costs as much as all others together."""
REPEATS = 3
SUITE_REPEATS = 5


class Priority(enum.IntEnum):
    """Why a cell is run; lower comes first."""

    FIRST = 0
    REPEAT = 1
    POLICY = 2
    COLD = 3
    REPLAY = 4
    ABLATION = 5
    ORDER = 6


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A cell with its rank and what its job needs besides."""

    cell: Cell
    priority: Priority
    trace: list[Size] = []
    sizes: list[Size] = []
    sweep: list[int] = []


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What the cells of one subject at one thread count are planned from."""

    subject: str
    facts: Facts
    threads: int
    experiments: tuple[str, ...]
    quick: bool
    suite: bool
    trace: list[Size]
    machine_cold: bool


def plan(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    """Every cell of one subject, most important first; eager leads within a priority."""
    cells = [*_first(scope, compilers), *_repeats(scope, compilers)]
    if "shapes" in scope.experiments and scope.trace:
        cells += _policies(scope, compilers) + _orders(scope, compilers)
    if "overhead" in scope.experiments:
        cells += _cold(scope, compilers)
        cells += [_replay(scope, compiler) for compiler in compilers if compiler.name != "eager"]
    if "fusion" in scope.experiments:
        cells += _ablations(scope, compilers)
    return sorted(cells, key=lambda planned: planned.priority)


def quantile_sizes(trace: list[Size]) -> list[Size]:
    """The sizes at the quantiles of a trace, each once, ascending by the first varying dim."""
    if not trace:
        return []
    ordered = sorted(trace, key=lambda size: tuple(size.values()))
    picked = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in QUANTILES]
    unique: list[Size] = []
    for size in picked:
        if size not in unique:
            unique.append(size)
    return unique


def reference_size(facts: Facts, trace: list[Size]) -> Size:
    """The size of steady state: the trace's median, else the subject's own."""
    if not trace:
        return facts.size
    ordered = sorted(trace, key=lambda size: tuple(size.values()))
    return {**facts.size, **ordered[len(ordered) // 2]}


def _cell(
    scope: Scope,
    compiler: Compiler,
    work: tuple[str, ...],
    *,
    state: State = "toolchain-warm",
    policy: Policy = "automatic",
    off: tuple[str, ...] = (),
    repetition: int = 0,
    order: int = 0,
) -> Cell:
    return Cell(
        subject=scope.subject,
        compiler=compiler.name,
        policy=policy,
        state=state,
        off=off,
        threads=scope.threads,
        size=reference_size(scope.facts, scope.trace),
        work=work,
        order=order,
        repetition=repetition,
        mode="training" if scope.facts.mode == "training" else "inference",
    )


def _first(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    work: tuple[str, ...] = ("steady",)
    if "shapes" in scope.experiments and scope.trace:
        work += ("shapes",)
    work += ("inprocess",)
    state: State = "machine-cold" if scope.machine_cold else "toolchain-warm"
    sizes = quantile_sizes(scope.trace)
    return [
        Planned(
            cell=_cell(scope, compiler, work, state=state),
            priority=Priority.FIRST,
            trace=scope.trace,
            sizes=sizes,
            sweep=_sweep(scope, compiler),
        )
        for compiler in compilers
    ]


def _sweep(scope: Scope, compiler: Compiler) -> list[int]:
    if compiler.name != "eager":
        return []
    counts = {1, max(1, scope.threads // 2)} - {scope.threads}
    return sorted(counts)


def _repeats(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    if scope.quick:
        return []
    count = SUITE_REPEATS if scope.suite else REPEATS
    return [
        Planned(
            cell=_cell(
                scope, compiler, ("steady", "inprocess"), state="disk-warm", repetition=repetition
            ),
            priority=Priority.REPEAT,
            sweep=_sweep(scope, compiler),
        )
        for repetition in range(1, count)
        for compiler in compilers
        if compiler.name not in ONCE
    ]


def _policies(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    """Every policy but a compiler's own way, which its first process has walked."""
    cells = []
    for policy in ("dynamic", "static", "bucket"):
        for compiler in compilers:
            if _has(scope, compiler, policy):
                cells.append(_walk(scope, compiler, policy, scope.trace, Priority.POLICY))
    return cells


def _has(scope: Scope, compiler: Compiler, policy: str) -> bool:
    """Whether a compiler is walked under a policy of its own."""
    if compiler.name in (*ONCE, "eager"):
        return False
    if policy == "bucket":
        return bool(scope.facts.padding) and "static" in compiler.policies
    return policy in compiler.policies


def _walk(
    scope: Scope,
    compiler: Compiler,
    policy: Policy,
    trace: list[Size],
    priority: Priority,
    order: int = 0,
) -> Planned:
    """A walk through the trace; of static, which compiles for each size, at quantiles alone."""
    sizes = quantile_sizes(scope.trace)
    if policy == "static":
        trace = [size for size in trace if size in sizes]
        trace = [size for i, size in enumerate(trace) if size not in trace[:i]]
    cell = _cell(scope, compiler, ("shapes",), policy=policy, order=order)
    return Planned(cell=cell, priority=priority, trace=trace, sizes=sizes)


def _orders(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    """The same walks in shuffled orders: what they cost must not hang on one order of sizes."""
    if scope.quick:
        return []
    cells = []
    for order in (1, 2):
        shuffled = list(scope.trace)
        random.Random(order).shuffle(shuffled)
        for policy in ("automatic", "dynamic", "static"):
            for compiler in compilers:
                own = policy == "automatic" and compiler.name not in ONCE
                if own or _has(scope, compiler, policy):
                    cells.append(_walk(scope, compiler, policy, shuffled, Priority.ORDER, order))
    return cells


def _cold(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    if scope.quick:
        return []
    cells = []
    had = {"machine-cold": int(scope.machine_cold), "toolchain-warm": int(not scope.machine_cold)}
    for state, first in had.items():
        for repetition in range(first, REPEATS):
            for compiler in compilers:
                if compiler.name in (*ONCE, "eager"):
                    continue
                cell = _cell(scope, compiler, (), state=state, repetition=repetition)  # type: ignore[arg-type]
                cells.append(Planned(cell=cell, priority=Priority.COLD))
    return cells


def _replay(scope: Scope, compiler: Compiler) -> Planned:
    return Planned(
        cell=_cell(scope, compiler, ("replay",), state="disk-warm"), priority=Priority.REPLAY
    )


def _ablations(scope: Scope, compilers: list[Compiler]) -> list[Planned]:
    cells = []
    for compiler in compilers:
        names = [technique.name for technique in compiler.techniques]
        if not names or (scope.quick and compiler.name != "inductor"):
            continue
        if compiler.name in ONCE:
            names = [name for name in names if name == "freezing"]
        off = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
        for techniques in [(), *off]:
            cell = _cell(scope, compiler, ("steady",), off=techniques)
            cells.append(Planned(cell=cell, priority=Priority.ABLATION))
    return cells
