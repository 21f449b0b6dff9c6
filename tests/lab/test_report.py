"""Terminal, tables, CSV, JSON, verdict and page say what the results hold, all of it."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import plotly.offline
import pytest
import synthetic_results as made
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from breakeven.errors import StoreError
from breakeven.lab import format as words
from breakeven.lab.choices import standing
from breakeven.lab.report import charts_cost, charts_fusion, csv_tables, page, tables, terminal
from breakeven.lab.report.table import Cell, Table
from breakeven.lab.results import (
    Ablation,
    BreakEven,
    Curve,
    Interval,
    OutcomeRow,
    PolicyRow,
    Results,
    Row,
    SizeRow,
    Start,
    SubjectResults,
)
from breakeven.lab.verdict import advise, advised

RESULTS = made.results()
FULL = RESULTS.subjects[0]


def printed(results: Results, *, whole: bool = True, width: int = 6000) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(terminal.render(results, whole=whole))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# ------------------------------------------------------------------------------ the terminal

SHOWN: dict[tuple[type, str], Callable[[Any], str]] = {
    (Row, "ms"): words.interval,
    (Row, "eager_ms"): words.interval,
    (Row, "speedup"): words.interval,
    (Row, "speedup_kept"): words.interval,
    (Row, "speedup_best_threads"): words.interval,
    (Start, "cold"): words.interval_seconds,
    (BreakEven, "calls"): lambda value: words.interval(value, words.count),
    (Ablation, "slowdown"): words.interval,
    (Ablation, "cold"): words.interval_seconds,
    (PolicyRow, "total"): words.interval_seconds,
    (PolicyRow, "total_after_first"): words.interval_seconds,
    (PolicyRow, "transition"): words.interval_seconds,
    (PolicyRow, "cut"): lambda value: words.interval(value, words.percent),
    (PolicyRow, "loss"): lambda value: words.interval(value, words.change),
    (SizeRow, "ms"): words.interval,
    (SizeRow, "eager_ms"): words.interval,
    (SizeRow, "loss"): lambda value: words.interval(value, words.change),
}
"""How every interval of the results is written."""


def interval_fields(kind: type[msgspec.Struct]) -> list[str]:
    return [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.type in (Interval, Interval | None)
    ]


def test_every_interval_of_the_results_has_a_place() -> None:
    kinds = {kind for kind, _ in SHOWN}
    assert {(kind, name) for kind in kinds for name in interval_fields(kind)} == set(SHOWN)


def intervals(item: object) -> Iterator[tuple[object, str, Interval]]:
    """Every interval inside, with its owner and field."""
    if isinstance(item, list):
        for one in item:
            yield from intervals(one)
    elif isinstance(item, msgspec.Struct):
        for name in item.__struct_fields__:
            value = getattr(item, name)
            if isinstance(value, Interval):
                yield item, name, value
            else:
                yield from intervals(value)


def test_every_interval_is_printed() -> None:
    text = printed(RESULTS)
    found = list(intervals(RESULTS.subjects))
    assert len(found) > 150
    for owner, name, value in found:
        if isinstance(owner, BreakEven) and owner.kind != "calls":
            assert owner.kind in text
            continue
        assert SHOWN[type(owner), name](value) in text, (owner, name)


def test_every_number_of_a_row_is_printed_in_its_line() -> None:
    lines = printed(made.results(FULL)).splitlines()
    for row in FULL.rows:
        if row.outcome != "ok":
            assert any(row.compiler in line and row.outcome in line for line in lines), row
            continue
        own = [line for line in lines if line.startswith(row.compiler + " ")]
        for text in (
            words.number(row.mean_ms),
            words.number(row.p90_ms),
            words.seconds(row.total_at_calls),
            f"{row.samples:,}",
            f"{row.outliers:,}",
            f"{row.contended} of {row.blocks}",
            words.size_bytes(row.bytes_after),
            words.operations(row.flops),
            words.percent(row.peak_fraction),
        ):
            assert any(text in line for line in own), (row.compiler, text)


def test_every_cell_of_every_table_is_printed_in_its_row() -> None:
    text = printed(RESULTS)
    lines = text.splitlines()
    built = [table for subject in RESULTS.subjects for table in tables.of_subject(subject)]
    built.append(tables.all_outcomes(RESULTS))
    assert {table.name for table in built} >= {
        *("summary", "speed", "attribution", "ablations", "starts", "totals", "phases", "curves"),
        *("policies", "transitions", "sizes", "outcomes"),
    }
    for table in built:
        assert table.title in text
        assert {len(row) for row in table.rows} == {len(table.columns)}
        for row in table.rows:
            if all(cell.text == words.NONE for cell in row[table.named :]):
                continue  # nothing to print
            shape = r"\s+".join(re.escape(cell.text) for cell in row)
            assert any(re.fullmatch(shape, line.strip()) for line in lines), row


@pytest.mark.parametrize("width", [40, 80, 110, 200])
def test_numbers_are_whole_at_any_width(width: int) -> None:
    text = printed(RESULTS, width=width)
    for table in tables.of_subject(FULL):
        for row in table.rows:
            for cell, column in zip(row, table.columns, strict=True):
                if column.number and len(cell.text) < 20:
                    assert cell.text in text


def test_what_is_printed_without_being_asked_for() -> None:
    text = printed(RESULTS, whole=False)
    assert "--tables" in text and "page" in text
    titles = {table.name: table.title for table in tables.of_subject(FULL)}
    for name, title in titles.items():
        wanted = name in ("summary", "policies", "starts")
        assert (title in text.splitlines()) is wanted, name
    assert tables.all_outcomes(RESULTS).title in text
    assert "Not run" in text and RESULTS.not_run[0].detail in text
    for subject in RESULTS.subjects:
        assert advise(subject).headline in text
    assert "--tables" not in printed(RESULTS)
    assert len(text.splitlines()) < 0.6 * len(printed(RESULTS).splitlines())


def test_failures_stand_in_plain_sight() -> None:
    """Of compilers, ablations and policies, whether or not an outcome tells of them too."""
    bare = msgspec.structs.replace(FULL, outcomes=[])
    for subject in (FULL, bare):
        text = printed(made.results(subject), whole=False)
        for row in (*subject.rows, *subject.ablations, *subject.policies):
            if row.outcome != "ok":
                assert row.outcome in text and row.detail in text, row


def test_a_start_that_is_not_machine_cold_is_named_beside_its_total() -> None:
    table = tables.tables_cost.totals(FULL)
    texts = {row[0].text: row[1].text for row in table.rows}
    assert texts["warm-only"].endswith("(toolchain-warm start)")
    assert "start" not in texts["openvino"]
    assert "not to be compared" in table.note
    cold = [row for row in FULL.rows if row.total_state != "toolchain-warm"]
    note = tables.tables_cost.totals(msgspec.structs.replace(FULL, rows=cold)).note
    assert "not to be compared" not in note


# ------------------------------------------------------------------------------ curves


def curve_of(replayed: bool) -> Curve:
    return next(c for c in FULL.curves if bool(c.replay_counts) is replayed)


def test_solid_is_what_was_replayed_and_nothing_else() -> None:
    for curve in FULL.curves:
        solid, dashed = lines_of(curve)
        if not curve.replay_counts:
            assert not solid
            assert dashed[0]["x"] == [float(f"{count:.6g}") for count in curve.counts]
            continue
        assert solid[0]["x"] == [float(f"{n:.6g}") for n in curve.replay_counts]
        assert solid[0]["y"] == [float(f"{s:.6g}") for s in curve.replay_seconds]
        assert dashed[0]["x"][0] == curve.replay_counts[-1]
        assert min(dashed[0]["x"][1:]) > curve.replay_counts[-1]


def lines_of(curve: Curve) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    subject = msgspec.structs.replace(FULL, rows=[], curves=[curve])
    traces = charts_cost.curves(subject).figure["data"]
    drawn = [trace for trace in traces if trace["meta"]["role"] == "line"]
    return (
        [trace for trace in drawn if trace["line"]["dash"] == "solid"],
        [trace for trace in drawn if trace["line"]["dash"] == "dash"],
    )


def test_the_caption_says_what_is_replayed() -> None:
    assert "really made" in charts_cost.curves(FULL).caption
    lone = msgspec.structs.replace(FULL, curves=[curve_of(replayed=False)])
    assert "no calls were replayed" in charts_cost.curves(lone).caption


def test_hover_tells_replayed_from_computed() -> None:
    solid, dashed = lines_of(curve_of(replayed=True))
    assert "replayed" in solid[0]["hovertemplate"] and "computed" in dashed[0]["hovertemplate"]


def test_the_table_of_curves_takes_replayed_times_where_it_can() -> None:
    curve = curve_of(replayed=True)
    last = curve.replay_counts[-1]
    table = tables.tables_cost.curves(msgspec.structs.replace(FULL, curves=[curve]))
    marks = [int(c.title.split()[0].replace(",", "")) for c in table.columns[3:]]
    assert any(mark <= last for mark in marks) and any(mark > last for mark in marks)
    assert table.rows[0][2].text == f"{last:,.0f}"
    for mark, cell in zip(marks, table.rows[0][3:], strict=True):
        spent = words.cumulative(curve, mark)
        assert spent is not None and words.seconds(spent.estimate) in cell.text
        assert cell.text.startswith("≈") is (mark > last)
        if mark <= last:
            expected = words.between(curve.replay_counts, curve.replay_seconds, mark)
            assert spent.estimate == expected


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=20, unique=True).map(sorted),
    st.floats(0, 2e6),
)
def test_between_points(points: list[int], at: float) -> None:
    values = [3.0 * point + 1 for point in points]
    inside = min(max(at, points[0]), points[-1])
    assert math.isclose(words.between(points, values, at), 3 * inside + 1, rel_tol=1e-9)


@pytest.mark.parametrize("most", [2, 3, 12, 400])
def test_thinning_keeps_both_ends(most: int) -> None:
    for curve in FULL.curves:
        thin = charts_cost.thin_curve(curve, most)
        for before, after in (
            (curve.counts, thin.counts),
            (curve.replay_counts, thin.replay_counts),
        ):
            assert len(after) <= max(3, most + 1)
            assert set(after) <= set(before)
            assert (after[:1], after[-1:]) == (before[:1], before[-1:])


# ------------------------------------------------------------------------------ JSON and CSV


def test_results_survive_json() -> None:
    full = advised(RESULTS)
    assert msgspec.json.decode(msgspec.json.encode(full), type=Results) == full
    plain = json.loads(json.dumps(msgspec.to_builtins(full)))
    assert msgspec.convert(plain, Results) == full


LISTS = {
    "compilers": "rows",
    "ablations": "ablations",
    "policies": "policies",
    "shape_calls": "shape_calls",
    "sizes": "sizes",
}


def exported(folder: Path) -> dict[str, list[dict[str, str]]]:
    found = {}
    for path in csv_tables.export(RESULTS, folder):
        with path.open(newline="", encoding="utf-8") as file:
            found[path.stem] = list(csv.DictReader(file))
    return found


def test_csv_holds_every_value(tmp_path: Path) -> None:
    found = exported(tmp_path / "new" / "folder")
    for table, field in LISTS.items():
        items = [(s.subject, item) for s in RESULTS.subjects for item in getattr(s, field)]
        assert len(found[table]) == len(items) > 0
        for line, (subject, item) in zip(found[table], items, strict=True):
            assert line["subject"] == subject
            for name in item.__struct_fields__:
                if name != "starts":  # a table of their own
                    check(line, name, getattr(item, name))


def check(line: dict[str, str], name: str, value: Any) -> None:
    if isinstance(value, Interval):
        parts = {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        for key, part in parts.items():
            assert line[key] == ("" if part is None else str(part))
        assert line[f"{name}_n"] == str(value.n)
    elif isinstance(value, dict | list):
        assert json.loads(line[name]) == value
    else:
        assert line[name] == ("" if value is None else str(value)), name


def test_csv_of_starts_phases_curves_outcomes_and_verdicts(tmp_path: Path) -> None:
    found = exported(tmp_path)
    starts = [start for s in RESULTS.subjects for row in s.rows for start in row.starts]
    assert [line["cold"] for line in found["starts"]] == [str(s.cold.estimate) for s in starts]
    assert [line["break_even"] for line in found["starts"]] == [s.break_even.kind for s in starts]
    parts = [part for s in RESULTS.subjects for row in s.phases for part in row.parts]
    assert [line["seconds"] for line in found["phases"]] == [str(p.seconds) for p in parts]
    curves = [curve for s in RESULTS.subjects for curve in s.curves]
    for replayed, counts, seconds in (
        ("True", "replay_counts", "replay_seconds"),
        ("False", "counts", "seconds"),
    ):
        lines = [line for line in found["curves"] if line["replayed"] == replayed]
        for column, field in (("calls", counts), ("seconds", seconds)):
            expected = [str(value) for curve in curves for value in getattr(curve, field)]
            assert [line[column] for line in lines] == expected
    assert all(line["seconds_low"] == "" for line in found["curves"] if line["replayed"] == "True")
    outcomes = [row for s in RESULTS.subjects for row in s.outcomes] + RESULTS.not_run
    assert [line["detail"] for line in found["outcomes"]] == [row.detail for row in outcomes]
    assert [line["headline"] for line in found["verdicts"]] == [
        advise(subject).headline for subject in RESULTS.subjects
    ]


def test_an_empty_study_exports_and_prints_and_has_a_page(tmp_path: Path) -> None:
    empty = made.results(SubjectResults(subject="nothing"))
    assert len(csv_tables.export(empty, tmp_path)) == 10
    assert "nothing was measured" in printed(empty)
    assert "nothing was measured" in page.html(empty)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for attempt in (
        lambda: csv_tables.export(RESULTS, tmp_path / "file"),
        lambda: page.write(RESULTS, tmp_path / "file" / "page.html"),
    ):
        with pytest.raises(StoreError, match="failed"):
            attempt()


# ------------------------------------------------------------------------------ the verdict


def subject_of(*rows: Row, **more: Any) -> SubjectResults:
    more = {"calls": made.CALLS, "threads": 2} | more
    return SubjectResults(subject="one", rows=[made.eager_row(), *rows], **more)


def random_rows() -> st.SearchStrategy[list[Row]]:
    speeds = st.floats(0.3, 9).map(lambda value: round(value, 3))
    spreads = st.sampled_from([None, 0.02, 0.2])

    def measured(value: float, spread: float | None) -> Interval:
        return Interval(value) if spread is None else made.around(value, spread)

    def built(name: str, fields: dict[str, Any]) -> Row:
        speedup = measured(fields.pop("speed"), fields.pop("spread"))
        fields["speedup"] = speedup
        low = speedup.estimate if speedup.low is None else speedup.low
        high = speedup.estimate if speedup.high is None else speedup.high
        judged = "faster" if low > 1.03 else "slower" if high < 0.97 else "cannot tell"
        fields["verdict"] = "cannot tell" if fields["contended"] > 20 else judged
        return made.row(name, **fields)

    fields = st.fixed_dictionaries(
        {
            "speed": speeds,
            "spread": spreads,
            "outcome": st.sampled_from(["ok", "ok", "ok", "crash", "timeout", "wrong", "memoizes"]),
            "accuracy": st.sampled_from(["f32-level", "f32-level", "reduced", "wrong", "unknown"]),
            "contended": st.sampled_from([0, 2, 38]),
            "saving_at_calls": st.sampled_from([-50.0, 0.0, 20.0, 90.0]),
            "speedup_best_threads": st.sampled_from([None, made.around(0.9), made.around(1.4)]),
        }
    )
    names = ["inductor", "onnxruntime", "openvino", "openvino-default", "torchscript", "dynamo"]
    rows = st.tuples(st.sampled_from(names), fields)
    several = st.lists(rows, max_size=6, unique_by=lambda pair: pair[0])
    return several.map(lambda pairs: [built(name, dict(one)) for name, one in pairs])


@settings(max_examples=400, deadline=None)
@given(random_rows())
def test_what_is_recommended_has_earned_it(rows: list[Row]) -> None:
    subject = subject_of(*rows, noise_floor=0.03)
    advice = advise(subject)
    assert advice.headline
    assert advice.sentences or all(row.compiler == "dynamo" for row in rows)
    if advice.withheld:
        assert (advice.compiler, advice.snippet) == ("", "")
        assert any(standing(row, subject) == "disturbed" for row in rows)
        return
    credited = {row.compiler for row in rows if standing(row, subject) == "credited"}
    if advice.compiler == "eager":
        assert all(
            row.saving_at_calls is not None and row.saving_at_calls <= 0
            for row in rows
            if row.compiler in credited and not row.speedup_best_threads
        )
        return
    best = next(row for row in rows if row.compiler == advice.compiler)
    assert (best.outcome, best.accuracy, best.verdict) == ("ok", "f32-level", "faster")
    assert best.contended <= 2 and best.compiler != "dynamo"
    assert best.saving_at_calls is not None and best.saving_at_calls > 0
    assert best.speedup is not None and best.speedup.estimate > 1.03
    against = best.speedup_best_threads
    assert against is None or (against.low is not None and against.low > 1.03)
    assert advice.preliminary is (best.speedup.low is None)
    assert advice.preliminary is advice.headline.startswith("Preliminary")
    assert advice.snippet


def test_reduced_precision_is_named_apart_however_fast() -> None:
    for speed in (1.2, 5.0, 400.0):
        fast = made.row("openvino-default", speedup=made.around(speed), saving_at_calls=250.0)
        advice = advise(subject_of(fast, made.row("inductor")))
        assert advice.compiler == "inductor"
        apart = [text for text in advice.sentences if "apart" in text]
        assert len(apart) == 1 and "openvino-default" in apart[0]
        assert advise(subject_of(fast)).compiler == "eager"


def test_an_error_without_a_class_is_not_ranked() -> None:
    advice = advise(subject_of(made.row("openvino", accuracy="unknown"), made.row("inductor")))
    assert advice.compiler == "inductor"
    assert any("has no class" in text and "openvino" in text for text in advice.sentences)


@pytest.mark.parametrize("outcome", ["wrong", "crash", "timeout", "memoizes", "does nothing"])
def test_what_failed_is_never_recommended_and_is_named(outcome: str) -> None:
    bad = made.row("openvino", outcome=outcome)
    advice = advise(subject_of(bad, made.row("torchscript")))
    assert advice.compiler == "torchscript"
    assert any("Not recommended: openvino" in text for text in advice.sentences)


def test_eager_where_nothing_pays_by_the_calls() -> None:
    late = made.row("inductor", saving_at_calls=-12.0)
    advice = advise(subject_of(late))
    assert advice.compiler == "eager" and advice.headline.startswith("Stay with eager")
    assert "10,000" in advice.headline and "fast = model" in advice.snippet
    assert any("closest is inductor" in text for text in advice.sentences)
    soon = made.row("inductor", saving_at_calls=12.0)
    assert advise(subject_of(soon)).compiler == "inductor"


def test_the_total_decides_and_not_the_speed() -> None:
    fast = made.row(
        "openvino", speedup=made.around(1.9), total_at_calls=250.0, saving_at_calls=14.0
    )
    cheap = made.row(
        "inductor", speedup=made.around(1.3), total_at_calls=220.0, saving_at_calls=44.0
    )
    assert advise(subject_of(fast, cheap)).compiler == "inductor"


def test_a_speedup_that_is_threading_is_not_credited() -> None:
    threaded = made.row(
        "inductor", speedup=made.around(1.5), speedup_best_threads=made.around(0.99)
    )
    advice = advise(subject_of(threaded, best_threads=1))
    assert advice.compiler == "eager"
    assert any("threading alone" in text and "1 thread" in text for text in advice.sentences)
    assert "torch.set_num_threads(1)" in advice.snippet


def test_a_disturbed_study_withholds_its_verdict() -> None:
    advice = advise(made.disturbed_subject())
    assert advice.withheld and advice.headline.startswith("Cannot tell")
    assert (advice.compiler, advice.snippet) == ("", "")
    loud = made.row("inductor", verdict="cannot tell", contended=38)
    beside = advise(subject_of(loud, made.row("openvino")))
    assert beside.compiler == "openvino" and not beside.withheld
    assert any("Not judged" in text and "inductor" in text for text in beside.sentences)


def test_one_process_each_is_preliminary() -> None:
    advice = advise(made.quick_subject())
    assert advice.preliminary and advice.compiler == "openvino"
    assert any("Each compiler ran in one process" in text for text in advice.sentences)


def test_a_recommendation_from_one_process_is_preliminary_beside_others_with_intervals() -> None:
    lone = made.row("inductor-freezing", speedup=Interval(2.4), speedup_best_threads=None,
                    total_at_calls=130.0, saving_at_calls=134.0)  # fmt: skip
    advice = advise(subject_of(lone, made.row("inductor")))
    assert advice.compiler == "inductor-freezing" and advice.preliminary
    said = [text for text in advice.sentences if "preliminary" in text]
    assert len(said) == 1 and "inductor-freezing ran in one process" in said[0]
    dear = msgspec.structs.replace(lone, total_at_calls=260.0, saving_at_calls=4.0)
    assert not advise(subject_of(dear, made.row("inductor"))).preliminary


def test_staying_with_eager_is_preliminary_where_it_rests_on_one_process() -> None:
    late = made.row("inductor-freezing", speedup=Interval(2.4), saving_at_calls=-3.0)
    slow = made.row("inductor", speedup=made.around(0.9), verdict="slower", saving_at_calls=-9.0)
    assert advise(subject_of(late, slow)).preliminary
    lone_slow = made.row("openvino", speedup=Interval(0.8), verdict="slower")
    assert not advise(subject_of(lone_slow, slow)).preliminary
    assert advise(subject_of(lone_slow)).preliminary


def test_counts_from_a_warmer_start_say_so() -> None:
    """In a suite only the first subject starts machine-cold."""
    warm = [start for start in made.row("inductor").starts if start.state != "machine-cold"]
    row = made.row("inductor", starts=warm, total_state="toolchain-warm")
    for calls, compiler in ((264.0, "inductor"), (-1.0, "eager")):
        advice = advise(subject_of(msgspec.structs.replace(row, saving_at_calls=calls)))
        assert advice.compiler == compiler
        count = warm[0].break_even.calls
        assert count is not None
        told = [t for t in (advice.headline, *advice.sentences) if words.count(count.low) in t]
        assert any("toolchain-warm start" in text for text in told), told
    study = made.results(FULL, subject_of(row))
    table = tables.summary(study.subjects[1])
    assert "break-even calls, toolchain-warm" in [column.title for column in table.columns]
    overview = tables.overview(advised(study))
    assert any("(toolchain-warm start)" in cell.text for cell in overview.rows[1])
    assert not any("start)" in cell.text for cell in overview.rows[0])
    never = [msgspec.structs.replace(warm[0], break_even=BreakEven(kind="never"))]
    refused = advise(subject_of(msgspec.structs.replace(row, starts=never)))
    assert refused.compiler == "eager"


def test_a_policy_that_broke_is_named_and_not_chosen() -> None:
    advice = advise(FULL)
    assert any("openvino under bucket (crash)" in text for text in advice.sentences)
    assert (advice.compiler, advice.policy) != ("openvino", "bucket")


# ------------------------------------------------------------------------------ the page


class Page(HTMLParser):
    """What a page asks for, its tables, and what is folded away in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.tables: list[str] = []
        self.sight = ""
        self.ids: dict[str, str] = {}
        self.scripts: dict[str, str] = {}
        self._folds = 0
        self._table = False
        self._script = ""
        self._hidden = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if name in given and not (tag == "a" and given[name].startswith("#")):
                self.requests.append(given[name])
        self._folds += tag == "details"
        if tag == "table":
            self._table = True
            self.tables.append("")
        if tag in ("script", "style"):
            self._hidden = tag
            self._script = given.get("id", "")
            self.scripts.setdefault(self._script, "")
        if "id" in given:
            self.ids[given["id"]] = tag

    def handle_endtag(self, tag: str) -> None:
        self._folds -= tag == "details"
        if tag == "table":
            self._table = False
        if self._table and tag in ("td", "th", "caption"):
            self.tables[-1] += "\n"
        if tag == self._hidden:
            self._hidden = ""

    def handle_data(self, data: str) -> None:
        if self._hidden:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
            return
        if self._table:
            self.tables[-1] += data.replace("\n", " ")
        if not self._folds:
            self.sight += data


