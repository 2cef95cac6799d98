from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from shared.contracts.errors import ConfigError
from shared.kafka import partition_counts
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.failure import NotDelivered
from shared.kafka.follower import Follower
from shared.kafka.partition_counts import PartitionCounts
from shared.kafka.publisher import Publisher
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from tests.fast.waiting import eventually


def test_a_delivered_message_is_reported_with_none(publisher: Publisher, topics: Topics) -> None:
    reports: list[Exception | None] = []
    publisher.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    eventually(lambda: reports == [None])


def test_flush_returns_only_after_everything_was_delivered(publisher: Publisher, topics: Topics) -> None:
    reports: list[Exception | None] = []
    for _ in range(500):
        publisher.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    assert publisher.flush(30) == 0
    assert reports == [None] * 500


def test_a_message_above_the_limit_is_reported_and_not_raised(publisher: Publisher, topics: Topics) -> None:
    reports: list[Exception | None] = []
    publisher.send(topics.work, "p/d", b"x" * 2_000_000, on_delivery=reports.append)
    assert len(reports) == 1
    assert isinstance(reports[0], NotDelivered)


def test_a_message_that_no_broker_takes_is_reported_at_the_end(topics: Topics) -> None:
    nowhere = Publisher(KafkaSettings(bootstrap="127.0.0.1:1"), "test-nowhere")
    reports: list[Exception | None] = []
    nowhere.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    eventually(lambda: nowhere.problem is not None)
    nowhere.close(timeout_s=0.1)
    assert len(reports) == 1
    assert isinstance(reports[0], NotDelivered)


def test_a_report_that_fails_does_not_stop_later_reports(publisher: Publisher, topics: Topics) -> None:
    heard = threading.Event()

    def fail(_: Exception | None) -> None:
        raise RuntimeError("planted")

    publisher.send(topics.work, "p/d", b"x", on_delivery=fail)
    publisher.flush(30)
    publisher.send(topics.work, "p/d", b"x", on_delivery=lambda _: heard.set())
    assert heard.wait(30)


def test_a_publisher_that_was_built_anew_delivers(publisher: Publisher, topics: Topics) -> None:
    reports: list[Exception | None] = []
    publisher.send(topics.work, "p/d", b"x")
    publisher.rebuild()
    publisher.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    eventually(lambda: reports == [None])


def partitions_of(settings: KafkaSettings, topics: Topics, messages: int) -> list[int]:
    """Where the messages of the work topic are, in order of their values."""
    found: dict[str, int] = {}
    follower = Follower(settings, "test-partitions", [topics.work])
    follower.start(lambda record: found.update({(record.value or b"").decode(): record.partition}))
    eventually(lambda: len(found) == messages)
    follower.stop()
    return [found[value] for value in sorted(found)]


def test_a_topic_with_a_place_has_its_messages_there(settings: KafkaSettings, topics: Topics) -> None:
    asked: list[tuple[str, int]] = []

    def place(key: str, partitions: int) -> int:
        asked.append((key, partitions))
        return partitions - 1

    placing = Publisher(settings, "test-placing", {topics.work: place})
    placing.send(topics.progress, "p/a", b"x")
    for number in range(3):
        placing.send(topics.work, f"p/{number}", str(number).encode())
    placing.close()
    count = asked[0][1]
    assert asked == [("p/0", count), ("p/1", count), ("p/2", count)]
    assert partitions_of(settings, topics, 3) == [count - 1] * 3


def test_a_place_that_is_gone_is_reported_and_the_broker_asked_again(
    settings: KafkaSettings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was made anew with fewer partitions."""
    monkeypatch.setattr(partition_counts, "ASK_AFTER_FAILURE_S", 0.0)
    places = [1_000, 0]
    placing = Publisher(settings, "test-placing", {topics.work: lambda _, partitions: places.pop(0)})
    reports: list[Exception | None] = []
    placing.send(topics.work, "p/a", b"x", on_delivery=reports.append)
    eventually(lambda: len(reports) == 1)
    placing.send(topics.work, "p/a", b"x", on_delivery=reports.append)
    eventually(lambda: len(reports) == 2)
    placing.close()
    assert isinstance(reports[0], NotDelivered)
    assert reports[1] is None


def test_where_the_broker_does_not_say_how_many_partitions_there_are_the_key_decides(
    settings: KafkaSettings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartitionCounts, "of", lambda *_: None)
    placing = Publisher(settings, "test-placing", {topics.work: lambda *_: 1_000})
    reports: list[Exception | None] = []
    placing.send(topics.work, "p/a", b"x", on_delivery=reports.append)
    eventually(lambda: reports == [None])
    placing.close()


class Dead:
    """A producer that died of a wiped broker: whatever is asked of it, it raises."""

    def __init__(self) -> None:
        self.purged = False

    def poll(self, _: float) -> int:
        raise KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", True))

    flush = poll

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "dead", True))

    def purge(self) -> None:
        self.purged = True


def test_a_producer_that_dies_by_raising_is_replaced(
    publisher: Publisher, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = Dead(), publisher._producer
    monkeypatch.setattr(publisher, "_producer", dead)
    eventually(lambda: dead.purged)
    reports: list[Exception | None] = []
    publisher.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    eventually(lambda: reports == [None])
    assert publisher._producer not in (dead, alive)


def test_a_producer_that_can_not_be_replaced_at_once_is_said_to_be_missing_and_replaced_later(
    publisher: Publisher, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that serves it was gone for good, and nothing said so."""
    build, tries = publisher._build, [1]

    def fails_once() -> Producer:
        if tries:
            tries.pop()
            raise ConfigError(["a certificate that is gone"])
        return build()

    monkeypatch.setattr(publisher, "_build", fails_once)
    monkeypatch.setattr(publisher, "_producer", Dead())
    eventually(lambda: "ended by ConfigError" in (publisher.problem or ""))
    eventually(lambda: not isinstance(publisher._producer, Dead))
    reports: list[Exception | None] = []
    publisher.send(topics.work, "p/d", b"x", on_delivery=reports.append)
    eventually(lambda: reports == [None])


def test_an_unknown_property_is_a_mistake_in_the_file(broker: EmbeddedBroker) -> None:
    settings = KafkaSettings(bootstrap=broker.bootstrap, properties={"acksss": "all"})
    with pytest.raises(ConfigError, match=r'kafka\.properties: .*"acksss"'):
        Publisher(settings, "test")


def test_the_value_of_a_refused_property_is_not_shown(broker: EmbeddedBroker) -> None:
    settings = KafkaSettings(bootstrap=broker.bootstrap, properties={"security.protocol": "hunter2"})
    with pytest.raises(ConfigError, match=r"security\.protocol") as refused:
        Publisher(settings, "test")
    assert "hunter2" not in str(refused.value)
