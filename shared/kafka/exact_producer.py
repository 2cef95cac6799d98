"""Produces records byte for byte: bytes as they are, headers of one name more than once, no signature of ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer

from shared.kafka.failure import Watch, build
from shared.kafka.rejected import WireHeaders
from shared.kafka.settings import KafkaSettings

DELIVER_WITHIN_S = 30.0

FULL_POLL_S = 0.1
"""How long it waits for the broker to take something of a full queue."""

ANY_SIZE = {"message.max.bytes": 1_000_000_000}
"""The broker's limits count, and not the client's own."""

BY_KEY = -1
"""The partition that librdkafka chooses."""

Report = Callable[[KafkaError | None], None]


class ExactProducer:
    """For one topic, used by one thread."""

    def __init__(self, settings: KafkaSettings, topic: str, client_id: str) -> None:
        self._topic = topic
        self._watch = Watch(client_id)
        self._producer = build(Producer, {**ANY_SIZE, **settings.producer(client_id, self._watch)})

    @property
    def problem(self) -> str | None:
        """Why the broker can't be used now; None while nothing is known to be wrong."""
        return self._watch.problem

    def send(
        self, key: bytes | None, value: bytes | None, headers: WireHeaders, report: Report, partition: int = BY_KEY
    ) -> bool:
        """Whether the producer took it; ``report`` is called once either way, here, in a later ``send`` or in
        ``flush``. Of a full queue it waits for the broker to take something."""
        until_s = time.monotonic() + DELIVER_WITHIN_S
        while time.monotonic() < until_s:
            try:
                self._producer.produce(
                    self._topic, value=value, key=key, headers=headers, partition=partition,
                    on_delivery=lambda error, _: self._delivered(error, report),
                )  # fmt: skip
            except BufferError:
                self._producer.poll(FULL_POLL_S)
            except KafkaException as error:
                report(error.args[0])
                return False
            else:
                self._producer.poll(0)
                return True
        report(KafkaError(KafkaError._QUEUE_FULL))
        return False

    def flush(self) -> int:
        """Wait for the broker; returns how many records are still on their way."""
        return self._producer.flush(DELIVER_WITHIN_S)

    def purge(self) -> None:
        """Report what is still on its way as not delivered, and let go of it."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _delivered(self, error: KafkaError | None, report: Report) -> None:
        if error is None:
            self._watch.works()
        report(error)
