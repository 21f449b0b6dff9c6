"""One self-contained HTML page of a study: opens offline, asks the network for nothing."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from breakeven.errors import StoreError
from breakeven.lab import format as words
from breakeven.lab.report import chart, charts, charts_fusion, tables
from breakeven.lab.report.chart import Chart
from breakeven.lab.report.charts import Detail
from breakeven.lab.report.table import Table
from breakeven.lab.results import Advice, BreakEven, Results, SubjectResults
from breakeven.lab.verdict import advised

MOST_BYTES = 6_000_000
_FRAME_BYTES = 300_000  # room for all that is neither plotly nor a subject
# tried in turn until the page is small enough
DETAILS = (Detail(), Detail(400, 60), Detail(100, 30), Detail(40, 20), Detail(12, 12))
_FOLDER = Path(__file__).parent
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_TITLES = {
    "fusion": ("Fusion", "What graph optimization gives, and which technique gives it."),
    "overhead": ("Overhead", "What compiling costs, and after how many calls it has paid."),
    "shapes": ("Shapes", "What changing sizes cost under each policy."),
}


@dataclass(frozen=True)
class Fact:
    """One figure of the strip under the verdict."""

    label: str
    value: str
    aside: str


@dataclass(frozen=True)
class Section:
    """An experiment of one subject: charts, tables that stay open, by the name of the chart."""

    name: str
    title: str
    about: str
    charts: list[Chart]
    open_tables: list[Table]


@dataclass(frozen=True)
class View:
    """A subject as the template shows it."""

    key: str
    subject: SubjectResults
    advice: Advice
    facts: list[Fact]
    summary: Table | None
    sections: list[Section]
    tables: dict[str, Table]


def write(results: Results, path: Path) -> None:
    """Write the page to `path`, whole or not at all; its folder is made if missing.

    Raises:
        StoreError: the file cannot be written.
    """
    text = html(results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".page-", suffix=".html")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            "The page is written to a file in a folder that can be written.",
            f"Writing {path} failed: {error.strerror or error}.",
            "Name another place, or free space and check its permissions.",
        ) from error


def html(results: Results) -> str:
    """The page as text, at most `MOST_BYTES` as far as packing and drawing fewer points can do it.

    A study of several subjects that would be too large is packed (gzip, base64): each subject's
    section, unpacked by the page when the reader opens it, and plotly's script, once.
    """
    results = advised(results)
    text = ""
    for detail in DETAILS:
        text = _render(results, detail)
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def figures(results: Results, detail: Detail = DETAILS[0]) -> dict[str, Chart]:
    """Every chart of the page by the id of its element."""
    results = advised(results)
    found = {}
    if len(results.subjects) > 1:
        found["suite"] = charts_fusion.suite(results)
    for number, subject in enumerate(results.subjects):
        found |= _charts(_view(number, subject, detail))
    return found


def _charts(view: View) -> dict[str, Chart]:
    return {f"{view.key}-{made.name}": made for section in view.sections for made in section.charts}


def _render(results: Results, detail: Detail) -> str:
    views = [_view(number, subject, detail) for number, subject in enumerate(results.subjects)]
    suite = charts_fusion.suite(results) if len(views) > 1 else None
    colours = chart.colours(results)
    context = {"swatches": {name: at for at, name in enumerate(colours)}, "words": words}
    bodies = _bodies(views, context)
    shown = {view.key: _embedded(_charts(view)) for view in views}
    script = plotly.offline.get_plotlyjs()
    size = sum(len(bodies[key]) + len(_json(shown[key])) for key in bodies)
    pack = len(views) > 1 and size + len(script) > MOST_BYTES - _FRAME_BYTES
    if pack:
        parts = {key: {"html": bodies[key], "charts": shown.pop(key)} for key in bodies}
        bodies = {key: packed(_json(part)) for key, part in parts.items()}
    figures = {key: figure for found in shown.values() for key, figure in found.items()}
    if suite is not None:
        figures |= _embedded({"suite": suite})
    return _TEMPLATES.get_template("page.html.j2").render(
        context,
        results=results,
        views=views,
        bodies=bodies,
        pack=pack,
        single=views[0] if len(views) == 1 else None,
        overview=tables.overview(results) if len(views) > 1 else None,
        suite=suite,
        outcomes=tables.all_outcomes(results),
        not_run=tables.not_run(results),
        environment=list(_environment(results.environment)),
        headline=_headline(results),
        colours=list(colours.values()),
        command=shlex.join(results.command),
        css=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((_FOLDER / "page.js").read_text(encoding="utf-8")),
        plotly=packed(script) if pack else Markup(script),
        data=_escaped({"colours": colours, "charts": figures}),
    )


def _bodies(views: list[View], context: dict[str, Any]) -> dict[str, str]:
    """The markup of every subject's section."""
    parts: Any = _TEMPLATES.get_template("page_parts.html.j2").make_module(context)
    one = len(views) == 1
    return {
        view.key: Markup(parts.subject(view, 1 if one else 4, 2 if one else 4)) for view in views
    }


