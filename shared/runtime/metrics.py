"""The metrics of a service, and how those of several services become one page.

The first nineteen keep the names, types and labels of the original Viaduck, so that its dashboards go on working; where
an original's meaning no longer exists, the help text says what is counted now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_PARTITIONS = 64
"""Of a topic, of which each has series of its own."""

BATCH_ROWS = (100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

M = TypeVar("M", bound=MetricWrapperBase)


class Labelled(Generic[M]):
    """A metric whose pipeline label is already set; the others are given by ``labels``."""

    def __init__(self, metric: M, pipeline: str) -> None:
        self._metric = metric
        self._pipeline = pipeline
        self._series: dict[str, set[tuple[str, ...]]] = {}
        """Of each destination that there are series of."""

    def labels(self, **labels: str) -> M:
        found = self._metric.labels(pipeline=self._pipeline, **labels)
        if "destination" in labels:
            self._series.setdefault(labels["destination"], set()).add(self._values(labels))
        return found

    def remove(self, destination: str) -> None:
        """Forget the series of a destination, such as a removed one. Unknown ones are fine.

        The library would search all series for them: to forget ten thousand destinations would take minutes.
        """
        for values in self._series.pop(destination, ()):
            self._metric.remove(*values)

    def _values(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """In the order in which the metric declares its labels."""
        named = {"pipeline": self._pipeline, **labels}
        return tuple(named[name] for name in self._metric._labelnames)

    def clear(self) -> None:
        """Forget all series."""
        self._series.clear()
        self._metric.clear()


class OffsetsByPartition:
    """A gauge with a series for each partition of a topic, or with none where there are more than ``MOST_PARTITIONS``.

    What is shown is what was said last: a series that stayed would tell an offset that is not looked at any more.
    """

    def __init__(self, metric: Labelled[Gauge]) -> None:
        self._metric = metric
        self._partitions = 0

    def show(self, offsets: Mapping[int, int], partitions: int) -> None:
        """``partitions``: how many there are; one without an offset is at 0."""
        if partitions > MOST_PARTITIONS:
            partitions = 0
        if partitions < self._partitions:
            self._metric.clear()
        self._partitions = partitions
        for partition in range(partitions):
            self._metric.labels(partition=str(partition)).set(offsets.get(partition, 0))


class RegisteredMetrics:
    """Metrics in a registry of their own."""

    registry: CollectorRegistry


class Metrics(RegisteredMetrics):
    """All metrics of one service and pipeline, in a registry of their own (one per process, none shared by tests)."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._reading()
        self._writing()
        self._routing()
        self._working()
        self._keeping()
        self._topics()

    def forget(self, destination: str) -> None:
        """Drop every series of a destination that is gone."""
        for each in (
            self.dest_write_seconds, self.dest_rows_written_total, self.dest_rows_deleted_total,
            self.dest_rows_upserted_total, self.dest_upsert_matched_total, self.dest_last_snapshot_id,
            self.dest_lag_snapshots, self.dest_lag_seconds, self.errors_total,
        ):  # fmt: skip
            each.remove(destination=destination)

    def exposition(self) -> str:
        return generate_latest(self.registry).decode()

    def _reading(self) -> None:
        self.polls_total = self._count("polls_total", "Cycles of the reader: looks at the source's head snapshot")
        self.cdc_read_seconds = self._time("cdc_read_seconds", "Seconds to read the change feed of a range, by job")
        self.cdc_rows_read_total = self._count("cdc_rows_read_total", "Rows of the change feed read, images included")
        self.cdc_batch_rows = self._histogram("cdc_batch_rows", "Rows of the change feed read by one job", BATCH_ROWS)
        self.source_snapshot_id = self._gauge("source_snapshot_id", "Head snapshot of the source, as last seen")
        self.source_oldest_snapshot_id = self._gauge(
            "source_oldest_snapshot_id", "Oldest snapshot that the source retains"
        )
        head_age = "Seconds since the source's head was committed, by the catalog's clock at the last poll"
        self.source_head_age_seconds = self._gauge("source_head_age_seconds", head_age)
        age = "Seconds since the last successful poll of the source; absent if there was none"
        self.source_look_age_seconds = Labelled(
            Gauge("viaduck_source_look_age_seconds", age, ["pipeline"], registry=self.registry), self._pipeline
        )

    def _writing(self) -> None:
        self.dest_write_seconds = self._dest_time("dest_write_seconds", "Seconds of one destination transaction")
        self.dest_rows_written_total = self._dest_count("dest_rows_written_total", "Rows put into the table")
        self.dest_rows_deleted_total = self._dest_count("dest_rows_deleted_total", "Rows taken out of the table")
        self.dest_rows_upserted_total = self._dest_count(
            "dest_rows_upserted_total", "Rows of net changes that were there at the end of their range"
        )
        self.dest_upsert_matched_total = self._dest_count(
            "dest_upsert_matched_total", "Upserted rows whose key was in the table before"
        )
        self.dest_last_snapshot_id = self._dest_gauge("dest_last_snapshot_id", "Position: the stored cursor")
        self.dest_lag_snapshots = self._dest_gauge(
            "dest_lag_snapshots", "Source snapshots after the one up to which the destination is known to be exact"
        )
        self.dest_lag_seconds = self._dest_gauge(
            "dest_lag_seconds", "Age of the oldest source snapshot that holds an unapplied change of the destination"
        )
        self.pool_open_connections = self._gauge("pool_open_connections", "Lakes that the workers hold attached")
        self.pool_evictions_total = self._count("pool_evictions_total", "Lakes detached to make room or after an error")

    def _topics(self) -> None:
        """Of pipelines whose source is a topic; by partition only where there are few."""
        few = f"; of a topic of more than {MOST_PARTITIONS} partitions there is none"
        self.topic_head_offset = self._offsets_by_partition(
            "topic_head_offset", f"The offset behind the last stable record of a partition{few}"
        )
        self.topic_position_offset = self._offsets_by_partition(
            "topic_position_offset",
            f"The offset up to which the destination furthest behind holds a partition's records{few}",
        )
        self.topic_lag_records = self._gauge_by(
            "topic_lag_records",
            "Records of the topic, at most, that the destination furthest behind does not hold yet; before the first"
            " seed, those from where it begins",
        )
        self.topic_lag_seconds = self._gauge_by(
            "topic_lag_seconds",
            "For how long the oldest record that the destination furthest behind does not hold may have waited",
        )
        self.topic_bytes_read_total = self._count(
            "topic_bytes_read_total", "Bytes of records that were read: values, keys and headers"
        )
        self.topic_records_total = self._by(
            "topic_records_total",
            "Records of the topic that a commit took in, by what became of them: `landed`, `tombstone`, `rejected`,"
            " `skipped`",
            "outcome",
        )
        self.values_rescued_total = self._count("values_rescued_total", "Values that went to the column _rescued")
        self.columns_added_total = self._count("columns_added_total", "Columns that records brought into the table")
        self.flushes_total = self._by(
            "flushes_total",
            "Times that records of the topic were planned, by what made it time: `rows`, `bytes`, `seconds`, or"
            " `caught_up`, which takes all that is there",
            "trigger",
        )

    def _routing(self) -> None:
        self.unrouted_rows_total = self._count(
            "unrouted_rows_total",
            "Changed rows without a destination, counted once per range; of a topic a lower bound",
        )
        self.cdc_routing_mutations_total = self._count(
            "cdc_routing_mutations_total", "Keys that a range took from one routing value to another"
        )
        self.cdc_conflicts_resolved_total = self._count(
            "cdc_conflicts_resolved_total",
            "Touched keys that were there neither before nor after: changes that cancelled each other",
        )
        self.cdc_orphaned_preimages_total = self._count(
            "cdc_orphaned_preimages_total",
            "Touched keys that are not there at the end of their range: net deletes. A state can't orphan a preimage",
        )
        self.errors_total = Labelled(
            Counter(
                "viaduck_errors_total", "Errors by type", ["pipeline", "type", "destination"], registry=self.registry
            ),
            self._pipeline,
        )

    def _working(self) -> None:
        self.work_items_total = self._by("work_items_total", "Work items published", "kind")
        self.outcomes_total = self._by("outcomes_total", "Work items answered by a job", "outcome")
        self.screened_items_total = self._by(
            "screened_items_total", "Work items finished without a job, for example repeated ones", "reason"
        )
        self.commits_total = self._by(
            "commits_total", "Commits to destinations, by who wrote them and why not Viaduck", "path", "reason"
        )
        self.jobs_total = self._count("jobs_total", "Spark jobs, each for a group of items")
        self.job_seconds = Labelled(
            Histogram("viaduck_job_seconds", "Seconds of a job by phase", ["pipeline", "phase"], buckets=SECONDS,
                      registry=self.registry),
            self._pipeline,
        )  # fmt: skip
        self.dead_letters_total = self._by("dead_letters_total", "Messages that could not be read", "topic")
        self.rows_in_flight = self._gauge("rows_in_flight", "Changed rows published and not yet answered")

    def _keeping(self) -> None:
        self.upkeep_runs_total = self._by("upkeep_runs_total", "Steps of upkeep, by how they ended", "step", "outcome")
        self.upkeep_seconds = Labelled(
            Histogram("viaduck_upkeep_seconds", "Seconds of one step of an upkeep", ["pipeline", "step"],
                      buckets=SECONDS, registry=self.registry),
            self._pipeline,
        )  # fmt: skip
        self.upkeep_files_removed_total = self._count(
            "upkeep_files_removed_total", "Files that upkeep merged away or deleted"
        )
        self.upkeep_bytes_freed_total = self._count(
            "upkeep_bytes_freed_total", "Bytes of files that upkeep deleted, as far as the store told their sizes"
        )
        self.upkeep_snapshots_expired_total = self._count(
            "upkeep_snapshots_expired_total", "Snapshots of destinations' lakes that upkeep expired"
        )

    def _count(self, name: str, meaning: str) -> Counter:
        return Counter(f"viaduck_{name}", meaning, ["pipeline"], registry=self.registry).labels(pipeline=self._pipeline)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"viaduck_{name}", meaning, ["pipeline"], registry=self.registry).labels(pipeline=self._pipeline)

    def _time(self, name: str, meaning: str) -> Histogram:
        return self._histogram(name, meaning, Histogram.DEFAULT_BUCKETS)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        metric = Histogram(f"viaduck_{name}", meaning, ["pipeline"], buckets=buckets, registry=self.registry)
        return metric.labels(pipeline=self._pipeline)

    def _by(self, name: str, meaning: str, *labels: str) -> Labelled[Counter]:
        return Labelled(
            Counter(f"viaduck_{name}", meaning, ["pipeline", *labels], registry=self.registry), self._pipeline
        )

    def _gauge_by(self, name: str, meaning: str, *labels: str) -> Labelled[Gauge]:
        return Labelled(
            Gauge(f"viaduck_{name}", meaning, ["pipeline", *labels], registry=self.registry), self._pipeline
        )

    def _offsets_by_partition(self, name: str, meaning: str) -> OffsetsByPartition:
        return OffsetsByPartition(self._gauge_by(name, meaning, "partition"))

    def _dest_count(self, name: str, meaning: str) -> Labelled[Counter]:
        return self._by(name, f"{meaning}, by destination", "destination")

    def _dest_gauge(self, name: str, meaning: str) -> Labelled[Gauge]:
        return self._gauge_by(name, f"{meaning}, by destination", "destination")

    def _dest_time(self, name: str, meaning: str) -> Labelled[Histogram]:
        labels = ["pipeline", "destination"]
        return Labelled(
            Histogram(f"viaduck_{name}", f"{meaning}, by destination", labels, registry=self.registry), self._pipeline
        )


