"""How much of the source's history is left to the destinations, as metrics; made again for each exposition."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from shared.runtime.metrics import RegisteredMetrics


class RetentionMetrics(RegisteredMetrics):
    """Gauges of one pipeline. What is not set has no series."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._headroom_snapshots = self._gauge(
            "retention_headroom_snapshots",
            "Snapshots that the source may expire before the oldest that a destination needs",
        )
        self._headroom_seconds = self._gauge(
            "retention_headroom_seconds",
            "Seconds until source.retained_seconds no longer covers the oldest snapshot that a destination needs",
        )
        self._near_expiry = self._gauge(
            "destinations_near_expiry", "Destinations that have less than a tenth of the source's history left"
        )

    def headroom(self, snapshots: int | None, seconds: float | None) -> None:
        """None where nothing is needed, or nothing promised."""
        for gauge, value in ((self._headroom_snapshots, snapshots), (self._headroom_seconds, seconds)):
            if value is not None:
                gauge.labels(pipeline=self._pipeline).set(value)

    def near_expiry(self, destinations: int) -> None:
        self._near_expiry.labels(pipeline=self._pipeline).set(destinations)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"viaduck_{name}", meaning, ["pipeline"], registry=self.registry)
