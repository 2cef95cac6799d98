"""Limits wrong tokens per client. A valid token is never refused for them, and other clients are not delayed."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

FAILURES, WITHIN_S = 10, 60.0
MOST_FAILURES = 1_000
"""From all addresses together."""

MAX_ADDRESSES = 10_000


class Failures:
    """Wrong tokens of the last minute, by address and of all."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque(maxlen=MOST_FAILURES)

    def note(self, address: str) -> None:
        now = self._clock()
        self._all.append(now)
        self._times.setdefault(address, deque(maxlen=FAILURES)).append(now)
        self._times.move_to_end(address)
        while len(self._times) > MAX_ADDRESSES:
            self._times.popitem(last=False)

    def too_many(self, address: str) -> bool:
        return self._full(self._all) or self._full(self._times.get(address))

    def _full(self, times: deque[float] | None) -> bool:
        return times is not None and len(times) == times.maxlen and self._clock() - times[0] < WITHIN_S
