"""What a site leaves behind, as a trace for the specification: its destinations' snapshots, the items, the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import Progress, WorkItem
from shared.contracts.reports import parse_progress
from tests.model.record import committed
from tests.model.trace import Anything, Sent, answered, sent
from tests.torture.rig import FaultRig
from tests.torture.site import PIPELINE
from tests.torture.wire import everything


def trace(rig: FaultRig) -> list[Anything]:
    """Everything that can still be seen; what a wiped broker held is unknown, and the specification allows for that."""
    commits = [committed(stamp) for stamp in rig.site.stamps()]
    return [*_items(rig), *commits, *_answers(rig)]


def _items(rig: FaultRig) -> Iterator[Sent]:
    for _, value in everything(rig, f"{rig.prefix}.work"):
        with suppress(UnreadableMessage):  # poison
            item = WorkItem.from_bytes(value or b"")
            if item.pipeline == PIPELINE:
                yield sent(item)


def _answers(rig: FaultRig) -> Iterator[Anything]:
    """The newest of each destination: older ones are compacted away, now or soon."""
    for _, value in everything(rig, f"{rig.prefix}.progress"):
        with suppress(UnreadableMessage):
            message = parse_progress(value or b"")
            if isinstance(message, Progress) and message.position is not None and message.pipeline == PIPELINE:
                yield answered(message)
