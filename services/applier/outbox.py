"""Progress on its way out. An item's offset may be committed once its progress has been delivered, not before."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.contracts.messages import Progress
from shared.contracts.reports import UnroutedRecords
from shared.kafka.sender import Sender
from shared.kafka.work_consumer import PartitionId

RESEND_AFTER_S = 1.0


Place = tuple[PartitionId, int]
"""Where on the work topic an item came from: partition and offset."""


@dataclass
class Outbox:
    """Sends progress until it is delivered; ``delivered`` hands the finished items' places to the consumer's thread.

    ``on_delivered`` gets each answer that the broker has taken; on the sender's thread, so it is quick.
    """

    sender: Sender
    topic: str
    on_delivered: Callable[[Progress], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _finished: queue.SimpleQueue[Place] = field(default_factory=queue.SimpleQueue, init=False)
    _unsent: queue.SimpleQueue[tuple[float, Progress, Place]] = field(default_factory=queue.SimpleQueue, init=False)

    def send(self, progress: Progress, place: Place) -> None:
        """Queue ``progress``, the answer to the item at ``place``. Any thread."""

        def report(error: Exception | None) -> None:
            if error is None:
                self.on_delivered(progress)
                self._finished.put(place)
            else:
                self._unsent.put((self.clock() + RESEND_AFTER_S, progress, place))

        self.sender.send(self.topic, progress.key, progress.to_bytes(), None, report)

    def tell(self, found: UnroutedRecords) -> None:
        """Queue what is no answer, and for which nothing waits: it may be lost."""
        self.sender.send(self.topic, found.key, found.to_bytes())

    def finish(self, place: Place) -> None:
        """An item that needs no answer is done."""
        self._finished.put(place)

    def resend(self) -> None:
        """Send again what could not be delivered, a second later."""
        for _ in range(self._unsent.qsize()):
            due, progress, place = self._unsent.get()
            if due <= self.clock():
                self.send(progress, place)
            else:
                self._unsent.put((due, progress, place))

    def delivered(self) -> list[Place]:
        """Places whose answers have been delivered since the last call."""
        places = []
        while True:
            try:
                places.append(self._finished.get_nowait())
            except queue.Empty:
                return places
