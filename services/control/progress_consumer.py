"""Follows ``viaduck.progress``: what appliers and readers say, into the status store."""

from __future__ import annotations

from collections.abc import Callable

from shared.contracts.errors import UnreadableMessage
from shared.contracts.reports import Told, parse_progress
from shared.kafka.record import Record

Unreadable = Callable[[Record, str], None]


def handler(note: Callable[[Told], None], unreadable: Unreadable) -> Callable[[Record], None]:
    """What a follower calls with each record; it never raises for what a record holds.

    ``note`` puts a message into the status store.
    """

    def handle(record: Record) -> None:
        try:
            if record.value is None:
                return
            message = parse_progress(record.value)
        except UnreadableMessage as error:
            unreadable(record, str(error))
            return
        note(message)

    return handle
