"""How fast messages are sent again, and by whom: one at a time for each pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from services.control.model.lifecycle import Refused

T = TypeVar("T")
Spans = Mapping[int, tuple[int, int]]

USUAL_RATE = 1_000
HIGHEST_RATE = 5_000
"""Messages a second. Appliers work repeated items off several times as fast."""

CALL_TAKES_S = 5.0
"""A call sends only what goes out within this time, so that it is answered before the client stops waiting."""

CONTINUES_WITHIN_S = 5.0
"""How long the turn is kept for who was told that more is left."""

SHORTEST_PAUSE_S = 0.01


def most_of_a_call(rate: int) -> int:
    return int(rate * CALL_TAKES_S)


def paced(
    these: Iterable[T],
    rate: int,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """Hand these out, ``rate`` a second."""
    began_s = clock()
    for number, each in enumerate(these):
        wait_s = began_s + number / rate - clock()
        if wait_s >= SHORTEST_PAUSE_S:
            sleep(wait_s)
        yield each


class ReplayTurn:
    """Who sends again now. Between the calls that one sending takes, the turn is kept for its next one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = False
        self._kept: tuple[Spans, float] | None = None

    @contextmanager
    def taken(self, rest: Spans | None) -> Iterator[Callable[[Spans | None], None]]:
        """The turn for a call that begins at ``rest``; calling the yielded function keeps it for the next call.

        Raises ``Refused`` while another call has the turn.
        """
        with self._lock:
            if self._is_anothers(rest):
                raise Refused(
                    "replay_running",
                    "a replay of this pipeline is running",
                    "Wait until it ends, or a few seconds if its client gave up.",
                )
            self._busy, self._kept = True, None
        left: list[Spans] = []
        try:
            yield lambda rest: None if rest is None else left.append(rest)
        finally:
            with self._lock:
                self._busy = False
                self._kept = (left[-1], self._clock() + CONTINUES_WITHIN_S) if left else None

    def _is_anothers(self, rest: Spans | None) -> bool:
        kept = self._kept
        return self._busy or (kept is not None and kept[0] != rest and self._clock() < kept[1])
