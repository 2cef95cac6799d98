"""How many destinations a worker applies at the same time: few where the work is its own, many where it waits.

Beside its catalogs a worker is busy with DuckDB's planning, and a third thread only makes the others slower. Behind a
network of some milliseconds, or a slow store, it waits for answers nine tenths of the time, and only more threads help.
Which of both it is shows when another width is tried: far away, twice as many finish nearly twice as much; near, half
as many finish as much. What the whole machine has left only tells which of the two is worth a try: what a worker uses
itself does not, since Postgres, Spark and other workers take of the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

JUDGE_AFTER_S = 0.25
"""Long enough for the clocks to say something, short enough to be wide before a burst is over."""

WIDER_ABOVE, NARROWER_BELOW = 0.15, 0.02
"""Idle shares of the machine: above the first, the concurrency is doubled; below the second, it is halved."""

MORE, AS_MUCH = 1.2, 0.9
"""What twice the width must finish of what there was before, to be kept, and what half of it must. In a container that
may not use what its machine has to spare, both finish the same."""

CONTENT_S = 5.0
"""How long a width that proved better than another is left alone. To try costs little, and the work changes."""


def unused_seconds() -> float:
    """Seconds since the machine began in which its cores did nothing, on average over them."""
    times = psutil.cpu_times()
    return (times.idle + getattr(times, "iowait", 0.0)) / (psutil.cpu_count() or 1)


class AdaptiveConcurrency:
    """How wide to work, judged by what is finished, and by what the machine has left meanwhile."""

    def __init__(
        self,
        least: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
        unused: Callable[[], float] = unused_seconds,
    ) -> None:
        """``clock`` and ``unused``: seconds, and those in which no core did anything, from any beginning."""
        self._least = least
        self.most = max(least, most)
        self._clock = clock
        self._unused = unused
        self._before: tuple[int, float] | None = None
        """The width before, and what was finished a second then, while another is on trial."""
        self._content_until = float("-inf")
        self.now = least
        self._measure()

    def begin(self) -> None:
        """A new batch, perhaps of other tenants or after an idle hour: what was on trial goes on with the wider one."""
        if self._before is not None:
            self.now, self._before = max(self.now, self._before[0]), None
        self._measure()

    def _measure(self) -> None:
        self._since, self._finished = (self._clock(), self._unused()), 0

    def judge(self, finished: int, *, full: bool) -> None:
        """Widen or narrow after so many more are finished; ``full``: all places were taken meanwhile, and no more."""
        if not full:
            self._measure()
            return
        self._finished += finished
        seconds, unused = self._clock() - self._since[0], self._unused() - self._since[1]
        if seconds >= JUDGE_AFTER_S and self._finished >= self.now:
            self._conclude(self._finished / seconds, unused / seconds)
            self._measure()

    def _conclude(self, rate: float, to_spare: float) -> None:
        before, self._before = self._before, None
        if before is not None and rate < before[1] * (MORE if self.now > before[0] else AS_MUCH):
            self.now, self._content_until = before[0], self._clock() + CONTENT_S
        elif self._clock() >= self._content_until:
            self._try(self._promising(to_spare), rate)

    def _promising(self, to_spare: float) -> int:
        if to_spare > WIDER_ABOVE:
            return min(self.most, self.now * 2)
        return max(self._least, self.now // 2) if to_spare < NARROWER_BELOW else self.now

    def _try(self, width: int, rate: float) -> None:
        if width != self.now:
            self._before, self.now = (self.now, rate), width
