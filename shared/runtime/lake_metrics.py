"""How lakes fare, as metrics: a gauge for each destination, and histograms where there are too many of them.

They are made again for each exposition, from what was heard last: control knows of all destinations at once.
"""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, Histogram

from shared.runtime.metrics import RegisteredMetrics

NUMBERS = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
ROWS = (0, 100, 10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
BYTES = (0, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13)
SHARES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
HOUR_S, DAY_S = 3_600, 86_400
AGES_S = (HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S, 365 * DAY_S)


class Figure(NamedTuple):
    name: str
    meaning: str
    buckets: tuple[float, ...]


FIGURES = (
    Figure("files", "Live data files of the table", NUMBERS),
    Figure("bytes", "Bytes of the table's live data files", BYTES),
    Figure("rows", "Rows of the table", ROWS),
    Figure("delete_files", "Delete files of the table's live data files", NUMBERS),
    Figure("dead_rows", "Deleted rows that are still in live data files", ROWS),
    Figure("inlined_rows", "Rows that the catalog holds instead of files", ROWS),
    Figure("small_file_share", "Share of live data files of up to 16 MB", SHARES),
    Figure("snapshots", "Snapshots that the lake retains", NUMBERS),
    Figure("oldest_snapshot_age_seconds", "Age of the lake's oldest snapshot at the last look", AGES_S),
    Figure("old_files", "Files of the table that only older snapshots show", NUMBERS),
    Figure("old_bytes", "Bytes of the table's files that only older snapshots show", BYTES),
    Figure("cleanup_files", "Files of the lake that wait for clean-up", NUMBERS),
)


class LakeMetrics(RegisteredMetrics):
    """``viaduck_lake_*`` by destination, ``viaduck_source_lake_*`` of the source, ``viaduck_lakes_*`` over all."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._by_destination = {each.name: self._gauge("lake", each, "destination") for each in FIGURES}
        self._of_source = {each.name: self._gauge("source_lake", each) for each in FIGURES}
        self._over_all = {each.name: self._histogram(each) for each in FIGURES}
        self._failing = Gauge(
            "viaduck_lakes_failing", "Destinations whose lake could not be looked at the last time", ["pipeline"],
            registry=self.registry,
        )  # fmt: skip

    def of_destination(self, destination: str, name: str, value: float) -> None:
        self._by_destination[name].labels(pipeline=self._pipeline, destination=destination).set(value)

    def of_source(self, name: str, value: float) -> None:
        self._of_source[name].labels(pipeline=self._pipeline).set(value)

    def over_all(self, name: str, value: float) -> None:
        """One destination's figure, for the histogram of all."""
        self._over_all[name].labels(pipeline=self._pipeline).observe(value)

    def failing(self, number: int) -> None:
        self._failing.labels(pipeline=self._pipeline).set(number)

    def _gauge(self, of: str, figure: Figure, *labels: str) -> Gauge:
        meaning = f"{figure.meaning}, by destination" if labels else f"{figure.meaning}, of the source"
        return Gauge(f"viaduck_{of}_{figure.name}", meaning, ["pipeline", *labels], registry=self.registry)

    def _histogram(self, figure: Figure) -> Histogram:
        return Histogram(
            f"viaduck_lakes_{figure.name}",
            f"{figure.meaning}, over all destinations, where there are more than metrics.most_destinations",
            ["pipeline"],
            buckets=figure.buckets,
            registry=self.registry,
        )
