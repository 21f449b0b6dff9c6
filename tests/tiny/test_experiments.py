"""From hand-made records to results: every figure is known beforehand."""

from __future__ import annotations

import math

import msgspec
import pytest

from breakeven.lab.compilers.compiler import Technique
from breakeven.lab.experiments import fusion, overhead, shapes
from breakeven.lab.experiments.evidence import Evidence
from breakeven.lab.records import (
    AccuracyRecord,
    Block,
    Call,
    Cell,
    CellRecord,
    MemoryRecord,
    Outcome,
    Phase,
    PhaseRecord,
    Program,
    ProgramRecord,
    ReplayRecord,
    Timing,
)
from breakeven.lab.store import CellRecords

KEY = {"key": "k", "attempt": 1}
EAGER, FAST = 0.010, 0.004


def block(role: str, pair: int, seconds: float, **more: object) -> Block:
    base = Block(
        **KEY, role=role, allocator="as-it-comes", pair=pair, seconds=[seconds] * 5, wall=0.1
    )
    return msgspec.structs.replace(base, **more)


def pairs(eager: float, compiled: float, **more: object) -> list[CellRecord]:
    return [
        block(role, pair, seconds, **more)
        for pair in range(4)
        for role, seconds in (("eager", eager), ("compiled", compiled))
    ]


def cell(compiler: str, records: list[CellRecord], outcome: str = "ok", **more) -> CellRecords:
    one = msgspec.structs.replace(
        Cell(subject="s", compiler=compiler, threads=2, work=("steady",)), **more
    )
    return CellRecords(one, 1, records, Outcome(**KEY, outcome=outcome, detail="why"))


def start(compile_: float, first: float, later: list[float]) -> list[CellRecord]:
    return [
        Timing(**KEY, name="compile", seconds=compile_),
        Timing(**KEY, name="first-call", seconds=first),
        *(
            Call(**KEY, role="compiled", part="transient", index=i, seconds=s)
            for i, s in enumerate(later)
        ),
    ]


def accuracy(error: float, part: str = "first") -> AccuracyRecord:
    return AccuracyRecord(**KEY, compiled=error, eager=1e-7, bfloat16=1e-2, part=part)


def evidence(*cells: CellRecords) -> Evidence:
    eager = [
        cell("eager", [*start(0.0, 0.03, [EAGER] * 3), *pairs(EAGER, EAGER)], repetition=i)
        for i in range(3)
    ]
    return Evidence([*eager, *cells], "s", 2)


def compiled(i: int = 0, **more: object) -> CellRecords:
    records = [*start(2.0, 0.5, [0.104, FAST]), *pairs(EAGER, FAST), accuracy(1e-7)]
    return cell("fast", records, repetition=i, **more)


def test_speedup_is_eager_over_compiled_and_times_are_of_the_compiled_side() -> None:
    row = fusion.row(evidence(*map(compiled, range(3))), "fast", "1", None)
    assert row.speedup.estimate == pytest.approx(2.5)
    assert row.ms.estimate == pytest.approx(4.0)
    assert row.eager_ms.estimate == pytest.approx(10.0)
    assert row.verdict == "faster"
    assert row.accuracy == "f32-level"
    assert row.speedup.n == 3


def test_blocks_with_a_compile_are_not_used() -> None:
    dirty = [block("compiled", 9, 1.0, compiles=1), block("eager", 9, EAGER)]
    row = fusion.row(evidence(cell("fast", [*pairs(EAGER, FAST), *dirty])), "fast", "", None)
    assert row.mean_ms == pytest.approx(4.0)


def test_a_clean_try_stands_for_a_contended_one() -> None:
    bad = [block("compiled", pair, 0.5, contended=True) for pair in range(4)]
    row = fusion.row(evidence(cell("fast", [*bad, *pairs(EAGER, FAST)])), "fast", "", None)
    assert row.ms.estimate == pytest.approx(4.0)


def test_a_verdict_on_contended_blocks_is_withheld() -> None:
    row = fusion.row(evidence(cell("fast", pairs(EAGER, FAST, contended=True))), "fast", "", None)
    assert row.verdict == "cannot tell"
    assert row.contended == row.blocks == 8


