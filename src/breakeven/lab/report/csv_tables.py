"""Every table of a study as CSV: plain numbers, one file a kind, one line a finding."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from breakeven.errors import StoreError
from breakeven.lab.results import BreakEven, Curve, Interval, Results, Row
from breakeven.lab.verdict import advised

_LISTS = {
    "compilers": "rows",
    "ablations": "ablations",
    "policies": "policies",
    "shape_calls": "shape_calls",
    "sizes": "sizes",
    "outcomes": "outcomes",
}


def export(results: Results, folder: Path) -> list[Path]:
    """Write every table into `folder`, made if missing; returns the files written.

    Files: compilers, starts, ablations, phases, curves, policies, shape_calls, sizes, outcomes,
    verdicts. A point of a curve is replayed, or computed from the start and the mean time of a
    call. Units are those of `results.py`; an interval `x` becomes `x`, `x_low`, `x_high`,
    `x_n`; sizes and lists are JSON; empty means not measured or no bound.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write(folder / f"{name}.csv", rows) for name, rows in tables(advised(results)).items()
        ]
    except OSError as error:
        raise StoreError(
            "Tables are exported into a folder that can be written.",
            f"Writing to {folder} failed: {error.strerror or error}.",
            "Name another folder, or free space and check its permissions.",
        ) from error


def tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """The same tables as plain data: a list of flat rows by table name."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS}
    found |= {"starts": [], "phases": [], "curves": [], "verdicts": []}
    for subject in results.subjects:
        name = subject.subject
        for table, field in _LISTS.items():
            found[table] += [_flat(name, item) for item in getattr(subject, field)]
        for row in subject.rows:
            found["starts"] += [
                {"subject": name, "compiler": row.compiler, **_fields(start)}
                for start in row.starts
            ]
        for phases in subject.phases:
            head: dict[str, Any] = {"subject": name, "compiler": phases.compiler}
            head |= {"state": phases.state, "total": phases.total}
            found["phases"] += [{**head, **_fields(part)} for part in phases.parts]
        for curve in subject.curves:
            head = {"subject": name, "compiler": curve.compiler, "state": curve.state}
            found["curves"] += [{**head, **point} for point in _points(curve)]
        if subject.advice:
            found["verdicts"].append(_flat(name, subject.advice))
    found["outcomes"] += [_flat("", row) for row in results.not_run]
    return found


def _points(curve: Curve) -> Iterator[dict[str, Any]]:
    """The replayed points, then the computed line with its fan."""
    for calls, spent in zip(curve.replay_counts, curve.replay_seconds, strict=True):
        yield _point(calls, spent, None, None, replayed=True)
    for point in zip(curve.counts, curve.seconds, curve.low, curve.high, strict=True):
        yield _point(*point, replayed=False)


def _point(
    calls: float, seconds: float, low: float | None, high: float | None, *, replayed: bool
) -> dict[str, Any]:
    return {
        "calls": calls,
        "seconds": seconds,
        "seconds_low": low,
        "seconds_high": high,
        "replayed": replayed,
    }


def _flat(subject: str, item: msgspec.Struct) -> dict[str, Any]:
    return {"subject": subject, **_fields(item)}


def _fields(item: msgspec.Struct) -> dict[str, Any]:
    return dict(pair for field in item.__struct_fields__ for pair in _pairs(item, field))


def _pairs(item: msgspec.Struct, field: str) -> Iterator[tuple[str, Any]]:
    value = getattr(item, field)
    if field in _intervals(type(item)):
        value = value or Interval(estimate=float("nan"), n=0)
        yield field, None if value.n == 0 else value.estimate
        yield f"{field}_low", value.low
        yield f"{field}_high", value.high
        yield f"{field}_n", value.n
    elif isinstance(value, BreakEven):
        yield "break_even", value.kind
        for name, cell in _pairs(value, "calls"):
            yield f"break_even_{name}", cell
        yield "break_even_confirmed", value.confirmed
    elif isinstance(item, Row) and field == "starts":
        return  # a table of their own
    elif isinstance(value, dict | list):
        yield field, json.dumps(value)
    else:
        yield field, value


def _intervals(kind: type[msgspec.Struct]) -> set[str]:
    fields = msgspec.structs.fields(kind)
    return {field.name for field in fields if field.type == Interval | None}


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["subject"])
        writer.writeheader()
        writer.writerows(rows)
    return path
