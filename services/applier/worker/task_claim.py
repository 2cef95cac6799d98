"""Which of a job's tasks a worker process takes: preferably the task whose lakes it knows.

Spark hands the tasks of a job to whichever Python workers come first. If each were bound to its destinations, every
worker would eventually open every lake: twice the connections and memory, and what it has to read again costs as much
as an apply. So on one machine each worker sees all tasks and takes one by creating a file exclusively.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from services.applier.model.task import Task


@dataclass(frozen=True)
class Choice:
    """One of ``tasks`` is to be done. Several are taken by the first worker each; ``claims`` is their folder."""

    tasks: tuple[Task, ...]
    claims: str | None = None


def claim(choice: Choice, suits: Callable[[Task], int]) -> Task:
    """The task that ``suits`` most among those that are not taken; it is then taken.

    Raises ``RuntimeError`` if none is left: Spark retried a task, and the effect of the first try is unknown.
    """
    if choice.claims is None:
        (task,) = choice.tasks
        return task
    for number in sorted(range(len(choice.tasks)), key=lambda n: suits(choice.tasks[n]), reverse=True):
        if _is_ours(os.path.join(choice.claims, str(number))):  # noqa: PTH118 - the folder came as text
            return choice.tasks[number]
    raise RuntimeError("every share of this job was started before: one of its tasks did not end normally")


def _is_ours(file: str) -> bool:
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
