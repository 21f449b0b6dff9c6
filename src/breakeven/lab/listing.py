"""`breakeven list` and `breakeven doctor`: what can be studied, with what, and on which machine."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from breakeven.errors import UsageError
from breakeven.lab import doctor as examination
from breakeven.lab.compilers import registry
from breakeven.lab.subjects import resolve

KINDS = ("subjects", "compilers", "suites")


def show(what: str, *, as_json: bool) -> None:
    """Print one list.

    Raises:
        UsageError: no such list.
    """
    if what not in KINDS:
        raise UsageError(
            "There are lists of subjects, compilers and suites",
            f"{what!r} was asked for",
            "Run for example `breakeven list compilers`",
        )
    rows = compilers() if what == "compilers" else _subjects(suites=what == "suites")
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        Console().print(_table(rows))


def compilers() -> list[dict[str, Any]]:
    """Every compiler with its version or what it lacks, its policies and techniques."""
    rows = []
    for name in registry.names():
        compiler = registry.get(name)
        found = compiler.available()
        rows.append(
            {
                "name": name,
                "version": found.version or f"unavailable: {found.reason}",
                "takes": "PyTorch"
                + (", ONNX" if compiler.takes_onnx else "")
                + (", training" if compiler.takes_training else ""),
                "policies": ", ".join(compiler.policies),
                "techniques": ", ".join(t.name for t in compiler.techniques),
                "what": compiler.summary,
            }
        )
    return rows


def _subjects(*, suites: bool) -> list[dict[str, Any]]:
    rows = [msgspec.to_builtins(one) for one in resolve.names()]
    return [row for row in rows if not suites or row["kind"] == "suite"]


def doctor(*, quick: bool, as_json: bool) -> None:
    """Measure this machine and print what a study would stand on."""
    report = examination.examine(quick=quick)
    if as_json:
        data = {"machine": msgspec.to_builtins(report), "compilers": compilers()}
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return
    console = Console()
    console.print(examination.render(report))
    console.print(_table(compilers()))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table
