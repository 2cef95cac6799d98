"""A worker's clients of the brokers whose topics it reads: one of each kind for each topic, kept between tasks."""

from __future__ import annotations

import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from services.applier.model.task import SourceTopic
from services.applier.records.rejection import Rejection
from shared.contracts.errors import DestinationError, SourceError
from shared.kafka.exact_producer import ExactProducer
from shared.kafka.failure import describe
from shared.kafka.rejected import RejectedOrigin, reason_headers
from shared.kafka.schema_registry import RegistrySettings, SchemaRegistry
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topic_records import TopicRecords

MOST_REMEMBERED = 100_000
"""Rejected records of which a worker remembers that they were delivered."""


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
        self._registries: dict[RegistrySettings, SchemaRegistry] = {}
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

    def schemas(self, source: SourceTopic) -> SchemaRegistry | None:
        """The registry of a topic's schemas, with those that are known already; None where it has none."""
        if source.registry is None:
            return None
        with self._lock:
            if source.registry not in self._registries:
                self._registries[source.registry] = SchemaRegistry(source.registry)
            return self._registries[source.registry]

    def close(self) -> None:
        with self._lock:
            for registry in self._registries.values():
                registry.close()
            self._registries.clear()
            for each in self._topics.values():
                each.records.close()
            self._topics.clear()
            self._producers.clear()


class RejectedRecords:
    """Produces records byte for byte, with the reason and their place as headers. Thread-safe: destinations of a topic
    that is routed are written at once, and a producer's reports go to the thread that waits for it."""

    def __init__(self, settings: KafkaSettings, topic: str, client_id: str) -> None:
        self._topic = topic
        self._producer = ExactProducer(settings, topic, client_id)
        self._lock = threading.Lock()
        self._delivered: OrderedDict[tuple[str, int, int], None] = OrderedDict()

    def deliver_once(self, topic_id: str, source_topic: str, records: Sequence[Rejection]) -> None:
        """The same for records that are read for several destinations: as far as this process remembers, those that the
        broker has are not sent again."""
        places = {(topic_id, each.partition, each.offset): each for each in records}
        with self._lock:
            new = [place for place in places if place not in self._delivered]
            if not new:
                return
            self._deliver(source_topic, [places[each] for each in new])
            self._delivered.update(dict.fromkeys(new))
            while len(self._delivered) > MOST_REMEMBERED:
                self._delivered.popitem(last=False)

    def deliver(self, source_topic: str, records: Sequence[Rejection]) -> None:
        """Returns once the broker has all of them. Raises ``ViaduckError`` where it has not: then nothing may commit.

        What was sent is sent again by the next try: a record may lie there twice, under the same place.
        """
        with self._lock:
            self._deliver(source_topic, records)

    def _deliver(self, source_topic: str, records: Sequence[Rejection]) -> None:
        failed: list[tuple[Rejection, KafkaError]] = []
        for each in records:
            if not self._send(source_topic, each, failed):
                break
        left = self._producer.flush()
        too_large = next((record for record, why in failed if why.code() == KafkaError.MSG_SIZE_TOO_LARGE), None)
        if too_large is not None:
            raise self._too_large(too_large)
        if failed or left:
            said = self._producer.problem or (describe(failed[0][1]) if failed else "no answer")
            raise SourceError(
                "source_unreachable",
                f"{len(records)} rejected records could not be delivered to {self._topic}: {said}",
                "check that the broker runs, has the topic, and lets appliers write to it; it is tried again",
            )

    def _send(self, source_topic: str, record: Rejection, failed: list[tuple[Rejection, KafkaError]]) -> bool:
        def report(error: KafkaError | None) -> None:
            if error is not None:
                failed.append((record, error))

        headers = [*(record.headers or []), *reason_headers(_origin(source_topic, record))]
        return self._producer.send(record.key, record.value, headers, report)

    def _too_large(self, record: Rejection) -> DestinationError:
        size = len(record.key or b"") + len(record.value or b"")
        return DestinationError(
            "value_refused",
            f"offset {record.offset} of partition {record.partition} was rejected ({record.reason.value}), and its"
            f" {size} bytes are too large for the topic {self._topic}",
            f"raise max.message.bytes of {self._topic} above that of the source's topic, then resume",
        )


def _origin(source_topic: str, record: Rejection) -> RejectedOrigin:
    timestamp = "" if record.timestamp is None else record.timestamp.isoformat()
    return RejectedOrigin(record.reason.value, record.text, source_topic, record.partition, record.offset, timestamp)


def _key(settings: KafkaSettings, topic: str) -> str:
    return repr((settings.bootstrap, sorted(settings.properties.items()), topic))
