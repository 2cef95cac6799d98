"""The metrics of a source's history, as control's last look found it."""

from __future__ import annotations

from services.control.view.destination_status import View
from shared.runtime.retention_metrics import RetentionMetrics


def retention_metrics(view: View) -> RetentionMetrics:
    """Without series before the first look."""
    metrics = RetentionMetrics(view.pipeline)
    if (known := view.retention) is not None:
        metrics.headroom(known.headroom, known.headroom_s)
        metrics.near_expiry(len(known.near))
    return metrics
