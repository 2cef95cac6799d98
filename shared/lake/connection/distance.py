"""How far away the Postgres servers are that a process asks, by how long they take to answer."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENOUGH = 32
"""Answers, of which the shortest is known to be hardly delayed by anything but the network. In a burst only the first
ones are not: then a process, and its server, are busy."""

NEAR_S = 0.005
"""A server on the same machine may take as long for a look. No distance is known below that."""


class Distance:
    """Thread-safe. Of servers at different distances it tells the nearest one's."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._before = 0.0
        """The shortest answer of the bursts before, in seconds; 0 where there was none."""
        self._forget()

    def _forget(self) -> None:
        self._shortest, self._count = math.inf, 0

    def begin(self) -> None:
        """A burst of questions begins, perhaps to others."""
        with self._lock:
            if self._count >= ENOUGH:
                self._before = self._shortest
                self._forget()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """A question is sent and answered meanwhile. A failure is no measure."""
        began = self._clock()
        yield
        took = self._clock() - began
        with self._lock:
            self._shortest, self._count = min(took, self._shortest), self._count + 1

    @property
    def round_trip_s(self) -> float:
        """Seconds from a question to its answer; 0 where that is no distance, or not known yet."""
        with self._lock:
            shortest = self._shortest if self._count >= ENOUGH else min(self._before, self._shortest)
        return shortest if shortest >= NEAR_S else 0.0
