"""What many browsers ask for at once is made once, however many they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class Once(Generic[T]):
    """Makes things on another thread, and keeps each for ``good_for_s``. For one event loop.

    Whoever asks meanwhile waits for the one that is being made, so a hundred browsers take one thread and not all.
    """

    def __init__(self, good_for_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._good_for_s, self._clock = good_for_s, clock
        self._made: dict[Hashable, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Raises what ``make`` raises, to all who wait for it."""
        now = self._clock()
        until, task = self._made.get(key, (now, None))
        if task is None or now >= until:
            self._made = {other: kept for other, kept in self._made.items() if kept[0] > now}
            task = asyncio.ensure_future(run_in_threadpool(make))
            self._made[key] = now + self._good_for_s, task
        return await asyncio.shield(task)  # somebody who goes away must not take it from the others
