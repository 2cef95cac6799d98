"""A worker's clients of the brokers whose topics it reads: one of each kind for each topic, kept between tasks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from services.applier.model.task import SourceTopic
from services.applier.records.rejection import Rejected
from shared.contracts.errors import SourceError
from shared.kafka.failure import Watch, build, describe
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topic_records import TopicRecords

DELIVER_WITHIN_S = 30.0

Delivered = Callable[[KafkaError | None, Message], None]

PREFIX = "viaduck-"
"""Of the headers that say why a record was rejected, and where it stood."""


@dataclass
class TopicClients:
    """Those of one topic. One thread at a time uses them."""

    log: TopicLog
    records: TopicRecords
    lock: threading.Lock = field(default_factory=threading.Lock)


class BrokerClients:
    """All of a worker's; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, TopicClients] = {}
        self._producers: dict[str, RejectedRecords] = {}
        self._client_id = f"viaduck-worker-{socket.gethostname()}-{os.getpid()}"

    @contextmanager
    def of(self, source: SourceTopic) -> Iterator[TopicClients]:
        """The clients of a topic, for one thread until the block ends."""
        key = _key(source.settings, source.table)
        with self._lock:
            if key not in self._topics:
                log = TopicLog(source.settings, source.table, self._client_id)
                self._topics[key] = TopicClients(log, TopicRecords(source.settings, source.table, self._client_id))
            found = self._topics[key]
        with found.lock:
            yield found

    def rejected(self, source: SourceTopic) -> RejectedRecords:
        """The producer for what is rejected of a topic."""
        key = _key(source.own, source.rejected)
        with self._lock:
            if key not in self._producers:
                self._producers[key] = RejectedRecords(source.own, source.rejected, self._client_id)
            return self._producers[key]

    def close(self) -> None:
        with self._lock:
            for each in self._topics.values():
                each.records.close()
            self._topics.clear()
            self._producers.clear()


class RejectedRecords:
    """Produces records byte for byte, with the reason and their place as headers."""

    def __init__(self, settings: KafkaSettings, topic: str, client_id: str) -> None:
        self._settings = settings
        self._topic = topic
        self._watch = Watch(client_id)
        self._producer = build(Producer, settings.producer(client_id, self._watch))

    def deliver(self, source_topic: str, records: Sequence[Rejected]) -> None:
        """Returns once the broker has all of them. Raises ``SourceError`` where it has not: then nothing may commit.

        What was sent is sent again by the next try: a record may lie there twice, under the same place.
        """
        failed: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(str(error))

        try:
            for each in records:
                self._produce(source_topic, each, delivered)
        except (KafkaException, BufferError) as error:
            failed.append(describe(error.args[0]) if isinstance(error, KafkaException) else str(error))
        left = self._producer.flush(DELIVER_WITHIN_S)
        if failed or left:
            raise SourceError(
                "source_unreachable",
                f"{len(records)} rejected records could not be delivered to {self._topic}:"
                f" {self._watch.problem or (failed or ['no answer'])[0]}",
                "check that the broker runs, has the topic, and lets appliers write to it; it is tried again",
            )
        self._watch.works()

    def _produce(self, source_topic: str, record: Rejected, delivered: Delivered) -> None:
        own = {
            "reason": record.reason.value,
            "message": record.text,
            "topic": source_topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "timestamp": "" if record.timestamp is None else record.timestamp.isoformat(),
        }
        headers: list[tuple[str, str | bytes | None]] = [
            *(record.headers or []),
            *((PREFIX + name, text.encode()) for name, text in own.items()),
        ]
        self._producer.produce(self._topic, value=record.value, key=record.key, headers=headers, on_delivery=delivered)
        self._producer.poll(0)


def _key(settings: KafkaSettings, topic: str) -> str:
    return repr((settings.bootstrap, sorted(settings.properties.items()), topic))
