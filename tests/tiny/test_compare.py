"""Comparing studies: what moved, what did not, and what cannot be told."""

from __future__ import annotations

import itertools
import math
import os
import random
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from breakeven.errors import UsageError
from breakeven.lab import changes, compare, statistics
from breakeven.lab.results import BreakEven, Interval, Results, Row, Start, SubjectResults

ENVIRONMENT: dict[str, Any] = {
    "machine": "abc",
    "cpu": "Xeon",
    "cores": 2,
    "memory": 1 << 34,
    "kernel": "6.1",
    "packages": {"torch": "2.13.0", "openvino": "2026.4"},
    "load": [0.1],
}


def around(value: float, spread: float = 0.01, n: int = 5) -> Interval:
    return Interval(value, value / (1 + spread), value * (1 + spread), n)


def calls(value: float, spread: float = 0.05) -> BreakEven:
    return BreakEven(kind="calls", calls=around(value, spread))


def row(
    compiler: str = "inductor", speedup: float = 2.0, speedup_spread: float = 0.01, **fields: Any
) -> Row:
    start = Start(state="machine-cold", cold=around(10.0), break_even=calls(2000))
    interval = around(speedup, speedup_spread)
    given = {"accuracy": "f32-level", "starts": [start], "speedup": interval, **fields}
    return Row(compiler=compiler, **given)


def study(*rows: Row, eager_ms: float = 20.0, **fields: Any) -> Results:
    environment = fields.pop("environment", ENVIRONMENT)
    subject = {"subject": "chain", "noise_floor": 0.01, "threads": 2, **fields}
    eager = Row(compiler="eager", ms=around(eager_ms))
    return Results(
        schema=1,
        command=[],
        quick=False,
        calls=1,
        budget_minutes=None,
        seconds=1.0,
        environment=environment,
        subjects=[SubjectResults(**subject, rows=[eager, *rows])],
    )


def change(old: Row, new: Row, quantity: str = "speedup") -> changes.Change:
    (found,) = only(old, new, quantity)
    return found


def only(old: Row, new: Row, quantity: str) -> list[changes.Change]:
    compared = compare.compare(study(old), study(new)).subjects[0].compilers[0].changes
    return [one for one in compared if one.quantity == quantity]


def cold(value: float, **fields: Any) -> Row:
    start = Start(state="disk-warm", cold=around(value), break_even=calls(2000))
    return row(starts=[start], **fields)


def pays(even: BreakEven, speedup: float = 2.0) -> Row:
    return row(
        speedup=speedup, starts=[Start(state="disk-warm", cold=around(1.0), break_even=even)]
    )


# ------------------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("new", "verdict"),
    [(2.0, "within noise"), (2.4, "faster"), (1.7, "slower"), (2.04, "cannot tell")],
)
def test_ratio_to_eager(new: float, verdict: str) -> None:
    spread = 0.001 if verdict == "within noise" else 0.01
    found = change(row(speedup_spread=spread), row(speedup=new, speedup_spread=spread))
    assert found.verdict == verdict
    assert found.change is not None and found.change.estimate == pytest.approx(new / 2.0)
    assert found.floor == pytest.approx(math.hypot(0.01, 0.01))


@pytest.mark.parametrize(
    ("new", "verdict"), [(5.0, "faster"), (20.0, "slower"), (10.0, "cannot tell")]
)
def test_cold_start_is_better_when_shorter(new: float, verdict: str) -> None:
    found = change(cold(10.0), cold(new), "cold start")
    assert (found.verdict, found.state) == (verdict, "disk-warm")


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (calls(2000), calls(1000), "faster"),
        (calls(2000), calls(4000), "slower"),
        (calls(2000), calls(2050), "cannot tell"),
        (calls(2000), BreakEven(kind="never"), "slower"),
        (BreakEven(kind="never"), calls(2000), "faster"),
        (BreakEven(kind="never"), BreakEven(kind="never"), "within noise"),
        (calls(2000), BreakEven(kind="may never"), "cannot tell"),
        (BreakEven(kind="may never"), BreakEven(kind="never"), "cannot tell"),
        (BreakEven(kind="unknown"), calls(2000), "cannot tell"),
        (BreakEven(kind="unknown"), BreakEven(kind="unknown"), "cannot tell"),
        (calls(2000), BreakEven(kind="calls", calls=Interval(9000, 5000, None, 5)), "slower"),
        (BreakEven(kind="calls", calls=Interval(9e3, 1e3, None, 5)), calls(2e3), "cannot tell"),
        (BreakEven(kind="calls", calls=Interval(2000.0)), BreakEven(kind="never"), "cannot tell"),
    ],
)
def test_break_even_by_kind(old: BreakEven, new: BreakEven, verdict: str) -> None:
    found = change(pays(old), pays(new), "break-even")
    assert found.verdict == verdict
    assert (found.old_kind, found.new_kind) == (old.kind, new.kind)


