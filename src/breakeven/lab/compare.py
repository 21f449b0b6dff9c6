"""What changed between two studies, from their results alone.

Each quantity is judged by `changes.py`: ratio to eager, cold start and N* by state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from breakeven.errors import UsageError
from breakeven.lab import changes
from breakeven.lab import format as words
from breakeven.lab.changes import (
    Change,
    Comparison,
    CompilerChanges,
    Difference,
    Quantity,
    SubjectChanges,
)
from breakeven.lab.comparison_table import render
from breakeven.lab.results import Interval, Results, Row, SubjectResults
from breakeven.lab.statistics import LEAST_NOISE

__all__ = ["GATES", "Comparison", "compare", "failed", "failures", "render"]

GATES: Mapping[str, Quantity] = {
    "slower": "speedup",
    "slower-start": "cold start",
    "later-break-even": "break-even",
}
"""What `--fail-if` takes, and the quantity it looks at."""
VOLATILE = ("machine", "load", "swap", "gaps", "memory")
"""Parts of the environment that differ from run to run, or are part of the machine's identity."""
HARDWARE = ("cpu", "cores", "memory")


def compare(old: Results, new: Results, *, other_machine: bool = False) -> Comparison:
    """Set two studies side by side.

    Args:
        other_machine: take studies of different machines; ratios to eager still say something.

    Raises:
        UsageError: the machines differ, or a study does not say on which it ran; or the studies
            have no subject in common.
    """
    same = _same_machine(old, new)
    if not same and not other_machine:
        raise _refused(old, new)
    before = {_name(subject): subject for subject in old.subjects}
    after = {_name(subject): subject for subject in new.subjects}
    shared = [name for name in before if name in after]
    if not shared:
        raise UsageError(
            "Two studies are compared by the subjects that both hold.",
            f"The old one holds {_listed(before)}, the new one {_listed(after)}.",
            "Name two studies of the same subject at the same number of threads.",
        )
    notes = []
    if old.quick or new.quick:
        notes.append(
            "A quick study has one process for each figure: verdicts on speed are preliminary, "
            "and none is given on cold starts and break-even counts."
        )
    if not same:
        notes.append(
            "The studies come from different machines: ratios to "
            "eager and break-even counts carry over, times do not."
        )
    return Comparison(
        same_machine=same,
        differences=_differences(old.environment, new.environment, same),
        subjects=[_subject(before[name], after[name], same) for name in shared],
        missing=[name for name in before if name not in after],
        added=[name for name in after if name not in before],
        notes=notes,
    )


def failed(comparison: Comparison, gate: str) -> bool:
    """Whether `--fail-if GATE` fails: something got worse, or no longer works at all.

    Args:
        gate: names from `GATES`, separated by commas; an empty one never fails.

    Raises:
        UsageError: an unknown gate.
    """
    return bool(failures(comparison, gate))


def failures(comparison: Comparison, gate: str) -> list[str]:
    """One sentence for each reason why the gate fails; raises what `failed` raises."""
    names = [name.strip() for name in gate.split(",") if name.strip()]
    for name in names:
        if name not in GATES:
            raise UsageError(
                "--fail-if takes what must not get worse.",
                f"There is no gate {name!r}.",
                f"Choose from {', '.join(GATES)}.",
            )
    watched = {GATES[name] for name in names}
    found = []
    for subject in comparison.subjects if names else []:
        for one in subject.compilers:
            where = f"{one.compiler} on {subject.subject}"
            if one.broken:
                found.append(f"{where} gave numbers before and now ends in {one.new_outcome!r}.")
            found += [
                f"{where}: {change.quantity} {change.state} is worse.".replace("  ", " ")
                for change in one.changes
                if change.quantity in watched and change.verdict == "slower"
            ]
    return found


def _same_machine(old: Results, new: Results) -> bool:
    ids = old.environment.get("machine"), new.environment.get("machine")
    return bool(ids[0]) and ids[0] == ids[1]


def _refused(old: Results, new: Results) -> UsageError:
    def told(environment: Mapping[str, Any]) -> str:
        parts = [f"{name} {environment[name]}" for name in HARDWARE if name in environment]
        return ", ".join(parts) or "a machine it does not name"

    return UsageError(
        "Two studies are compared where both ran on the same machine.",
        f"The old one ran on {told(old.environment)}; the new one on {told(new.environment)}.",
        "Run the study again on one of them, or add --other-machine: ratios to eager then still "
        "say something, times do not.",
    )


def _name(subject: SubjectResults) -> str:
    """A subject and its threads: a sweep holds one subject at several thread counts."""
    return f"{subject.subject}, {subject.threads} thread{'s' if subject.threads != 1 else ''}"


