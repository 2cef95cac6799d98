"""For how long records of a topic have waited, by partition: told by when offsets were first seen. None is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest

from shared.contracts.positions import Vector

MOST_LOOKS = 1_024
"""Looks at different offsets that are remembered; of more, every second one is forgotten, and times are told longer."""


@dataclass
class SeenEnds:
    """The ends of the partitions, and until when they were seen to be there."""

    ends: Vector
    until_s: float

    def __post_init__(self) -> None:
        self.by_partition = self.ends.by_partition


class WaitingRecords:
    """Remembers when the ends of partitions moved, as far back as the destination is behind."""

    def __init__(self) -> None:
        self._seen: list[SeenEnds] = []
        self._began_s = 0.0

    def look(self, newest: Vector, reached: Vector | None, now_s: float) -> dict[int, float]:
        """Take in the ends of the partitions; the seconds by partition of which the destination lacks records.

        A record came after the last look that did not see it: so long it may have waited. Those that were there at the
        first look have waited since then at least. ``reached``: the destination's position, None where it is not known.
        """
        self._note(newest, now_s)
        if reached is None:
            return {}
        while len(self._seen) > 1 and reached.covers(self._seen[1].ends):
            del self._seen[0]
        mine = reached.by_partition
        behind = ((each, mine.get(each, 0)) for each, end in newest.offsets if mine.get(each, 0) < end)
        return {each: now_s - self._since_s(each, at) for each, at in behind}

    def _note(self, newest: Vector, now_s: float) -> None:
        if not self._seen or not newest.covers(self._seen[-1].ends):
            self._seen, self._began_s = [SeenEnds(newest, now_s)], now_s
        elif newest == self._seen[-1].ends:
            self._seen[-1].until_s = now_s
        else:
            self._seen.append(SeenEnds(newest, now_s))
        if len(self._seen) > MOST_LOOKS:
            self._seen = [*self._seen[:-1:2], self._seen[-1]]

    def _since_s(self, partition: int, at: int) -> float:
        """The last look that did not see the record at offset ``at``."""
        first = bisect_right(self._seen, at, key=lambda each: each.by_partition.get(partition, 0))
        return self._seen[first - 1].until_s if first else self._began_s


def longest(waits: Mapping[int, float], most: int) -> dict[int, float]:
    """The ``most`` partitions that have waited longest, in the order of partitions."""
    chosen = nlargest(most, waits, key=lambda each: waits[each])
    return {each: round(waits[each], 3) for each in sorted(chosen)}
