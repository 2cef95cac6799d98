"""How late each destination is while the source goes on changing, by our own clock and not by a service's."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.torture.rig import FaultRig

STARVES_AFTER_S = 60.0


class Lags:
    """``look`` again and again while something goes on; ``worst_s`` is the longest wait of each destination so far."""

    def __init__(
        self, rig: FaultRig, bound_s: float = STARVES_AFTER_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rig, self._bound_s, self._clock = rig, bound_s, clock
        self._head = rig.site.source.head()
        self._made: dict[int, float] = {}
        self.arrived = 0
        """Heads that were made while we looked, and that every destination was known to have reached."""
        self.worst_s = {each.id: 0.0 for each in rig.site.destinations}
        rig.worst_lag_s = self.worst_s

    def look(self) -> None:
        """Raises ``AssertionError`` once a destination has been behind for longer than the bound."""
        now, head = self._clock(), self._rig.site.source.head()
        if head > self._head:
            self._made[head] = now
            self._head = head
        statuses = self._rig.fleet.destinations()
        if not statuses:
            return  # control did not answer; what it would have said is seen the next time
        known = {status["id"]: status["known_through"] or 0 for status in statuses}
        for each in self.worst_s:
            self._note(each, known.get(each, 0), now)
        self._forget(min(known.get(each, 0) for each in self.worst_s))

    def _note(self, id: str, known: int, now: float) -> None:
        lag_s = max((now - at for head, at in self._made.items() if head > known), default=0.0)
        self.worst_s[id] = max(self.worst_s[id], lag_s)
        if lag_s > self._bound_s:
            raise AssertionError(f"{id} starves: at snapshot {known} for {lag_s:.0f} s, the head is {self._head}")

    def _forget(self, reached: int) -> None:
        there = [head for head in self._made if head <= reached]
        self.arrived += len(there)
        for head in there:
            del self._made[head]
