"""The form in which every table is built, and the cells they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from breakeven.lab import format as words
from breakeven.lab.results import Ablation, Interval, PolicyRow, Row, Start


@dataclass(frozen=True)
class Cell:
    """`tone` is "", "good", "bad", "apart" (reduced precision) or "quiet".

    `lead` is the estimate alone, where `text` is an interval: the page sets it larger. `span` is
    how many columns the page lets it fill; the cells it covers are there, and empty.
    """

    text: str
    tone: str = ""
    lead: str = ""
    span: int = 1


@dataclass(frozen=True)
class Column:
    """`number` columns are set right, in tabular figures."""

    title: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """`columns` x `rows`; the first column names the row. `note` explains how to read it."""

    name: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    note: str = ""
    compilers: list[str] = field(default_factory=list)
    """The compiler of each row, for its colour; empty where rows are not of compilers."""
    named: int = 1
    """How many leading columns name the row together: they are repeated where a table is cut."""


def columns_of(text: str) -> list[Column]:
    """Columns from `a | b # | c`: a trailing # marks a number."""
    parts = [part.strip() for part in text.split("|")]
    return [Column(part.rstrip(" #"), part.endswith("#")) for part in parts]


def accuracy(accuracy: str, error: float | None = None) -> Cell:
    tone = {"reduced": "apart", "wrong": "bad"}.get(accuracy, "")
    shown = "" if error is None else f" ({words.error(error)})"
    text = {"unknown": words.NONE, "baseline": "baseline"}.get(accuracy, accuracy + shown)
    return Cell(text, tone, accuracy if text.startswith(accuracy) else "")


def verdict(verdict: str) -> Cell:
    tone = {"faster": "good", "slower": "bad", "cannot tell": "quiet"}.get(verdict, "")
    return Cell(verdict or words.NONE, tone)


def text(text: str, tone: str = "") -> Cell:
    return Cell(text or words.NONE, tone)


def number(value: Interval | None) -> Cell:
    return interval(value, words.interval(value), words.number)


def seconds(value: Interval | None) -> Cell:
    return interval(value, words.interval_seconds(value), words.seconds)


def interval(
    value: Interval | None, text: str, show: Callable[[float | None], str], tone: str = ""
) -> Cell:
    """`text` with the estimate as its lead."""
    return Cell(text, tone, "" if value is None else show(value.estimate))


def break_even(start: Start | None, named: bool = False) -> Cell:
    """N* of one state, which is `named` where it is not machine-cold."""
    if start is None:
        return Cell(words.NONE)
    even = start.break_even
    calls = even.calls if even.kind == "calls" else None
    tone = "quiet" if even.kind in ("never", "may never") else ""
    text = words.break_even_cell(even)
    if named and calls is not None and words.begun(start):
        text = f"{text} ({words.begun(start)})"
    return interval(calls, text, words.count, tone)


def total(row: Row) -> Cell:
    """The total of a row, with the start it contains where that is not the machine-cold one."""
    return Cell(words.total(row), "", words.seconds(row.total_at_calls))


def failed(row: Row | Ablation | PolicyRow, width: int, named: int = 1) -> list[Cell]:
    """What stands in place of numbers: the outcome and its cause, in plain sight."""
    detail = f": {words.short(row.detail)}" if row.detail else ""
    outcome = Cell(f"{row.outcome}{detail}", "bad", span=width - named)
    return [outcome, *[Cell(words.NONE, "quiet")] * (width - named - 1)]


def compilers_of(rows: Sequence[Any]) -> list[str]:
    return [row.compiler for row in rows]
