"""Tables of the experiment `fusion`: speed, what it comes from, one technique off at a time."""

from __future__ import annotations

from breakeven.lab import format as words
from breakeven.lab.report import table
from breakeven.lab.report.table import Cell, Table
from breakeven.lab.results import Row, SubjectResults


def speed(subject: SubjectResults) -> Table:
    """Steady state: what stands behind the forest plot."""
    columns = table.columns_of(
        "compiler | ms per call # | eager ms # | speedup # | with freed pages kept # "
        "| against eager at its best threads # | verdict | mean ms # | p90 ms # | p99 ms # "
        "| samples # | outliers # | blocks set aside #"
    )
    rows = []
    for row in subject.rows:
        if row.outcome != "ok":
            rows.append([Cell(row.compiler), *table.failed(row, len(columns))])
            continue
        rows.append(
            [
                Cell(row.compiler),
                table.number(row.ms),
                table.number(row.eager_ms),
                table.number(row.speedup),
                table.number(row.speedup_kept),
                table.number(row.speedup_best_threads),
                table.verdict(row.verdict),
                Cell(words.number(row.mean_ms)),
                Cell(words.number(row.p90_ms)),
                Cell(words.number(row.p99_ms)),
                Cell(f"{row.samples:,}"),
                Cell(f"{row.outliers:,}"),
                Cell(f"{row.contended} of {row.blocks}", "bad" if row.contended else ""),
            ]
        )
    note = (
        "p90 needs 64 samples and p99 needs 662. Outliers are single calls beyond Tukey's fences, "
        "flagged and kept. A block is set aside when other work on the machine disturbed it."
    )
    return Table("speed", "Steady state", columns, rows, note, table.compilers_of(subject.rows))


def attribution(subject: SubjectResults) -> Table:
    """Why a subject gained, or could not."""
    columns = table.columns_of(
        "compiler | speedup # | from computation # | from allocation # | page faults per call # "
        "| operators # | kernels # | bytes before fusion # | bytes after # | operations # "
        "| of the machine's bandwidth # | of its FMA peak #"
    )
    rows = []
    kept = [row for row in subject.rows if row.outcome == "ok"]
    for row in kept:
        faults = words.NONE
        if row.faults is not None:
            before = "" if row.faults_eager is None else f"{row.faults_eager:,.0f} → "
            faults = f"{before}{row.faults:,.0f}"
        rows.append(
            [
                Cell(row.compiler),
                Cell(words.ratio(row.speedup.estimate if row.speedup else None)),
                Cell(words.ratio(row.speedup_kept.estimate if row.speedup_kept else None)),
                Cell(words.ratio(allocation(row))),
                Cell(faults),
                Cell(words.NONE if row.operators is None else f"{row.operators:,}"),
                Cell(words.NONE if row.kernels is None else f"{row.kernels:,}"),
                Cell(words.size_bytes(row.bytes_before)),
                Cell(words.size_bytes(row.bytes_after)),
                Cell(words.operations(row.flops)),
                Cell(words.percent(row.bandwidth_fraction)),
                Cell(words.percent(row.peak_fraction)),
            ]
        )
    note = (
        "A speedup is computation times allocation: what remains when freed pages are kept, and "
        "what the allocator's page faults add. A dash: the compiler does not tell."
    )
    title = "Where the gain comes from"
    return Table("attribution", title, columns, rows, note, table.compilers_of(kept))


def allocation(row: Row) -> float | None:
    """The factor of the speedup that is page faults saved: speedup over speedup with pages kept."""
    if row.speedup is None or row.speedup_kept is None or not row.speedup_kept.estimate:
        return None
    return row.speedup.estimate / row.speedup_kept.estimate


def ablations(subject: SubjectResults) -> Table:
    """One technique off at a time, all off, and what single ones leave unexplained."""
    columns = table.columns_of(
        "compiler | technique off | stage | slowdown without it # | verdict "
        "| cold start without it #"
    )
    rows = []
    for row in subject.ablations:
        head = [Cell(row.compiler), Cell(row.technique)]
        if row.outcome != "ok":
            rows.append([*head, *table.failed(row, len(columns), 2)])
            continue
        verdict = table.verdict(row.verdict)
        if row.took is False:
            verdict = Cell("no effect here", "quiet")
        rows.append(
            [
                *head,
                table.text(row.stage),
                table.number(row.slowdown),
                verdict,
                table.seconds(row.cold),
            ]
        )
    note = (
        "Above 1 the technique helps. Leave-one-out effects do not add up, so all off and the "
        "remainder stand beside them. No effect here: the program and its kernels did not change."
    )
    return Table(
        "ablations",
        "One technique off",
        columns,
        rows,
        note,
        table.compilers_of(subject.ablations),
        named=2,
    )