def test_a_failed_compiler_has_its_outcome_and_no_numbers() -> None:
    row = fusion.row(evidence(cell("fast", [], outcome="crash")), "fast", "", None)
    assert (row.outcome, row.detail, row.ms, row.speedup) == ("crash", "why", None, None)


def test_break_even_counts_compile_first_call_and_transient() -> None:
    found = evidence(*map(compiled, range(3)))
    cold = overhead.start(found, "fast", "machine-cold")
    assert cold.cold.estimate == pytest.approx(2.5)
    cost = 2.0 + (0.5 + 0.104 + FAST - 3 * FAST)
    eager_cost = 0.03 - EAGER
    expected = (cost - eager_cost) / (EAGER - FAST)
    assert cold.break_even.kind == "calls"
    assert cold.break_even.calls.estimate == pytest.approx(expected, rel=1e-3)
    assert not cold.break_even.confirmed


def test_states_are_not_mixed() -> None:
    warm = cell(
        "fast",
        [*start(0.2, 0.1, []), *pairs(EAGER, FAST)],
        state="disk-warm",
        repetition=7,
    )
    found = evidence(compiled(), warm)
    assert overhead.start(found, "fast", "machine-cold").cold.estimate == pytest.approx(2.5)
    assert overhead.start(found, "fast", "disk-warm").cold.estimate == pytest.approx(0.3)
    assert overhead.start(found, "fast", "toolchain-warm").cold is None


def test_a_replay_past_the_estimate_confirms_it() -> None:
    counts = list(range(100, 1001, 100))
    sides = [
        ReplayRecord(**KEY, role=role, counts=counts, cumulative=[n * each for n in counts])
        for role, each in (("eager", EAGER), ("compiled", FAST))
    ]
    replay = cell("fast", sides, work=("replay",), state="disk-warm", repetition=5)
    found = evidence(*map(compiled, range(3)), replay)
    assert overhead.start(found, "fast", "machine-cold").break_even.confirmed
    curve = overhead.curve(found, "fast", 1000)
    assert curve.replayed == 1000


def test_no_gain_never_gives_a_number() -> None:
    same = [
        cell("same", [*start(1.0, 0.5, []), *pairs(EAGER, EAGER)], repetition=i) for i in range(3)
    ]
    one = overhead.start(evidence(*same), "same", "machine-cold").break_even
    assert one.kind in ("may never", "never")
    assert one.calls is None or one.calls.high is None


def test_totals_share_eagers_time_per_call() -> None:
    found = evidence(*map(compiled, range(3)))
    row = overhead.with_costs(found, fusion.row(found, "fast", "", None), 1000)
    assert row.total_at_calls == pytest.approx(2.596 + 1000 * FAST, rel=1e-3)
    assert row.saving_at_calls == pytest.approx(
        (0.02 + 1000 * EAGER) - row.total_at_calls, rel=1e-2
    )


def test_phases_leave_the_rest_unattributed() -> None:
    told = PhaseRecord(**KEY, phases=[Phase("trace", "frontend", 1.0)])
    found = evidence(cell("fast", [*start(2.0, 0.5, []), told]))
    (row,) = overhead.phases(found, "fast")
    assert row.total == pytest.approx(2.5)
    assert {p.name: p.seconds for p in row.parts} == {"trace": 1.0, "unattributed": 1.5}


def test_memory_of_compiling_is_the_growth() -> None:
    memory = MemoryRecord(**KEY, name="compile", before=100, peak=350)
    row = fusion.row(evidence(cell("fast", [*pairs(EAGER, FAST), memory])), "fast", "", None)
    assert row.compile_peak_bytes == 250


def test_a_speedup_that_is_only_threading_is_not_credited() -> None:
    """Case 38: eager is 2.5 times as fast on one thread."""
    sweep = pairs(EAGER, FAST, part="threads-1")
    eager = cell("eager", [*pairs(EAGER, EAGER), *sweep], repetition=8)
    found = evidence(eager, *map(compiled, range(3)))
    assert fusion.best_threads(found) == (1, pytest.approx(2.5))
    row = fusion.row(found, "fast", "", None)
    assert row.speedup_best_threads.estimate == pytest.approx(1.0)


