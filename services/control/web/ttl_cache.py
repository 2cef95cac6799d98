"""What many browsers ask for at once is made once, however many they are, and what is made leaves time for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 0.3
"""Of the event loop's time, at most: where many look at different things, each sees news more rarely."""


class TtlCache(Generic[T]):
    """Keeps what was made for ``good_for_s``. For one thread: the event loop's."""

    def __init__(self, good_for_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._good_for_s = good_for_s
        self._clock = clock
        self._made: dict[Hashable, tuple[float, T]] = {}
        self._turn = asyncio.Lock()

    async def soon(self, key: Hashable, make: Callable[[], T]) -> T:
        """As ``get``, when it is one's turn."""
        if (kept := self._kept(key)) is not None:
            return kept
        async with self._turn:
            began = self._clock()
            made = self.get(key, make)
            await asyncio.sleep((self._clock() - began) * (1 / SHARE - 1))
        return made

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Raises what ``make`` raises; then the next one who asks tries again."""
        if (kept := self._kept(key)) is not None:
            return kept
        now, made = self._clock(), make()
        self._made = {other: each for other, each in self._made.items() if each[0] > now}
        self._made[key] = now + self._good_for_s, made
        return made

    def _kept(self, key: Hashable) -> T | None:
        kept = self._made.get(key)
        return kept[1] if kept is not None and self._clock() < kept[0] else None
