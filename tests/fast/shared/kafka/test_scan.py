"""A topic is read whose partitions somebody is about to lead."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from shared.kafka import scan
from shared.kafka.scan import ends_of


class Broker:
    """Answers with an error so many times."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.asked = code, times, 0

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        self.asked += 1
        if self.asked <= self.times:
            raise KafkaException(KafkaError(self.code))
        return 0, 7


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends_of.retry, "sleep", lambda _: None)


@pytest.mark.parametrize("code", sorted(scan.NOBODY_LEADS_YET))
def test_a_partition_that_nobody_leads_yet_is_asked_again(code: int) -> None:
    broker: Any = Broker(code, 3)
    assert ends_of(broker, TopicPartition("t", 0)) == (0, 7)


def test_any_other_error_is_told_at_once() -> None:
    broker: Any = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    with pytest.raises(KafkaException):
        ends_of(broker, TopicPartition("t", 0))
    assert broker.asked == 1
