"""What an applier keeps in its metrics."""

from __future__ import annotations

from services.applier.destination_cache import DestinationCache
from services.applier.metrics_recorder import MetricsRecorder, OpenLakes
from services.applier.model.admission import Admission
from services.applier.model.grouping import Job
from services.applier.model.task import RecordCounts, TargetResult, TaskResult, WorkerReport
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination, ItemKind, Outcome, Progress
from shared.kafka.record import Record
from shared.runtime.metrics import Metrics
from tests.fast.applier.consumers import wanted

LIVES = 1_000


def answered(name: str) -> TaskResult:
    error = DestinationError("access_denied", "the catalog refused the login", "check the role").problem()
    said = Progress(
        pipeline="p", destination=name, item="i", kind=ItemKind.CHANGES, outcome=Outcome.FAILED, generation=1,
        position=5, error=error,
    )  # fmt: skip
    return TaskResult((TargetResult(said),), WorkerReport(pid=1))


def test_destinations_that_were_removed_leave_no_series_behind_be_they_answered_for_afterwards() -> None:
    metrics, directory = Metrics("p"), DestinationCache()
    measure = MetricsRecorder(metrics, OpenLakes(local=False), lambda key: directory.get(key) is not None)
    job = Job("p", ItemKind.CHANGES, ())
    directory.put(wanted("p", "stays"))
    measure.job(job, [answered("stays")], 0.1)
    before = len(metrics.exposition().splitlines())
    for number in range(LIVES):
        record = wanted("p", f"life-{number}")
        directory.put(record)
        measure.job(job, [answered(f"life-{number}")], 0.1)
        gone = Destination.from_bytes(record.value or b"").model_copy(update={"removed": True, "version": 1})
        said = directory.put(Record(record.topic, 0, 1, record.key, gone.to_bytes()))
        assert said is not None
        assert said.removed
        metrics.forget(said.destination)
        measure.job(job, [answered(f"life-{number}")], 0.1)  # its last item was still under way
    assert len(metrics.exposition().splitlines()) == before
    assert 'destination="stays"' in metrics.exposition()


def test_items_that_are_finished_without_a_job_are_counted_by_reason() -> None:
    metrics = Metrics("p")
    measure = MetricsRecorder(metrics, OpenLakes(local=False), lambda _: True)
    for admission in (Admission.PASSED, Admission.PASSED, Admission.FENCED):
        measure.screened(admission)
    assert 'viaduck_screened_items_total{pipeline="p",reason="passed"} 2.0' in metrics.exposition()
    assert 'viaduck_screened_items_total{pipeline="p",reason="fenced"} 1.0' in metrics.exposition()


def test_what_became_of_a_topics_records_is_counted() -> None:
    metrics = Metrics("p")
    measure = MetricsRecorder(metrics, OpenLakes(local=False), lambda _: True)
    found = RecordCounts(
        landed=7, rejected=2, tombstones=3, rescued=4, columns_added=5, bytes_read=600, skipped=8
    )  # fmt: skip
    said = Progress(
        pipeline="p", destination="d", item="i", kind=ItemKind.CHANGES, outcome=Outcome.APPLIED, generation=1,
        position=9, position_at='{"0":9}',
    )  # fmt: skip
    for _ in range(2):
        task = TaskResult((TargetResult(said, records=found),), WorkerReport(pid=1))
        measure.job(Job("p", ItemKind.CHANGES, ()), [task], 0.1)
    shown = metrics.exposition()
    for outcome, count in {"landed": 8.0, "tombstone": 6.0, "rejected": 4.0, "skipped": 16.0}.items():
        assert f'viaduck_topic_records_total{{outcome="{outcome}",pipeline="p"}} {count}' in shown
    assert 'viaduck_topic_bytes_read_total{pipeline="p"} 1200.0' in shown
    assert 'viaduck_values_rescued_total{pipeline="p"} 8.0' in shown
    assert 'viaduck_columns_added_total{pipeline="p"} 10.0' in shown
