"""One page of metrics: control's own and its peers'."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from services.control.lake_metrics_view import lake_metrics
from services.control.retention_metrics_view import retention_metrics
from services.control.view.destination_status import Status, View, status
from shared.contracts.messages import now
from shared.runtime.metrics import Metrics, merge, together
from shared.runtime.peers import Peers

log = structlog.get_logger(__name__)

READER = "reader"
"""The peer that exports how far each destination is; where it does not answer, control says what it knows."""


def exposition(
    own: Collection[Metrics], peers: Peers, views: Callable[[], Iterable[View]], most_destinations: int
) -> str:
    """The merged page; a peer that does not answer, or not with metrics, is left out.

    ``most_destinations``: of more of one pipeline, not every lake has gauges of its own.
    """
    texts, there = peers.metrics(), list(views())
    known = [made for view in there for made in (lake_metrics(view, most_destinations), retention_metrics(view))]
    page = together([*own, *known])
    if peers.names and READER not in texts:
        page = merge([page, together(map(_known, there))])
    for name, text in texts.items():
        try:
            page = merge([page, text])
        except ValueError as error:
            log.warning("peer_metrics_unreadable", peer=name, error=str(error))
    return page


def _known(view: View) -> Metrics:
    """Gauges of all destinations as control knows them."""
    metrics = Metrics(view.pipeline)
    if view.source_snapshot is not None:
        metrics.source_snapshot_id.set(view.source_snapshot)
    if view.retention is not None:
        metrics.source_oldest_snapshot_id.set(view.retention.retained.oldest)
    if view.looked_at is not None:
        metrics.source_look_age_seconds.labels().set(max(0.0, (now() - view.looked_at).total_seconds()))
    _set(metrics, (status(view, each) for each in view.destinations))
    return metrics


def _set(metrics: Metrics, statuses: Iterable[Status]) -> None:
    for each in statuses:
        for gauge, value in (
            (metrics.dest_last_snapshot_id, each.position),
            (metrics.dest_lag_snapshots, each.lag_snapshots),
            (metrics.dest_lag_seconds, each.lag_seconds),
        ):
            if value is not None:
                gauge.labels(destination=each.id).set(value)
