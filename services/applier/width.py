"""How many destinations a worker applies at the same time: few where the work is its own, many where it waits.

Beside its catalogs a worker is busy with DuckDB's planning, and a third thread only makes the others slower. Behind a
network of some milliseconds, or a slow store, it waits for answers nine tenths of the time, and only more threads help.
"""

from __future__ import annotations

import time
from collections.abc import Callable

JUDGE_AFTER_S = 0.25
"""Long enough for the clocks to say something, short enough to be wide before a burst is over."""

WAITS_BELOW, BUSY_ABOVE = 0.5, 0.8
"""Of a core: a worker that uses less has time for more, one that uses more has none to lose."""


class Width:
    """How wide to work, judged by how much of a core this process used while every place was taken."""

    def __init__(
        self,
        least: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        """``clock`` and ``used``: seconds, and seconds of CPU that this process has used, from any beginning."""
        self._least, self.most, self._clock, self._used = least, max(least, most), clock, used
        self.now = least
        self.begin()

    def begin(self) -> None:
        """A new batch: what was before it, idleness perhaps, says nothing."""
        self._since = self._clock(), self._used()

    def judge(self, *, full: bool) -> None:
        """Widen or narrow after an answer; ``full``: every place was taken, so that there was nothing else to do."""
        seconds, cpu = self._clock() - self._since[0], self._used() - self._since[1]
        if not full:
            self.begin()
        elif seconds >= JUDGE_AFTER_S:
            if cpu < seconds * WAITS_BELOW:
                self.now = min(self.most, self.now * 2)
            elif cpu > seconds * BUSY_ABOVE:
                self.now = max(self._least, self.now // 2)
            self.begin()
