"""Charts of the experiment `shapes`: a walk through sizes, and what each size loses."""

from __future__ import annotations

import math

from breakeven.lab import format as words
from breakeven.lab.report import chart
from breakeven.lab.report.chart import Chart, Trace, View
from breakeven.lab.results import ShapeCall, SubjectResults


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
    chart.hide(traces, views)
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
        "yaxis": chart.seconds_axis([call.seconds for call in subject.shape_calls]) | axis,
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
                "symbol": "circle"
                if compiler == "eager"
                else chart.POLICY_SYMBOLS.get(policy, "x"),
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
                "marker": {"size": 7, "symbol": chart.POLICY_SYMBOLS.get(pair[1], "x")},
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
