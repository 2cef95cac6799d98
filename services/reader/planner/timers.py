"""When which destination wants to be looked at again."""

from __future__ import annotations

import heapq

SPARE = 1_000


class Timers:
    """The earliest time at which each name is due. A name that was taken is scheduled again by the caller."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        """What ``_due`` holds, and some that holds no more."""

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, due_s: float, name: str) -> None:
        """Nothing happens where it is due before that."""
        if self._due.get(name, float("inf")) <= due_s:
            return
        self._due[name] = due_s
        heapq.heappush(self._heap, (due_s, name))
        if len(self._heap) > 2 * len(self._due) + SPARE:
            self._heap = [(due, each) for each, due in self._due.items()]
            heapq.heapify(self._heap)

    def forget(self, name: str) -> None:
        self._due.pop(name, None)

    def pop_due(self, now_s: float) -> set[str]:
        """The names that are due at ``now_s``; they wait for nothing then."""
        due = set()
        while self._heap and self._heap[0][0] <= now_s:
            at_s, name = heapq.heappop(self._heap)
            if self._due.get(name) == at_s:
                del self._due[name]
                due.add(name)
        return due

    def next_due_s(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
