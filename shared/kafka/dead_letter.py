"""Puts aside what nobody could read, with the reason, so that it never blocks its partition."""

from __future__ import annotations

import base64

import structlog

from shared.kafka.publisher import OnDelivery, Publisher
from shared.kafka.record import Record
from shared.kafka.topics import Topics
from shared.messages import DeadLetter

log = structlog.get_logger(__name__)

MAX_PAYLOAD = 256 * 1024
"""Bytes of the original that are kept: in base64 and with the reason it must stay below the broker's 1 MB."""

MAX_REASON = 4_000


def dead_letter(
    publisher: Publisher, topics: Topics, record: Record, reason: str, by: str, on_delivery: OnDelivery | None = None
) -> None:
    """Publish ``record`` to the dead-letter topic; ``by`` names the service that gave it up."""
    log.warning("dead letter", topic=record.topic, partition=record.partition, offset=record.offset, reason=reason)
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
