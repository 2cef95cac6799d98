"""How often the broker is asked how many partitions a topic has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from shared.kafka.partition_counts import ASK_AFTER_FAILURE_S, ASK_AGAIN_S, PartitionCounts


class Broker:
    """What a producer asks; ``partitions`` None is a broker that does not answer."""

    def __init__(self, partitions: int | None) -> None:
        self.partitions, self.asked, self.now_s = partitions, 0, 0.0
        self._counts = PartitionCounts(lambda: self.now_s)
        self.forget = self._counts.forget

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert timeout > 0
        self.asked += 1
        if self.partitions is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=dict.fromkeys(range(self.partitions)))})

    def count(self) -> int | None:
        asking: Any = self
        return self._counts.of(asking, "work")


def test_it_is_asked_once_and_again_after_minutes() -> None:
    broker = Broker(12)
    assert [broker.count(), broker.count(), broker.asked] == [12, 12, 1]
    broker.partitions, broker.now_s = 24, ASK_AGAIN_S
    assert [broker.count(), broker.asked] == [24, 2]


def test_a_broker_that_does_not_answer_is_not_waited_for_each_time() -> None:
    broker = Broker(None)
    assert [broker.count(), broker.count(), broker.asked] == [None, None, 1]
    broker.partitions, broker.now_s = 12, ASK_AFTER_FAILURE_S
    assert [broker.count(), broker.asked] == [12, 2]


def test_what_failed_is_forgotten_but_not_asked_for_at_once() -> None:
    broker = Broker(12)
    broker.count()
    broker.partitions = 6
    broker.forget()
    assert [broker.count(), broker.asked] == [None, 1]
    broker.now_s = ASK_AFTER_FAILURE_S
    assert [broker.count(), broker.asked] == [6, 2]


def test_a_topic_without_partitions_is_not_there() -> None:
    assert Broker(0).count() is None
