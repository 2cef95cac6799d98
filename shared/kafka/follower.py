"""Reads whole topics, from the beginning and then on and on: how a service learns the state that a topic holds."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from shared.kafka.failure import ClientLost, Watch, build, describe
from shared.kafka.message_batch import receive
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.runtime.background import Background

log = structlog.get_logger(__name__)

POLL_S = 0.1
BATCH = 1_000
ASK_EVERY_S = 2.0
ANSWER_WITHIN_S = 5.0
REBUILD_AFTER_S = 1.0

Handler = Callable[[Record], None]
Place = tuple[str, int]
"""A topic and the number of a partition of it."""


def end_process(_: Exception) -> None:
    """A service that can no longer learn what it should do ends in order; its supervisor starts it again."""
    signal.raise_signal(signal.SIGTERM)


class Follower:
    """One consumer on one thread of its own, without a group.

    When the consumer is lost, and on ``renew``, everything is read from the beginning again. Handlers therefore see
    records again and must not mind.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, topics: Sequence[str], *, urgent: bool = True) -> None:
        """``urgent`` where changes wait for what is said there; else it may be heard a little later."""
        self._settings = settings
        self._client_id = client_id
        self._topics = tuple(topics)
        self._urgent = urgent
        self._watch = Watch(client_id, is_member=False)
        self._renewed = threading.Event()
        self._unread: set[Place] = set()
        self._ends: dict[Place, int] = {}
        """Behind the last record that each of them had when it was first read."""
        self._loop: Background | None = None
        self.caught_up = threading.Event()
        """Set once everything that the topics held at the start has been handled; then stays set."""

    @property
    def level(self) -> bool:
        """Whether all has been handled that the topics held when they were last read from the beginning.

        While it has not, what a handler hears may be long past.
        """
        return not self._unread

    @property
    def problem(self) -> str | None:
        """Why the broker can't be used now; None while nothing is known to be wrong."""
        return self._watch.problem

    def start(self, handler: Handler, on_failure: Callable[[Exception], None] = end_process) -> None:
        """Call ``handler`` with each record, on the follower's thread; what it raises ends the following.

        Raises ``ConfigError`` for properties that librdkafka does not take.
        """
        consumer = self._build()  # here, so that a bad property is the caller's to report

        def run(loop: Background) -> None:
            self._run(loop, consumer, handler)

        self._loop = Background(f"follower {self._client_id}", run, on_error=on_failure)
        self._loop.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        if self._loop is not None:
            self._loop.stop(timeout_s)

    def renew(self) -> None:
        """Read the topics from the beginning again: they are others than before. Any thread."""
        self._renewed.set()

    def _build(self) -> Consumer:
        self._watch = Watch(self._client_id, is_member=False)
        group = f"{self._client_id} (unused)"
        properties = self._settings.consumer(self._client_id, group, self._watch, urgent=self._urgent)
        return build(Consumer, {**properties, "enable.partition.eof": True})

    def _run(self, loop: Background, consumer: Consumer, handler: Handler) -> None:
        while not loop.stopped.is_set():
            self._follow(loop, consumer, handler)
            if not loop.stopped.wait(REBUILD_AFTER_S):
                consumer = self._build()

    def _follow(self, loop: Background, consumer: Consumer, handler: Handler) -> None:
        """Follow until the consumer is lost or the follower stopped."""
        try:
            self._renewed.clear()
            self._assign(consumer)
            ask_at = time.monotonic()
            while not loop.stopped.is_set():
                loop.turned()
                self._take(loop, consumer, handler)
                if self._renewed.is_set():
                    raise ClientLost("they are others than before")
                if self._watch.problem is not None and time.monotonic() >= ask_at:
                    self._ask(consumer)
                    ask_at = time.monotonic() + ASK_EVERY_S
        except ClientLost as lost:
            log.warning("topics_reread", client=self._client_id, because=str(lost))
        finally:
            consumer.close()

    def _take(self, loop: Background, consumer: Consumer, handler: Handler) -> None:
        ended: list[Place] = []
        records = self._receive(consumer, ended)
        for record in records:
            if loop.stopped.is_set():
                return
            handler(record)
            loop.turned()
            self._note_read(consumer, record)
        self._unread.difference_update(ended)
        if not self._unread:
            self.caught_up.set()

    def _note_read(self, consumer: Consumer, record: Record) -> None:
        """A broker reports a partition's end only in answer to a fetch that finds nothing, and a busy one never does:
        there the end is where the partition ended when it was first read."""
        place = record.topic, record.partition
        if place not in self._unread:
            return
        if place not in self._ends and (end := known_end(consumer, *place)) is not None:
            self._ends[place] = end
        if record.offset + 1 >= self._ends.get(place, math.inf):
            self._unread.discard(place)

    def _receive(self, consumer: Consumer, ended: list[Place]) -> list[Record]:
        def end(topic: str, number: int) -> None:
            ended.append((topic, number))

        return receive(consumer, self._watch, POLL_S, BATCH, self._settings.signing, end)

    def _ask(self, consumer: Consumer) -> None:
        """Whether a broker in trouble answers again: where nothing is sent, nothing would tell."""
        try:
            self._partitions(consumer)
        except ClientLost:
            return  # the consumer itself waits for it
        self._watch.works()

    def _assign(self, consumer: Consumer) -> None:
        partitions = self._partitions(consumer)
        self._unread, self._ends = {(p.topic, p.partition) for p in partitions}, {}
        consumer.assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions])

    def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        """The partitions of our topics. Raises ``ClientLost`` while a topic is missing."""
        found: list[TopicPartition] = []
        for topic in self._topics:
            try:
                known = consumer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
            except KafkaException as error:
                raise ClientLost(describe(error.args[0])) from None
            if known.error is not None:
                raise ClientLost(f"{topic}: {describe(known.error)}")
            found += [TopicPartition(topic, number) for number in sorted(known.partitions)]
        return found


def known_end(consumer: Consumer, topic: str, number: int) -> int | None:
    """The offset behind the partition's last record, as the last fetch told; None where none has."""
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
    return end if end >= 0 else None
