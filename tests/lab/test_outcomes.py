"""Planted compilers: each is reported as what it is, and none ends the study."""

from __future__ import annotations

import pytest

from conftest import planted, row, subject

EXPECTED = {
    "ByPointer": ("memoizes", "by pointer"),
    "ByContent": ("memoizes", "by content"),
    "Nothing": ("does nothing", "same answer"),
    "DefersToThread": ("defers", "after the call"),
    "DefersToUse": ("defers", "Lazy"),
    "Wrong": ("wrong", "relative RMS error"),
    "WrongLater": ("wrong", "timed call"),
    "Recompiles": ("recompiles", "steady state"),
    "Crashes": ("crash", "SIGSEGV"),
    "Exits": ("crash", "sys.exit"),
    "CannotCompile": ("cannot compile", "no rule for this operation"),
    "Refuses": ("unsupported", "this has two"),
    "Absent": ("unavailable", "pip install absent"),
    "Hungry": ("out of memory", "GiB"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> object:
    from breakeven.lab import api, assembly
    from breakeven.lab import study as studies
    from breakeven.lab.progress import Silent

    out = tmp_path_factory.mktemp("outcomes") / "study"
    request = api.request(
        subjects=[subject("two_milliseconds")],
        compilers=[planted(name) for name in (*EXPECTED, "Bfloat16", "Leaks", "Identical")],
        experiments=["fusion"],
        calls=1000,
        threads=[1],
        quick=True,
        budget=60,
        memory=3.0,
        out=str(out),
        command=["breakeven", "study"],
    )
    studies.run(request, Silent())
    return assembly.results(out)


@pytest.mark.parametrize("name", EXPECTED)
def test_named_as_what_it_is(results, name) -> None:
    outcome, words = EXPECTED[name]
    found = row(results, name)
    assert found.outcome == outcome, found.detail
    assert words in found.detail
    assert found.ms is None and found.speedup is None, "a dishonest callable has no numbers"


def test_every_failure_is_listed(results) -> None:
    listed = {(o.compiler, o.outcome) for o in results.subjects[0].outcomes}
    assert listed == {(planted(name), outcome) for name, (outcome, _) in EXPECTED.items()}


def test_reduced_precision_has_its_class(results) -> None:
    found = row(results, "Bfloat16")
    assert found.outcome == "ok"
    assert found.accuracy == "reduced"
    assert found.error > found.eager_error


def test_a_leak_is_noted_with_its_size(results) -> None:
    (note,) = [n for n in row(results, "Leaks").notes if "grows" in n]
    assert 0.8 < float(note.split(" by ")[1].split(" MB")[0]) < 1.3
    assert not any("grows" in note for note in row(results, "Identical").notes)


def test_honest_compilers_keep_their_numbers(results) -> None:
    for name in ("Identical", "Bfloat16", "Leaks"):
        found = row(results, name)
        assert found.outcome == "ok" and found.ms is not None
