"""A message as it was received."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import Message

from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import Destination, PipelineDocument
from shared.kafka.signing import SIGNATURE_HEADER, Signing

Keyed = TypeVar("Keyed", Destination, PipelineDocument)


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a topic."""

    topic: str
    partition: int
    offset: int
    key: str | None
    raw: bytes | None
    """The bytes as sent, valid or not: for the dead-letter topic only."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Not signed, but for the signature: they decide nothing."""
    distrust: str | None = None
    """Why its signature does not count; None where it does, or where the deployment does not sign."""

    @property
    def value(self) -> bytes | None:
        """None for a tombstone. Raises ``UnreadableMessage`` without a valid signature."""
        if self.distrust is not None:
            raise UnreadableMessage(self.distrust)
        return self.raw


def keyed_message(record: Record, model: type[Keyed]) -> Keyed | None:
    """What a record of a compacted topic says; a tombstone, which Viaduck never writes, means nothing.

    Raises ``UnreadableMessage``, also where the key is not the message's own: compaction goes by the key.
    """
    if record.key is None:
        raise UnreadableMessage("a message of this topic needs a key")
    if record.value is None:
        return None
    message = model.from_bytes(record.value)
    if message.key != record.key:
        raise UnreadableMessage(f"the key {record.key!r} is not the message's own, {message.key!r}")
    return message


def from_message(message: Message, signing: Signing | None = None) -> Record:
    """Anything may have been sent to a topic: bytes that are not UTF-8 are kept in a readable form, never refused."""
    topic, key, value, headers = message.topic() or "", message.key(), message.value(), _headers(message)
    said = headers.pop(SIGNATURE_HEADER, None)
    return Record(
        topic=topic,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_text(key),
        raw=value,
        headers=headers,
        distrust=None if signing is None else signing.distrust(topic, _bytes(key), value, said),
    )


def _headers(message: Message) -> dict[str, str]:
    received = message.headers() or []
    pairs = received.items() if isinstance(received, dict) else received
    return {str(name): _text(value) or "" for name, value in pairs}


def _text(raw: str | bytes | None) -> str | None:
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw


def _bytes(raw: str | bytes | None) -> bytes | None:
    return raw.encode() if isinstance(raw, str) else raw
