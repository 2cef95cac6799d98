"""Open transactions of this process, so that a transaction past its deadline can be ended from outside.

Never in its COMMIT: an interrupted COMMIT may have gone through, and DuckLake deletes its files (H7).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from shared.contracts.errors import DestinationError


class Attempt:
    """One transaction, which ends in its COMMIT or from outside, and never in both."""

    def __init__(self, con: duckdb.DuckDBPyConnection, due_s: float) -> None:
        self._con = con
        self._due_s = due_s
        self._lock = threading.Lock()
        self._committing = self._ended = False

    def commits(self) -> None:
        """To be said before COMMIT. Raises ``deadline_exceeded`` where it was ended meanwhile."""
        with self._lock:
            if self._ended:
                raise DestinationError(
                    "deadline_exceeded",
                    "the transaction exceeded its deadline and was ended (H6)",
                    "the destination is slow; it is tried again",
                )
            self._committing = True

    def end(self, now_s: float) -> bool:
        """Interrupt what it is at, if it is past its deadline and not in its COMMIT; whether it was."""
        with self._lock:
            if self._committing or now_s <= self._due_s:
                return False
            self._ended = True
            self._con.interrupt()
            return True


class Attempts:
    """Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: set[Attempt] = set()

    @contextmanager
    def begun(self, con: duckdb.DuckDBPyConnection, deadline_s: float) -> Iterator[Attempt]:
        """``con`` is its own until the block ends."""
        attempt = Attempt(con, self._clock() + deadline_s)
        with self._lock:
            self._under_way.add(attempt)
        try:
            yield attempt
        finally:
            with self._lock:
                self._under_way.discard(attempt)

    def end_overdue(self) -> int:
        """Interrupt the transactions past their deadline and count them. A wait for a socket is not interrupted."""
        now_s = self._clock()
        with self._lock:
            return sum(attempt.end(now_s) for attempt in self._under_way)
