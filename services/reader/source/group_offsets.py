"""Tells other people's tools how far a topic's destination is: as the offsets of a consumer group without members.

Nothing of Viaduck reads them back, and no failure to write them stops anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from shared.contracts.positions import Vector
from shared.kafka.failure import describe

log = structlog.get_logger(__name__)

TELL_EVERY_S = 5.0
AGAIN_AFTER_S = 60.0
"""After a failure: a right that is missing is not granted within seconds."""

MOMENTARY = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""Of a broker that makes the topic of offsets, or moves it."""

Answer = Future[ConsumerGroupTopicPartitions]


class Committing(Protocol):
    """The part of ``shared.kafka.topic_log.TopicLog`` that is used here."""

    def commit(self, group: str, offsets: Mapping[int, int]) -> Answer: ...


class GroupOffsets:
    """Used by one thread, which never waits here."""

    def __init__(self, log: Committing, group: str) -> None:
        self._log = log
        self._group = group
        self._told: tuple[str, int] | None = None
        self._asked: tuple[tuple[str, int], Answer] | None = None
        self._due_s = 0.0
        self._problem: str | None = None

    def tell(self, reached: Iterable[str], partitions: int, now_s: float) -> None:
        """``reached``: positions as the source spells them. Nothing is sent while they stand."""
        self._hear(now_s)
        spelled = next((each for each in reached if each), None)
        if self._asked is not None or spelled is None or now_s < self._due_s or (spelled, partitions) == self._told:
            return
        self._due_s = now_s + TELL_EVERY_S
        at = Vector.parse(spelled).by_partition
        try:
            answer = self._log.commit(self._group, {each: at.get(each, 0) for each in range(partitions)})
        except KafkaException as error:
            self._failed(error, now_s)
        else:
            self._asked = (spelled, partitions), answer

    def _hear(self, now_s: float) -> None:
        if self._asked is None or not self._asked[1].done():
            return
        (told, answer), self._asked = self._asked, None
        error = answer.exception()
        if error is not None:
            self._failed(error, now_s)
            return
        wrong = next((place.error for place in answer.result().topic_partitions or () if place.error), None)
        if wrong is not None:
            self._failed(KafkaException(wrong), now_s)
            return
        self._told, self._problem = told, None

    def _failed(self, error: BaseException, now_s: float) -> None:
        why = error.args[0] if isinstance(error, KafkaException) else None
        if why is not None and why.code() in MOMENTARY:
            return
        said = str(error) if why is None else describe(why)
        self._due_s = now_s + AGAIN_AFTER_S
        if self._problem != said:
            log.warning("group_offsets_refused", group=self._group, error=said)
        self._problem = said
