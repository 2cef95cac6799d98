"""What the applier knows of destinations: the compacted topic, as far as it has been read."""

from __future__ import annotations

import threading

import structlog

from shared.kafka.record import Record
from shared.messages import Destination, UnreadableMessage

log = structlog.get_logger(__name__)


class Directory:
    """Desired states by key ``pipeline/destination``. One thread puts in, many read."""

    def __init__(self) -> None:
        self._known: dict[str, Destination] = {}
        self._lock = threading.Lock()

    def put(self, record: Record) -> None:
        """Take in one record of the topic; a tombstone means nothing. Raises ``UnreadableMessage``."""
        if record.key is None:
            raise UnreadableMessage("a message of this topic needs a key")
        if record.value is None:
            return
        destination = Destination.from_bytes(record.value)
        if destination.key != record.key:
            raise UnreadableMessage(f"the key {record.key!r} is not the destination's {destination.key!r}")
        with self._lock:
            known = self._known.get(destination.key)
            if known is None or known.order <= destination.order:
                self._known[destination.key] = destination

    def get(self, key: str) -> Destination | None:
        """What holds of a destination; None where there is none, or none any more."""
        with self._lock:
            found = self._known.get(key)
        return None if found is None or found.removed else found
