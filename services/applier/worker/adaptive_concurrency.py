"""How many destinations a worker applies at the same time: few where the work is its own, many where it waits.

Beside its catalogs a worker is busy with DuckDB's planning, and a third thread only makes the others slower. Behind a
network of some milliseconds, or a slow store, it waits for answers nine tenths of the time, and only more threads help.
How long a network takes is measured, and so is the CPU of an apply: from both follows how many keep the usual number of
threads busy, from the first apply of a batch on. What else there may be to wait for, such as a slow store, shows when
another width is tried: far away, twice as many finish nearly twice as much; near, half as many finish as much. What the
whole machine has left only tells which of the two is worth a try: what a worker uses itself does not, since Postgres,
Spark and other workers take of the same cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import psutil

from shared.lake.connection.distance import Distance

JUDGE_AFTER_S = 0.25
"""Long enough for the clocks to say something, short enough to be wide before a burst is over."""

WIDER_ABOVE, NARROWER_BELOW = 0.15, 0.02
"""Idle shares of the machine: above the first, the concurrency is doubled; below the second, it is halved."""

MORE, AS_MUCH = 1.2, 0.9
"""What twice the width must finish of what there was before, to be kept, and what half of it must. In a container that
may not use what its machine has to spare, both finish the same."""

CONTENT_S = 5.0
"""How long a width that proved better than another is left alone. To try costs little, and the work changes."""

ROUND_TRIPS = 2
"""Of an apply: a look, and a batch."""

USUAL_CPU_S, LEAST_CPU_S = 0.01, 0.005
"""Of an apply: until it is known, and the least that is believed. A look without an apply takes less."""

KNOWN_AFTER = 8
"""Applies of a batch, after which their CPU is known."""


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
        used: Callable[[], float] = time.process_time,
        distance: Distance | None = None,
    ) -> None:
        """``clock``, ``unused`` and ``used``: seconds, those in which no core did anything, and those of CPU that this
        process used, from any beginning. ``distance``: of the catalogs, as direct commits find it."""
        self._least = least
        self.most = max(least, most)
        self._clock = clock
        self._unused = unused
        self._used = used
        self._distance = distance or Distance()
        self._cpu_s = USUAL_CPU_S
        self._before: tuple[int, float] | None = None
        """The width before, and what was finished a second then, while another is on trial."""
        self._content_until = float("-inf")
        self._proven = False
        """Whether a trial has shown that it is worthwhile to be as wide."""
        self.now = least
        self.begin()

    @property
    def _enough(self) -> int:
        """How many keep ``least`` of them busy while the others wait for the network."""
        waits_s = ROUND_TRIPS * self._distance.round_trip_s
        return min(self.most, math.ceil(self._least * (1 + waits_s / self._cpu_s)))

    def begin(self) -> None:
        """A new batch, perhaps of other tenants or after an idle hour. What was on trial goes on with the wider one,
        unless it is known how wide the network makes it: then with the narrower, and no other is tried for a while."""
        self._distance.begin()
        enough = self._enough
        if self._before is not None:
            widths, self._before = (self.now, self._before[0]), None
            if enough > self._least:
                self.now, self._content_until = min(widths), self._clock() + CONTENT_S
            else:
                self.now = max(widths)
        known = enough > self._least and not self._proven
        self.now = enough if known else max(self.now, enough)
        self._begun, self._done = self._used(), 0
        self._measure()

    def _measure(self) -> None:
        self._since, self._finished = (self._clock(), self._unused()), 0

    def judge(self, finished: int, *, full: bool) -> None:
        """Widen or narrow after so many more are finished; ``full``: all places were taken meanwhile, and no more."""
        self._done += finished
        if self._done >= KNOWN_AFTER:
            self._cpu_s = max(LEAST_CPU_S, (self._used() - self._begun) / self._done)
        if (enough := self._enough) > self.now:
            self.now, self._before = enough, None
            self._measure()
            return
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
            return
        self._proven = self.now > self._enough if before is not None else self._proven
        if self._clock() >= self._content_until:
            self._try(self._promising(to_spare), rate)

    def _promising(self, to_spare: float) -> int:
        """Where it is known how many the network takes, more than these have to prove themselves again and again."""
        enough = self._enough
        if to_spare > WIDER_ABOVE:
            return min(self.most, self.now * 2)
        if to_spare < NARROWER_BELOW or enough > self._least:
            return max(enough, self.now // 2)
        return self.now

    def _try(self, width: int, rate: float) -> None:
        if width != self.now:
            self._before, self.now = (self.now, rate), width
