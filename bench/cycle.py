"""Cycles of one pipeline by themselves: what the applier is given after each batch, without reader and Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.stand import Stand
from bench.viaduck import PIPELINE
from bench.workload import KEY_COLUMN, ROUTING_FIELD, SCHEMA, SOURCE, TABLE, SourceWriter, Workload
from services.applier.model.grouping import Job
from services.applier.model.task import Limits, SourceTable, Target, Task, TaskResult
from services.applier.worker.task_run import run_task
from shared.config.model import Routing
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, Outcome, SeedMode, WorkItem
from shared.contracts.ranges import NOT_SEEDED

Run = Callable[[Job], Sequence[TaskResult]]
"""Does a job, in whatever process."""

GENERATION = 1


class Cycles:
    """Batches of a workload for the tenants of a stand, all of which each batch touches."""

    def __init__(self, stand: Stand, workload: Workload) -> None:
        self.workload = workload
        self.source = SourceTable(
            stand.source.resolved, SCHEMA, TABLE, Routing(field=ROUTING_FIELD, key_columns=(KEY_COLUMN,))
        )
        self._stand, self._writer = stand, SourceWriter(stand.con, SOURCE, workload)
        self._positions = dict.fromkeys(stand.mirror, NOT_SEEDED)
        self._items = itertools.count(1)

    def seed(self, run: Run) -> None:
        self._writer.seed()
        self.do(self._job(ItemKind.SEED), run)

    def batch(self) -> Job:
        """Commit a batch to the source; returns what the applier is to do about it."""
        self._writer.run()
        return self._job(ItemKind.CHANGES)

    def do(self, job: Job, run: Run) -> Sequence[TaskResult]:
        """Raises ``AssertionError`` unless every destination was brought up to the head."""
        done = run(job)
        for result in (result for task in done for result in task.results):
            said = result.progress
            assert said.outcome is Outcome.APPLIED, said
            assert said.position is not None, said
            self._positions[said.destination] = said.position
        answered = {result.progress.item for task in done for result in task.results}
        postponed = tuple(target for target in job.targets if target.item.item not in answered)
        return [*done, *self.do(replace(job, targets=postponed), run)] if postponed else done

    def in_process(self, limits: Limits) -> Run:
        """All of a job as one task, in this process."""
        return lambda job: [run_task(Task(job.kind, self.source, job.targets, limits))]

    def _job(self, kind: ItemKind) -> Job:
        head = self._stand.head()
        return Job(PIPELINE, kind, tuple(self._target(kind, tenant, head) for tenant in self._positions))

    def _target(self, kind: ItemKind, tenant: str, head: int) -> Target:
        lake, position = self._stand.mirror[tenant], self._positions[tenant]
        item = WorkItem(
            item=f"item-{next(self._items)}", kind=kind, pipeline=PIPELINE, destination=tenant, generation=GENERATION,
            expected=position, after=position, through=head, rows=self.workload.changes // len(self._positions),
        )  # fmt: skip
        destination = Destination(
            pipeline=PIPELINE, destination=tenant, generation=GENERATION, routing_value=tenant,
            state=DesiredState.RUNNING, lake=LakeRef(catalog=lake.catalog), table=TABLE, seed_mode=SeedMode.SCAN,
            revision="1",
        )  # fmt: skip
        return Target(item, destination, lake.resolved)