def test_a_small_gain_makes_the_break_even_count_uncertain() -> None:
    """At s = 1.02 a floor of 1.4 % in the ratio is 70 % in N*: twice as many calls say nothing."""
    assert change(pays(calls(2000), 2.0), pays(calls(3200), 2.0), "break-even").verdict == "slower"
    for speedup in (1.02, 1.0, 0.98):
        found = change(pays(calls(2000), speedup), pays(calls(3200), speedup), "break-even")
        assert found.verdict != "slower" and found.floor > 0.6
    msgspec.json.decode(msgspec.json.encode(found), type=changes.Change)


def test_eager_s_own_movement_is_told_and_widens_cold_starts() -> None:
    still = compare.compare(study(cold(10.0)), study(cold(11.5)))
    moved = compare.compare(study(cold(10.0)), study(cold(11.5), eager_ms=23.0))
    starts = [
        next(c for c in one.subjects[0].compilers[0].changes if c.quantity == "cold start")
        for one in (still, moved)
    ]
    assert [start.verdict == "slower" for start in starts] == [True, False]
    eager = moved.subjects[0].eager
    assert eager.verdict == "slower" and eager.change is not None
    assert eager.change.estimate == pytest.approx(1.15)
    assert moved.subjects[0].compilers[0].changes[0].verdict == change(row(), row()).verdict


def test_one_process_gives_a_preliminary_verdict_on_speed_alone() -> None:

    def single(speedup: float, cost: float) -> Row:
        even = BreakEven(kind="calls", calls=Interval(cost))
        start = Start(state="disk-warm", cold=Interval(cost), break_even=even)
        return msgspec.structs.replace(row(starts=[start]), speedup=Interval(speedup))

    old = single(2.0, 10.0)
    for speed, verdict in (
        (1.8, "slower"),
        (1.9, "cannot tell"),
        (2.01, "within noise"),
        (2.2, "faster"),
    ):
        new = single(speed, 99.0)
        found = only(old, new, "speedup")[0]
        assert found.preliminary and found.verdict == verdict
        assert only(old, new, "cold start")[0].verdict == "cannot tell"
        assert only(old, new, "break-even")[0].verdict == "cannot tell"


def test_contended_blocks_withhold_the_verdict() -> None:
    old, new = row(speedup=2.0), row(speedup=1.0, blocks=10, contended=5)
    assert change(old, new).verdict == "cannot tell"
    assert change(old, msgspec.structs.replace(new, contended=4)).verdict == "slower"


def test_speeds_of_different_accuracy_are_not_ranked() -> None:
    old, new = row(speedup=2.0), row(speedup=6.0, accuracy="reduced")
    found = change(old, new)
    assert found.verdict == "cannot tell" and "f32-level to reduced" in found.note
    assert change(new, new).note == ""


def test_another_size_is_not_compared() -> None:
    old, new = study(row(), size={"rows": 1}), study(row(speedup=9.0), size={"rows": 2})
    found = compare.compare(old, new)
    assert "rows" in found.subjects[0].note
    verdicts = {c.verdict for c in found.subjects[0].compilers[0].changes}
    assert verdicts == {"cannot tell"} and found.subjects[0].eager.verdict == "cannot tell"


def test_missing_figures_are_no_change() -> None:
    found = change(row(), Row(compiler="inductor", outcome="crash"))
    assert found.change is None and found.verdict == "cannot tell"
    for odd in (Interval(0.0, 0.0, 0.0), Interval(math.nan), Interval(math.inf, 1.0, None)):
        found = change(row(), msgspec.structs.replace(row(), speedup=odd))
        assert found.change is None and found.verdict == "cannot tell"


# ------------------------------------------------------------------------------ arithmetic


