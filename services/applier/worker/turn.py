"""For how long a task has been running, and whether anything more of it is begun."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TURN_S = 30.0
"""Applies of one task begin within this time, or as long as the read took: destinations that wait get no answer, and an
item without an answer in time is sent again (``reader.confirm_within_seconds``)."""

REST_S = TURN_S / 2
"""What is left goes on if it takes no longer than that: another job for it would read the source again."""


class TaskTurn:
    """Begins when it is made."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s = clock()
        self._reads_s = 0.0
        self.last_read_s = 0.0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The source is read meanwhile, successfully or not."""
        began_s = self._clock()
        try:
            yield
        finally:
            self.last_read_s = self._clock() - began_s
            self._reads_s += self.last_read_s

    def is_over(self, done: int, left: int) -> bool:
        """Given how many targets are done and left. Every task gets something done, or none ever would."""
        elsewhere_s = self._clock() - self._began_s - self._reads_s
        if not done or elsewhere_s < max(TURN_S, self._reads_s):
            return False
        return left * elsewhere_s / done > REST_S
