"""How many partitions topics have, for a producer that chooses among them itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

ASK_AGAIN_S = 300.0
"""Partitions may be added while we run; librdkafka looks as often itself."""

ASK_AFTER_FAILURE_S = 10.0
ANSWER_WITHIN_S = 1.0


class PartitionCounts:
    """Asks the broker now and then. Only one thread asks; ``forget`` may be called from any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}

    def of(self, producer: Producer, topic: str) -> int | None:
        """None where that is not known now. Waits for the broker for a second at most, and not each time."""
        age_s = self._clock() - self._asked_s.get(topic, float("-inf"))
        if age_s >= (ASK_AGAIN_S if topic in self._known else ASK_AFTER_FAILURE_S):
            self._ask(producer, topic)
            self._asked_s[topic] = self._clock()
        return self._known.get(topic)

    def forget(self) -> None:
        """The known numbers may be wrong: a topic may have been created again, with fewer partitions."""
        self._known.clear()

    def _ask(self, producer: Producer, topic: str) -> None:
        try:
            found = producer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
        except KafkaException:
            found = None  # what is wrong with the broker, sending tells
        if found is not None and found.partitions:
            self._known[topic] = len(found.partitions)
        else:
            self._known.pop(topic, None)
