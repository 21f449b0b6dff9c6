"""Forest plots: speedups, ablations, and the speedups of a whole suite."""

from __future__ import annotations

from typing import Any

from breakeven.lab import format as words
from breakeven.lab.report import chart
from breakeven.lab.report.chart import Chart, Trace
from breakeven.lab.results import Interval, Results, SubjectResults

ROW = 48  # pixels of a row of a forest plot


def speedups(subject: SubjectResults) -> Chart:
    """Speedup of each compiler with its interval, and the part of it that is computation."""
    traces: list[Trace] = []
    labels = []
    rows = [row for row in subject.rows if row.compiler != "eager"]
    for at, row in enumerate(rows):
        name = f"<b>{chart.plain(row.compiler)}</b>"
        if row.outcome != "ok" or row.speedup is None:
            said = row.outcome if row.outcome != "ok" else "not measured"
            labels.append(chart.label(f"{name}  {chart.plain(said)}", at, name="failed"))
            continue
        apart = "  reduced" if row.accuracy == "reduced" else ""
        labels.append(chart.label(f"{name}  {words.interval(row.speedup, n=False)}{apart}", at))
        style = "open" if row.accuracy == "reduced" else ""
        traces.append(_mark(row.compiler, row.speedup, at, "point", style))
        if row.speedup_kept is not None:
            traces.append(_mark(row.compiler, row.speedup_kept, at + 0.2, "kept", "open"))
    caption = (
        "Eager's time over the compiled one's, log scale; right of 1 is faster. Bars are 95 % "
        "intervals over processes, the grey band is the noise floor. The small mark below is the "
        "same ratio with freed pages kept: the part of the gain that is computation; the rest is "
        "allocation."
    )
    figure = _forest(traces, labels, [subject.noise_floor] * len(rows), "times as fast as eager")
    return Chart("speedups", "Speedup over eager", caption, figure, "speed")


def ablations(subject: SubjectResults) -> Chart:
    """Slowdown with one technique off."""
    traces: list[Trace] = []
    labels = []
    for at, row in enumerate(subject.ablations):
        name = f"<b>{chart.plain(row.technique)}</b>  {chart.plain(row.compiler)}"
        if row.outcome != "ok" or row.took is False or row.slowdown is None:
            said = "no effect here" if row.took is False else "not measured"
            said = row.outcome if row.outcome != "ok" else said
            kind = "failed" if row.outcome != "ok" else "quiet"
            labels.append(chart.label(f"{name}  {chart.plain(said)}", at, name=kind))
            continue
        labels.append(chart.label(f"{name}  {words.interval(row.slowdown, n=False)}", at))
        traces.append(
            _mark(row.compiler, row.slowdown, at, "point", _ablation_style(row.technique))
        )
    caption = (
        "Time without the technique over time with it, log scale: right of 1, the technique helps. "
        "Single effects do not add up; what all off leaves beyond their product is the remainder."
    )
    floors = [subject.noise_floor] * len(subject.ablations)
    figure = _forest(traces, labels, floors, "times as slow without it")
    return Chart("ablations", "One technique off at a time", caption, figure, "ablations")


def _ablation_style(technique: str) -> str:
    return "open" if technique in ("all off", "remainder") else ""


def suite(results: Results) -> Chart:
    """Every subject's speedups in one plot, subjects with the largest gain on top."""
    subjects = sorted(results.subjects, key=_largest, reverse=True)
    compilers = [
        name
        for name in chart.colours(results)
        if name != "eager"
        and any(row.compiler == name and row.speedup for s in subjects for row in s.rows)
    ]
    gap = 0.62 / max(1, len(compilers))
    traces = []
    for number, compiler in enumerate(compilers):
        found = [
            (row, at + number * gap)
            for at, subject in enumerate(subjects)
            for row in subject.rows
            if row.compiler == compiler and row.outcome == "ok" and row.accuracy != "wrong"
        ]
        points = [(row.speedup, at) for row, at in found if row.speedup]
        trace = _marks(compiler, points)
        for place, row in enumerate(row for row, _ in found if row.speedup):
            if row.accuracy == "reduced":
                trace["marker"]["symbol"][place] = f"{chart.symbol(compiler)}-open-dot"
        traces.append(trace)
    labels = [
        chart.label(f"<b>{chart.plain(words.short(subject.subject, 40))}</b>", at)
        for at, subject in enumerate(subjects)
    ]
    floors = [subject.noise_floor for subject in subjects]
    height = 34 + 9 * len(compilers)
    figure = _forest(traces, labels, floors, "times as fast as eager", height)
    caption = (
        "Each subject, largest gain at f32 level first; log scale, bars are 95 % intervals over "
        "processes, grey is each subject's noise floor. Open marks stand for a single process, "
        "dotted ones for reduced precision, which is not ranked."
    )
    return Chart("suite", "Speedup by subject", caption, figure, "overview", legend=True)


def _largest(subject: SubjectResults) -> float:
    return max(
        (
            row.speedup.estimate
            for row in subject.rows
            if row.speedup and row.outcome == "ok" and row.accuracy == "f32-level"
        ),
        default=0.0,
    )


def _mark(compiler: str, value: Interval, at: float, role: str, style: str = "") -> Trace:
    trace = _marks(compiler, [(value, at)], role)
    if style:
        trace["marker"]["symbol"] = [f"{chart.symbol(compiler)}-{style}"]
    return trace


def _marks(compiler: str, points: list[tuple[Interval, float]], role: str = "point") -> Trace:
    values = [value for value, _ in points]
    name = chart.symbol(compiler)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": compiler,
        "meta": {"compiler": compiler, "role": role},
        "x": chart.numbers([value.estimate for value in values]),
        "y": chart.numbers([at for _, at in points]),
        "error_x": chart.error_bar(values),
        "text": [words.interval(value) for value in values],
        "hovertemplate": "%{fullData.name}: %{text}<extra></extra>",
        "marker": {
            "size": 6 if role == "kept" else 11,
            "symbol": [name if value.low is not None else f"{name}-open" for value in values],
        },
    }


def _forest(
    traces: list[Trace],
    labels: list[dict[str, Any]],
    floors: list[float],
    title: str,
    row_height: int = ROW,
) -> dict[str, Any]:
    rows = len(floors)
    wide = min(0.4, max(floors, default=0.0))  # a floor beyond it needs no axis of its own
    reach = [1 - 2 * wide, 1 + 2 * wide]
    for trace in traces:
        bars = trace["error_x"]
        for x, up, down in zip(trace["x"], bars["array"], bars["arrayminus"], strict=True):
            reach += [x - (down or 0), x + (up or 0)]
    layout = {
        "height": rows * row_height + 76,
        "showlegend": False,
        "xaxis": chart.log_axis(reach) | {"title": {"text": title}},
        "yaxis": {
            "range": [rows - 0.5, -0.75],
            "showticklabels": False,
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": [*_bands(floors), chart.rule(1, "one")],
        "annotations": labels,
    }
    return {"data": traces, "layout": layout}


def _bands(floors: list[float]) -> list[dict[str, Any]]:
    """The noise floor of each row, as one band where all rows have the same."""
    if len(set(floors)) == 1:
        return [chart.band(_below(floors[0]), 1 + floors[0])]
    return [
        chart.band(_below(floor), 1 + floor) | {"yref": "y", "y0": at - 0.5, "y1": at + 0.5}
        for at, floor in enumerate(floors)
    ]


def _below(floor: float) -> float:
    """The lower end of a band on a log axis, which has no zero."""
    return max(1e-6, 1 - floor)
