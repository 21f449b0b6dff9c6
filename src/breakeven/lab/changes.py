"""How far one quantity moved between two studies, and whether that says anything.

A change is new over old. Its interval is that of a difference of logarithms from the two intervals
given: with estimates a, b and limits [la, ua], [lb, ub], b - a lies in

    b - a - sqrt((b - lb)^2 + (ua - a)^2)   to   b - a + sqrt((ub - b)^2 + (a - la)^2)

(MOVER; Zou and Donner, Statistics in Medicine 27 (2008) 1693), which needs no samples and takes
unequal and infinite limits as they are.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from breakeven.lab import statistics
from breakeven.lab.results import BreakEven, Interval, Verdict
from breakeven.lab.statistics import Estimate

Quantity = Literal["eager", "speedup", "cold start", "break-even"]
Kind = Literal["calls", "may never", "never", "unknown", ""]


BROKEN = (
    "wrong",
    "memoizes",
    "does nothing",
    "defers",
    "recompiles",
    "crash",
    "timeout",
    "out of memory",
    "cannot compile",
)
"""Outcomes that fail every gate where the old study had a number."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity in both studies, and new over old.

    `old` and `new` are a time per call of eager (ms), a speedup over eager, a cold start (s) or a
    number of calls, for which `old_kind` and `new_kind` hold `BreakEven.kind`. `change` has no
    limits where a study had one process; a high limit of None beside a low one is infinity.
    `floor` is the relative change below which nothing is called. "faster" is always the better.
    """

    quantity: Quantity
    state: str = ""
    old: Interval | None = None
    new: Interval | None = None
    old_kind: Kind = ""
    new_kind: Kind = ""
    change: Interval | None = None
    floor: float = 0.0
    verdict: Verdict = "cannot tell"
    preliminary: bool = False
    note: str = ""


class CompilerChanges(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler on one subject; `note` says why figures cannot be set side by side."""

    compiler: str
    old_version: str = ""
    new_version: str = ""
    old_outcome: str = "ok"
    new_outcome: str = "ok"
    changes: list[Change] = []
    note: str = ""

    @property
    def broken(self) -> bool:
        """It gave numbers in the old study and fails in the new one."""
        return self.old_outcome == "ok" and self.new_outcome in BROKEN


class SubjectChanges(msgspec.Struct, frozen=True, kw_only=True):
    """One subject: eager's own change, each compiler's, and compilers that only one study has."""

    subject: str
    eager: Change
    compilers: list[CompilerChanges]
    missing: list[str] = []
    added: list[str] = []
    note: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A version or setting that is not the same in both studies; empty where one has none."""

    name: str
    old: str
    new: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two studies side by side; `missing` and `added` name subjects that only one of them has."""

    same_machine: bool
    differences: list[Difference]
    subjects: list[SubjectChanges]
    missing: list[str] = []
    added: list[str] = []
    notes: list[str] = []


def more_is_better(
    quantity: Quantity, old: Interval | None, new: Interval | None, floor: float, note: str = ""
) -> Change:
    """A speedup in both studies; with a `note` the two cannot be ranked."""
    change = over(old, new)
    kind, preliminary = judged(change, floor)
    return Change(
        quantity=quantity,
        old=old,
        new=new,
        change=change,
        floor=floor,
        verdict="cannot tell" if note else kind,
        preliminary=preliminary,
        note=note,
    )


def less_is_better(
    quantity: Quantity,
    old: Interval | None,
    new: Interval | None,
    floor: float,
    *,
    state: str = "",
    note: str = "",
) -> Change:
    """A time in both studies. One process alone says nothing of a cold start."""
    change = over(old, new)
    kind, preliminary = judged(inverse(change), floor)
    unsure = bool(note) or (preliminary and quantity == "cold start")
    return Change(
        quantity=quantity,
        state=state,
        old=old,
        new=new,
        change=change,
        floor=floor,
        verdict="cannot tell" if unsure else kind,
        preliminary=preliminary,
        note=note,
    )


def break_even(state: str, old: BreakEven, new: BreakEven, floor: float, note: str) -> Change:
    """N* in both studies: between "calls" and "never" the kind alone decides."""
    change = over(old.calls, new.calls) if old.kind == new.kind == "calls" else None
    kind, preliminary = judged(inverse(change), floor)
    if (old.kind, new.kind) == ("never", "never"):
        kind = "within noise"
    elif (old.kind, new.kind) == ("calls", "never"):
        kind = "slower"
    elif (old.kind, new.kind) == ("never", "calls"):
        kind = "faster"
    bounded = all(even.kind != "calls" or _bounded(even.calls) for even in (old, new))
    return Change(
        quantity="break-even",
        state=state,
        old=old.calls,
        new=new.calls,
        old_kind=old.kind,
        new_kind=new.kind,
        change=change,
        floor=floor,
        verdict=kind if bounded and not note else "cannot tell",
        preliminary=preliminary or not bounded,
        note=note,
    )


def _bounded(value: Interval | None) -> bool:
    return value is not None and value.low is not None


def over(old: Interval | None, new: Interval | None) -> Interval | None:
    """`new / old` with the interval of the module's head; None without two positive estimates."""
    if old is None or new is None:
        return None
    if not (0.0 < old.estimate < math.inf and 0.0 < new.estimate < math.inf):
        return None
    n = min(old.n, new.n)
    estimate = new.estimate / old.estimate
    if not (_bounded(old) and _bounded(new)):
        return Interval(estimate, n=n)
    down = math.hypot(_down(new), _up(old))
    up = math.hypot(_up(new), _down(old))
    high = None if up > 700.0 else estimate * math.exp(up)
    return Interval(estimate, estimate * math.exp(-down), high, n)


def _down(value: Interval) -> float:
    """Logarithmic distance from the low limit to the estimate."""
    low = value.low if value.low is not None else 0.0
    return math.log(value.estimate / low) if low > 0.0 else math.inf


def _up(value: Interval) -> float:
    return math.log(value.high / value.estimate) if value.high is not None else math.inf


def inverse(value: Interval | None) -> Interval | None:
    """1 over a change, for quantities of which less is better."""
    if value is None or value.low is None:
        return value and Interval(1.0 / value.estimate, n=value.n)
    low = 0.0 if value.high is None else 1.0 / value.high
    return Interval(1.0 / value.estimate, low, 1.0 / value.low if value.low else None, value.n)


def judged(change: Interval | None, floor: float) -> tuple[Verdict, bool]:
    """The rule of a study's verdicts, on a change of which more is better; is it preliminary?

    Two processes, one in each study, differ by more than a process from its own eager: their margin
    is `PRELIMINARY_MARGIN` times the square root of 2.
    """
    if change is None:
        return "cannot tell", False
    if change.low is None:
        margin = max(floor, math.sqrt(2.0) * statistics.PRELIMINARY_MARGIN)
        moved = abs(change.estimate - 1.0)
        if moved <= margin:
            return ("within noise" if moved <= floor else "cannot tell"), True
        return ("faster" if change.estimate > 1.0 else "slower"), True
    high = math.inf if change.high is None else change.high
    told = statistics.verdict(Estimate(change.estimate, change.low, high, change.n), floor)
    blind = told.kind == "within noise" and floor >= 1.0
    return ("cannot tell" if blind else told.kind), False
