"""A message as it was received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a topic; ``value`` is None for a tombstone. ``timestamp_ms`` is 0 where the broker gives none."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int = 0


def from_message(message: Message) -> Record:
    """Anything may have been sent to a topic: bytes that are not UTF-8 are kept in a readable form, never refused."""
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_text(message.key()),
        value=message.value(),
        headers=_headers(message),
        timestamp_ms=max(0, message.timestamp()[1]),
    )


def _headers(message: Message) -> dict[str, str]:
    received = message.headers() or []
    pairs = received.items() if isinstance(received, dict) else received
    return {str(name): _text(value) or "" for name, value in pairs}


def _text(raw: str | bytes | None) -> str | None:
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw
