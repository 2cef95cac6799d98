"""How many destinations a worker applies at the same time: few where the work is its own, many where it waits.

Beside its catalogs a worker is busy with DuckDB's planning, and a third thread only makes the others slower. Behind a
network of some milliseconds, or a slow store, it waits for answers nine tenths of the time, and only more threads help.
Which of both it is shows when it is tried: far away, twice as many finish nearly twice as much; near, half as many
finish as much. What a worker uses of a core only tells which of the two to try.
"""

from __future__ import annotations

import time
from collections.abc import Callable

JUDGE_AFTER_S = 0.25
"""Long enough for the clocks to say something, short enough to be wide before a burst is over."""

BUSY_ABOVE = 0.8
"""Of a core: a worker that uses less may have time for more, one that uses more has none to lose."""

MORE, AS_MUCH = 1.3, 0.9
"""What twice the width must finish of what there was before, to be kept, and what half of it must. On a machine that
others keep busy both finish the same."""

CONTENT_S = 20.0
"""How long a width that proved better than what was tried is left alone. To try costs little, and the work changes."""


class Width:
    """How wide to work, judged by how much of a core this process used, and by what came of trying more."""

    def __init__(
        self,
        least: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        """``clock`` and ``used``: seconds, and seconds of CPU that this process has used, from any beginning."""
        self._least, self.most, self._clock, self._used = least, max(least, most), clock, used
        self._tried: tuple[int, float] | None = None
        """The width before, and what was finished a second then, while another is on trial."""
        self._content_until = float("-inf")
        self.now = least
        self.begin()

    def begin(self) -> None:
        """A new batch, or place to spare: what was before, idleness perhaps, says nothing."""
        self._since, self._finished = (self._clock(), self._used()), 0

    def judge(self, finished: int, *, full: bool) -> None:
        """Widen or narrow after so many more are finished; ``full``: all places were taken meanwhile, and no more."""
        if not full:
            self.begin()
            return
        self._finished += finished
        seconds, cpu = self._clock() - self._since[0], self._used() - self._since[1]
        if seconds >= JUDGE_AFTER_S and self._finished >= self.now:
            self._conclude(self._finished / seconds, cpu / seconds)
            self.begin()

    def _conclude(self, rate: float, share: float) -> None:
        tried, self._tried = self._tried, None
        if tried is not None and rate < tried[1] * (MORE if self.now > tried[0] else AS_MUCH):
            self.now, self._content_until = tried[0], self._clock() + CONTENT_S
        elif self._clock() >= self._content_until:
            wanted = min(self.most, self.now * 2) if share < BUSY_ABOVE else max(self._least, self.now // 2)
            if wanted != self.now:
                self._tried, self.now = (self.now, rate), wanted
