"""Every table of a study, once, in neutral form: the terminal and the page print the same cells."""

from __future__ import annotations

from breakeven.lab import format as words
from breakeven.lab.report import table, tables_cost, tables_fusion
from breakeven.lab.report.table import Cell, Table
from breakeven.lab.results import OutcomeRow, Results, Row, SubjectResults


def summary(subject: SubjectResults) -> Table:
    """The table of the first screen: one line per compiler."""
    coldest = [start.state for row in subject.rows if (start := words.coldest(row))]
    state = min(coldest, key=words.STATES.index, default=words.STATES[0])
    columns = table.columns_of(
        "compiler | accuracy | ms per call # | speedup # | verdict | cold start, machine-cold # "
        f"| toolchain-warm # | disk-warm # | break-even calls, {state} # "
        f"| total of {subject.calls:,} calls #"
    )
    rows = []
    for row in subject.rows:
        name = Cell(row.compiler)
        if row.outcome != "ok":
            rows.append([name, *table.failed(row, len(columns))])
            continue
        starts = [words.start(row, state) for state in words.STATES[:3]]
        rows.append(
            [
                name,
                table.accuracy(row.accuracy, row.error),
                table.number(row.ms),
                table.number(row.speedup),
                table.verdict(row.verdict),
                *[table.seconds(start.cold if start else None) for start in starts],
                table.break_even(words.start(row, state)),
                table.total(row),
            ]
        )
    note = (
        "Intervals are 95 % over processes, printed [low, estimate, high]; n is the number of "
        "processes. Speedup is eager's time over the compiled one's."
    )
    return Table(
        "summary", "Compilers at a glance", columns, rows, note, table.compilers_of(subject.rows)
    )


def outcomes(rows: list[OutcomeRow], title: str = "Outcomes that are not numbers") -> Table:
    """Cells that ended in words: crash, timeout, wrong, unavailable, not run ..."""
    columns = table.columns_of("compiler | outcome | cell | what happened | command")
    cells = [
        [
            Cell(row.compiler),
            Cell(row.outcome, "quiet" if row.outcome in ("not run", "unavailable") else "bad"),
            Cell(row.cell),
            table.text(words.short(row.detail, 400)),
            table.text(row.command),
        ]
        for row in rows
    ]
    return Table("outcomes", title, columns, cells, "", [row.compiler for row in rows], named=2)


def not_run(results: Results) -> Table:
    """What was planned and not run; cells of one compiler under one command share a line."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for row in results.not_run:
        key = (row.compiler, row.outcome, row.detail, row.command)
        found.setdefault(key, []).append(row.cell)
    rows = [
        OutcomeRow(
            compiler=compiler, outcome=outcome, detail=detail, command=command, cell="; ".join(same)
        )
        for (compiler, outcome, detail, command), same in found.items()
    ]
    return outcomes(rows, "Not run")


def overview(results: Results) -> Table:
    """One line per subject, for studies of several."""
    columns = table.columns_of(
        "subject | verdict | fastest at f32 level | ms per call # | speedup # "
        "| break-even calls # | compilers without a number #"
    )
    rows = []
    for subject in results.subjects:
        best = fastest(subject)
        start = words.coldest(best) if best else None
        without = sum(row.outcome != "ok" for row in subject.rows)
        advice = subject.advice
        rows.append(
            [
                Cell(subject.subject),
                table.text(advice.headline if advice else "", "quiet" if not advice else ""),
                table.text(best.compiler if best else ""),
                table.number(best.ms if best else None),
                table.number(best.speedup if best else None),
                table.break_even(start, named=True),
                Cell(f"{without} of {len(subject.rows)}", "bad" if without else ""),
            ]
        )
    return Table("overview", "Subjects at a glance", columns, rows)


def fastest(subject: SubjectResults) -> Row | None:
    """The compiler with the largest speedup at f32 level; None where none has a number."""
    ranked = [
        row
        for row in subject.rows
        if row.outcome == "ok" and row.accuracy == "f32-level" and row.speedup is not None
    ]
    return max(ranked, key=lambda row: row.speedup.estimate if row.speedup else 0, default=None)


def of_subject(subject: SubjectResults) -> list[Table]:
    """Every table of one subject that has rows, in the order in which a reader asks.

    What did not end in a number stands in `all_outcomes`, for all subjects together.
    """
    built = [
        summary(subject),
        tables_fusion.speed(subject),
        tables_fusion.attribution(subject),
        tables_fusion.ablations(subject),
        tables_cost.starts(subject),
        tables_cost.totals(subject),
        tables_cost.phases(subject),
        tables_cost.curves(subject),
        tables_cost.policies(subject),
        tables_cost.transitions(subject),
        tables_cost.sizes(subject),
    ]
    return [made for made in built if made.rows]


def all_outcomes(results: Results) -> Table:
    """Every cell of a study that did not end in a number, equal ones of several subjects as one."""
    found: dict[tuple[str, str, str], list[tuple[str, OutcomeRow]]] = {}
    for subject in results.subjects:
        for row in [*subject.outcomes, *_untold(subject)]:
            key = (row.compiler, row.outcome, row.detail)
            found.setdefault(key, []).append((subject.subject, row))
    rows = []
    for (compiler, outcome, detail), same in found.items():
        names = list(dict.fromkeys(name for name, _ in same))
        cell = same[0][1].cell if len(same) == 1 else f"{len(same)} cells"
        if len(results.subjects) > 1:
            shown = ", ".join(words.short(name, 40) for name in names[:4])
            cell = f"{shown} and {len(names) - 4} more subjects" if len(names) > 4 else shown
        rows.append(
            OutcomeRow(
                cell=cell,
                compiler=compiler,
                outcome=outcome,
                detail=detail,
                command=same[0][1].command,
            )
        )
    return outcomes(rows)


def _untold(subject: SubjectResults) -> list[OutcomeRow]:
    """Rows of the tables without a number that no outcome of the subject speaks of."""
    told = {(row.compiler, row.outcome, row.detail) for row in subject.outcomes}
    found = [(row.compiler, row.compiler, row.outcome, row.detail) for row in subject.rows]
    found += [
        (f"{row.compiler} without {row.technique}", row.compiler, row.outcome, row.detail)
        for row in subject.ablations
    ]
    found += [
        (f"{row.compiler}, {row.policy}", row.compiler, row.outcome, row.detail)
        for row in subject.policies
    ]
    return [
        OutcomeRow(cell=cell, compiler=compiler, outcome=outcome, detail=detail)
        for cell, compiler, outcome, detail in found
        if outcome != "ok" and (compiler, outcome, detail) not in told
    ]
