"""Reading what lies between two vectors: how long it is waited for while there is something to read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, Message, Producer

from shared.contracts.positions import Vector
from shared.kafka import topic_records
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import FETCH, Bounds, TopicRecords
from shared.kafka.topics import Topics

RECORD = bytes(100_000)
EACH, PARTITIONS = 40, 4
"""A partition of the embedded broker holds 5 MB."""

LITTLE = {"fetch.message.max.bytes": 500_000, "queued.max.messages.kbytes": 2_048}
"""So all of them are fetched in many requests, and an eighth of them ahead of what was taken."""

TAKES_S = 0.02

END = Vector.of(dict.fromkeys(range(PARTITIONS), EACH))


class Waiting(Consumer):
    """Counts how often nothing came."""

    waited = 0

    def poll(self, *args: Any, **named: Any) -> Message | None:
        found = super().poll(*args, **named)
        Waiting.waited += found is None
        return found


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    topic = Topics(settings.prefix).work
    producer = Producer({"bootstrap.servers": settings.bootstrap, "log_level": 0})
    for number in range(EACH * PARTITIONS):
        producer.produce(topic, RECORD, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture
def records(topic: str, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[TopicRecords]:
    monkeypatch.setattr(topic_records, "Consumer", Waiting)
    monkeypatch.setattr(topic_records, "FETCH", {**FETCH, **LITTLE})
    with closing(TopicRecords(settings, topic, "viaduck-test")) as found:
        yield found


def test_a_backlog_is_read_without_pauses(records: TopicRecords) -> None:
    """Whenever a client has fetched as much ahead as it may, it waits; by default for a second after each time."""
    Waiting.waited = 0
    reached = records.read(Vector.of({}), END, Bounds(10**9, 10**9), 30.0, lambda _: time.sleep(TAKES_S))
    assert (reached.records, reached.vector) == (EACH * PARTITIONS, END)
    assert Waiting.waited <= 2, "half a second passed without a record, though all of them were there"


class Noting(Consumer):
    """Notes what it is asked for."""

    asked: ClassVar[list[str]] = []

    def consume(self, *args: Any, **named: Any) -> list[Message]:
        Noting.asked.append("consume")
        return list(super().consume(*args, **named))

    def unassign(self) -> None:
        Noting.asked.append("unassign")
        super().unassign()


@pytest.mark.parametrize("most", [1, 10**9])
def test_what_was_fetched_ahead_is_let_go_of_as_a_reading_ends(
    topic: str, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A client drops it as it is asked for more, and not before: it would keep 25 MB until its topic is read again."""
    monkeypatch.setattr(topic_records, "Consumer", Noting)
    with closing(TopicRecords(settings, topic, "viaduck-test")) as found:
        for _ in range(2):
            Noting.asked.clear()
            reached = found.read(Vector.of({}), END, Bounds(most, 10**9), 30.0, lambda _: None)
            assert reached.records == min(most, EACH * PARTITIONS)
            assert Noting.asked[-2:] == ["unassign", "consume"]


def test_keys_and_headers_count_as_bytes_that_were_read(settings: KafkaSettings) -> None:
    """Else a topic of tombstones would never reach the most that a transaction may hold."""
    topic = Topics(settings.prefix).work
    producer = Producer({"bootstrap.servers": settings.bootstrap, "log_level": 0})
    producer.produce(topic, b"value", partition=0)
    producer.produce(topic, None, key=b"k" * 1_000, partition=0)
    producer.produce(topic, None, headers=[("name", b"h" * 500), ("none", None), ("name", b"")], partition=0)
    assert producer.flush(30) == 0
    with closing(TopicRecords(settings, topic, "viaduck-test")) as records:
        reached = records.read(Vector(), Vector.of({0: 3}), Bounds(10**9, 10**9), 30.0, lambda _: None)
    assert (reached.records, reached.bytes) == (3, 5 + 1_000 + (4 + 500) + 4 + 4)
