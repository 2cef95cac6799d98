"""The metrics of all lakes of a pipeline, as control heard of them last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest

from services.control.view.destination_status import View
from services.control.view.lake_health import SORTED_BY
from shared.contracts.reports import LakeFigures
from shared.runtime.lake_metrics import FIGURES, LakeMetrics

AGE = "oldest_snapshot_age_seconds"

WORST = 50
"""Of each figure, where there are too many destinations for a gauge each."""


def lake_metrics(view: View, most_destinations: int) -> LakeMetrics:
    """Gauges of all destinations; of more than ``most_destinations`` those of the worst, and histograms of all."""
    metrics = LakeMetrics(view.pipeline)
    known = {name: health for name in view.destinations if (health := view.health_of(name)) is not None}
    metrics.failing(sum(health.error is not None for health in known.values()))
    figures = {name: health.figures for name, health in known.items() if health.figures is not None}
    if view.source_health is not None and view.source_health.figures is not None:
        for each in FIGURES:
            metrics.of_source(each.name, value(view.source_health.figures, each.name))
    for each in FIGURES:
        values = {name: value(of, each.name) for name, of in figures.items()}
        for name in _shown(values, most_destinations):
            metrics.of_destination(name, each.name, values[name])
        for found in values.values() if len(values) > most_destinations else ():
            metrics.over_all(each.name, found)
    return metrics


def value(figures: LakeFigures, name: str) -> float:
    return figures.oldest_age_seconds if name == AGE else float(SORTED_BY[name](figures))


def _shown(values: Mapping[str, float], most_destinations: int) -> Iterable[str]:
    if len(values) <= most_destinations:
        return values
    return nlargest(min(WORST, most_destinations), values, key=values.__getitem__)
