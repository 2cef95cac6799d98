"""How many destinations a worker applies at the same time: few where the work is its own, many where it waits.

Beside its catalogs a worker is busy with DuckDB's planning, and a third thread only makes the others slower. Behind a
network of some milliseconds, or a slow store, it waits for answers nine tenths of the time, and only more threads help.
Which of both it is shows when more are tried: far away, twice as many finish nearly twice as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

JUDGE_AFTER_S = 0.25
"""Long enough for the clocks to say something, short enough to be wide before a burst is over."""

WAITS_BELOW, BUSY_ABOVE = 0.5, 0.8
"""Of a core: a worker that uses less may have time for more, one that uses more has none to lose."""

WORTH_IT = 1.3
"""What twice the width must finish of what there was before; on a machine that others keep busy it is the same."""

CONTENT_S = 5.0
"""How long a width that proved better than its double is left alone. To try costs little, and the work changes."""


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
        self._tried_from: float | None = None
        """What was finished a second at half this width, while it is on trial."""
        self._content_until = float("-inf")
        self.now = least
        self.begin()

    def begin(self) -> None:
        """A new batch, or place to spare: what was before, idleness perhaps, says nothing."""
        self._since, self._finished = (self._clock(), self._used()), 0

    def judge(self, finished: int, *, full: bool) -> None:
        """Widen or narrow after so many more are finished; ``full``: every place was taken all the while."""
        if not full:
            self.begin()
            return
        self._finished += finished
        seconds, cpu = self._clock() - self._since[0], self._used() - self._since[1]
        if seconds >= JUDGE_AFTER_S and self._finished >= self.now:
            self._conclude(self._finished / seconds, cpu / seconds)
            self.begin()

    def _conclude(self, rate: float, share: float) -> None:
        before, self._tried_from = self._tried_from, None
        if before is not None and rate < before * WORTH_IT:
            self.now = max(self._least, self.now // 2)
            self._content_until = self._clock() + CONTENT_S
        elif share < WAITS_BELOW and self.now < self.most and self._clock() >= self._content_until:
            self._tried_from = rate
            self.now = min(self.most, self.now * 2)
        elif share > BUSY_ABOVE:
            self.now = max(self._least, self.now // 2)
