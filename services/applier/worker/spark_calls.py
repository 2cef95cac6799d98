"""What an applier's driver hands to Spark, without what does the work: only workers import that.

The driver needs neither Arrow nor readings and commits, which are some 60 MB. Functions travel by their names, and a
worker's process has all of it before it is forked (``daemon``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.applier.model.task import Limits, TaskResult
from services.applier.worker.task_claim import Choice


def run_choices(choices: Iterable[Choice]) -> Iterable[TaskResult]:
    from services.applier.worker import spark_task

    return spark_task.run_choices(choices)


def touch(limits: Iterable[Limits]) -> Iterator[int]:
    from services.applier.worker import spark_task

    return spark_task.touch(limits)
