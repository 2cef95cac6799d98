"""What Spark maps over the partitions of a job, each of which holds one element."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator

from services.applier.model.task import Limits, Task, TaskResult
from services.applier.worker.task_claim import Choice, claim
from services.applier.worker.task_run import run_task
from services.applier.worker.worker_state import MOST_STUCK, count_stuck, worker

MANY_OBJECTS = 10_000
"""More than a task leaves behind."""


def run_choices(choices: Iterable[Choice]) -> Iterable[TaskResult]:
    """Do the tasks that suit this process most, of those that are offered: one in each partition.

    Raises what ``claim`` raises, which ends the job.
    """
    return run_tasks(claim(choice, count_known) for choice in choices)


def count_known(task: Task) -> int:
    """How many lakes of a task's destinations this process has open, or has committed to directly: it has what it
    remembers of their files, and connections to their catalogs."""
    applier = worker(task.limits).applier
    return sum(applier.knows(target) for target in task.targets)


def run_tasks(tasks: Iterable[Task]) -> Iterable[TaskResult]:
    """Do a partition's tasks, of which there is one. Drains its input, never raises.

    A process that has too many in it for good leaves the input's end unread: Spark takes the results and ends it.
    """
    results = []
    for task in tasks:
        results.append(run_task(task))
        if count_stuck() > MOST_STUCK:
            break
    _spare_what_stays()
    return results


def _spare_what_stays() -> None:
    """PySpark collects garbage after each task; without this it would scan all imported objects each time: 40 ms.

    DuckDB imports more with its first Arrow table, so one freeze at the start does not suffice.
    """
    if len(gc.get_objects()) > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


def touch(limits: Iterable[Limits]) -> Iterator[int]:
    """Build this process's worker, or keep it from being ended as idle; its process id."""
    for each in list(limits):
        worker(each)
        yield os.getpid()
