"""Charts of the experiment `overhead`: cumulative time, and the phases of a cold start."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from breakeven.lab import format as words
from breakeven.lab.report import chart
from breakeven.lab.report.chart import Chart, Trace, View
from breakeven.lab.results import Curve, PhaseRow, SubjectResults

STAGES = ("frontend", "middle-end", "backend", "unattributed")


def curves(subject: SubjectResults, most: int = 400) -> Chart:
    """Cumulative time against calls: solid as replayed, from there on dashed with its fan."""
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
    chart.hide(traces, views)
    figure = {"data": traces, "layout": _curve_layout(subject)}
    caption = _curve_caption(subject)
    return Chart("curves", "Cumulative time", caption, figure, "curves", views, legend=True)


def _curve_caption(subject: SubjectResults) -> str:
    computed = "computed from the start and the mean time of a call"
    if any(curve.replay_counts for curve in subject.curves):
        lines = (
            "Solid: calls that were really made, one after another. Dashed, from the last of "
            f"them on: {computed}, with a fan as wide as the gain's interval."
        )
    else:
        lines = (
            f"Dashed, because no calls were replayed: {computed}, with a fan as wide as the "
            "gain's interval."
        )
    return (
        f"Time of all calls so far, the start included, on log scales. {lines} A ringed mark is "
        f"the break-even count; the vertical line is {subject.calls:,} calls."
    )


def _has(subject: SubjectResults, state: str) -> bool:
    return any(curve.state == state and curve.compiler != "eager" for curve in subject.curves)


def _curve(curve: Curve) -> list[Trace]:
    """The replayed part, the computed part after it and its fan; empty parts are left out."""
    made = []
    if curve.replay_counts:
        made.append(_line(curve, curve.replay_counts, curve.replay_seconds, "solid"))
    counts, (seconds, low, high) = beyond(curve)
    if len(counts) > 1:
        made.append(_line(curve, counts, seconds, "dash"))
        made.append(
            {
                "type": "scatter",
                "mode": "none",
                "name": curve.compiler,
                "meta": {"compiler": curve.compiler, "role": "fan", "state": curve.state},
                "x": chart.numbers([*counts, *reversed(counts)]),
                "y": chart.numbers([*high, *reversed(low)]),
                "fill": "toself",
                "hoverinfo": "skip",
            }
        )
    return made


def beyond(curve: Curve) -> tuple[list[float], list[list[float]]]:
    """Counts from the last replayed call on, and the computed seconds, low and high at them."""
    last = words.replayed(curve)
    counts = [count for count in curve.counts if count > last]
    if counts and last and curve.counts[0] < last:
        counts = [last, *counts]
    lines = (curve.seconds, curve.low, curve.high)
    return counts, [[words.between(curve.counts, line, at) for at in counts] for line in lines]


def thin_curve(curve: Curve, most: int) -> Curve:
    """Both ends of its computed and of its replayed points, and the others evenly, `most` each."""
    kept, made = _places(len(curve.counts), most), _places(len(curve.replay_counts), most)
    return msgspec.structs.replace(
        curve,
        counts=[curve.counts[place] for place in kept],
        seconds=[curve.seconds[place] for place in kept],
        low=[curve.low[place] for place in kept],
        high=[curve.high[place] for place in kept],
        replay_counts=[curve.replay_counts[place] for place in made],
        replay_seconds=[curve.replay_seconds[place] for place in made],
    )


def _places(length: int, most: int) -> list[int]:
    """About `most` of `length` places, both ends among them."""
    step = max(1, -(-(length - 1) // max(1, most - 1)))
    return [place for place in range(length) if place % step == 0 or place == length - 1]


def _line(curve: Curve, counts: list[float], seconds: list[float], dash: str) -> Trace:
    said = "replayed" if dash == "solid" else "computed"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": curve.compiler,
        "meta": {"compiler": curve.compiler, "role": "line", "state": curve.state},
        "x": chart.numbers(counts),
        "y": chart.numbers(seconds),
        "line": {"dash": dash, "width": 2},
        "hovertemplate": f"%{{fullData.name}}, {said}: %{{x:,}} calls, %{{y:.3s}}s<extra></extra>",
    }


def _crossing(subject: SubjectResults, curve: Curve) -> list[Trace]:
    """The break-even count of this curve's state, on the curve as it is drawn."""
    row = next((row for row in subject.rows if row.compiler == curve.compiler), None)
    start = words.start(row, curve.state) if row else None
    even = start.break_even if start else None
    if even is None or even.kind != "calls" or even.calls is None:
        return []
    calls = even.calls
    spent = words.cumulative(curve, calls.estimate)
    if spent is None:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": curve.compiler,
            "meta": {"compiler": curve.compiler, "role": "break-even", "state": curve.state},
            "x": [chart.rounded(calls.estimate)],
            "y": [chart.rounded(spent.estimate)],
            "error_x": chart.error_bar([calls]),
            "text": [words.break_even(even)],
            "hovertemplate": "%{fullData.name}: pays %{text}<extra></extra>",
            "marker": {"size": 9, "symbol": "circle-open-dot"},
        }
    ]


def _curve_layout(subject: SubjectResults) -> dict[str, Any]:
    return {
        "height": 440,
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "calls"}, "dtick": 1, "tickformat": ",~s"},
        "yaxis": chart.seconds_axis(
            [s for curve in subject.curves for s in (*curve.seconds, *curve.replay_seconds)]
        ),
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
        "width": 0.42,
        "text": [chart.plain(name) for _, _, name, _ in segments],
        "customdata": [words.seconds(seconds) for _, _, _, seconds in segments],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "inside",
        "cliponaxis": False,
        "hovertemplate": f"{stage}: %{{text}}, %{{customdata}}<extra></extra>",
        "marker": {"line": {"width": 1.5}},
    }