def together(several: Iterable[RegisteredMetrics]) -> str:
    """One exposition of several pipelines' metrics in one process: each HELP and TYPE once."""
    families: dict[str, Metric] = {}
    for metrics in several:
        for family in metrics.registry.collect():
            families.setdefault(family.name, _empty(family)).samples.extend(family.samples)
    return _exposition(families)


ADDED_GAUGES = frozenset({"viaduck_pool_open_connections", "viaduck_rows_in_flight"})
"""Gauges that count things which services have apart from each other; of the others the largest value is the truth."""

Series = tuple[str, tuple[tuple[str, str], ...]]


def merge(texts: Sequence[str]) -> str:
    """One exposition out of several services': each HELP and TYPE once, each series once.

    Counters and histograms are summed; gauges as ``ADDED_GAUGES`` says. Raises ``ValueError`` for other text.
    """
    families: dict[str, Metric] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            merged = families.setdefault(family.name, _empty(family))
            merged.samples = _merged(merged, family.samples)
    return _exposition(families)


def _exposition(families: dict[str, Metric]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(families.values()))
    return generate_latest(registry).decode()


class _Ready(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _empty(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type)


def _merged(family: Metric, samples: Iterable[Sample]) -> list[Sample]:
    by_series: dict[Series, Sample] = {_series(sample): sample for sample in family.samples}
    for sample in samples:
        before = by_series.get(_series(sample))
        value = sample.value if before is None else _together(family, before.value, sample.value)
        by_series[_series(sample)] = Sample(sample.name, sample.labels, value)
    return list(by_series.values())


def _together(family: Metric, one: float, other: float) -> float:
    largest = family.type == "gauge" and family.name not in ADDED_GAUGES
    return max(one, other) if largest else one + other


def _series(sample: Sample) -> Series:
    return sample.name, tuple(sorted(sample.labels.items()))
