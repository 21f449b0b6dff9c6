"""Tables of the experiments `overhead` and `shapes`: what compiling costs, once and per shape."""

from __future__ import annotations

from breakeven.lab import format as words
from breakeven.lab.report import table
from breakeven.lab.report.table import Cell, Column, Table
from breakeven.lab.results import Curve, ShapeCall, SubjectResults

MOST_TRANSITIONS = 40


def starts(subject: SubjectResults) -> Table:
    """Cold start and N* by state."""
    columns = table.columns_of(
        "compiler | state | cold start # | disk cache | break-even calls # | basis "
        "| compile peak memory #"
    )
    rows, names = [], []
    for row in subject.rows:
        for start in row.starts:
            first = start is row.starts[0]
            names.append(row.compiler)
            rows.append(
                [
                    Cell(row.compiler),
                    Cell(start.state),
                    table.seconds(start.cold),
                    Cell(start.artifact or words.NONE),
                    table.break_even(start),
                    table.text(words.break_even_basis(start.break_even)),
                    Cell(words.size_bytes(row.compile_peak_bytes if first else None)),
                ]
            )
    note = (
        "Cold start runs from the call to the compiler to the first result. Break-even: the calls "
        "after which compiling has cost less than staying with eager."
    )
    return Table("starts", "Cold start and break-even", columns, rows, note, names, named=2)


def totals(subject: SubjectResults) -> Table:
    """What `calls` calls cost with each choice, eager included."""
    columns = table.columns_of(
        f"compiler | total of {subject.calls:,} calls # | saved against eager # | accuracy"
    )
    rows, names = [], []
    known = [row for row in subject.rows if row.total_at_calls is not None]
    for row in sorted(known, key=lambda row: row.total_at_calls or 0.0):
        saving = row.saving_at_calls
        tone = "" if not saving else "good" if saving > 0 else "bad"
        names.append(row.compiler)
        rows.append(
            [
                Cell(row.compiler),
                table.total(row),
                Cell(words.seconds(saving), tone),
                table.accuracy(row.accuracy, row.error),
            ]
        )
    note = "Machine-cold start included, smallest first."
    if any(row.total_state not in ("", "machine-cold") for row in known):
        note = (
            "Start included, the machine-cold one where no other is named; smallest first. Totals "
            "with different starts are not to be compared."
        )
    return Table("totals", f"Total of {subject.calls:,} calls", columns, rows, note, names)


def phases(subject: SubjectResults) -> Table:
    """Each compiler's own phases on the common map, and what it does not expose."""
    columns = table.columns_of("compiler | state | stage | phase | time # | share #")
    rows, names = [], []
    for row in subject.phases:
        parts = [(part.stage, part.name, part.seconds) for part in row.parts]
        parts = [part for part in parts if part[0] != "unattributed"]
        rest = words.unattributed(row)
        if rest > 0:
            parts.append(("unattributed", "not exposed by the compiler", rest))
        for stage, name, spent in parts:
            names.append(row.compiler)
            share = spent / row.total if row.total else None
            tone = "quiet" if stage == "unattributed" else ""
            rows.append(
                [
                    Cell(row.compiler),
                    Cell(row.state),
                    Cell(stage, tone),
                    Cell(name, tone),
                    Cell(words.seconds(spent)),
                    Cell(words.percent(share)),
                ]
            )
    return Table("phases", "Phases of the cold start", columns, rows, "", names, named=4)


def curves(subject: SubjectResults) -> Table:
    """Cumulative time at powers of ten, as replayed or, past the last replayed call, computed."""
    marks = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    last = max((max(curve.counts, default=0) for curve in subject.curves), default=0)
    marks = [mark for mark in marks if mark <= last]
    columns = table.columns_of("compiler | state | replayed calls #")
    columns += [Column(f"{mark:,} call{'s' if mark > 1 else ''}", True) for mark in marks]
    rows = []
    for curve in subject.curves:
        head = [Cell(curve.compiler), Cell(curve.state), Cell(f"{words.replayed(curve):,.0f}")]
        rows.append([*head, *[_spent(curve, mark) for mark in marks]])
    note = (
        "Time of all calls so far, the start included. Up to the replayed calls as they took; "
        "past them computed from the start and the mean time of a call, marked ≈, with the gain's "
        "interval."
    )
    names = table.compilers_of(subject.curves)
    return Table("curves", "Cumulative time", columns, rows, note, names, named=2)


