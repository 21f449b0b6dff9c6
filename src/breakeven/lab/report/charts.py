"""The charts of a subject, by experiment."""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.lab.report import charts_cost, charts_fusion, charts_shapes
from breakeven.lab.report.chart import Chart
from breakeven.lab.results import SubjectResults


@dataclass(frozen=True)
class Detail:
    """About how many calls of a walk, and points of a curve, are drawn as one line."""

    calls: int = 2000
    points: int = 400


def of_subject(subject: SubjectResults, detail: Detail = Detail()) -> dict[str, list[Chart]]:
    """The charts that have something to show, by experiment: fusion, overhead, shapes."""
    fusion, overhead, shapes = [], [], []
    if any(row.speedup or row.outcome != "ok" for row in subject.rows if row.compiler != "eager"):
        fusion.append(charts_fusion.speedups(subject))
    if subject.ablations:
        fusion.append(charts_fusion.ablations(subject))
    if subject.curves:
        overhead.append(charts_cost.curves(subject, detail.points))
    if subject.phases:
        overhead.append(charts_cost.phases(subject))
    if subject.shape_calls:
        shapes.append(charts_shapes.walk(subject, detail.calls))
    if any(row.loss for row in subject.sizes):
        shapes.append(charts_shapes.losses(subject))
    return {"fusion": fusion, "overhead": overhead, "shapes": shapes}