def test_fewer_threads_do_not_win_by_load() -> None:
    sweep = pairs(EAGER, FAST, part="threads-1", contended=True)
    found = evidence(cell("eager", [*pairs(EAGER, EAGER), *sweep], repetition=8))
    assert fusion.best_threads(found) == (0, 1.0)


def test_ablation_ratio_switch_and_remainder() -> None:
    def tried(off: tuple[str, ...], seconds: float, digest: str) -> CellRecords:
        record = ProgramRecord(**KEY, program=Program(digest=digest))
        return cell("fast", [*pairs(EAGER, seconds), record], off=off, state="toolchain-warm")

    base = tried((), FAST, "base")
    found = evidence(
        base,
        tried(("a",), 2 * FAST, "other"),
        tried(("b",), FAST, "base"),
        tried(("a", "b"), 3 * FAST, "third"),
    )
    techniques = (Technique("a", "backend", ""), Technique("b", "frontend", ""))
    rows = {row.technique: row for row in fusion.ablations(found, "fast", techniques)}
    assert rows["a"].slowdown.estimate == pytest.approx(2.0)
    assert rows["a"].took is True
    assert rows["b"].took is False
    assert "no effect here" in rows["b"].detail
    assert rows[fusion.ALL_OFF].slowdown.estimate == pytest.approx(3.0)
    assert rows[fusion.REMAINDER].slowdown.estimate == pytest.approx(1.5)


def walk(
    compiler: str, policy: str, first: float, steady: float, lengths: list[int]
) -> CellRecords:
    records: list[CellRecord] = start(1.0, 0.5, [])
    seen: set[int] = set()
    for index, length in enumerate(lengths):
        new = length not in seen
        seen.add(length)
        records.append(
            Call(
                **KEY,
                role="compiled",
                part="shapes",
                index=index,
                seconds=first if new else steady,
                size={"length": length},
                new=new,
                compiles=int(new),
                reason="size" if new else "",
            )
        )
    for length in dict.fromkeys(lengths):
        records += pairs(EAGER, steady, part="shape", size={"length": length})
    return cell(compiler, records, policy=policy, work=("shapes",), repetition=9)


def test_transition_cut_and_loss() -> None:
    lengths = [8, 16, 8, 32, 16, 64]
    eager = walk("eager", "automatic", 0.012, EAGER, lengths)
    found = Evidence(
        [
            eager,
            walk("fast", "static", 1.004, FAST, lengths),
            walk("fast", "automatic", 0.304, FAST * 1.1, lengths),
        ],
        "s",
        2,
    )
    rows = {(r.compiler, r.policy): r for r in shapes.policies(found, ["eager", "fast"])}
    static, automatic = rows["fast", "static"], rows["fast", "automatic"]
    assert static.transition.estimate == pytest.approx(4 * (1.0 - 0.002))
    assert automatic.transition.estimate == pytest.approx(4 * (0.304 - 0.0044 - 0.002))
    assert automatic.cut.estimate == pytest.approx(1 - 0.2976 / 0.998, rel=1e-3)
    assert automatic.loss.estimate == pytest.approx(1.1)
    assert automatic.recompiles == 4
    assert automatic.reasons == ["size"]
    assert automatic.total_after_first.estimate == pytest.approx(4 * 0.304 + 2 * 0.0044)
    assert automatic.total.estimate == pytest.approx(1.5 + automatic.total_after_first.estimate)
    eager_total = 1.5 + 4 * 0.012 + 2 * EAGER
    assert automatic.saving == pytest.approx(eager_total - automatic.total.estimate)
    assert rows["eager", "automatic"].transition is None


def test_losses_by_size_stand_beside_static() -> None:
    found = Evidence(
        [walk("fast", "static", 1.0, FAST, [8, 16]), walk("fast", "dynamic", 0.1, 0.005, [8, 16])],
        "s",
        2,
    )
    rows = [r for r in shapes.sizes(found, "fast") if r.policy == "dynamic"]
    assert [r.size["length"] for r in rows] == [8, 16]
    assert all(math.isclose(r.loss.estimate, 1.25) for r in rows)
