"""The charts of a subject, by experiment."""

from __future__ import annotations

from breakeven.lab.report import charts_cost, charts_fusion
from breakeven.lab.report.chart import Chart
from breakeven.lab.results import SubjectResults


def of_subject(subject: SubjectResults, most: int = 2000) -> dict[str, list[Chart]]:
    """The charts that have something to show, by experiment: fusion, overhead, shapes.

    `most` bounds how many calls of a walk are drawn for one compiler and policy.
    """
    fusion, overhead, shapes = [], [], []
    if any(row.speedup or row.outcome != "ok" for row in subject.rows if row.compiler != "eager"):
        fusion.append(charts_fusion.speedups(subject))
    if subject.ablations:
        fusion.append(charts_fusion.ablations(subject))
    if subject.curves:
        overhead.append(charts_cost.curves(subject))
    if subject.phases:
        overhead.append(charts_cost.phases(subject))
    if subject.shape_calls:
        shapes.append(charts_cost.walk(subject, most))
    if any(row.loss for row in subject.sizes):
        shapes.append(charts_cost.losses(subject))
    return {"fusion": fusion, "overhead": overhead, "shapes": shapes}