def test_the_interval_of_a_change_is_that_of_the_logarithms() -> None:
    """Against Welch's interval from samples: never narrower, and at most 1.5 times as wide."""
    generator = np.random.default_rng(0)
    for n in (3, 5, 12):
        for _ in range(20):
            old, new = generator.normal(0.5, 0.02, n), generator.normal(0.7, 0.03, n)
            exact = statistics.quotient_interval(new, old)
            limits = [statistics.process_interval(x) for x in (old, new)]
            found = changes.over(*(Interval(*limit) for limit in limits if limit))
            assert found is not None and exact is not None
            assert found.estimate == pytest.approx(exact.estimate)
            assert found.low is not None and found.high is not None
            assert exact.low is not None and exact.high is not None
            width = math.log(found.high / found.low) / math.log(exact.high / exact.low)
            assert 0.999 <= width <= 1.6, (n, width)


def test_both_directions_tell_the_same() -> None:
    a, b = Interval(2.0, 1.5, 4.0, 5), Interval(3.0, 1.0, 3.5, 5)
    there, back = changes.over(a, b), changes.inverse(changes.over(b, a))
    assert there is not None and back is not None
    assert [there.estimate, there.low, there.high] == pytest.approx(
        [back.estimate, back.low, back.high]
    )
    opened = changes.over(a, Interval(3.0, 1.0, None, 5))
    assert opened is not None and opened.high is None and opened.low == pytest.approx(there.low)
    closed = changes.inverse(opened)
    assert closed is not None and closed.low == 0.0
    zero = changes.over(a, Interval(3.0, 0.0, 3.5, 5))
    assert zero is not None and zero.low == 0.0 and changes.inverse(zero).high is None  # type: ignore[union-attr]


@pytest.mark.parametrize(("processes", "spread"), [(3, 0.01), (3, 0.03), (5, 0.02)])
def test_equal_studies_are_seldom_called_different(processes: int, spread: float) -> None:
    """At most 1 % of equal pairs are called slower; a true 1.3x is found in most at 1 %."""
    generator = np.random.default_rng(1)

    def speedup(true: float) -> Row:
        logs = generator.normal(math.log(true), spread, processes)
        limits = statistics.process_interval(logs)
        assert limits is not None
        return msgspec.structs.replace(row(), speedup=Interval(*limits), starts=[])

    trials = 1000
    wrong = sum(_called(speedup(2.0), speedup(2.0)) in ("faster", "slower") for _ in range(trials))
    assert wrong <= 0.01 * trials
    found = sum(_called(speedup(2.0), speedup(2.0 / 1.3)) == "slower" for _ in range(100))
    assert found >= (90 if spread < 0.03 else 50)


def _called(old: Row, new: Row) -> str:
    return changes.more_is_better("speedup", old.speedup, new.speedup, 0.014).verdict


# ------------------------------------------------------------------------------ two studies


def test_another_machine_is_refused_unless_told() -> None:
    other = {**ENVIRONMENT, "machine": "xyz", "cpu": "EPYC", "cores": 64}
    old, new = study(row()), study(row(speedup=1.0), environment=other)
    with pytest.raises(UsageError, match=r"Xeon.*EPYC.*--other-machine") as caught:
        compare.compare(old, new)
    assert caught.value.exit_code == 2
    found = compare.compare(old, new, other_machine=True)
    assert not found.same_machine and {"cpu", "cores"} <= {d.name for d in found.differences}
    quantities = [c.quantity for c in found.subjects[0].compilers[0].changes]
    assert "cold start" not in quantities and "speedup" in quantities
    for silent in ({}, {"cpu": "?"}):
        with pytest.raises(UsageError):
            compare.compare(study(row(), environment=silent), study(row(), environment=silent))


def test_versions_that_differ_are_listed_and_load_is_not() -> None:
    later = {
        **ENVIRONMENT,
        "packages": {"torch": "2.14.0", "onnx": "1.0"},
        "load": [9.0],
        "memory": 1,
    }
    found = compare.compare(study(row()), study(row(), environment=later)).differences
    assert {(d.name, d.old, d.new) for d in found} == {
        ("torch", "2.13.0", "2.14.0"),
        ("openvino", "2026.4", ""),
        ("onnx", "", "1.0"),
    }


def test_missing_and_added_rows_are_named() -> None:
    old = study(row("inductor"), row("openvino"))
    new = study(row("inductor"), row("onnxruntime"))
    (subject,) = compare.compare(old, new).subjects
    assert (subject.missing, subject.added) == (["openvino"], ["onnxruntime"])
    assert [one.compiler for one in subject.compilers] == ["inductor"]


