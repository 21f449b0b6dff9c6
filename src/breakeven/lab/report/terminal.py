"""A study in the terminal: the verdict, then tables, cell for cell those of the page."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from breakeven.lab import format as words
from breakeven.lab.report import tables
from breakeven.lab.report.table import Table
from breakeven.lab.results import Advice, Results, SubjectResults
from breakeven.lab.verdict import advise, advised

_TONES = {"good": "green", "bad": "red", "apart": "yellow", "quiet": "dim"}
_GAP = 2
SHORT = ("summary", "policies", "starts")
"""The tables that are printed without being asked for."""
_MORE = "Further tables are printed with --tables; the page holds all of them, and the charts."
_WIDEST = 48  # characters of a column before its text is folded


def render(results: Results, whole: bool = False) -> RenderableType:
    """What a study found, for `rich.console.Console.print`; with `whole`, every table of it."""
    parts: list[RenderableType] = []
    if len(results.subjects) > 1:
        parts += [_Fitted(tables.overview(advised(results))), Text()]
    for subject in results.subjects:
        parts += _subject(subject, whole)
    for table in (tables.all_outcomes(results), tables.not_run(results)):
        parts += [_Fitted(table), Text()] if table.rows else []
    parts += [_line(note, "dim") for note in results.notes]
    if not whole:
        parts.append(Text(_MORE, "dim"))
    parts.append(_line(_closing(results), "dim"))
    return Group(*parts)


def verdict(subject: SubjectResults) -> RenderableType:
    """The verdict on one subject alone: headline, reasons, code to paste."""
    advice = subject.advice or advise(subject)
    tone = "yellow" if advice.preliminary or advice.withheld else "green"
    parts: list[RenderableType] = [
        Text(subject.subject, "bold"),
        Text(advice.headline, f"bold {tone}"),
        _list(advice.sentences),
        *_snippet(advice),
    ]
    return Group(*parts)


def _list(sentences: list[str]) -> RenderableType:
    """Sentences behind points, their further lines indented."""
    lines = RichTable.grid(padding=(0, 1, 0, 0))
    lines.add_column(width=3, justify="right")
    lines.add_column()
    for sentence in sentences:
        lines.add_row("·", Text(sentence))
    return lines


def _snippet(advice: Advice) -> list[RenderableType]:
    if not advice.snippet:
        return []
    return [Text(), Padding(Text(advice.snippet, "cyan"), (0, 0, 0, 4))]


def _subject(subject: SubjectResults, whole: bool) -> list[RenderableType]:
    about = [Text(subject.about, "dim")] if subject.about else []
    facts = (
        f"size {words.size(subject.size)}; {subject.threads} thread"
        f"{'s' if subject.threads != 1 else ''}; noise floor {words.percent(subject.noise_floor)}"
    )
    parts: list[RenderableType] = [verdict(subject), *about, _line(facts, "dim"), Text()]
    built = {table.name: table for table in tables.of_subject(subject)}
    for name in built if whole else SHORT:
        parts += [_Fitted(built[name]), Text()] if name in built else []
    notes = [_line(f"Note: {note}", "dim") for note in subject.notes]
    return [*parts, *notes, Text()] if notes else parts


class _Fitted:
    """A table that fits the terminal: columns that do not fit follow below, names repeated."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.table.title, "bold")
        for number, part in enumerate(_parts(self.table, options.max_width)):
            if number:
                yield Text()
            yield _grid(self.table, part)
        if self.table.note:
            yield Text(self.table.note, "dim")


def _parts(table: Table, width: int) -> list[list[int]]:
    """Which columns stand in which grid: as many as fit, after those that name the row."""
    widths = [
        min(
            _WIDEST,
            max(len(text) for text in [column.title, *[row[index].text for row in table.rows]]),
        )
        for index, column in enumerate(table.columns)
    ]
    named = list(range(table.named))
    parts, part = [], list(named)
    for index in range(table.named, len(table.columns)):
        used = sum(widths[other] + _GAP for other in part)
        if len(part) > len(named) and used + widths[index] > width:
            parts.append(part)
            part = list(named)
        part.append(index)
    return [*parts, part]


def _grid(table: Table, part: list[int]) -> RichTable:
    built = RichTable(header_style="dim", box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for index in part:
        column = table.columns[index]
        built.add_column(
            column.title,
            justify="right" if column.number else "left",
            no_wrap=column.number,
            overflow="fold",
        )
    for row in table.rows:
        shown = [row[index] for index in part]
        if len(part) == table.named or any(
            cell.text != words.NONE for cell in shown[table.named :]
        ):
            built.add_row(*[Text(cell.text, _TONES.get(cell.tone, "")) for cell in shown])
    return built


def _line(text: str, style: str) -> Text:
    return Text(words.sentence(text), style)


def _closing(results: Results) -> str:
    budget = results.budget_minutes
    kept = "" if budget is None else f" of a budget of {words.number(budget)} min"
    quick = ", quick" if results.quick else ""
    return f"Took {words.seconds(results.seconds)}{kept}{quick}"
