"""Who reads by assignment needs no right to a group, though librdkafka asks for the coordinator of one and hands out
that it may not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from structlog.testing import capture_logs

from shared.contracts.errors import SourceError
from shared.contracts.positions import Vector
from shared.kafka import follower, scan, topic_records
from shared.kafka.failure import Watch
from shared.kafka.follower import Follower
from shared.kafka.record import Record
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import Bounds, TopicRecords
from shared.kafka.topics import Topics
from tests.fast.waiting import eventually

REFUSED = "FindCoordinator response error: Group authorization failed."


class Refused(Consumer):
    """Of a broker that refuses the group, or another thing: librdkafka says so once."""

    code = KafkaError.GROUP_AUTHORIZATION_FAILED

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._told = False

    def poll(self, *args: Any, **named: Any) -> Message | None:
        if self._told:
            return super().poll(*args, **named)
        self._told = True
        return Message(error=KafkaError(self.code, REFUSED))


class Denied(Refused):
    code = KafkaError.TOPIC_AUTHORIZATION_FAILED


Reading = Callable[[KafkaSettings, str], int]


def by_vectors(settings: KafkaSettings, topic: str) -> int:
    with closing(TopicRecords(settings, topic, "viaduck-test")) as records:
        return records.read(Vector(), Vector.of({0: 1}), Bounds(10, 10**6), 20.0, lambda _: None).records


def in_a_scan(settings: KafkaSettings, topic: str) -> int:
    return len(list(Scan(settings, "viaduck-test").all(topic)))


def by_following(settings: KafkaSettings, topic: str) -> int:
    found: list[Record] = []
    following = Follower(settings, "viaduck-test", (topic,))
    following.start(found.append)
    try:
        eventually(following.caught_up.is_set)
    finally:
        following.stop()
    return len(found)


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    """With one record."""
    found = Topics(settings.prefix).work
    producer = Producer({"bootstrap.servers": settings.bootstrap, "log_level": 0})
    producer.produce(found, b"1", partition=0)
    assert producer.flush(30) == 0
    return found


@pytest.mark.parametrize(("module", "read"), [(topic_records, by_vectors), (scan, in_a_scan), (follower, by_following)])
def test_a_topic_is_read_where_the_group_is_refused(
    settings: KafkaSettings, topic: str, module: ModuleType, read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Consumer", Refused)
    with capture_logs() as logged:
        assert read(settings, topic) == 1
    assert [each for each in logged if each["log_level"] in ("warning", "error")] == []


def test_that_the_topic_is_refused_ends_the_reading(
    settings: KafkaSettings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_records, "Consumer", Denied)
    with pytest.raises(SourceError, match="does not let this client use the topic") as refused:
        by_vectors(settings, topic)
    assert refused.value.type == "source_unreachable"


def test_a_member_of_a_group_is_told_that_it_may_not_use_it() -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert Watch("test").concerns(refused)
    assert not Watch("test", is_member=False).concerns(refused)
    assert Watch("test", is_member=False).concerns(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