STUDIES = {
    "three": RESULTS,
    "one": made.results(FULL),
    "quick": made.results(made.quick_subject(), quick=True),
    "suite": made.suite(12),
}


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest) -> tuple[Results, str]:
    results = STUDIES[request.param]
    return results, page.html(results)


def test_the_page_is_small_and_holds_plotly_once(study: tuple[Results, str]) -> None:
    _, text = study
    assert len(text.encode()) <= page.MOST_BYTES == 6_000_000
    plotly_js = plotly.offline.get_plotlyjs()
    here, packed = text.count(plotly_js), text.count(page.packed(plotly_js))
    assert here + packed == 1
    assert text.count('id="plotly"') == 1
    assert len(plotly_js) > 1_000_000


def test_the_page_asks_the_network_for_nothing(study: tuple[Results, str]) -> None:
    _, text = study
    read = Page(text)
    assert read.requests and all(one.startswith("data:") for one in read.requests)
    assert "url(" not in read.scripts[""].split("</style>")[0] and "@import" not in text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy and "default-src 'none'" in policy[1]


def test_every_chart_has_its_table(study: tuple[Results, str]) -> None:
    results, text = study
    read = Page(unpacked(text))
    views = {f"s{number}": subject for number, subject in enumerate(results.subjects)}
    found = page.figures(results)
    assert found
    for key, made_chart in found.items():
        if key == "suite":
            table = tables.overview(advised(results))
        else:
            subject = views[key.split("-")[0]]
            table = next(t for t in tables.of_subject(subject) if t.name == made_chart.table)
        assert read.ids.get(key) == "div"
        assert any(holds(html, table) for html in read.tables), key


