from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from shared.runtime.metrics import Metrics, merge, together

ORIGINAL = {
    "viaduck_polls": "counter",
    "viaduck_cdc_read_seconds": "histogram",
    "viaduck_cdc_rows_read": "counter",
    "viaduck_cdc_batch_rows": "histogram",
    "viaduck_source_snapshot_id": "gauge",
    "viaduck_dest_write_seconds": "histogram",
    "viaduck_dest_rows_written": "counter",
    "viaduck_dest_rows_deleted": "counter",
    "viaduck_dest_rows_upserted": "counter",
    "viaduck_dest_upsert_matched": "counter",
    "viaduck_dest_last_snapshot_id": "gauge",
    "viaduck_dest_lag_snapshots": "gauge",
    "viaduck_unrouted_rows": "counter",
    "viaduck_pool_open_connections": "gauge",
    "viaduck_pool_evictions": "counter",
    "viaduck_cdc_routing_mutations": "counter",
    "viaduck_cdc_conflicts_resolved": "counter",
    "viaduck_cdc_orphaned_preimages": "counter",
    "viaduck_errors": "counter",
}
"""Families as the parser names them: a counter without its ``_total``."""


def families(text: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def value(text: str, name: str, **labels: str) -> float | None:
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return next((s.value for s in samples if s.name == name and s.labels == {"pipeline": "p", **labels}), None)


def test_the_original_nineteen_are_there_with_their_types() -> None:
    found = families(Metrics("p").exposition())
    assert len(ORIGINAL) == 19
    assert ORIGINAL.items() <= found.items()


def test_the_originals_keep_their_labels() -> None:
    metrics = Metrics("p")
    metrics.errors_total.labels(type="source_unreachable", destination="d").inc()
    metrics.dest_write_seconds.labels(destination="d").observe(0.2)
    metrics.unrouted_rows_total.inc(3)
    text = metrics.exposition()
    assert value(text, "viaduck_errors_total", type="source_unreachable", destination="d") == 1
    assert value(text, "viaduck_dest_write_seconds_count", destination="d") == 1
    assert value(text, "viaduck_unrouted_rows_total") == 3


def test_to_forget_destinations_costs_as_much_as_there_are_of_them() -> None:
    """Not as much as their square: the reader forgets the lag of all while a source does not answer."""
    metrics = Metrics("p")
    for number in range(5_000):
        metrics.dest_lag_seconds.labels(destination=f"d{number}").set(1)
        metrics.errors_total.labels(type="gap", destination=f"d{number}").inc()
    began_s = time.thread_time()
    for number in range(5_000):
        metrics.forget(f"d{number}")
    assert time.thread_time() - began_s < 2.0
    assert 'destination="d' not in metrics.exposition()


def test_the_series_of_a_removed_destination_go() -> None:
    metrics = Metrics("p")
    metrics.dest_lag_snapshots.labels(destination="gone").set(4)
    metrics.dest_lag_snapshots.remove(destination="gone")
    metrics.dest_lag_snapshots.remove(destination="never there")
    assert 'destination="gone"' not in metrics.exposition()


def test_two_services_of_one_process_share_nothing() -> None:
    one, other = Metrics("p"), Metrics("p")
    one.polls_total.inc()
    assert value(other.exposition(), "viaduck_polls_total") == 0


def test_the_pipelines_of_one_process_are_on_one_page_each_help_once() -> None:
    one, other = Metrics("p"), Metrics("q")
    one.polls_total.inc(2)
    other.polls_total.inc(3)
    text = together([one, other])
    assert text.count("# HELP viaduck_polls_total ") == 1
    assert value(text, "viaduck_polls_total") == 2
    assert 'viaduck_polls_total{pipeline="q"} 3.0' in text
    assert families(text) == families(one.exposition())


def merged_pair() -> str:
    reader, applier = Metrics("p"), Metrics("p")
    reader.polls_total.inc(2)
    applier.polls_total.inc(3)
    reader.source_snapshot_id.set(41)
    reader.rows_in_flight.set(10)
    applier.rows_in_flight.set(5)
    reader.dest_write_seconds.labels(destination='a"\n\\').observe(0.2)
    applier.dest_write_seconds.labels(destination='a"\n\\').observe(3)
    applier.dest_write_seconds.labels(destination="b").observe(3)
    return merge([reader.exposition(), applier.exposition()])


def test_merging_sums_counters_and_histograms_by_their_labels() -> None:
    text = merged_pair()
    assert value(text, "viaduck_polls_total") == 5
    assert value(text, "viaduck_dest_write_seconds_count", destination='a"\n\\') == 2
    assert value(text, "viaduck_dest_write_seconds_bucket", destination='a"\n\\', le="0.25") == 1
    assert value(text, "viaduck_dest_write_seconds_count", destination="b") == 1


def test_merging_takes_the_largest_of_a_gauge_unless_it_counts_separate_things() -> None:
    text = merged_pair()
    assert value(text, "viaduck_source_snapshot_id") == 41
    assert value(text, "viaduck_rows_in_flight") == 15


def test_a_merged_page_has_each_help_type_and_series_once() -> None:
    lines = merged_pair().splitlines()
    assert len(lines) == len(set(lines))
    assert sum(line.startswith("# HELP viaduck_polls_total ") for line in lines) == 1
    keys = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(keys) == len(set(keys))


def test_merging_a_merged_page_changes_nothing() -> None:
    assert merge([merged_pair()]) == merged_pair()


def test_services_with_other_metrics_are_all_shown() -> None:
    foreign = "# HELP jvm_threads Threads\n# TYPE jvm_threads gauge\njvm_threads 12\n"
    assert "\njvm_threads 12.0\n" in merge([Metrics("p").exposition(), foreign])
