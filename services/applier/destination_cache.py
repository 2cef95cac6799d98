"""What the applier knows of destinations: the compacted topic, as far as it has been read."""

from __future__ import annotations

import threading

import structlog

from shared.contracts.latest import Latest
from shared.contracts.messages import Destination
from shared.kafka.record import Record, keyed_message

log = structlog.get_logger(__name__)


class DestinationCache:
    """Desired states by key ``pipeline/destination``. One thread puts in, many read."""

    def __init__(self) -> None:
        self._known: Latest[Destination] = Latest()
        self._lock = threading.Lock()
        self._routed: dict[str, frozenset[str]] = {}
        """Routing values by pipeline, as long as nothing has changed."""

    def put(self, record: Record) -> Destination | None:
        """Take in one record of the topic. Raises ``UnreadableMessage``.

        Returns what is said of the destination, where that holds.
        """
        destination = keyed_message(record, Destination)
        if destination is None:
            return None
        with self._lock:
            if not self._known.take(destination):
                return None
            self._routed.pop(destination.pipeline, None)
            return destination

    def get(self, key: str) -> Destination | None:
        """What holds of a destination; None where there is none, or none any more."""
        found = self.last(key)
        return None if found is None or found.removed else found

    def of(self, pipeline: str) -> list[Destination]:
        """The destinations of a pipeline that there are."""
        with self._lock:
            return [each for each in self._known if each.pipeline == pipeline and not each.removed]

    def routed(self, pipeline: str) -> frozenset[str]:
        """The routing values of the destinations of a pipeline that there are."""
        with self._lock:
            found = self._routed.get(pipeline)
            if found is None:
                mine = (each for each in self._known if each.pipeline == pipeline and not each.removed)
                found = self._routed[pipeline] = frozenset(each.routing_value for each in mine)
            return found

    def all(self) -> list[Destination]:
        """The destinations of every pipeline that there are."""
        with self._lock:
            return [each for each in self._known if not each.removed]

    def last(self, key: str) -> Destination | None:
        """The last message about a destination, also a removal; None without a message."""
        with self._lock:
            return self._known.get(key)
