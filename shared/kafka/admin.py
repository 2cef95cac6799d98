"""An admin client that finds its way back to its broker."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka.admin import AdminClient

from shared.kafka.failure import Watch, build
from shared.kafka.settings import KafkaSettings

log = structlog.get_logger(__name__)

REPLACE_AFTER_S = 10.0
"""Longer than a request may take, so that none is waited for that a client takes along."""


class Admin:
    """librdkafka's client, replaced by a new one where no request has succeeded for ``REPLACE_AFTER_S``.

    After its broker was away, a client that is used now and then may stay without a connection for more than a minute,
    while others of the same process are back within a second (librdkafka 2.16). It is kept for as long as it is used: a
    temporary one dies in mid-request.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._client_id = client_id
        self._clock = clock
        self._failing_since_s: float | None = None
        self._watch = Watch(client_id)
        self.client = self._build()
        self._former: AdminClient | None = None

    def works(self) -> None:
        """The broker answered."""
        self._failing_since_s = None
        self._watch.works()

    def problem(self) -> str | None:
        """After a request failed: what the client knows of it beyond the request's own error.

        A refused login or certificate is known to the watch, which gets it only when the client is polled.
        """
        self.client.poll(0)
        known = self._watch.problem
        if self._failing_since_s is None:
            self._failing_since_s = self._clock()
        elif self._clock() - self._failing_since_s >= REPLACE_AFTER_S:
            self._replace()
        return known

    def _replace(self) -> None:
        self._failing_since_s = None
        self._former, self.client = self.client, self._build()
        log.info("kafka_admin_recreated", client=self._client_id)

    def _build(self) -> AdminClient:
        return build(AdminClient, self._settings.client(self._client_id, self._watch))
