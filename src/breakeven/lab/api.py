"""A study from Python and from the command line: ask, run, show."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from breakeven.errors import UsageError
from breakeven.lab import assembly, compare, resume
from breakeven.lab import study as studies
from breakeven.lab.compilers import registry
from breakeven.lab.progress import Silent, Terminal
from breakeven.lab.report import csv_tables, page, terminal
from breakeven.lab.results import Results
from breakeven.lab.study import Request
from breakeven.lab.subjects import pickled, resolve
from breakeven.lab.verdict import advised

PAGE = "report.html"


class Study:
    """The results of a study: shows itself in a notebook, gives its tables as plain data."""

    def __init__(self, results: Results, folder: Path) -> None:
        self.results, self.folder = results, folder

    @property
    def page(self) -> Path:
        """The self-contained report."""
        return self.folder / PAGE

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table as a list of rows, each a dict of plain values."""
        return csv_tables.tables(self.results)

    def __repr__(self) -> str:
        console = Console(width=110, record=True, file=io.StringIO())
        console.print(terminal.render(self.results))
        return console.export_text()

    def _repr_html_(self) -> str:
        console = Console(width=110, record=True, file=io.StringIO())
        console.print(terminal.render(self.results))
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def study(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    calls: int = 10_000,
    compilers: Sequence[str] = (),
    experiments: Sequence[str] = studies.EXPERIMENTS,
    shapes: str = "",
    threads: Sequence[int] = (),
    quick: bool = False,
    budget: float | None = None,
    out: str = "study-python",
) -> Study:
    """Study a model from Python; it is sent to the measuring processes by cloudpickle.

    Args:
        model: a module in the mode to be measured, or a function of tensors.
        inputs: positional example arguments; fresh values are drawn like them.
        kwargs: keyword example arguments.
        calls: how many calls are expected before a restart.
        budget: minutes; 10 by default, 3 where `quick`.
        out: folder of the records and the page; the same call resumes there.

    Raises:
        SubjectError: the model cannot be sent, loaded, or run in eager PyTorch.
        BreakevenError: as the command line would say it.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "subject.pkl").resolve()
    pickled.write(file, model, inputs, kwargs or {})
    asked = request(
        subjects=[f"pickle:{file}"],
        compilers=list(compilers),
        experiments=list(experiments),
        calls=calls,
        shapes=shapes,
        threads=list(threads),
        quick=quick,
        budget=budget,
        out=out,
        command=["breakeven.study"],
    )
    studies.run(asked, Silent(), recommended)
    return Study(publish(folder), folder)


def request(
    *,
    subjects: list[str],
    compilers: list[str],
    experiments: list[str],
    calls: int,
    shapes: str = "",
    inputs: str = "",
    overrides: dict[str, str] | None = None,
    threads: list[int] | None = None,
    budget: float | None = None,
    timeout: float = studies.CELL_SECONDS,
    memory: float | None = None,
    quick: bool = False,
    out: str = "",
    command: list[str] | None = None,
) -> Request:
    """A request with its defaults filled in.

    Raises:
        UsageError: an unknown experiment.
    """
    for name in experiments:
        if name not in studies.EXPERIMENTS:
            raise UsageError(
                f"--experiments takes {', '.join(studies.EXPERIMENTS)}, separated by commas",
                f"{name!r} was given",
                "Leave the option out to run all three",
            )
    return Request(
        subjects=subjects,
        compilers=compilers or list(registry.DEFAULT),
        experiments=experiments or list(studies.EXPERIMENTS),
        calls=calls,
        shapes=shapes,
        quick=quick,
        out=out or "study-" + slug(subjects),
        budget=budget,
        threads=threads or [],
        options=resolve.Options(
            inputs=str(Path(inputs).resolve()) if inputs else "", overrides=overrides or {}
        ),
        timeout=timeout,
        memory=memory,
        command=command or [],
    )


def slug(subjects: list[str]) -> str:
    """A folder name for a list of subjects."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", " ".join(s.rsplit("/", 1)[-1] for s in subjects))
    return words.strip("-").lower()[:40] or "subject"


def run_in_terminal(request: Request, *, fresh: bool, whole: bool, as_json: bool) -> None:
    """Run a study with a progress display, print its tables, write its page."""
    folder = Path(request.out)
    if fresh:
        resume.forget(folder)
    with Terminal(Console(stderr=True)) as progress:
        studies.run(request, progress, recommended)
    show(publish(folder), folder, whole=whole, as_json=as_json)


def report_in_terminal(folder: str, *, whole: bool, as_json: bool, csv: str) -> None:
    """Compute results anew from stored records."""
    results = publish(Path(folder))
    if csv:
        csv_tables.export(results, Path(csv))
    show(results, Path(folder), whole=whole, as_json=as_json)


def recommended(folder: Path) -> str:
    """The f32-level compiler with the smallest total so far; of the first subject."""
    rows = assembly.results(folder).subjects[0].rows
    ranked = [r for r in rows if r.accuracy == "f32-level" and r.total_at_calls is not None]
    return min(ranked, key=lambda r: r.total_at_calls or 0.0).compiler if ranked else ""


def publish(folder: Path) -> Results:
    """Results of a folder, with advice; the page is written beside the records."""
    results = advised(assembly.results(folder))
    page.write(results, folder / PAGE)
    return results


def show(results: Results, folder: Path, *, whole: bool, as_json: bool) -> None:
    """Print results as tables, the main ones or the `whole` set, or as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(results), indent=1) + "\n")
        return
    console = Console()
    console.print(terminal.render(results, whole=whole))
    console.print(f"page: {folder / PAGE}", highlight=False, soft_wrap=True)


def compare_in_terminal(
    old: str, new: str, gate: str, *, other_machine: bool, as_json: bool
) -> bool:
    """Print what changed between two studies; True where the gate fails."""
    comparison = compare.compare(
        assembly.results(Path(old)), assembly.results(Path(new)), other_machine=other_machine
    )
    failed = compare.failed(comparison, gate) if gate else False
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(comparison), indent=1) + "\n")
    else:
        Console().print(compare.render(comparison))
    return failed
