"""What a broker says of a topic's offsets, and what is no answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo

from shared.contracts.errors import SourceError
from shared.contracts.positions import Vector
from shared.kafka import admin
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import NO_RECORD, TopicLog

TWO = {0: 7, 1: 9}


class Answers:
    """In place of an admin client: each request gets the next answer."""

    def __init__(self, answers: Iterable[Mapping[int, int]]) -> None:
        self._answers = iter(answers)

    def list_offsets(self, wanted: Mapping[TopicPartition, object], **_: object) -> Mapping[TopicPartition, Any]:
        answer, futures = next(self._answers), {}
        for place in wanted:
            futures[place] = Future[ListOffsetsResultInfo]()
            futures[place].set_result(ListOffsetsResultInfo(answer[place.partition], -1, -1))
        return futures

    def poll(self, _: float) -> int:
        return 0


@pytest.fixture
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    monkeypatch.setattr(admin, "AdminClient", lambda _: Answers(request.param))
    return TopicLog(KafkaSettings("nowhere:1"), "clicks", "viaduck-test")


@pytest.mark.parametrize("log", [[{0: 7, 1: OFFSET_INVALID}, TWO]], indirect=True)
@pytest.mark.parametrize("ask", [TopicLog.newest, TopicLog.oldest])
def test_a_broker_that_starts_and_names_no_offset_has_not_answered(log: TopicLog, ask: Any) -> None:
    """Taken for an offset it lies before every position, so that every destination is ahead of the topic."""
    with pytest.raises(SourceError, match="no offset came") as raised:
        ask(log, 2)
    assert raised.value.type == "source_unreachable"
    assert ask(log, 2) == Vector.of(TWO), "the next answer counts"


@pytest.mark.parametrize("log", [[{0: OFFSET_INVALID, 1: 3}]], indirect=True)
def test_nor_is_it_an_answer_to_a_question_for_a_time(log: TopicLog) -> None:
    with pytest.raises(SourceError, match="no offset came"):
        log.since(2, 1_000)


@pytest.mark.parametrize("log", [[{0: 5, 1: NO_RECORD}, TWO]], indirect=True)
def test_where_no_record_is_so_new_a_life_begins_behind_the_last(log: TopicLog) -> None:
    assert log.since(2, 1_000) == Vector.of({0: 5, 1: 9})
