"""Keeps upkeep of a destination and its other items apart: beside each other, each would spoil tries of the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from services.applier.model.grouping import Lane


class UpkeepExclusion:
    """Which destinations have upkeep, or anything else, in work. Lanes of one pipeline share it; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Lane, set[str]] = {lane: set() for lane in Lane}

    def take(self, lane: Lane, keys: Iterable[str]) -> frozenset[str]:
        """Those of the destinations ``keys`` that ``lane`` may begin with now; they are its until ``release``."""
        with self._lock:
            rivals = [held for other, held in self._held.items() if (other is Lane.UPKEEP) != (lane is Lane.UPKEEP)]
            free = frozenset(key for key in keys if not any(key in held for held in rivals))
            self._held[lane] |= free
            return free

    def release(self, lane: Lane, keys: Iterable[str]) -> None:
        """The lane is done with ``keys``. Others are left alone."""
        with self._lock:
            self._held[lane].difference_update(keys)
