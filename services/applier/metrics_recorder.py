"""What jobs say of themselves → metrics and log lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence

import structlog

from services.applier.model.admission import Admission
from services.applier.model.grouping import Job
from services.applier.model.task import RecordCounts, TargetResult, TaskResult, WorkerReport
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.upkeep import UpkeepResult
from shared.runtime.metrics import Metrics

log = structlog.get_logger(__name__)


class OpenLakes:
    """How many lakes the workers hold attached, for all pipelines of an applier; any thread may note.

    A worker works for all of them and keeps what it has attached, so its lakes count for the pipeline that it worked
    for last: the sum over the pipelines is right. ``local``: the workers are processes of this machine.
    """

    def __init__(self, *, local: bool = True) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._by_worker: dict[int, tuple[Metrics, int]] = {}

    def note(self, metrics: Metrics, report: WorkerReport) -> None:
        with self._lock:
            told = {id(known): known for known, _ in self._by_worker.values()} | {id(metrics): metrics}
            self._by_worker[report.pid] = metrics, report.open_lakes
            if self._local:
                self._by_worker = {pid: last for pid, last in self._by_worker.items() if _lives(pid)}
            for each in told.values():
                lakes = [count for known, count in self._by_worker.values() if known is each]
                each.pool_open_connections.set(sum(lakes))


class MetricsRecorder:
    """Feeds the metrics of one pipeline; its lanes call it."""

    def __init__(self, metrics: Metrics, open_lakes: OpenLakes, is_wanted: Callable[[str], bool]) -> None:
        """``is_wanted``: whether a destination of that key exists; a removed one loses its series."""
        self._metrics = metrics
        self._open_lakes = open_lakes
        self._is_wanted = is_wanted

    def screened(self, admission: Admission) -> None:
        self._metrics.screened_items_total.labels(reason=admission.value).inc()

    def job(self, job: Job, results: Sequence[TaskResult], seconds: float) -> None:
        self._metrics.jobs_total.inc()
        self._metrics.job_seconds.labels(phase="total").observe(seconds)
        for report in (task.report for task in results):
            self._worker(report)
        answered = [result for task in results for result in task.results]
        for result in answered:
            self._target(result)
        self._phases(answered)
        _log(job, answered, seconds)

    def _worker(self, report: WorkerReport) -> None:
        metrics = self._metrics
        if report.tally.rows_read:
            metrics.cdc_rows_read_total.inc(report.tally.rows_read)
            metrics.cdc_batch_rows.observe(report.tally.rows_read)
        if report.tally.read_seconds:
            metrics.cdc_read_seconds.observe(report.tally.read_seconds)
        metrics.cdc_routing_mutations_total.inc(report.tally.routing_mutations)
        metrics.cdc_conflicts_resolved_total.inc(report.tally.conflicts_resolved)
        metrics.pool_evictions_total.inc(report.evictions)
        self._open_lakes.note(metrics, report)

    def _target(self, result: TargetResult) -> None:
        metrics, progress = self._metrics, result.progress
        label = {"destination": progress.destination}
        metrics.outcomes_total.labels(outcome=progress.outcome.value).inc()
        if progress.commit is not None:
            metrics.commits_total.labels(path=progress.commit.value, reason=progress.commit_reason or "").inc()
        if result.upkeep is not None:
            self._upkeep(result.upkeep)
        if result.records is not None:
            self._records(result.records)
        if not self._is_wanted(progress.key):
            return
        if progress.error is not None:
            metrics.errors_total.labels(type=progress.error.type, **label).inc()
        if progress.position is not None and progress.position >= 0:
            metrics.dest_last_snapshot_id.labels(**label).set(progress.position)
        if progress.outcome is not Outcome.APPLIED:
            return
        metrics.dest_rows_written_total.labels(**label).inc(progress.inserted)
        metrics.dest_rows_deleted_total.labels(**label).inc(progress.deleted)
        if result.write_seconds is not None:
            metrics.dest_write_seconds.labels(**label).observe(result.write_seconds)
        if progress.kind is ItemKind.CHANGES:
            metrics.dest_rows_upserted_total.labels(**label).inc(progress.upserted)
            metrics.dest_upsert_matched_total.labels(**label).inc(result.matched)
            metrics.cdc_orphaned_preimages_total.inc(result.deletes)

    def _upkeep(self, done: UpkeepResult) -> None:
        metrics = self._metrics
        for each in done.steps if not done.dry_run else ():
            step = {"step": each.step.value}
            metrics.upkeep_runs_total.labels(outcome=each.outcome.value, **step).inc()
            metrics.upkeep_seconds.labels(**step).observe(each.seconds)
            metrics.upkeep_files_removed_total.inc(each.files_removed)
            metrics.upkeep_bytes_freed_total.inc(each.bytes_freed)
            metrics.upkeep_snapshots_expired_total.inc(each.snapshots_expired)

    def _records(self, records: RecordCounts) -> None:
        metrics = self._metrics
        outcomes = {
            "landed": records.landed - records.tombstones,
            "tombstone": records.tombstones,
            "rejected": records.rejected,
            "skipped": records.skipped,
        }
        for outcome, count in outcomes.items():
            metrics.topic_records_total.labels(outcome=outcome).inc(count)
        metrics.topic_bytes_read_total.inc(records.bytes_read)
        metrics.values_rescued_total.inc(records.rescued)
        metrics.columns_added_total.inc(records.columns_added)

    def _phases(self, answered: Iterable[TargetResult]) -> None:
        """Readings are shared, so the longest of a phase is the job's; applies run side by side."""
        longest: dict[str, float] = {}
        for result in answered:
            for phase, seconds in result.progress.seconds.items():
                longest[phase] = max(seconds, longest.get(phase, 0.0))
        for phase, seconds in longest.items():
            self._metrics.job_seconds.labels(phase=phase).observe(seconds)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _log(job: Job, answered: Sequence[TargetResult], seconds: float) -> None:
    outcomes: dict[str, int] = {}
    for result in answered:
        progress = result.progress
        outcomes[progress.outcome.value] = outcomes.get(progress.outcome.value, 0) + 1
        if progress.error is not None:
            log.warning(
                "item_failed",
                outcome=progress.outcome.value,
                destination=f"{progress.pipeline}/{progress.destination}",
                kind=progress.kind.value,
                type=progress.error.type,
                error=progress.error.message,
                hint=progress.error.hint,
            )
    if job.kind is not ItemKind.PROBE:
        rows = sum(result.progress.inserted + result.progress.deleted for result in answered)
        log.info(
            "job_done",
            pipeline=job.pipeline,
            kind=job.kind.value,
            targets=len(answered),
            rows=rows,
            ms=round(seconds * 1000),
            **outcomes,
        )
