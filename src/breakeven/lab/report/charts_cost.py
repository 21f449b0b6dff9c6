"""Charts of what compiling costs: cumulative time, phases, a walk through shapes, loss by size."""

from __future__ import annotations

import bisect
import math
from typing import Any

import msgspec

from breakeven.lab import format as words
from breakeven.lab.report import chart
from breakeven.lab.report.chart import Chart, Trace, View
from breakeven.lab.results import Curve, PhaseRow, SubjectResults

STAGES = ("frontend", "middle-end", "backend", "unattributed")


def curves(subject: SubjectResults, most: int = 400) -> Chart:
    """Cumulative time against calls: solid as replayed, beyond it dashed with its fan."""
    traces: list[Trace] = []
    states = [state for state in words.STATES if _has(subject, state)]
    shown: dict[str, list[int]] = {state: [] for state in states}
    for curve in subject.curves:
        made = _curve(thin_curve(curve, most))
        if curve.compiler != "eager":
            made += _crossing(subject, curve)
        for state in states:
            if curve.state == state or curve.compiler == "eager":
                shown[state] += range(len(traces), len(traces) + len(made))
        traces += made
    views = [View(state, show) for state, show in shown.items()]
    _hide(traces, views)
    caption = (
        "Time of all calls so far, compile included, on log scales. Solid as far as it was "
        "replayed; dashed beyond, with a fan as wide as the gain's interval. A ringed mark is the "
        f"break-even count; the vertical line is {subject.calls:,} calls."
    )
    figure = {"data": traces, "layout": _curve_layout(subject)}
    return Chart("curves", "Cumulative time", caption, figure, "curves", views, legend=True)


def _has(subject: SubjectResults, state: str) -> bool:
    return any(curve.state == state and curve.compiler != "eager" for curve in subject.curves)


def _curve(curve: Curve) -> list[Trace]:
    """The replayed part, the extrapolated part and its fan; empty parts are left out."""
    cut = bisect.bisect_right(curve.counts, curve.replayed)
    made = []
    if cut:
        made.append(_line(curve, slice(0, cut), "solid"))
    if cut < len(curve.counts):
        beyond = slice(max(0, cut - 1), None)
        made.append(_line(curve, beyond, "dash"))
        counts = curve.counts[beyond]
        made.append(
            {
                "type": "scatter",
                "mode": "none",
                "name": curve.compiler,
                "meta": {"compiler": curve.compiler, "role": "fan", "state": curve.state},
                "x": chart.numbers([*counts, *reversed(counts)]),
                "y": chart.numbers([*curve.high[beyond], *reversed(curve.low[beyond])]),
                "fill": "toself",
                "hoverinfo": "skip",
            }
        )
    return made


def thin_curve(curve: Curve, most: int) -> Curve:
    """Both ends, the last replayed point, and the others evenly, about `most` in all."""
    last = len(curve.counts) - 1
    if last < most:
        return curve
    step = -(-last // max(1, most - 1))
    edge = bisect.bisect_right(curve.counts, curve.replayed) - 1
    kept = [place for place in range(last + 1) if place % step == 0 or place in (edge, last)]
    return msgspec.structs.replace(
        curve,
        counts=[curve.counts[place] for place in kept],
        seconds=[curve.seconds[place] for place in kept],
        low=[curve.low[place] for place in kept],
        high=[curve.high[place] for place in kept],
    )


def _line(curve: Curve, part: slice, dash: str) -> Trace:
    said = "replayed" if dash == "solid" else "extrapolated"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": curve.compiler,
        "meta": {"compiler": curve.compiler, "role": "line", "state": curve.state},
        "x": chart.numbers(curve.counts[part]),
        "y": chart.numbers(curve.seconds[part]),
        "line": {"dash": dash, "width": 2},
        "hovertemplate": f"%{{fullData.name}}, {said}: %{{x:,}} calls, %{{y:.3s}}s<extra></extra>",
    }


