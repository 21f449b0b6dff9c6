"""SQL over the raw records of a study, through an embedded database that is never stored.

Views: one for each kind of cell record (timings, blocks, calls, phases, programs, accuracy, memory,
replays, notes, outcomes), `cells` (one row for each process begun) and `headers`. A view's columns
are the fields of its record in `records.py`; every cell record also has the columns of its cell
(subject, compiler, policy, state, repetition, ...), and `used`: whether it belongs to the latest
attempt that ended, which is what results are computed from.
"""

from __future__ import annotations

import csv
import glob
import io
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from breakeven.errors import UsageError
from breakeven.lab import records
from breakeven.lab.store import Store

VIEWS: Mapping[str, type[records.CellRecord]] = {
    "timings": records.Timing,
    "blocks": records.Block,
    "calls": records.Call,
    "phases": records.PhaseRecord,
    "programs": records.ProgramRecord,
    "accuracy": records.AccuracyRecord,
    "memory": records.MemoryRecord,
    "replays": records.ReplayRecord,
    "notes": records.Note,
    "outcomes": records.Outcome,
}


class Table(msgspec.Struct, frozen=True):
    """The answer to a query: names of the columns, and rows of plain values."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def csv(self) -> str:
        """The table as comma-separated values (RFC 4180), names in the first line."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def sql(folder: Path, query: str) -> Table:
    """Answer one query over the records in `folder`.

    Raises:
        StoreError: the folder holds no readable records.
        UsageError: the database does not accept the query.
    """
    with Store.open(folder, write=False) as store:
        used = {(one.cell.key, one.attempt) for one in store.cells()}
        path = store.path
    with duckdb.connect(":memory:") as database:
        _define(database, path, used)
        try:
            answer = database.execute(query)
            if answer is None:
                raise _refused("nothing was asked")
            columns = [one[0] for one in answer.description or []]
            return Table(columns=columns, rows=answer.fetchall())
        except duckdb.Error as problem:
            raise _refused(str(problem)) from problem


def _refused(answer: str) -> UsageError:
    return UsageError(
        "A query is one statement of DuckDB's SQL over the views of docs/store.md.",
        f"The database answered: {answer}",
        f"Correct the query; the views are {', '.join(['headers', 'cells', *VIEWS])}.",
    )


def _define(database: Any, path: Path, used: set[tuple[str, int]]) -> None:
    """The views. A torn last line was found by the store already and is passed over here."""
    database.execute("CREATE TABLE used (key VARCHAR, attempt BIGINT)")
    if used:
        database.executemany("INSERT INTO used VALUES (?, ?)", sorted(used))
    database.execute(
        "CREATE TABLE raw AS SELECT json, json->>'kind' AS kind "
        "FROM read_ndjson_objects(?, ignore_errors => true) WHERE json IS NOT NULL",
        [glob.escape(str(path))],
    )
    header = _select(records.Header, "header")
    database.execute(f"CREATE VIEW headers AS {header}")
    begin = _select(records.Begin, "begin")
    fields = ", ".join(f"cell.{name}" for name in records.Cell.__struct_fields__)
    database.execute(
        f"CREATE VIEW cells AS SELECT key, attempt, time, {fields}, "
        "EXISTS (FROM used u WHERE u.key = b.key AND u.attempt = b.attempt) AS used "
        f"FROM ({begin}) b"
    )
    for view, kind in VIEWS.items():
        own = _select(kind, str(kind.__struct_config__.tag))
        clash = [name for name in records.Cell.__struct_fields__ if name in kind.__struct_fields__]
        hidden = ", ".join(["key", "attempt", "time", *clash])
        database.execute(
            f"CREATE VIEW {view} AS SELECT r.*, c.* EXCLUDE ({hidden}) "
            f"FROM ({own}) r LEFT JOIN cells c ON c.key = r.key AND c.attempt = r.attempt"
        )


def _select(record: type[msgspec.Struct], kind: str) -> str:
    """A query for all records of one kind, typed by the record's own fields."""
    columns = ", ".join(
        f"CAST(json->'{name}' AS {_column(hint)}) AS \"{name}\""
        if _column(hint) != "VARCHAR"
        else f"json->>'{name}' AS \"{name}\""
        for name, hint in typing.get_type_hints(record).items()
    )
    return f"SELECT {columns} FROM raw WHERE kind = '{kind}'"


def _column(hint: Any) -> str:
    """DuckDB's type for a field's type; what has none stays JSON."""
    plain = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}
    if hint in plain:
        return plain[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "VARCHAR"
    if origin in (typing.Union, types.UnionType):
        return _column(next(one for one in arguments if one is not types.NoneType))
    if origin in (list, tuple):
        return f"{_column(arguments[0])}[]"
    if origin is dict and _column(arguments[1]) != "JSON":
        return f"MAP({_column(arguments[0])}, {_column(arguments[1])})"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = [f'"{name}" {_column(one)}' for name, one in typing.get_type_hints(hint).items()]
        return f"STRUCT({', '.join(fields)})"
    return "JSON"
