"""Repeats the status of each destination: control may have lost it, with the broker or on its own.

An answer is published once. If that message is lost, control would show a parked destination as seeding, and would not
reseed it where the file asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.actions import Republish
from services.reader.planner.destination_state import DestinationState
from shared.contracts.messages import ItemKind, Outcome

TROUBLE_EVERY_S = 30.0
"""For destinations that are parked or fail."""

ALL_EVERY_S = 600.0

MOST_A_TURN = 200
"""Thousands are said again in many turns, with answers heard in between."""


class StatusRepetition:
    """Used by one thread. Holds names of destinations that are wanted, and nothing else."""

    def __init__(self, outlet: WorkPublisher, now_s: float) -> None:
        self._outlet = outlet
        self._waiting: dict[str, None] = {}
        self._undelivered: set[str] = set()
        self._trouble_s = now_s + TROUBLE_EVERY_S
        self._all_s = now_s + ALL_EVERY_S

    def all(self, names: Iterable[str]) -> None:
        """The topics are others than before: what they held is lost."""
        self._waiting.update(dict.fromkeys(names))

    def undelivered(self, name: str) -> None:
        """The broker did not take it: it is said with the next round."""
        self._undelivered.add(name)

    def forget(self, name: str) -> None:
        self._waiting.pop(name, None)
        self._undelivered.discard(name)

    def due_s(self) -> float:
        """When ``tell`` has something to do again."""
        return float("-inf") if self._waiting else min(self._trouble_s, self._all_s)

    def tell(self, tracked: Mapping[str, DestinationState], now_s: float) -> None:
        """Publish what is due, up to a bound."""
        self._gather(tracked, now_s)
        for name in list(islice(self._waiting, MOST_A_TURN)):
            del self._waiting[name]
            if name in tracked and (word := said_of(tracked[name])) is not None:
                self._outlet.repeat(word)

    def _gather(self, tracked: Mapping[str, DestinationState], now_s: float) -> None:
        if now_s >= self._all_s:
            self._all_s = now_s + ALL_EVERY_S
            self.all(tracked)
        if now_s >= self._trouble_s:
            self._trouble_s = now_s + TROUBLE_EVERY_S
            self.all(name for name, each in tracked.items() if each.waits_to_be_heard or name in self._undelivered)
            self._undelivered.clear()


def said_of(tracked: DestinationState) -> Republish | None:
    """The sum of the last answers; None while an item is in flight, or before the first answer."""
    kind = ItemKind.DROP if tracked.spec.drop else ItemKind.ADVANCE
    if tracked.in_flight is not None:
        return None
    if tracked.parked is not None:
        return Republish(tracked, kind, Outcome.PARKED, tracked.parked)
    if tracked.spec.drop:
        return Republish(tracked, kind, Outcome.ALREADY_APPLIED) if tracked.dropped else None
    if tracked.trouble is not None:
        return Republish(tracked, kind, Outcome.FAILED, tracked.trouble)
    return None if tracked.position is None else Republish(tracked, kind, Outcome.ALREADY_APPLIED)
