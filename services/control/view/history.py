"""How the pipeline was over the last hour, for a plot: control looks now and then, and keeps what it saw."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from services.control.view.destination_status import OFF, View

EVERY_S = 5.0
KEPT = 720
"""An hour of them."""


@dataclass(frozen=True)
class HistorySample:
    """One measurement. ``lag_s``: the largest lag of all destinations that should move; None if it is unknown."""

    at: float
    lag_s: float | None = None
    unknown: int = 0
    """How many of them have an unknown lag."""
    failing: int = 0
    parked: int = 0
    rows_per_s: float = 0.0
    in_flight: int = 0

    @property
    def worst_lag_s(self) -> float | None:
        """What to show: 0 only where every one is known, or it would say of the unknown that they are exact."""
        return self.lag_s if self.lag_s or not self.unknown else None


class History:
    """Any thread may look, one feels it."""

    def __init__(self, view: Callable[[], View], clock: Callable[[], float] = time.time) -> None:
        self._view = view
        self._clock = clock
        self._lock = threading.Lock()
        self._beats: deque[HistorySample] = deque(maxlen=KEPT)
        self._rows: int | None = None
        self._at = float("-inf")

    @property
    def last(self) -> HistorySample:
        with self._lock:
            return self._beats[-1] if self._beats else HistorySample(self._clock())

    @property
    def columns(self) -> list[list[float | None]]:
        """Times, lags, rows per second, how many fail, how many are parked, as a plot wants them."""
        with self._lock:
            beats = list(self._beats)
        return [
            [each.at for each in beats],
            [each.lag_s for each in beats],
            [each.rows_per_s for each in beats],
            [each.failing for each in beats],
            [each.parked for each in beats],
        ]

    def feel(self) -> None:
        """Look again, if it is time."""
        now = self._clock()
        if now - self._at < EVERY_S:
            return
        view, before, passed = self._view(), self._rows, now - self._at
        self._rows, self._at = sum(seen.rows_applied or 0 for seen in view.seen.values()), now
        lagging = [each for whole in view.newest for each in whole.lagging.values()]
        grown = 0 if before is None else max(0, self._rows - before)
        awaited = [each for each in view.standings.values() if each.state not in OFF]
        lags = [each.lag_seconds for each in awaited if each.lag_seconds is not None]
        beat = HistorySample(
            at=now,
            lag_s=max(lags, default=None if awaited or not view.newest else 0.0),
            unknown=len(awaited) - len(lags),
            failing=sum(each.failing for each in awaited),
            parked=sum(each.state == "parked" for each in awaited),
            rows_per_s=grown / passed if before is not None else 0.0,
            in_flight=sum(each.in_flight for each in lagging),
        )
        with self._lock:
            self._beats.append(beat)
