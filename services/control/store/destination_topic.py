"""Publishes ``viaduck.destinations``: what is wanted of each destination, and that it is gone of those that went."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from services.control.model.lifecycle import Registered
from shared.kafka.sender import Sender

GONE_FOR = timedelta(days=1)
"""How long it is repeated that a destination is gone. The topic itself never forgets it: no tombstone is written."""


class DestinationPublisher:
    """A lost message is sent again with the next round, so no caller waits for its delivery."""

    def __init__(self, sender: Sender, topic: str, pipeline: str) -> None:
        self._sender = sender
        self._topic = topic
        self._pipeline = pipeline
        self._first = True
        self._written: dict[str, tuple[Registered, str, bytes]] = {}
        """The last message of each destination: with thousands, serializing it again costs more than sending it."""

    def announce(self, held: Iterable[Registered]) -> None:
        for each in held:
            name = each.id
            written = self._written.get(name)
            if written is None or written[0] is not each:
                message = each.message(self._pipeline)
                written = each, message.key, message.to_bytes()
                self._written[name] = written
            self._sender.send(self._topic, *written[1:])

    def announce_all(self, held: Iterable[Registered], now: datetime) -> None:
        """All that are there, and those that went; after the first time only those that went not long ago."""
        first, self._first = self._first, False
        told = [each for each in held if first or not each.removed or now - each.revision.at < GONE_FOR]
        self.announce(told)
        self._written = {each.id: self._written[each.id] for each in told}