def _spent(curve: Curve, calls: float) -> Cell:
    spent = words.cumulative(curve, calls)
    if spent is None:
        return Cell(words.NONE)
    text = words.seconds(spent.estimate)
    if spent.low is not None and spent.high is not None and spent.low < spent.high:
        text = f"[{words.seconds(spent.low)}, {text}, {words.seconds(spent.high)}]"
    return Cell(text if calls <= words.replayed(curve) else f"≈ {text}")


def policies(subject: SubjectResults) -> Table:
    """The whole trace under each policy."""
    columns = table.columns_of(
        "compiler | policy | total # | after the first compile # | transitions # | recompiles # "
        "| saved against eager # | transition cost cut # | steady-state loss # | accuracy "
        "| memory growth # | why it recompiled"
    )
    rows = []
    for row in subject.policies:
        head = [Cell(row.compiler), Cell(row.policy + (" (estimated)" if row.estimated else ""))]
        if row.outcome != "ok":
            rows.append([*head, *table.failed(row, len(columns), 2)])
            continue
        tone = "" if not row.saving else "good" if row.saving > 0 else "bad"
        rows.append(
            [
                *head,
                table.seconds(row.total),
                table.seconds(row.total_after_first),
                table.seconds(row.transition),
                Cell(f"{row.recompiles:,}"),
                Cell(words.seconds(row.saving), tone),
                table.interval(row.cut, words.interval(row.cut, words.percent), words.percent),
                table.interval(row.loss, words.interval(row.loss, words.change), words.change),
                table.accuracy(row.accuracy, row.error),
                Cell(words.size_bytes(row.memory_growth)),
                table.text(words.short("; ".join(row.reasons))),
            ]
        )
    note = (
        "Cut and loss are against the static policy of the same compiler. Estimated: measured at "
        "some sizes of the trace and carried over to the rest."
    )
    names = table.compilers_of(subject.policies)
    return Table("policies", "Shape policies on the trace", columns, rows, note, names, named=2)


def transitions(subject: SubjectResults) -> Table:
    """The costliest first calls at sizes not seen before."""
    columns = table.columns_of(
        "compiler | policy | call # | size | time # | compiles # | reason given"
    )
    new = [call for call in subject.shape_calls if call.new and call.compiler != "eager"]
    worst = sorted(new, key=lambda call: -call.seconds)[:MOST_TRANSITIONS]
    worst.sort(key=lambda call: (call.compiler, call.policy, call.index))
    rows = [_transition(call) for call in worst]
    note = "First calls at sizes not seen before."
    if len(new) > len(worst):
        note = f"The {len(worst)} longest of {len(new)} first calls at sizes not seen before."
    return Table(
        "transitions", "Transitions", columns, rows, note, table.compilers_of(worst), named=4
    )


def _transition(call: ShapeCall) -> list[Cell]:
    return [
        Cell(call.compiler),
        Cell(call.policy),
        Cell(f"{call.index + 1:,}"),
        Cell(words.size(call.size)),
        Cell(words.seconds(call.seconds)),
        Cell(f"{call.compiles:,}"),
        table.text(words.short(call.reason)),
    ]


def sizes(subject: SubjectResults) -> Table:
    """Steady state at each size."""
    columns = table.columns_of(
        "compiler | policy | size | ms per call # | eager ms # | loss to static #"
    )
    rows = [
        [
            Cell(row.compiler),
            Cell(row.policy),
            Cell(words.size(row.size)),
            table.number(row.ms),
            table.number(row.eager_ms),
            table.interval(row.loss, words.interval(row.loss, words.change), words.change),
        ]
        for row in subject.sizes
    ]
    note = "Loss: the time over that of a kernel compiled for this size alone."
    return Table(
        "sizes",
        "Steady state by size",
        columns,
        rows,
        note,
        table.compilers_of(subject.sizes),
        named=3,
    )