def _embedded(found: dict[str, Chart]) -> dict[str, Any]:
    return {
        key: {**made.figure, "views": [view.show for view in made.views]}
        for key, made in found.items()
    }


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _escaped(content: Any) -> Markup:
    """JSON that cannot end the script element around it."""
    text = _json(content)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escape)
    return Markup(text)


def packed(text: str) -> str:
    """Text as base64 of gzip, which the page's script unpacks."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _headline(results: Results) -> str:
    """What a study of several subjects says in one sentence."""
    advice = [subject.advice for subject in results.subjects if subject.advice]
    pays = sum(a.compiler not in ("", "eager") for a in advice)
    open_ones = sum(a.withheld for a in advice)
    told = "" if not open_ones else f"; {open_ones} cannot be judged"
    plural = "s" if len(advice) != 1 else ""
    return (
        f"Compiling pays for {pays} of {len(advice)} subject{plural} within {results.calls:,} "
        f"calls{told}."
    )


def _view(number: int, subject: SubjectResults, detail: Detail) -> View:
    built = {table.name: table for table in tables.of_subject(subject)}
    advice = subject.advice or Advice(headline="", sentences=[])
    sections = []
    for name, made in charts.of_subject(subject, detail).items():
        kept = [built[key] for key in _OPEN_TABLES[name] if key in built]
        if made or kept:
            sections.append(Section(name, *_TITLES[name], made, kept))
    return View(
        key=f"s{number}",
        subject=subject,
        advice=advice,
        facts=_facts(subject, advice),
        summary=built.get("summary"),
        sections=sections,
        tables=built,
    )


_OPEN_TABLES = {
    "fusion": ("attribution",),
    "overhead": ("starts", "totals"),
    "shapes": ("policies", "transitions"),
}


def _facts(subject: SubjectResults, advice: Advice) -> list[Fact]:
    row = next((row for row in subject.rows if row.compiler == advice.compiler), None)
    if row is None or row.ms is None:
        return []
    eager = f"eager {words.number(row.eager_ms.estimate)} ms" if row.eager_ms else ""
    facts = [Fact("one call", f"{words.number(row.ms.estimate)} ms", eager)]
    if row.speedup is not None:
        bounds = words.interval(row.speedup)
        facts.append(Fact("speedup", words.ratio(row.speedup.estimate), bounds))
    start = words.coldest(row)
    even = start.break_even if start is not None else BreakEven(kind="unknown")
    if start is not None and even.kind == "calls" and even.calls is not None:
        said = [words.break_even_cell(even), words.break_even_basis(even), words.begun(start)]
        bounds = ", ".join(filter(None, said))
        facts.append(Fact("pays after", f"{words.count(even.calls.estimate)} calls", bounds))
    if row.total_at_calls is not None:
        saving = row.saving_at_calls
        eager = "" if not saving else f"eager {words.seconds(row.total_at_calls + saving)}"
        if row.total_state not in ("", "machine-cold"):
            eager = "; ".join([*([eager] if eager else []), f"{row.total_state} start"])
        calls = f"{subject.calls:,} calls at this size"
        facts.append(Fact(calls, words.seconds(row.total_at_calls), eager))
    return facts


def _environment(value: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """The environment as flat lines: `packages torch: 2.13.0`."""
    lines: list[tuple[str, str]] = []
    for key, item in value.items():
        name = f"{path} {key}".strip().replace("_", " ")
        if isinstance(item, dict):
            lines += _environment(item, name)
        elif isinstance(item, list | tuple):
            lines.append((name, ", ".join(str(part) for part in item) or words.NONE))
        else:
            lines.append((name, words.NONE if item is None else str(item)))
    return lines