def _crossing(subject: SubjectResults, curve: Curve) -> list[Trace]:
    """The break-even count of this curve's state, on the curve."""
    row = next((row for row in subject.rows if row.compiler == curve.compiler), None)
    start = words.start(row, curve.state) if row else None
    even = start.break_even if start else None
    if even is None or even.kind != "calls" or even.calls is None or not curve.counts:
        return []
    calls = even.calls
    if not curve.counts[0] <= calls.estimate <= curve.counts[-1]:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": curve.compiler,
            "meta": {"compiler": curve.compiler, "role": "break-even", "state": curve.state},
            "x": [chart.rounded(calls.estimate)],
            "y": [chart.rounded(at(curve, calls.estimate))],
            "error_x": chart.error_bar([calls]),
            "text": [words.break_even(even)],
            "hovertemplate": "%{fullData.name}: pays %{text}<extra></extra>",
            "marker": {"size": 9, "symbol": "circle-open-dot"},
        }
    ]


def at(curve: Curve, calls: float) -> float:
    """Cumulative seconds of `curve` at `calls`, between its points in proportion."""
    after = min(max(1, bisect.bisect_left(curve.counts, calls)), len(curve.counts) - 1)
    if after == 0:
        return curve.seconds[0]
    x0, x1 = curve.counts[after - 1], curve.counts[after]
    y0, y1 = curve.seconds[after - 1], curve.seconds[after]
    return y0 + (y1 - y0) * (calls - x0) / (x1 - x0)


def _curve_layout(subject: SubjectResults) -> dict[str, Any]:
    return {
        "height": 440,
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "calls"}, "dtick": 1, "tickformat": ",~s"},
        "yaxis": _seconds_axis([value for curve in subject.curves for value in curve.seconds]),
        "shapes": [chart.rule(subject.calls, "calls")],
        "annotations": [
            {
                "text": f"{subject.calls:,} calls",
                "x": chart.rounded(math.log10(subject.calls)),
                "xanchor": "right",
                "yref": "paper",
                "y": 0,
                "yanchor": "bottom",
                "xshift": -4,
                "showarrow": False,
                "name": "quiet",
            }
        ],
    }


def phases(subject: SubjectResults) -> Chart:
    """Each cold start as a bar of its phases, by stage; what is not exposed is hatched."""
    traces = []
    for stage in STAGES:
        segments = [
            (at, base, name, seconds)
            for at, row in enumerate(subject.phases)
            for base, found, name, seconds in _segments(row)
            if found == stage
        ]
        if segments:
            traces.append(_stage(stage, segments))
    labels = [
        chart.label(
            f"<b>{chart.plain(row.compiler)}</b>  {row.state}, {words.seconds(row.total)}",
            at,
            yshift=13,
        )
        for at, row in enumerate(subject.phases)
    ]
    rows = len(subject.phases)
    layout = {
        "height": rows * 56 + 76,
        "barmode": "overlay",
        "bargap": 0.55,
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "xaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        "yaxis": {"range": [rows - 0.5, -0.85], "showticklabels": False, "showgrid": False,
                  "zeroline": False},
        "annotations": labels,
    }  # fmt: skip
    caption = (
        "Where a cold start goes, on the map all compilers share. What a compiler does not expose "
        "is hatched: unattributed, never spread over the rest."
    )
    figure = {"data": traces, "layout": layout}
    return Chart("phases", "Phases of the cold start", caption, figure, "phases", legend=True)


def _segments(row: PhaseRow) -> list[tuple[float, str, str, float]]:
    """(start, stage, name, seconds) one after the other, the unattributed rest last."""
    made, base = [], 0.0
    for stage in STAGES[:3]:
        for part in row.parts:
            if part.stage == stage:
                made.append((base, stage, part.name, part.seconds))
                base += part.seconds
    rest = words.unattributed(row)
    return [*made, (base, "unattributed", "unattributed", rest)] if rest > 0 else made


def _stage(stage: str, segments: list[tuple[int, float, str, float]]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": stage,
        "meta": {"stage": stage, "role": "stage"},
        "y": [at for at, _, _, _ in segments],
        "base": chart.numbers([base for _, base, _, _ in segments]),
        "x": chart.numbers([seconds for _, _, _, seconds in segments]),
        "text": [chart.plain(name) for _, _, name, _ in segments],
        "customdata": [words.seconds(seconds) for _, _, _, seconds in segments],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "cliponaxis": False,
        "hovertemplate": f"{stage}: %{{text}}, %{{customdata}}<extra></extra>",
        "marker": {"line": {"width": 1.5}},
    }
