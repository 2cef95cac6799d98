"""Of the tasks of a job each worker process takes the one that suits it, and nobody takes what another has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.applier.model.task import SourceTable, Task
from services.applier.worker.task_claim import Choice, claim
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.messages import ItemKind

SOURCE = SourceTable(ResolvedLake("sqlite:/source"), "main", "t", Routing(field="tenant"))
TASKS = tuple(Task(ItemKind.CHANGES, SOURCE, (), applier=f"task {number}") for number in range(8))


def test_the_only_task_is_done_by_whoever_is_there() -> None:
    assert claim(Choice(TASKS[:1]), lambda _: 0) is TASKS[0]


def test_a_worker_takes_the_task_that_suits_it_or_else_the_next_best(tmp_path: Path) -> None:
    choice = Choice(TASKS[:3], str(tmp_path))
    assert [claim(choice, lambda task: (1, 5, 3)[TASKS.index(task)]) for _ in range(3)] == [
        TASKS[1], TASKS[2], TASKS[0],
    ]  # fmt: skip


def test_where_all_want_the_same_everybody_gets_another(tmp_path: Path) -> None:
    choice = Choice(TASKS, str(tmp_path))
    with ThreadPoolExecutor(len(TASKS)) as threads:
        taken = list(threads.map(lambda _: claim(choice, TASKS.index), TASKS))
    assert sorted(task.applier for task in taken) == [task.applier for task in TASKS]


def test_a_task_that_spark_begins_once_more_finds_nothing_to_do(tmp_path: Path) -> None:
    choice = Choice(TASKS[:2], str(tmp_path))
    for _ in range(2):
        claim(choice, lambda _: 0)
    with pytest.raises(RuntimeError, match="started before"):
        claim(choice, lambda _: 0)
