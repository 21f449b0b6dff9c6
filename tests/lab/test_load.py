"""Load from outside: contended blocks are found and the verdict is withheld."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from breakeven.lab.verdict import advised
from conftest import planted, row, subject


def burn() -> None:
    while True:
        pass


@pytest.fixture
def load():
    burners = [
        multiprocessing.get_context("spawn").Process(target=burn, daemon=True)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    for burner in burners:
        burner.start()
    yield
    for burner in burners:
        burner.kill()
        burner.join()


def test_verdict_is_withheld_under_load(run_study, load) -> None:
    results = run_study(subject("two_milliseconds"), [planted("Twice")])
    found = row(results, "Twice")
    assert found.outcome == "ok"
    assert found.contended > found.blocks / 2
    assert found.verdict == "cannot tell"
    advice = advised(results).subjects[0].advice
    assert advice is not None and advice.withheld


def test_a_hang_is_a_timeout_and_the_study_goes_on(run_study) -> None:
    results = run_study(
        subject("two_milliseconds"), [planted("Hangs"), planted("CannotCompile")], timeout=25.0
    )
    assert row(results, "Hangs").outcome == "timeout"
    assert "compile" in row(results, "Hangs").detail
    assert row(results, "CannotCompile").outcome == "cannot compile"
