from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from shared.errors import ConfigError
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.failure import NotDelivered
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


def test_an_unknown_property_is_a_mistake_in_the_file(broker: EmbeddedBroker) -> None:
    settings = KafkaSettings(bootstrap=broker.bootstrap, properties={"acksss": "all"})
    with pytest.raises(ConfigError, match=r'kafka\.properties: .*"acksss"'):
        Publisher(settings, "test")


def test_the_value_of_a_refused_property_is_not_shown(broker: EmbeddedBroker) -> None:
    settings = KafkaSettings(bootstrap=broker.bootstrap, properties={"security.protocol": "hunter2"})
    with pytest.raises(ConfigError, match=r"security\.protocol") as refused:
        Publisher(settings, "test")
    assert "hunter2" not in str(refused.value)
