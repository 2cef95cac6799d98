"""Which of a job's tasks a worker process does: rather the one whose lakes it has open.

Spark hands the tasks of a job to whichever Python workers come first. Were each bound to its destinations, every worker
would come to open every lake: twice the connections and memory, and an attach costs as much as an apply. So on one
machine each is given all of them and takes one, by making a file that nobody else can make then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from services.applier.model.task import Task


@dataclass(frozen=True)
class Choice:
    """One of ``tasks`` is to be done. Of several, each is left to whoever comes first; ``claims`` is their folder."""

    tasks: tuple[Task, ...]
    claims: str | None = None


def claim(choice: Choice, suits: Callable[[Task], int]) -> Task:
    """The task that ``suits`` most among those that nobody else has taken. Nobody else gets it then.

    Raises ``RuntimeError`` where none is left: Spark has begun a task once more, and what the first try did is unknown.
    """
    if choice.claims is None:
        (task,) = choice.tasks
        return task
    for number in sorted(range(len(choice.tasks)), key=lambda n: suits(choice.tasks[n]), reverse=True):
        if _is_ours(os.path.join(choice.claims, str(number))):  # noqa: PTH118 - the folder came as text
            return choice.tasks[number]
    raise RuntimeError("every share of this job was begun before: one of its tasks did not end as it should")


def _is_ours(file: str) -> bool:
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