def _subject(old: SubjectResults, new: SubjectResults, same_machine: bool) -> SubjectChanges:
    floor = max(math.hypot(old.noise_floor, new.noise_floor), LEAST_NOISE)
    note = ""
    if old.size != new.size:
        note = (
            f"The old study ran at size {words.size(old.size)}, the new one at "
            f"{words.size(new.size)}: figures cannot be compared."
        )
    eager = _eager(old, new, floor, note)
    before = {row.compiler: row for row in old.rows if row.compiler != "eager"}
    after = {row.compiler: row for row in new.rows if row.compiler != "eager"}
    return SubjectChanges(
        subject=_name(new),
        eager=eager,
        compilers=[
            _compiler(before[name], after[name], floor, eager, bool(note) or not same_machine, note)
            for name in before
            if name in after
        ],
        missing=[name for name in before if name not in after],
        added=[name for name in after if name not in before],
        note=note,
    )


def _eager(old: SubjectResults, new: SubjectResults, floor: float, note: str) -> Change:
    return changes.less_is_better("eager", _eager_ms(old), _eager_ms(new), floor, note=note)


def _eager_ms(subject: SubjectResults) -> Interval | None:
    own = [row.ms for row in subject.rows if row.compiler == "eager" and row.ms]
    beside = [row.eager_ms for row in subject.rows if row.eager_ms]
    return next(iter([*own, *beside]), None)


def _compiler(
    old: Row, new: Row, floor: float, eager: Change, no_times: bool, incomparable: str
) -> CompilerChanges:
    note = incomparable
    if not note and old.accuracy != new.accuracy and "unknown" not in (old.accuracy, new.accuracy):
        note = f"Its accuracy went from {old.accuracy} to {new.accuracy}: speeds are not ranked."
    found = [_speedup(old, new, floor, note)]
    if not no_times:
        # Times move with the machine's clock, so eager's own movement widens their floor.
        drift = abs(math.log(eager.change.estimate)) if eager.change else 0.0
        starts = {start.state: start for start in old.starts}
        for start in new.starts:
            before = starts.get(start.state)
            if before is not None:
                found.append(
                    changes.less_is_better(
                        "cold start", before.cold, start.cold, floor + drift, state=start.state
                    )
                )
    steepness = _steepness(old, new)
    befores = {start.state: start.break_even for start in old.starts}
    found += [
        changes.break_even(
            start.state, befores[start.state], start.break_even, floor * steepness, note
        )
        for start in new.starts
        if start.state in befores
    ]
    return CompilerChanges(
        compiler=new.compiler,
        old_version=old.version,
        new_version=new.version,
        old_outcome=old.outcome,
        new_outcome=new.outcome,
        changes=found,
        note=note,
    )


def _speedup(old: Row, new: Row, floor: float, note: str) -> Change:
    if not note and _withheld(old, new):
        note = "Half of the blocks or more were disturbed from outside."
    return changes.more_is_better("speedup", old.speedup, new.speedup, floor, note)


def _withheld(old: Row, new: Row) -> bool:
    """Half of a study's blocks or more were contended: its figure is not evidence."""
    return any(2 * row.contended >= row.blocks > 0 for row in (old, new))


def _steepness(old: Row, new: Row) -> float:
    """How much a relative error of a speedup s grows in N*: d log N* = -d log s / (s - 1).

    N* = cost / (e - c) with e = s c; the cost is taken as fixed. At least 1, and a million at s = 1
    in place of infinity, which JSON has not.
    """
    gains = [abs(row.speedup.estimate - 1.0) for row in (old, new) if row.speedup]
    least = min(gains, default=0.0)
    return 1.0 / min(max(least, 1e-6), 1.0)


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], same_machine: bool
) -> list[Difference]:
    before, after = _flat(old, same_machine), _flat(new, same_machine)
    return [
        Difference(name, before.get(name, ""), after.get(name, ""))
        for name in dict.fromkeys([*before, *after])
        if before.get(name, "") != after.get(name, "")
    ]


def _flat(environment: Mapping[str, Any], same_machine: bool) -> dict[str, str]:
    """Name to text; a dict's entries (packages, caches) go by their own names."""
    flat: dict[str, str] = {}
    for name, value in environment.items():
        if name in VOLATILE and (same_machine or name != "memory"):
            continue
        if isinstance(value, Mapping):
            flat.update({str(part): str(one) for part, one in value.items()})
        else:
            flat[name] = "" if value is None else str(value)
    return flat


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"
