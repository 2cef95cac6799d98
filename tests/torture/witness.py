"""What a site leaves behind, as a trace for the specification: its destinations' snapshots, the items, the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from shared.messages import Progress, UnreadableMessage, WorkItem, parse_progress
from tests.model.record import committed
from tests.model.trace import Anything, Sent, answered, sent
from tests.torture.arena import Arena
from tests.torture.wire import everything


def trace(arena: Arena) -> list[Anything]:
    """Everything that can still be seen; what a wiped broker held is unknown, and the specification allows for that."""
    commits = [committed(stamp) for stamp in arena.site.stamps()]
    return [*_items(arena), *commits, *_answers(arena)]


def _items(arena: Arena) -> Iterator[Sent]:
    for _, value in everything(arena, f"{arena.prefix}.work"):
        with suppress(UnreadableMessage):  # poison
            yield sent(WorkItem.from_bytes(value or b""))


def _answers(arena: Arena) -> Iterator[Anything]:
    """The newest of each destination: older ones are compacted away, now or soon."""
    for _, value in everything(arena, f"{arena.prefix}.progress"):
        with suppress(UnreadableMessage):
            message = parse_progress(value or b"")
            if isinstance(message, Progress) and message.position is not None:
                yield answered(message)
