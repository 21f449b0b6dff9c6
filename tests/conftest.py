"""What several test files need: a study run in a folder, and the planted compilers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from breakeven.lab import api, assembly
from breakeven.lab import study as studies
from breakeven.lab.progress import Silent
from breakeven.lab.results import Results, Row, SubjectResults

HERE = Path(__file__).resolve().parent


def planted(name: str) -> str:
    """A planted compiler as the lab is told of it."""
    return f"{HERE / 'planted.py'}:{name}"


def subject(name: str) -> str:
    """A planted subject as the lab is told of it."""
    return f"{HERE / 'planted_subjects.py'}:{name}"


def row(results: Results | SubjectResults, compiler: str) -> Row:
    """The row of one compiler, by its name or its class in planted.py."""
    subject_results = results.subjects[0] if isinstance(results, Results) else results
    names = (compiler, planted(compiler))
    return next(row for row in subject_results.rows if row.compiler in names)


@pytest.fixture
def run_study(tmp_path: Path) -> Callable[..., Results]:
    """Run a study of one subject and compute its results."""

    def run(
        name: str,
        compilers: Sequence[str],
        *,
        experiments: Sequence[str] = ("fusion",),
        folder: Path | None = None,
        quick: bool = True,
        threads: int = 1,
        **more: object,
    ) -> Results:
        out = folder or tmp_path / "study"
        request = api.request(
            subjects=[name],
            compilers=list(compilers),
            experiments=list(experiments),
            calls=1000,
            threads=[threads],
            quick=quick,
            budget=60,
            out=str(out),
            command=["breakeven", "study", name],
            **more,  # type: ignore[arg-type]
        )
        studies.run(request, Silent())
        return assembly.results(out)

    return run
