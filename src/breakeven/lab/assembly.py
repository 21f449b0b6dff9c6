"""From the records of a folder to results: no number is computed anywhere else."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from breakeven.lab.compilers import registry
from breakeven.lab.describe import Facts
from breakeven.lab.experiments import fusion, overhead, shapes
from breakeven.lab.experiments.evidence import Evidence, Process, each, interval
from breakeven.lab.experiments.plan import ONCE, reference_size
from breakeven.lab.records import SCHEMA, Cell, Header, Outcome, short
from breakeven.lab.results import OutcomeRow, Results, SubjectResults
from breakeven.lab.roofline import Ceilings
from breakeven.lab.statistics import (
    Verdict,
    band_p_value,
    control_false_discovery,
    process_interval,
)
from breakeven.lab.store import CellRecords, Store
from breakeven.lab.study import Request, label


def results(folder: Path) -> Results:
    """Everything that the records of `folder` say, for the request of its latest header.

    Raises:
        StoreError: the folder holds no study, or a damaged one.
    """
    store = Store.open(folder, write=False)
    header = store.headers()[-1]
    request = msgspec.convert(header.plan["request"], Request)
    facts = msgspec.convert(header.plan["facts"], dict[str, Facts])
    planned = msgspec.convert(header.plan["cells"], list[Cell])
    wanted = {cell.key for cell in planned}
    cells = [cell for cell in store.cells() if cell.cell.key in wanted]
    finished = store.finished()
    groups = dict.fromkeys((cell.subject, cell.threads) for cell in planned)
    subjects = [
        _subject(request, facts[name], header, cells, planned, name, threads)
        for name, threads in groups
    ]
    if len(subjects) > 1:
        subjects = _controlled(_largest_again(subjects, cells), cells)
    return Results(
        schema=SCHEMA,
        command=header.command,
        quick=request.quick,
        calls=request.calls,
        budget_minutes=request.budget,
        seconds=sum(cell.outcome.seconds for cell in cells),
        environment=header.environment,
        subjects=subjects,
        not_run=[*_unloadable(header), *_not_run(planned, finished, cells, header)],
        notes=store.warnings,
    )


def _subject(
    request: Request,
    facts: Facts,
    header: Header,
    cells: list[CellRecords],
    planned: list[Cell],
    name: str,
    threads: int,
) -> SubjectResults:
    evidence = Evidence(cells, name, threads)
    versions: dict[str, str] = header.plan["versions"]
    known: dict[str, Any] = header.plan.get("ceilings", {})
    ceilings = msgspec.convert(known[str(threads)], Ceilings) if str(threads) in known else None
    compilers = list(dict.fromkeys(c.compiler for c in planned if c.subject == name))
    rows = [
        overhead.with_costs(
            evidence, fusion.row(evidence, one, versions.get(one, ""), ceilings), request.calls
        )
        for one in compilers
    ]
    ok = [row.compiler for row in rows if row.outcome == "ok"]
    curves = [c for one in ok if (c := overhead.curve(evidence, one, request.calls)) is not None]
    return SubjectResults(
        subject=name,
        about=facts.about,
        size=reference_size(facts, facts.trace),
        best_threads=fusion.best_threads(evidence)[0] or None,
        threads=threads,
        noise_floor=evidence.noise,
        calls=request.calls,
        rows=rows,
        ablations=[
            ablation
            for one in ok
            for ablation in fusion.ablations(evidence, one, registry.get(one).techniques)
            if one not in ONCE or ablation.technique == "freezing"
        ],
        phases=[row for one in ok if one != "eager" for row in overhead.phases(evidence, one)],
        curves=curves,
        policies=shapes.policies(evidence, compilers),
        shape_calls=[call for one in ok for call in shapes.calls(evidence, one)],
        sizes=[row for one in ok if one != "eager" for row in shapes.sizes(evidence, one)],
        outcomes=_outcomes(cells, header, name, threads),
        notes=[
            *_notes(evidence),
            *([facts.note] if facts.note else []),
            *([] if ceilings else ["Bandwidth and peak of this machine could not be measured."]),
        ],
    )


def _outcomes(
    cells: list[CellRecords], header: Header, name: str, threads: int
) -> list[OutcomeRow]:
    return [
        OutcomeRow(
            cell=label(cell.cell),
            compiler=cell.cell.compiler,
            outcome=cell.outcome.outcome,
            detail=cell.outcome.detail,
            command=" ".join(header.command),
        )
        for cell in cells
        if cell.outcome.outcome != "ok"
        and (cell.cell.subject, cell.cell.threads) == (name, threads)
    ]


def _unloadable(header: Header) -> list[OutcomeRow]:
    """Subjects of a suite that do not load or do not run in eager PyTorch."""
    failed: dict[str, str] = header.plan.get("unloadable", {})
    command = " ".join(header.command)
    return [
        OutcomeRow(cell=short(name), compiler="eager", outcome="crash", detail=why, command=command)
        for name, why in failed.items()
    ]


def _not_run(
    planned: list[Cell], finished: dict[str, Outcome], cells: list[CellRecords], header: Header
) -> list[OutcomeRow]:
    """Cells that the budget left out; those of a compiler that failed are told by its outcome."""
    failed = {
        (c.cell.subject, c.cell.compiler, c.cell.threads)
        for c in cells
        if c.outcome.outcome != "ok" and c.cell.policy == "automatic" and not c.cell.off
    }
    left: dict[tuple[str, str], Counter[str]] = {}
    for cell in planned:
        if cell.key in finished or (cell.subject, cell.compiler, cell.threads) in failed:
            continue
        left.setdefault((cell.subject, cell.compiler), Counter())[_purpose(cell)] += 1
    return [
        OutcomeRow(
            cell=f"{short(subject)}: "
            + ", ".join(f"{name} ({n})" if n > 1 else name for name, n in purposes.items()),
            compiler=compiler,
            outcome="not run",
            detail="the budget ended before it",
            command=_longer(header.command, cells),
        )
        for (subject, compiler), purposes in left.items()
    ]


def _purpose(cell: Cell) -> str:
    """What a cell would have told, in a few words."""
    if cell.off:
        return "ablation"
    if cell.order:
        return "shuffled trace"
    if "replay" in cell.work:
        return "replay"
    if cell.policy != "automatic":
        return f"policy {cell.policy}"
    if not cell.work:
        return f"{cell.state} start"
    return "repeat" if cell.repetition else "first process"


def _longer(command: list[str], cells: list[CellRecords]) -> str:
    """The same command with room for what it left out: an hour beyond what has been spent."""
    spent = sum(cell.outcome.seconds for cell in cells) / 60
    kept, skip = [], False
    for word in command:
        if skip or word.startswith("--budget"):
            skip = word == "--budget"
            continue
        kept.append(word)
    return " ".join([*kept, "--budget", str(60 + math.ceil(spent))])


def _largest_again(
    subjects: list[SubjectResults], cells: list[CellRecords]
) -> list[SubjectResults]:
    """The largest speedup of a suite, as its later processes measured it.

    It was picked by each row's first process, which therefore tends to flatter it; the processes
    after that one are fresh and did not take part in the choice.
    """
    best: tuple[float, int, int, Evidence] | None = None
    for i, subject in enumerate(subjects):
        evidence = Evidence(cells, subject.subject, subject.threads)
        for j, row in enumerate(subject.rows):
            first = evidence.first(row.compiler)
            ratio = first.log_ratio() if first and row.accuracy == "f32-level" else None
            if ratio is not None and (best is None or ratio > best[0]):
                best = (ratio, i, j, evidence)
    if best is None:
        return subjects
    _, i, j, evidence = best
    row = subjects[i].rows[j]
    fresh = [p for p in evidence.steady(row.compiler) if p.cell.repetition > 0]
    again = process_interval(each(fresh, Process.log_ratio))
    if again is None or again.n < 2:
        return subjects
    note = f"The largest speedup of the suite, measured again in {again.n} fresh processes."
    rows = list(subjects[i].rows)
    rows[j] = msgspec.structs.replace(row, speedup=interval(again), notes=[*row.notes, note])
    told = msgspec.structs.replace(subjects[i], rows=rows)
    return [*subjects[:i], told, *subjects[i + 1 :]]


def _controlled(subjects: list[SubjectResults], cells: list[CellRecords]) -> list[SubjectResults]:
    """False-discovery control over every verdict of a suite."""
    places, verdicts, p_values = [], [], []
    for i, subject in enumerate(subjects):
        evidence = Evidence(cells, subject.subject, subject.threads)
        for j, row in enumerate(subject.rows):
            if row.verdict in ("", "baseline"):
                continue
            ratios = [r for p in evidence.steady(row.compiler) if (r := p.log_ratio()) is not None]
            places.append((i, j))
            verdicts.append(Verdict(row.verdict))  # type: ignore[arg-type]
            contended = any(p.is_contended() for p in evidence.steady(row.compiler))
            p_values.append(None if contended else band_p_value(ratios, evidence.noise))
    rows = [list(subject.rows) for subject in subjects]
    for (i, j), kept in zip(places, control_false_discovery(verdicts, p_values), strict=True):
        rows[i][j] = msgspec.structs.replace(rows[i][j], verdict=kept.kind)
    return [msgspec.structs.replace(s, rows=r) for s, r in zip(subjects, rows, strict=True)]


def _notes(evidence: Evidence) -> list[str]:
    notes = ["The page cache was warmed by one discarded process before the first cell."]
    threads, gain = fusion.best_threads(evidence)
    if threads:
        notes.append(
            f"Eager is {gain:.2f}x faster on {threads} thread{'s'[: threads > 1]}; "
            "that part of a speedup is not credited to a compiler."
        )
    told = (p.note(name) for p in evidence.processes for name in ("nan", "denormals"))
    return [*notes, *dict.fromkeys(text for text in told if text)]
