"""Answers to requests with an ``Idempotency-Key``: the same request gets the same answer again.

Kept in the memory of one control, for ``KEPT_FOR_S`` and up to ``MOST`` answers and ``MOST_BYTES`` in total. The oldest
are removed first. A retry within that time does nothing twice, a later one is a new request. Another control, or a
restarted one, does not have them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

KEPT_FOR_S = 3_600.0
MOST = 1_000
MOST_BYTES = 16_000_000
LONGEST_KEY = 255


@dataclass(frozen=True)
class Kept:
    """An answer as it went out."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True)
class HeldAnswer:
    """``print``: a digest of the request. ``answer`` is None while it is being answered."""

    print: str
    until: float
    answer: Kept | None = None


class Answers:
    """Any thread may ask. A key is one asker's own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], HeldAnswer] = OrderedDict()
        self._bytes = 0

    def begin(self, caller: str, key: str, fingerprint: str) -> HeldAnswer | None:
        """What is held of an earlier request with this key; None where this is the first, which is noted."""
        with self._lock:
            self._forget()
            found = self._held.get((caller, key))
            if found is None:
                self._held[caller, key] = HeldAnswer(fingerprint, self._clock() + KEPT_FOR_S)
            return found

    def end(self, caller: str, key: str, answer: Kept | None) -> None:
        """Keep the answer; None where nothing happened, so that the next one is tried in earnest."""
        with self._lock:
            held = self._held.pop((caller, key), None)
            if held is None or answer is None:
                return
            self._held[caller, key] = HeldAnswer(held.print, self._clock() + KEPT_FOR_S, answer)
            self._bytes += len(answer.body)
            self._forget()

    def _forget(self) -> None:
        """What is too old, and the oldest of what is too much; never what is being answered just now."""
        now = self._clock()
        for key, held in list(self._held.items()):
            full = len(self._held) > MOST or self._bytes > MOST_BYTES
            if held.answer is None and held.until > now:
                continue
            if held.until > now and not full:
                return
            del self._held[key]
            self._bytes -= 0 if held.answer is None else len(held.answer.body)
