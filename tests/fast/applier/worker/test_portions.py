"""Records that are worked on in another thread while more are read."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence

import pytest
from confluent_kafka import Message

from services.applier.records.record_batch import RecordBatch
from services.applier.worker import portions
from services.applier.worker.portions import WAITING, Portions


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(topic="t", partition=0, offset=each, value=b"x", timestamp=(1, 0))
        for each in range(first, first + count)
    ]


def offsets(batch: RecordBatch) -> list[int]:
    return list(batch.offsets.to_pylist())


@pytest.fixture(autouse=True)
def of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "ROWS", 4)


def test_all_records_are_worked_on_in_order_in_portions() -> None:
    seen = list[list[int]]()
    with Portions(lambda batch: seen.append(offsets(batch))) as taking:
        for first in range(0, 12, 3):
            taking.take(messages(first, 3))
    assert seen == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_many_bytes_are_a_portion_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[list[int]]()
    monkeypatch.setattr(portions, "BYTES", 1)
    with Portions(lambda batch: seen.append(offsets(batch))) as taking:
        taking.take(messages(0, 1))
        taking.take(messages(1, 1))
    assert seen == [[0], [1]]


def test_what_no_record_is_in_is_no_portion() -> None:
    seen = list[RecordBatch]()
    with Portions(seen.append):
        pass
    assert seen == []


def test_reading_waits_for_the_work() -> None:
    """Otherwise all that is read would be in memory."""
    may_go, begun = threading.Event(), threading.Semaphore(0)

    def work(_: RecordBatch) -> None:
        begun.release()
        assert may_go.wait(30)

    taken = list[int]()

    def read(taking: Portions) -> None:
        for number in range(5):
            taking.take(messages(4 * number, 4))
            taken.append(number)

    with Portions(work) as taking:
        reader = threading.Thread(target=read, args=(taking,))
        reader.start()
        assert begun.acquire(timeout=30)
        reader.join(0.2)
        assert len(taken) <= 1 + WAITING
        may_go.set()
        reader.join(30)
    assert len(taken) == 5


def test_a_portion_is_let_go_of_once_it_was_worked_on() -> None:
    """Records would be in memory beside their rows."""
    seen, there = list[weakref.ref[RecordBatch]](), list[int]()

    def work(batch: RecordBatch) -> None:
        seen.append(weakref.ref(batch))
        there.append(sum(each() is not None for each in seen))

    with Portions(work) as taking:
        for first in range(0, 40, 4):
            taking.take(messages(first, 4))
    assert there == [1] * 10
    assert not any(each() for each in seen)


class Broken(Exception):
    pass


@pytest.mark.parametrize("count", [4, 40])
def test_what_the_work_raises_is_raised(count: int) -> None:
    done = list[Sequence[int]]()

    def work(batch: RecordBatch) -> None:
        done.append(offsets(batch))
        raise Broken

    def read() -> None:
        with Portions(work) as taking:
            for first in range(0, count, 4):
                taking.take(messages(first, 4))

    with pytest.raises(Broken):
        read()
    assert len(done) <= 2 + WAITING


def test_what_reading_raises_is_raised_once_the_work_has_ended() -> None:
    """Nothing may use a connection that the reader gives away."""
    begun, done = threading.Event(), list[float]()

    def work(_: RecordBatch) -> None:
        begun.set()
        time.sleep(0.05)
        done.append(time.monotonic())

    def read() -> None:
        with Portions(work) as taking:
            taking.take(messages(0, 4))
            assert begun.wait(30)
            raise Broken

    with pytest.raises(Broken):
        read()
    assert done, "the work went on beyond the block"
