"""Publishes ``viaduck.destinations``: what is wanted of each destination, and tombstones for those that went."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from services.control.lifecycle import Registered

TOMBSTONES_FOR = timedelta(days=1)
"""How long a removed destination is said to be gone: a service that missed it once should hear of it."""


class Sender(Protocol):
    """The part of ``shared.kafka.publisher.Publisher`` that is used here."""

    def send(self, topic: str, key: str, value: bytes | None) -> None: ...


class Announcer:
    """A message that gets lost is sent again with the next round, so nobody waits for its delivery."""

    def __init__(self, sender: Sender, topic: str, pipeline: str) -> None:
        self._sender, self._topic, self._pipeline = sender, topic, pipeline
        self._written: dict[str, tuple[Registered, str, bytes | None]] = {}
        """Of each destination what was sent last: with thousands, writing it anew costs more than sending it."""

    def announce(self, held: Iterable[Registered]) -> None:
        for each in held:
            written = self._written.get(each.id)
            if written is None or written[0] is not each:
                message = each.message(self._pipeline)
                written = each, message.key, None if each.removed else message.to_bytes()
                self._written[each.id] = written
            self._sender.send(self._topic, *written[1:])

    def announce_all(self, held: Iterable[Registered], now: datetime) -> None:
        """All that are there, and those that went not long ago."""
        self.announce(each for each in held if not each.removed or now - each.revision.at < TOMBSTONES_FOR)
