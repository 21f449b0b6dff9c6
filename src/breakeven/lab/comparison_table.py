"""A comparison of two studies for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from breakeven.lab import format as words
from breakeven.lab.changes import Change, Comparison, CompilerChanges, Kind, SubjectChanges
from breakeven.lab.results import BreakEven, Interval

_TONES = {"faster": "green", "slower": "red", "cannot tell": "dim"}


def render(comparison: Comparison) -> RenderableType:
    """What changed, subject by subject, for `rich.console.Console.print`."""
    parts: list[RenderableType] = []
    for subject in comparison.subjects:
        parts += _subject(subject)
    if comparison.differences:
        parts += [_differences(comparison), Text()]
    else:
        parts.append(Text("Versions and settings are the same in both studies.", "dim"))
    for names, which in ((comparison.missing, "old"), (comparison.added, "new")):
        if names:
            parts.append(Text(f"Only the {which} study holds {', '.join(names)}.", "yellow"))
    parts += [Text(note, "dim") for note in comparison.notes]
    return Group(*parts)


def eager_sentence(change: Change) -> str:
    """How far the baseline itself moved: "Eager itself moved by +3.0 % ... (within noise)."."""
    if change.change is None:
        return "Eager was not timed in both studies."
    moved = words.change(change.change.estimate)
    limits = ""
    if change.change.low is not None:
        high = change.change.high
        top = words.NO_BOUND if high is None else words.change(high)
        limits = f" [{words.change(change.change.low)}, {top}]"
    times = f"{words.number(_estimate(change.old))} to {words.number(_estimate(change.new))} ms"
    return f"Eager itself moved by {moved}{limits}, from {times} a call ({change.verdict})."


def _subject(subject: SubjectChanges) -> list[RenderableType]:
    table = Table(title=subject.subject, title_justify="left", title_style="bold")
    for title in ("compiler", "what", "old", "new", "new / old", "verdict"):
        number = title in ("old", "new", "new / old")
        table.add_column(title, justify="right" if number else "left", overflow="fold")
    for one in subject.compilers:
        _rows(table, one)
    parts: list[RenderableType] = [table, Text(eager_sentence(subject.eager))]
    for names, which in ((subject.missing, "old"), (subject.added, "new")):
        if names:
            parts.append(Text(f"Only the {which} study ran {', '.join(names)}.", "yellow"))
    own = [one for one in subject.compilers if one.note and one.note != subject.note]
    notes = [subject.note, *(f"{one.compiler}: {one.note}" for one in own)]
    parts += [Text(note, "yellow") for note in notes if note]
    return [*parts, Text()]


def _rows(table: Table, one: CompilerChanges) -> None:
    name = one.compiler
    if one.old_outcome != one.new_outcome:
        tone = "red" if one.broken else "yellow"
        table.add_row(name, "outcome", one.old_outcome, one.new_outcome, "", Text("changed", tone))
        name = ""
    if one.old_version != one.new_version:
        table.add_row(name, "version", one.old_version, one.new_version, "", "")
        name = ""
    for change in one.changes:
        if change.old is None and change.new is None and not (change.old_kind or change.new_kind):
            continue
        verdict = change.verdict + (" (preliminary)" if change.preliminary else "")
        table.add_row(
            name,
            f"{change.quantity} {change.state}".strip(),
            _value(change, change.old, change.old_kind),
            _value(change, change.new, change.new_kind),
            words.interval(change.change, n=False),
            Text(verdict, _TONES.get(change.verdict, "")),
        )
        name = ""


def _value(change: Change, value: Interval | None, kind: Kind) -> str:
    if change.quantity == "break-even":
        return words.break_even_cell(BreakEven(kind=kind or "unknown", calls=value))
    show = words.seconds if change.quantity == "cold start" else words.ratio
    return words.interval(value, show)


def _differences(comparison: Comparison) -> Table:
    table = Table(title="What else differs", title_justify="left", title_style="bold")
    for title in ("", "old", "new"):
        table.add_column(title, overflow="fold")
    for one in comparison.differences:
        table.add_row(one.name, one.old or words.NONE, one.new or words.NONE)
    return table


def _estimate(value: Interval | None) -> float | None:
    return None if value is None else value.estimate
