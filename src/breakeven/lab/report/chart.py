"""The form of every chart: a Plotly figure as plain data, without colours, and its controls.

Traces and shapes say in `meta` and `name` what they stand for; the page's script paints them, so
that light and dark need no second copy of the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from breakeven.lab.results import Interval, Results, SubjectResults

Trace = dict[str, Any]

# light, dark; hues from Okabe and Ito's colour-blind-safe set, one family a hue
COLOURS = {
    "eager": ("#59626e", "#aab3bf"),
    "inductor": ("#0067a8", "#57a8e8"),
    "inductor-freezing": ("#3d9bd1", "#9bd3f7"),
    "inductor-freezing-max-autotune": ("#12396b", "#3f7fd6"),
    "torchscript": ("#b07600", "#f0b53c"),
    "onnxruntime": ("#007d5a", "#3cc398"),
    "openvino": ("#c04a00", "#ff8f4d"),
    "openvino-default": ("#e2814a", "#ffc199"),
    "dynamo": ("#868d97", "#7d858f"),
    "aot": ("#6d747e", "#969da6"),
}
_SPARE = [
    ("#6046a8", "#a893f0"),
    ("#5f6b00", "#c2cf4f"),
    ("#00808c", "#4fd0dc"),
    ("#8c4a3c", "#d69a8c"),
    ("#a3005c", "#ff7ab8"),
    ("#3f5a3a", "#9cc494"),
]
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "cross", "x")
POLICY_SYMBOLS = {
    "static": "circle",
    "automatic": "square",
    "dynamic": "diamond",
    "bucket": "triangle-up",
}
DASHES = {"static": "solid", "automatic": "dash", "dynamic": "dot", "bucket": "dashdot"}


@dataclass(frozen=True)
class View:
    """One choice of a chart's control: which traces it shows."""

    label: str
    show: list[int]


@dataclass(frozen=True)
class Chart:
    """`figure` is `{"data": [...], "layout": {...}}`; `table` names the table with its numbers."""

    name: str
    title: str
    caption: str
    figure: dict[str, Any]
    table: str
    views: list[View] = field(default_factory=list)
    legend: bool = False


def colours(results: Results) -> dict[str, tuple[str, str]]:
    """The light and dark colour of every compiler of a study, the same in all its charts."""
    named: dict[str, tuple[str, str]] = {}
    for subject in results.subjects:
        for name in _names(subject):
            if name not in named:
                spare = _SPARE[sum(other not in COLOURS for other in named) % len(_SPARE)]
                named[name] = COLOURS.get(name, spare)
    return named


def _names(subject: SubjectResults) -> list[str]:
    return [
        *[row.compiler for row in subject.rows],
        *[row.compiler for row in subject.policies],
        *[row.compiler for row in subject.curves],
        *[row.compiler for row in subject.ablations],
        *[row.compiler for row in subject.phases],
        *[row.compiler for row in subject.outcomes],
    ]


def symbol(compiler: str) -> str:
    """A marker for a compiler, so that colour is never the only mark."""
    known = list(COLOURS)
    index = known.index(compiler) if compiler in known else sum(compiler.encode())
    return SYMBOLS[index % len(SYMBOLS)]


def rounded(value: float) -> float:
    """Six significant digits: finer than any screen, and a third of the page's size."""
    return float(f"{value:.6g}")


def numbers(values: Sequence[float]) -> list[float]:
    """`rounded`, element by element."""
    return [rounded(value) for value in values]


def error_bar(values: Sequence[Interval]) -> dict[str, Any]:
    """Asymmetric bars from intervals; none where a process stood alone, none towards no bound."""
    up = [None if value.high is None else rounded(value.high - value.estimate) for value in values]
    down = [None if value.low is None else rounded(value.estimate - value.low) for value in values]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "thickness": 1.75,
        "width": 4,
    }


def label(text: str, at: float, **more: Any) -> dict[str, Any]:
    """A row's name inside the plot, above its mark: it needs no margin on a narrow screen."""
    return {
        "text": text,
        "xref": "paper",
        "x": 0,
        "y": at,
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 7,
        "showarrow": False,
        "align": "left",
        **more,
    }


def plain(text: str) -> str:
    """Text as Plotly's pseudo-HTML shows it unchanged."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def log_axis(values: Sequence[float]) -> dict[str, Any]:
    """A log axis around positive `values`, with ticks at round ratios."""
    usable = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = min(usable), max(usable)
    room = max(0.02, 0.06 * math.log10(high / low))
    first, last = math.log10(low) - room, math.log10(high) + room
    for steps in (_COARSE, _MIDDLE, _CLOSE, _FINE):
        ticks = [tick for tick in steps if first <= math.log10(tick) <= last]
        if len(ticks) >= 3:
            break
    if len(ticks) > 7:
        step = -(-len(ticks) // 6)
        ticks = ticks[ticks.index(1) % step if 1 in ticks else 0 :: step]  # 1 keeps its tick
    return {
        "type": "log",
        "range": [rounded(first), rounded(last)],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


_COARSE = [10.0**power for power in range(-4, 7)]
_MIDDLE = sorted(10.0**power * step for power in range(-4, 7) for step in (1, 2, 5))
_CLOSE = sorted(10.0**power * step for power in range(-4, 7) for step in (1, 1.5, 2, 3, 5, 7))
_FINE = sorted(
    round(10.0**power * step, 6)
    for power in range(-3, 5)
    for step in (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 9.5)
)


def seconds_axis(values: Sequence[float]) -> dict[str, Any]:
    """A log axis of time whose ticks are written with their units."""
    steps = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 360000, 3600000]
    texts = ["10 µs", "100 µs", "1 ms", "10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min",
             "1 h", "10 h", "100 h", "1,000 h"]  # fmt: skip
    usable = [value for value in values if value > 0] or [1.0]
    low, high = min(usable) / 1.3, max(usable) * 1.3
    return {
        "type": "log",
        "range": [rounded(math.log10(low)), rounded(math.log10(high))],
        "tickvals": steps,
        "ticktext": texts,
    }


def hide(traces: Sequence[Trace], views: Sequence[View]) -> None:
    """Traces outside the first view start hidden."""
    if views:
        for number, trace in enumerate(traces):
            if number not in views[0].show:
                trace["visible"] = False


def band(low: float, high: float, axis: str = "x") -> dict[str, Any]:
    """The noise band along an axis."""
    other = "y" if axis == "x" else "x"
    return {
        "type": "rect",
        "name": "noise",
        f"{axis}0": rounded(low),
        f"{axis}1": rounded(high),
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        "layer": "below",
        "line": {"width": 0},
    }


def rule(at: float, name: str, axis: str = "x") -> dict[str, Any]:
    """A line across the plot at `at`; `name` "one" or "calls" tells the script its colour."""
    other = "y" if axis == "x" else "x"
    return {
        "type": "line",
        "name": name,
        f"{axis}0": rounded(at),
        f"{axis}1": rounded(at),
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        "layer": "below",
        "line": {"width": 1},
    }
