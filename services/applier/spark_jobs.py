"""Spark jobs: one single stage for a group of items, whose tasks read, resolve and apply their own destinations.

Spark's Python workers are kept warm between jobs: what they have attached, and DuckDB itself, outlives one.
A lake goes to the same of a job's shares each time, and a worker to the share whose lakes it knows (``claim``).
On this machine answers come while their job goes on; from executors elsewhere with its end.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from services.applier.early_answers import Hear, heard, wait_for_the_end
from services.applier.model.grouping import Job, Lane, split
from services.applier.model.task import Limits, Source, SourceTopic, Task, TaskResult
from services.applier.worker.spark_calls import run_choices, touch
from services.applier.worker.task_claim import Choice
from shared.contracts.messages import ItemKind
from shared.runtime.spark import is_local, tasks_of_a_job

if TYPE_CHECKING:
    from pyspark import SparkContext


DAEMON = "services.applier.worker.daemon"
"""The module from whose process this machine's Python workers are forked."""

MOST_HOMES = 50_000
"""Lakes of which it is remembered where they were; those of removed tenants, too, for as long."""


class SparkJobs:
    """Runs jobs of one pipeline on a Spark context; many threads may call it."""

    def __init__(
        self,
        context: SparkContext,
        source: Source,
        limits: Limits,
        applier: str,
        pipelines: Callable[[], int] = lambda: 1,
        most_tasks: int | None = None,
        routed: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """``pipelines``: how many share the context; ``most_tasks`` of a job, where that is not all the slots.
        ``routed``: the routing values of all destinations of the pipeline, which tasks of a routed topic are told."""
        self._routed = routed
        self._context = context
        self._pipelines = pipelines
        self._most_tasks = context.defaultParallelism if most_tasks is None else most_tasks
        self._source = source
        self._limits = limits
        self._applier = applier
        self._homes: OrderedDict[str, int] = OrderedDict()
        """The number of the share that each lake was in last, by its catalog."""

    @property
    def is_spelled(self) -> bool:
        """Whether the source spells its positions."""
        return isinstance(self._source, SourceTopic)

    @property
    def parallelism(self) -> int:
        """The most tasks that a job has."""
        return min(self._most_tasks, tasks_of_a_job(self._context.defaultParallelism, self._pipelines()))

    def run(self, job: Job, lane: Lane, hear: Hear = wait_for_the_end) -> list[TaskResult]:
        """Run one job and return its tasks' results. Raises what Spark raises when the job itself fails.

        ``hear`` is told, on another thread, what some tasks have answered while the job goes on; the results hold that
        once more.
        """
        self._context.setLocalProperty("spark.scheduler.pool", f"{job.pipeline} {lane}")
        with self._choices(self._tasks(job, lane), hear) as choices:
            return self._context.parallelize(choices, len(choices)).mapPartitions(run_choices).collect()

    def warm(self) -> list[int]:
        """Touch every worker: builds it at first, and keeps Spark from ending it as idle. Returns process ids."""
        count = self.parallelism * self._pipelines()
        limits = [self._limits] * count
        return self._context.parallelize(limits, count).mapPartitions(touch).collect()

    def _tasks(self, job: Job, lane: Lane) -> Sequence[Task]:
        shares = split(job.targets, 1 if lane.is_narrow else self.parallelism, self._homes)
        if len(shares) > 1:
            self._remember((target.lake.catalog, number) for number in shares for target in shares[number])
        source = self._source
        is_routed = job.kind is ItemKind.CHANGES and isinstance(source, SourceTopic) and source.routing is not None
        routed = self._routed() if is_routed else frozenset[str]()
        return [
            Task(job.kind, source, share, self._limits, self._applier, counts_shared=place == 0, routed=routed)
            for place, share in enumerate(shares.values())
        ]

    def _remember(self, homes: Iterable[tuple[str, int]]) -> None:
        for catalog, number in homes:
            self._homes[catalog] = number
            self._homes.move_to_end(catalog)
        while len(self._homes) > MOST_HOMES:
            self._homes.popitem(last=False)

    @contextmanager
    def _choices(self, tasks: Sequence[Task], hear: Hear) -> Iterator[Sequence[Choice]]:
        """On this machine each Spark task picks the task that suits its worker; elsewhere each gets one assigned."""
        if not is_local(self._context.master or ""):
            yield [Choice((task,)) for task in tasks]
            return
        with tempfile.TemporaryDirectory(prefix="viaduck-job-") as folder, heard(Path(folder), hear):
            told = tuple(replace(task, answers=folder) for task in tasks)
            yield [Choice(told, folder if len(told) > 1 else None)] * len(told)
