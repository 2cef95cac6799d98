"""The offsets that other programs see: told now and then, never waited for, and no trouble of the pipeline's."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from services.reader.source.group_offsets import AGAIN_AFTER_S, TELL_EVERY_S, Answer, GroupOffsets


class Log:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.told: list[Mapping[int, int]] = []
        self.answer: Answer = Future()
        self.fails: KafkaException | None = None

    def commit(self, group: str, offsets: Mapping[int, int]) -> Answer:
        assert group == "viaduck.clicks"
        if self.fails is not None:
            raise self.fails
        self.told.append(offsets)
        self.answer = Future()
        return self.answer

    def agree(self, *errors: KafkaError) -> None:
        places = [SimpleNamespace(error=error) for error in errors]
        self.answer.set_result(cast(ConsumerGroupTopicPartitions, SimpleNamespace(topic_partitions=places)))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def offsets(log: Log) -> GroupOffsets:
    return GroupOffsets(log, "viaduck.clicks")


def test_each_partition_is_told_once_the_destination_has_moved(log: Log, offsets: GroupOffsets) -> None:
    offsets.tell(["", '{"1":5}'], 3, 0.0)
    assert log.told == [{0: 0, 1: 5, 2: 0}]
    log.agree()
    offsets.tell(['{"1":5}'], 3, 100.0)
    assert len(log.told) == 1
    offsets.tell(['{"1":6}'], 3, 101.0)
    assert log.told[1:] == [{0: 0, 1: 6, 2: 0}]


def test_a_destination_without_a_position_is_not_told(log: Log, offsets: GroupOffsets) -> None:
    offsets.tell([], 3, 0.0)
    offsets.tell([""], 3, 9.0)
    assert log.told == []


def test_it_is_told_now_and_then_and_not_while_an_answer_is_awaited(log: Log, offsets: GroupOffsets) -> None:
    offsets.tell(['{"0":1}'], 1, 0.0)
    offsets.tell(['{"0":2}'], 1, 100.0)
    assert len(log.told) == 1
    log.agree()
    offsets.tell(['{"0":3}'], 1, 101.0)
    log.agree()
    offsets.tell(['{"0":4}'], 1, 101.0 + TELL_EVERY_S / 2)
    assert [told[0] for told in log.told] == [1, 3]
    offsets.tell(['{"0":4}'], 1, 101.0 + TELL_EVERY_S)
    assert [told[0] for told in log.told] == [1, 3, 4]


@pytest.mark.parametrize("how", ["raised", "answered", "by partition"])
def test_a_failure_is_tried_again_later(log: Log, offsets: GroupOffsets, how: str) -> None:
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    log.fails = KafkaException(error) if how == "raised" else None
    offsets.tell(['{"0":1}'], 1, 0.0)
    if how == "answered":
        log.answer.set_exception(KafkaException(error))
    elif how == "by partition":
        log.agree(error)
    log.fails = None
    sent = len(log.told)
    for now_s in (1.0, 1.0 + AGAIN_AFTER_S / 2, 1.5 + AGAIN_AFTER_S):
        offsets.tell(['{"0":1}'], 1, now_s)
    assert len(log.told) == sent + 1


def test_a_broker_that_is_not_ready_yet_is_asked_again_soon(log: Log, offsets: GroupOffsets) -> None:
    offsets.tell(['{"0":1}'], 1, 0.0)
    log.agree(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    offsets.tell(['{"0":1}'], 1, TELL_EVERY_S)
    assert len(log.told) == 2
