"""When which destination wants to be looked at again."""

from __future__ import annotations

import heapq


class Timers:
    """A heap of (due, name). Entries are never taken back: a look that comes too early does no harm."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def at(self, due_s: float, name: str) -> None:
        heapq.heappush(self._heap, (due_s, name))

    def pop_due(self, now_s: float) -> set[str]:
        """The names that are due at ``now_s``; they are gone from the heap then."""
        due = set()
        while self._heap and self._heap[0][0] <= now_s:
            due.add(heapq.heappop(self._heap)[1])
        return due

    def next_due_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None
