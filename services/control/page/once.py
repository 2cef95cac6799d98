"""What many browsers ask for at once is made once, however many they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Keeps what was made for ``good_for_s``. For one thread: the event loop's."""

    def __init__(self, good_for_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._good_for_s, self._clock = good_for_s, clock
        self._made: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Raises what ``make`` raises; then the next one who asks tries again."""
        now = self._clock()
        kept = self._made.get(key)
        if kept is not None and now < kept[0]:
            return kept[1]
        made = make()
        self._made = {other: each for other, each in self._made.items() if each[0] > now}
        self._made[key] = now + self._good_for_s, made
        return made
