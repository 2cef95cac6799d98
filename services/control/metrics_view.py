"""One page of metrics: control's own and its peers'."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from services.control.status import Status, View, status
from shared.metrics import Metrics, merge, together
from shared.peers import Peers

log = structlog.get_logger(__name__)

READER = "reader"
"""The peer that exports how far each destination is; where it does not answer, control says what it knows."""


def exposition(own: Collection[Metrics], peers: Peers, views: Callable[[], Iterable[View]]) -> str:
    """The merged page; a peer that does not answer, or not with metrics, is left out."""
    texts = peers.metrics()
    page = together(own)
    if peers.names and READER not in texts:
        page = merge([page, together(map(_known, views()))])
    for name, text in texts.items():
        try:
            page = merge([page, text])
        except ValueError as error:
            log.warning("metrics of a peer can't be read", peer=name, error=str(error))
    return page


def _known(view: View) -> Metrics:
    """Gauges of all destinations as control knows them."""
    metrics = Metrics(view.pipeline)
    if view.source_snapshot is not None:
        metrics.source_snapshot_id.set(view.source_snapshot)
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
