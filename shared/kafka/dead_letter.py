"""Stores messages that could not be read, with the reason, so that they never block their partition."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable

import structlog

from shared.contracts.messages import DeadLetter
from shared.kafka.record import Record
from shared.kafka.sender import OnDelivery, Sender
from shared.kafka.topics import Topics

log = structlog.get_logger(__name__)

MAX_PAYLOAD = 256 * 1024
"""Bytes of the original that are kept: in base64 and with the reason it must stay below the broker's 1 MB."""

MAX_REASON = 4_000

FORGED_PER_MINUTE = 60
"""Messages without a valid signature that become dead letters and log lines; the metric counts all.

Their number is untrusted, and each would be written once more by every service.
"""


class Allowance:
    """``most`` in each minute, from several threads."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._minute = 0
        self._given = 0
        self._refused = 0

    def take(self) -> bool:
        """Whether one more is allowed. The first that is not, and how many were not, is in the log once a minute."""
        with self._lock:
            minute, refused = int(self._clock() // 60), 0
            if minute != self._minute:
                refused, self._minute, self._given, self._refused = self._refused, minute, 0, 0
            allowed = self._given < self._most
            self._given += allowed
            self._refused += not allowed
            first = self._refused == 1 and not allowed
        if refused:
            log.warning("forged_messages_suppressed", messages=refused)
        if first:
            log.warning("forged_messages_limited", most=self._most)
        return allowed


_forged = Allowance(FORGED_PER_MINUTE)


def dead_letter(
    publisher: Sender,
    topics: Topics,
    record: Record,
    reason: str,
    by: str,
    on_delivery: OnDelivery | None = None,
    forged: Allowance = _forged,
) -> None:
    """Publish ``record`` to the dead-letter topic; ``by`` names the service that gave it up.

    Of messages that are not ours only as many as ``forged`` allows; of others, that were meant for us, every one.
    """
    if record.distrust is not None and not forged.take():
        return
    log.warning("dead_letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason)
    letter = DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key[:MAX_REASON] if record.key is not None else None,
        reason=reason[:MAX_REASON],
        payload=base64.b64encode((record.raw or b"")[:MAX_PAYLOAD]).decode(),
        by=by,
        distrusted=record.distrust is not None,
    )
    publisher.send(topics.dead_letter, letter.key or "", letter.to_bytes(), record.headers, on_delivery)
