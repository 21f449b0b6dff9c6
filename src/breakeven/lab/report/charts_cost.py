"""Charts of what compiling costs: cumulative time, phases, a walk through shapes, loss by size."""

from __future__ import annotations

import bisect
import math
from typing import Any

import msgspec

from breakeven.lab import format as words
from breakeven.lab.report import chart
from breakeven.lab.report.chart import Chart, Trace, View
from breakeven.lab.results import Curve, PhaseRow, ShapeCall, SubjectResults

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


def _seconds_axis(values: list[float]) -> dict[str, Any]:
    """A log axis of time whose ticks are written with their units."""
    steps = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 360000, 3600000]
    texts = ["10 µs", "100 µs", "1 ms", "10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min",
             "1 h", "10 h", "100 h", "1,000 h"]  # fmt: skip
    usable = [value for value in values if value > 0] or [1.0]
    low, high = min(usable) / 1.3, max(usable) * 1.3
    return {
        "type": "log",
        "range": [chart.rounded(math.log10(low)), chart.rounded(math.log10(high))],
        "tickvals": steps,
        "ticktext": texts,
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


def walk(subject: SubjectResults, most: int = 2000) -> Chart:
    """Time per call above cumulative cost along the trace, about `most` calls drawn a line."""
    walks: dict[tuple[str, str], list[ShapeCall]] = {}
    for call in subject.shape_calls:
        walks.setdefault((call.compiler, call.policy), []).append(call)
    traces: list[Trace] = []
    thinned = False
    for (compiler, policy), calls in walks.items():
        kept = thin(sorted(calls, key=lambda call: call.index), most)
        thinned = thinned or len(kept) < len(calls)
        traces += _walk(compiler, policy, kept)
    views = _walk_views(list(walks))
    _hide(traces, views)
    caption = (
        "Above, the time of each call along the trace, log scale, larger marks where something was "
        "compiled; below, the time spent so far. Both share the axis of calls."
    )
    if thinned:
        caption += " Long runs of calls without a compile are drawn thinned out; totals are exact."
    axis = {"domain": [0.54, 1], "title": {"text": "time of a call"}}
    layout = {
        "height": 560,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "call of the trace"}, "anchor": "y2"},
        "yaxis": _seconds_axis([call.seconds for call in subject.shape_calls]) | axis,
        "yaxis2": {"domain": [0, 0.46], "title": {"text": "so far, s"}, "rangemode": "tozero"},
    }
    figure = {"data": traces, "layout": layout}
    return Chart("walk", "Through the trace", caption, figure, "policies", views, legend=True)


def thin(calls: list[ShapeCall], most: int) -> list[ShapeCall]:
    """Every call that compiled or met a new size, both ends, and the others evenly."""
    if len(calls) <= most:
        return calls
    needed = sum(call.new or call.compiles > 0 for call in calls)
    step = max(2, math.ceil(len(calls) / max(1, most - needed)))
    return [
        call
        for place, call in enumerate(calls)
        if call.new or call.compiles or place % step == 0 or place == len(calls) - 1
    ]


def _walk(compiler: str, policy: str, calls: list[ShapeCall]) -> list[Trace]:
    shared: Trace = {
        "type": "scatter",
        "name": f"{compiler}, {policy}",
        "x": [call.index + 1 for call in calls],
        "line": {"dash": "solid" if compiler == "eager" else chart.DASHES.get(policy, "solid")},
    }
    meta = {"compiler": compiler, "policy": policy, "role": "walk"}
    return [
        shared
        | {
            "mode": "lines+markers",
            "meta": meta,
            "y": chart.numbers([call.seconds for call in calls]),
            "marker": {
                "size": [9 if call.compiles else 3 for call in calls],
                "symbol": chart.symbol(compiler),
            },
            "text": [words.size(call.size) for call in calls],
            "hovertemplate": "%{fullData.name}, call %{x}, %{text}: %{y:.3s}s<extra></extra>",
        },
        shared
        | {
            "mode": "lines",
            "meta": meta | {"role": "line"},
            "y": chart.numbers([call.cumulative for call in calls]),
            "yaxis": "y2",
            "hovertemplate": "%{fullData.name}, call %{x}: %{y:.4~g} s so far<extra></extra>",
        },
    ]


def _walk_views(walks: list[tuple[str, str]]) -> list[View]:
    """One compiler under all its policies, then one policy with all compilers; eager always."""
    views = []
    compilers = list(dict.fromkeys(compiler for compiler, _ in walks if compiler != "eager"))
    policies = list(dict.fromkeys(policy for compiler, policy in walks if compiler != "eager"))
    for name in sorted(compilers, key=lambda name: -sum(c == name for c, _ in walks)):
        views.append(View(f"{name}, all policies", _pairs(walks, (name, "eager"), None)))
    for policy in policies:
        views.append(View(f"{policy}, all compilers", _pairs(walks, None, (policy,))))
    return views if len(views) > 1 else []


def _pairs(
    walks: list[tuple[str, str]],
    compilers: tuple[str, ...] | None,
    policies: tuple[str, ...] | None,
) -> list[int]:
    chosen = [
        number
        for number, (compiler, policy) in enumerate(walks)
        if compiler == "eager"
        or (
            (compilers is None or compiler in compilers)
            and (policies is None or policy in policies)
        )
    ]
    return [trace for number in chosen for trace in (2 * number, 2 * number + 1)]


def losses(subject: SubjectResults) -> Chart:
    """Steady state against the static policy, by size."""
    rows = [row for row in subject.sizes if row.loss is not None]
    varying = [
        name
        for name in dict.fromkeys(name for row in rows for name in row.size)
        if len({row.size.get(name) for row in rows}) > 1
    ]
    alone = varying[0] if len(varying) == 1 else None
    traces = []
    for pair in dict.fromkeys((row.compiler, row.policy) for row in rows):
        own = [row for row in rows if (row.compiler, row.policy) == pair]
        own.sort(key=lambda row: [row.size.get(name, 0) for name in varying])
        values = [row.loss for row in own if row.loss is not None]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{pair[0]}, {pair[1]}",
                "meta": {"compiler": pair[0], "policy": pair[1], "role": "line"},
                "x": [row.size.get(alone, 0) if alone else words.size(row.size) for row in own],
                "y": chart.numbers([value.estimate for value in values]),
                "error_y": chart.error_bar(values),
                "line": {"dash": chart.DASHES.get(pair[1], "solid"), "width": 2},
                "marker": {"size": 7, "symbol": chart.symbol(pair[0])},
                "text": [words.interval(value, words.change) for value in values],
                "hovertemplate": "%{fullData.name}, %{x}: %{text}<extra></extra>",
            }
        )
    floor = subject.noise_floor
    layout = {
        "height": 340,
        "xaxis": {"title": {"text": alone or "size"}, "type": "linear" if alone else "category"},
        "yaxis": {"title": {"text": "time over static"}, "tickformat": ".3~g"},
        "shapes": [chart.band(1 - floor, 1 + floor, "y"), chart.rule(1, "one", "y")],
    }
    caption = (
        "Time of a call over that of a kernel compiled for this size alone; above 1 the shape-"
        "generic code is slower. The grey band is the noise floor."
    )
    figure = {"data": traces, "layout": layout}
    return Chart("losses", "Loss by size", caption, figure, "sizes", legend=True)


def _hide(traces: list[Trace], views: list[View]) -> None:
    """Traces outside the first view start hidden."""
    if views:
        for number, trace in enumerate(traces):
            if number not in views[0].show:
                trace["visible"] = False