def holds(text: str, table: Table) -> bool:
    """Every cell that no other covers, after its larger estimate or alone, in one HTML table."""
    pieces = {" ".join(piece.split()) for piece in text.split("\n")}
    return table.title in pieces and all(
        any(piece == cell or piece.endswith(f" {cell}") for piece in pieces)
        for row in table.rows
        for cell in uncovered(row)
    )


def uncovered(row: list[Cell]) -> Iterator[str]:
    """The texts of a row that are shown: a cell of several columns covers those after it."""
    until = 0
    for place, cell in enumerate(row):
        if place >= until:
            until = place + cell.span
            yield " ".join(cell.text.split())
        else:
            assert cell.text == words.NONE


def unpacked(text: str) -> str:
    """A page with what it has packed laid open."""

    def laid_open(match: re.Match[str]) -> str:
        return '"></details>' + json.loads(gunzipped(match[1]))["html"]

    return re.sub(r'data-packed="([^"]+)">', laid_open, text)


def gunzipped(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


def test_outcomes_are_not_folded_away(study: tuple[Results, str]) -> None:
    results, text = study
    sight = Page(text).sight
    for row in tables.all_outcomes(results).rows:
        assert all(cell.text in sight for cell in row)
    for row in results.not_run:
        assert row.detail in sight and row.command in sight


def test_the_page_holds_the_numbers_of_its_figures(study: tuple[Results, str]) -> None:
    results, text = study
    read = Page(text)
    held = json.loads(read.scripts["charts"])["charts"]
    for part in re.findall(r'data-packed="([^"]+)"', text):
        held |= json.loads(gunzipped(part))["charts"]
    detail = next(d for d in page.DETAILS if same(held, page.figures(results, d)))
    assert detail is not None


def same(held: dict[str, Any], figures: dict[str, Any]) -> bool:
    plain = {key: json.loads(json.dumps(made.figure)) for key, made in figures.items()}
    return plain == {
        key: {"data": one["data"], "layout": one["layout"]} for key, one in held.items()
    }


def test_no_text_of_a_study_becomes_markup() -> None:
    text = page.html(RESULTS)
    assert "<script>alert(1)" not in text and "<b>real</b>" not in text


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    page.write(RESULTS, target)
    assert target.read_text(encoding="utf-8") == page.html(RESULTS)
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_reduced_precision_does_not_rank_a_suite() -> None:
    """The subject whose only large speedup is a reduced one stands below a smaller f32 one."""
    small = msgspec.structs.replace(
        FULL, subject="reduced-alone", rows=[made.eager_row(), made.row("openvino-default")]
    )
    large = msgspec.structs.replace(
        FULL, subject="f32", rows=[made.eager_row(), made.row("torchscript")]
    )
    figure = charts_fusion.suite(made.results(small, large)).figure
    names = [note["text"] for note in figure["layout"]["annotations"]]
    assert ["f32" in names[0], "reduced-alone" in names[1]] == [True, True]
    (reduced,) = [t for t in figure["data"] if t["name"] == "openvino-default"]
    assert reduced["marker"]["symbol"] == ["x-open-dot"]


def test_a_lone_process_has_no_bar() -> None:
    study = made.results(made.quick_subject(), quick=True)
    (trace,) = page.figures(study)["s0-speedups"].figure["data"]
    assert trace["error_x"]["array"] == trace["error_x"]["arrayminus"] == [None]
    assert trace["marker"]["symbol"][0].endswith("-open")


def test_what_was_not_run_is_all_there() -> None:
    """Equal commands share a line, different ones do not, and every cell is named."""
    rows = [
        OutcomeRow(cell=cell, compiler="inductor", outcome="not run", detail="budget", command=cmd)
        for cell, cmd in (("a", "one"), ("b", "one"), ("c", "two"))
    ]
    table = tables.not_run(msgspec.structs.replace(RESULTS, not_run=rows))
    assert [(row[2].text, row[4].text) for row in table.rows] == [("a; b", "one"), ("c", "two")]


@pytest.mark.parametrize("floors", [(0.02, 0.02), (0.02, 0.3), (0.02, 3.0)])
def test_a_suite_shows_the_noise_of_each_subject(floors: tuple[float, float]) -> None:
    """Bands are of their own subject, and a floor above 1 has a lower end on the log axis."""
    base = made.quick_subject()
    subjects = [
        msgspec.structs.replace(base, subject=f"s{at}", noise_floor=floor)
        for at, floor in enumerate(floors)
    ]
    layout = charts_fusion.suite(made.results(*subjects)).figure["layout"]
    bands = [shape for shape in layout["shapes"] if shape["name"] == "noise"]
    highest = [band["x1"] for band in bands]
    assert highest == pytest.approx(sorted({1 + floor for floor in floors}))
    assert all(0 < band["x0"] < 1 for band in bands)
    assert layout["xaxis"]["range"][1] < math.log10(3)
