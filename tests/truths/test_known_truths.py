"""Known truths in real time: `make truths`, on a quiet machine, some 40 minutes.

One study holds four planted compilers, so that 20 studies give 20 times 2x, 20 times 1.10x and 40
times identical. Their synthetic twins are in tests/lab/test_statistics.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.lab import api, assembly
from breakeven.lab import study as studies
from breakeven.lab.progress import Silent
from breakeven.lab.results import Results
from conftest import planted, row, subject

pytestmark = pytest.mark.truths

STUDIES = 20
NAMES = ("Twice", "Tenth", "Identical", "AlsoIdentical")


def study(folder: Path, names: tuple[str, ...], subject_name: str, **more: object) -> Results:
    request = api.request(
        subjects=[subject(subject_name)],
        compilers=[planted(name) for name in names],
        experiments=["fusion"],
        calls=1000,
        threads=[1],
        budget=600,
        out=str(folder),
        command=["breakeven", "study"],
        **more,  # type: ignore[arg-type]
    )
    studies.run(request, Silent())
    return assembly.results(folder)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    base = tmp_path_factory.mktemp("truths")
    return [study(base / str(i), NAMES, "two_milliseconds") for i in range(STUDIES)]


def test_twice_is_covered_by_a_narrow_interval(many: list[Results]) -> None:
    found = [row(results, "Twice").speedup for results in many]
    covered = [s for s in found if s and s.low is not None and s.low <= 2.0 <= s.high]
    narrow = [s for s in found if s and s.low is not None and (s.high - s.low) / 2.0 <= 0.1]
    assert len(covered) >= 18, found
    assert len(narrow) >= 18, found


def test_a_tenth_is_called_faster(many: list[Results]) -> None:
    verdicts = [row(results, "Tenth").verdict for results in many]
    assert verdicts.count("faster") >= 18, verdicts


def test_identical_is_rarely_called(many: list[Results]) -> None:
    verdicts = [row(r, name).verdict for r in many for name in ("Identical", "AlsoIdentical")]
    assert sum(v in ("faster", "slower") for v in verdicts) <= 2, verdicts


def test_planted_phases_are_found(tmp_path: Path) -> None:
    results = study(tmp_path / "s", ("Phased",), "two_milliseconds", quick=True)
    phases = results.subjects[0].phases
    machine_cold = next(p for p in phases if p.state == "machine-cold")
    told = {part.name: part.seconds for part in machine_cold.parts}
    for name, seconds in (("frontend", 0.5), ("middle-end", 1.0), ("backend", 1.5)):
        assert told[name] == pytest.approx(seconds, rel=0.05)
    assert told["unattributed"] == pytest.approx(0.3, rel=0.1)


def test_break_even_of_a_planted_compile(tmp_path: Path) -> None:
    """3 s of compiling, 5 ms against 2.5 ms: 1,200 calls."""
    request = api.request(
        subjects=[subject("five_milliseconds")],
        compilers=[planted("ThreeSeconds"), planted("NoGain")],
        experiments=["overhead"],
        calls=2000,
        threads=[1],
        budget=600,
        out=str(tmp_path / "s"),
        command=["breakeven", "study"],
    )
    studies.run(request, Silent())
    results = assembly.results(tmp_path / "s")
    start = next(s for s in row(results, "ThreeSeconds").starts if s.state == "machine-cold")
    assert start.break_even.kind == "calls"
    assert start.break_even.calls.estimate == pytest.approx(1200, rel=0.1)
    assert start.break_even.confirmed
    for one in row(results, "NoGain").starts:
        assert one.break_even.kind in ("may never", "never")
        assert one.break_even.calls is None or one.break_even.calls.high is None
