"""Answers that are there before their task ends: each is left once, whole, and only where a task takes long."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import pytest

from services.applier.early_answers import heard
from services.applier.model.immediate_answers import answer
from services.applier.model.task import TargetResult
from services.applier.worker.answer_files import AnswerFiles, take, write
from shared.contracts.messages import Outcome, Progress
from tests.fast.applier.consumers import item


def result(number: int) -> TargetResult:
    return TargetResult(progress(number))


@functools.cache
def progress(number: int) -> Progress:
    return answer(item("p", f"d-{number}", item=f"{number}\n\r\u2028"), Outcome.APPLIED, "a")


def test_what_is_done_is_left_once_and_taken_once(tmp_path: Path) -> None:
    files, done = AnswerFiles(str(tmp_path)), {1: result(1)}
    files.leave(done, at_once=True)
    files.leave(done, at_once=True)
    assert take(tmp_path) == [progress(1)]
    files.leave(done | {2: result(2), 3: result(3)}, at_once=True)
    assert take(tmp_path) == [progress(2), progress(3)]
    assert take(tmp_path) == []


def test_a_task_that_is_quick_writes_nothing_and_one_that_is_not_does(tmp_path: Path) -> None:
    files = AnswerFiles(str(tmp_path))
    files.leave({1: result(1)})
    assert list(tmp_path.iterdir()) == []
    files._due_s = time.monotonic()
    files.leave({1: result(1)})
    assert take(tmp_path) == [progress(1)]


def test_without_a_folder_nothing_is_left(tmp_path: Path) -> None:
    AnswerFiles(None).leave({1: result(1)}, at_once=True)
    assert list(tmp_path.iterdir()) == []


def test_what_is_half_written_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(b"{")
    assert take(tmp_path) == []


def test_an_error_of_who_hears_is_raised_where_the_job_was_begun(tmp_path: Path) -> None:
    write(tmp_path, [progress(1)])

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), heard(tmp_path, fail):
        time.sleep(1)