def test_subjects_are_matched_with_their_threads() -> None:
    both = study(row())
    one = study(row(), threads=1)
    old = msgspec.structs.replace(both, subjects=[*both.subjects, *one.subjects])
    found = compare.compare(old, both)
    assert [s.subject for s in found.subjects] == ["chain, 2 threads"]
    assert found.missing == ["chain, 1 thread"] and found.added == []
    with pytest.raises(UsageError, match="1 thread"):
        compare.compare(one, both)
    with pytest.raises(UsageError, match="none"):
        compare.compare(msgspec.structs.replace(one, subjects=[]), both)


# ------------------------------------------------------------------------------ gates


def gates(old: Row, new: Row) -> set[str]:
    found = compare.compare(study(old), study(new))
    return {gate for gate in compare.GATES if compare.failed(found, gate)}


def test_each_gate_looks_at_its_own_quantity() -> None:
    assert gates(row(), row()) == set()
    assert gates(row(speedup=2.0), row(speedup=1.5)) == {"slower"}
    assert gates(cold(10.0), cold(20.0)) == {"slower-start"}
    assert gates(pays(calls(100)), pays(calls(300))) == {"later-break-even"}
    assert gates(row(speedup=1.5), row(speedup=2.0)) == set()


@pytest.mark.parametrize("outcome", ["crash", "wrong", "timeout", "cannot compile", "recompiles"])
def test_a_compiler_that_broke_fails_every_gate(outcome: str) -> None:
    broken = Row(compiler="inductor", outcome=outcome)
    assert gates(row(), broken) == set(compare.GATES)
    assert gates(broken, broken) == set() and gates(broken, row()) == set()
    (why,) = compare.failures(compare.compare(study(row()), study(broken)), "slower")
    assert outcome in why and "inductor on chain" in why


def test_one_that_is_not_there_any_more_fails_none() -> None:
    for outcome in ("unavailable", "unsupported", "interrupted"):
        assert gates(row(), Row(compiler="inductor", outcome=outcome)) == set()


def test_gates_by_name() -> None:
    worse = compare.compare(study(cold(10.0)), study(cold(20.0)))
    assert not compare.failed(worse, "") and not compare.failed(worse, "slower")
    assert compare.failed(worse, "slower, slower-start")
    for gate in ("faster", "slower,nope", "SLOWER"):
        with pytest.raises(UsageError, match="later-break-even") as caught:
            compare.failed(worse, gate)
        assert caught.value.exit_code == 2


# ------------------------------------------------------------------------------ shown


def shown(comparison: changes.Comparison, width: int = 120) -> str:
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        console = Console(width=width, record=True, file=nowhere)
        console.print(compare.render(comparison))
        return console.export_text()


def test_the_table_says_what_the_data_says() -> None:
    later = {**ENVIRONMENT, "packages": {"torch": "2.14.0"}}
    old = study(row(), row("openvino"), row("dynamo", version="1"))
    new = study(
        row(speedup=1.5),
        Row(compiler="openvino", outcome="crash"),
        row("onnxruntime"),
        row("dynamo", version="2"),
        environment=later,
        eager_ms=21.0,
    )
    text = shown(compare.compare(old, new))
    for word in (
        "Eager itself moved by +5.0 %",
        "slower",
        "crash",
        "2.14.0",
        "onnxruntime",
        "machine-cold",
        "1.50x",
        "0.750",
    ):
        assert word in text, word


def test_every_combination_of_missing_parts_can_be_shown_and_sent() -> None:
    intervals = [None, Interval(2.0), around(2.0), Interval(2.0, 1.0, None, 3)]
    evens = [
        BreakEven(kind="never"),
        BreakEven(kind="may never"),
        calls(9),
        BreakEven(kind="calls"),
    ]
    pairs = itertools.product(itertools.product(intervals, evens), repeat=2)
    chosen = random.Random(0).sample(list(pairs), 60)
    for before, after in chosen:
        rows = [
            row(
                starts=[Start(state="in-process", cold=interval, break_even=even)],
                accuracy="unknown",
            )
            for interval, even in (before, after)
        ]
        rows = [
            msgspec.structs.replace(one, speedup=interval)
            for one, (interval, _) in zip(rows, (before, after), strict=True)
        ]
        found = compare.compare(study(rows[0]), study(rows[1]))
        assert shown(found, 60)
        text = msgspec.json.encode(found)
        assert msgspec.json.decode(text, type=changes.Comparison) == found
