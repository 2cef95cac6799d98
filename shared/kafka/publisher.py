"""Sends messages: all replicas confirm, retries keep the order, failures are told to the sender."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from shared.kafka.failure import NotDelivered, Watch, build, describe, is_fatal
from shared.kafka.partition_counts import PartitionCounts
from shared.kafka.sender import Headers, OnDelivery, Value
from shared.kafka.settings import KafkaSettings
from shared.kafka.signing import SIGNATURE_HEADER
from shared.runtime.background import Background

log = structlog.get_logger(__name__)

POLL_S = 0.1
MAX_WAIT_FOR_ROOM_S = 30.0

BY_KEY = -1
"""The partition that librdkafka chooses."""

Place = Callable[[str, int], int]
"""A message's key and the number of its topic's partitions → one of them, from 0."""

WireHeaders = list[tuple[str, str | bytes | None]]


class Publisher:
    """A producer with a thread that serves its callbacks; ``send`` may be called from any thread.

    A producer that died is replaced by a new one; what it still held is reported as not delivered.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, places: Mapping[str, Place] | None = None) -> None:
        """``places``: by topic, the function that chooses the partition; other topics are partitioned by key.

        Messages of a topic with a place must be sent from one thread.
        """
        self._settings = settings
        self._client_id = client_id
        self._places = dict(places or {})
        self._partitions = PartitionCounts()
        self._watch = Watch(client_id)
        self._lock = threading.Lock()
        self._producer = self._build()
        self._loop = Background(f"publisher {client_id}", self._serve)
        self._loop.start()

    @property
    def problem(self) -> str | None:
        """Why the broker can't be used now; None while nothing is known to be wrong."""
        return self._watch.problem or self._loop.problem

    def send(
        self, topic: str, key: str, value: Value, headers: Headers | None = None, on_delivery: OnDelivery | None = None
    ) -> None:
        """Queue a message; ``value`` None is a tombstone.

        ``on_delivery`` is called once, mostly on the publisher's own thread (so it must be quick and must not send),
        with None or with ``NotDelivered``. Without it a failure is logged. A full queue makes the caller wait for room.
        """
        report = self._reporter(topic, key, on_delivery)
        wire: WireHeaders = [
            (name, text.encode()) for name, text in (headers or {}).items() if name != SIGNATURE_HEADER
        ]
        if self._settings.signing is not None:
            wire.append((SIGNATURE_HEADER, self._settings.signing.signature(topic, key.encode(), value).encode()))
        try:
            self._produce(topic, key, value, wire, report)
        except BufferError:
            report(NotDelivered(f"{topic} {key}: the queue stayed full"))
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._failed(error)
            report(NotDelivered(f"{topic} {key}: {describe(error.args[0])}"))

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None where the broker does not say now. One thread asks."""
        return self._partitions.of(self._producer, topic)

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is delivered or has failed; returns how many messages are still on their way."""
        try:
            return self._producer.flush(timeout_s)
        except KafkaException as error:
            self._failed(error)
            return len(self._producer)

    def rebuild(self) -> None:
        """Replace the producer by a new one, which knows nothing of the topics that were."""
        fresh = self._build()
        with self._lock:
            old, self._producer = self._producer, fresh
        self._partitions.forget()
        log.warning("kafka_producer_recreated", client=self._client_id)
        _discard(old)

    def close(self, timeout_s: float = 10.0) -> None:
        """Deliver what is queued, give up what can't be delivered in time, and end."""
        self.flush(timeout_s)
        self._loop.stop(timeout_s)
        _discard(self._producer)

    def _build(self) -> Producer:
        self._watch = Watch(self._client_id)
        return build(Producer, self._settings.producer(self._client_id, self._watch))

    def _produce(self, topic: str, key: str, value: Value, headers: WireHeaders, report: OnDelivery) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._watch.works()
            report(NotDelivered(f"{topic} {key}: {describe(error)}") if error is not None else None)

        partition = self._partition(topic, key)
        room = Retrying(
            retry=retry_if_exception_type(BufferError),
            stop=stop_after_delay(MAX_WAIT_FOR_ROOM_S),
            wait=wait_fixed(POLL_S),
            reraise=True,
        )
        for attempt in room:
            with attempt, self._lock:
                self._producer.produce(
                    topic, key=key, value=value, headers=headers, partition=partition, on_delivery=delivered
                )

    def _partition(self, topic: str, key: str) -> int:
        place = self._places.get(topic)
        if place is None:
            return BY_KEY
        partitions = self._partitions.of(self._producer, topic)
        return BY_KEY if partitions is None else place(key, partitions)

    def _failed(self, error: KafkaException) -> None:
        self._watch(error.args[0])

    def _reporter(self, topic: str, key: str, on_delivery: OnDelivery | None) -> OnDelivery:
        def report(error: Exception | None) -> None:
            if error is not None:
                self._partitions.forget()
            if on_delivery is None:
                if error is not None:
                    log.warning("message_not_delivered", topic=topic, key=key, error=str(error))
                return
            try:
                on_delivery(error)
            except Exception:
                # Raised any further it would come out of some unrelated poll() and end the serving thread.
                log.exception("delivery_report_failed", topic=topic, key=key)

        return report

    def _serve(self, loop: Background) -> None:
        while not loop.stopped.is_set():
            loop.turned()
            try:
                self._producer.poll(POLL_S)
            except KafkaException as error:  # a fatal one comes out here as well as in the callback, or instead
                self._failed(error)
                loop.stopped.wait(POLL_S)
            if self._watch.fatal is not None:
                self.rebuild()


def _discard(producer: Producer) -> None:
    """Report what a producer still holds as not delivered, and let go of it."""
    producer.purge()
    with contextlib.suppress(KafkaException):  # it died of what it says here once more
        producer.flush(1.0)
