"""SQL over records: the views, and every query of docs/store.md on a small store."""

from __future__ import annotations

import csv
import io
import math
import re
import time
from pathlib import Path

import pytest

from breakeven.errors import StoreError, UsageError
from breakeven.lab import records as r
from breakeven.lab.sql import VIEWS, Table, sql
from breakeven.lab.store import RECORDS, Store

DOCS = Path(__file__).parents[2] / "docs" / "store.md"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two compilers; the second attempt of the first is the one that counts, a third was killed."""
    folder = tmp_path / "studies" / "sentences"
    with Store.open(folder, write=True) as store:
        store.append(
            r.Header(schema=1, command=["x"], plan={}, environment={"cpu": "a"}, time=time.time())
        )
        for compiler, attempts, scale in (("inductor", 3, 1.0), ("onnxruntime", 1, 2.0)):
            cell = r.Cell(subject="minilm", compiler=compiler, size={"batch": 1, "length": 64})
            for attempt in range(1, attempts + 1):
                _process(store, cell, attempt, scale * attempt, ends=attempt < 3)
        wrong = r.Cell(subject="minilm", compiler="openvino", policy="dynamic")
        store.append(r.Begin(key=wrong.key, attempt=1, cell=wrong, time=3.0))
        store.append(r.Outcome(key=wrong.key, attempt=1, outcome="wrong", detail='it\'s "off"'))
    return folder


def _process(store: Store, cell: r.Cell, attempt: int, scale: float, ends: bool) -> None:
    key = cell.key
    append = store.append
    append(r.Begin(key=key, attempt=attempt, cell=cell, time=2.0))
    append(r.Timing(key=key, attempt=attempt, name="import", seconds=50.0))
    append(r.Timing(key=key, attempt=attempt, name="compile", seconds=2.0 * scale))
    append(r.Timing(key=key, attempt=attempt, name="first-call", seconds=0.5 * scale))
    for role, value in (("eager", 0.004), ("compiled", 0.002)):
        for contended in (False, True):
            seconds = [value * scale * (100 if contended else 1)] * 3
            append(
                r.Block(
                    key=key,
                    attempt=attempt,
                    role=role,  # type: ignore[arg-type]
                    allocator="kept",
                    pair=0,
                    seconds=seconds,
                    batch=2,
                    size={"length": 64},
                    contended=contended,
                )
            )
    for index, compiles in enumerate((1, 0)):
        append(
            r.Call(
                key=key,
                attempt=attempt,
                role="compiled",
                part="shapes",
                index=index,
                seconds=0.25,
                size={"length": 64 + index},
                compiles=compiles,
                reason="size mismatch",
            )
        )
    phases = [r.Phase("g++", "backend", 1.5 * scale), r.Phase("dynamo", "frontend", 0.25)]
    append(r.PhaseRecord(key=key, attempt=attempt, phases=phases))
    append(r.ProgramRecord(key=key, attempt=attempt, program=r.Program(kernels=3)))
    append(r.AccuracyRecord(key=key, attempt=attempt, compiled=math.nan, eager=1e-7, bfloat16=None))
    if ends:
        append(r.Outcome(key=key, attempt=attempt, outcome="ok", seconds=9.0))


def queries() -> dict[str, str]:
    """The text before each query of the page, and the query."""
    found = re.findall(r"\n([^\n]+\?)\n\n```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return dict(found)


def answer(study: Path, question: str) -> list[dict[str, object]]:
    (query,) = [text for asked, text in queries().items() if asked.startswith(question)]
    table = sql(study, query)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_every_query_of_the_page_is_tried_here(study: Path) -> None:
    asked = queries()
    assert len(asked) == DOCS.read_text().count("```sql") == 5
    assert all(sql(study, query).rows for query in asked.values())


def test_cold_starts_by_state(study: Path) -> None:
    rows = answer(study, "What did compiling cost")
    assert [(row["compiler"], row["cold_start_s"]) for row in rows] == [
        ("inductor", 5.0),  # attempt 2: (2.0 + 0.5) * 2
        ("onnxruntime", 5.0),
    ]
    assert rows[0]["state"] == "machine-cold" and rows[0]["processes"] == 1


def test_steady_state_leaves_contended_blocks_out(study: Path) -> None:
    rows = answer(study, "How fast is a call")
    found = {(row["compiler"], row["role"]): row["median_ms"] for row in rows}
    assert found["inductor", "eager"] == pytest.approx(4.0)
    assert found["onnxruntime", "compiled"] == pytest.approx(2.0)
    assert {row["samples"] for row in rows} == {3}


def test_recompiles_with_their_reason(study: Path) -> None:
    rows = answer(study, "Which sizes made")
    assert [(row["compiler"], row["index"]) for row in rows] == [
        ("inductor", 0),
        ("onnxruntime", 0),
    ]
    assert rows[0]["size"] == {"length": 64} and rows[0]["reason"] == "size mismatch"


def test_phases(study: Path) -> None:
    rows = answer(study, "Where did the time")
    assert rows[0] == {"compiler": "inductor", "stage": "backend", "phase": "g++", "seconds": 3.0}


def test_outcomes(study: Path) -> None:
    (row,) = answer(study, "What did not end")
    assert (row["compiler"], row["policy"], row["detail"]) == ("openvino", "dynamic", 'it\'s "off"')


def test_the_python_of_the_page(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    monkeypatch.chdir(study.parent.parent)
    printed: list[str] = []
    exec(snippet, {"print": printed.append})
    rows = list(csv.reader(io.StringIO(printed[0])))
    assert rows[0] == ["compiler", "count_star()"] and ["inductor", "2"] in rows


def test_the_page_names_every_view_and_kind() -> None:
    text = DOCS.read_text()
    for view, kind in VIEWS.items():
        assert f"| `{kind.__struct_config__.tag}` | `{view}` |" in text
    kinds = {kind.__struct_config__.tag for kind in r.AnyRecord.__args__}
    assert {kind.__struct_config__.tag for kind in VIEWS.values()} | {"header", "begin"} == kinds


def test_every_view_has_its_fields_and_its_cell(study: Path) -> None:
    for view, kind in VIEWS.items():
        columns = sql(study, f"SELECT * FROM {view}").columns
        assert len(columns) == len(set(columns))
        assert set(kind.__struct_fields__) <= set(columns)
        assert {"subject", "compiler", "policy", "used"} <= set(columns)
    assert sql(study, "SELECT environment->>'cpu' FROM headers").rows == [("a",)]
    assert sql(study, "SELECT size['length'] FROM cells WHERE compiler='inductor'").rows[0] == (64,)
    assert sql(study, "SELECT * FROM memory").rows == []


def test_nan_and_missing_values_are_what_they_were(study: Path) -> None:
    (first, *_) = sql(study, "SELECT compiled, eager, bfloat16 FROM accuracy").rows
    assert math.isnan(first[0]) and first[1] == 1e-7 and first[2] is None


def test_a_torn_line_is_left_out_and_damage_is_refused(study: Path) -> None:
    with (study / RECORDS).open("ab") as file:
        file.write(b'{"kind":"outcome","key":"x","att')
    assert sql(study, "SELECT count(*) FROM outcomes").rows == [(4,)]
    with (study / RECORDS).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(StoreError, match="cannot be read"):
        sql(study, "SELECT 1")


BAD = ["SELEC 1", "SELECT nothing FROM blocks", "SELECT * FROM absent", "", " -- a comment"]


@pytest.mark.parametrize("query", BAD)
def test_a_query_that_the_database_refuses(study: Path, query: str) -> None:
    with pytest.raises(UsageError, match="The database answered") as caught:
        sql(study, query)
    assert "blocks" in caught.value.advice


@pytest.mark.parametrize("name", ["it's a study", "study[1]", "a*b?", "héllo"])
def test_folders_with_odd_names(study: Path, name: str) -> None:
    odd = study.rename(study.parent / name)
    assert sql(odd, "SELECT count(*) FROM outcomes").rows == [(4,)]


def test_csv_quotes_what_needs_it() -> None:
    table = Table(columns=["a", "b"], rows=[("x,y", 'say "hi"'), (None, 1.5), ("two\nlines", "")])
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["a", "b"],
        ["x,y", 'say "hi"'],
        ["", "1.5"],
        ["two\nlines", ""],
    ]
