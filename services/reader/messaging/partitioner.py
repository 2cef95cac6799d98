"""Which partition of the work topic a destination's items go to, so that appliers get equally many of them.

By chance alone the fullest of four appliers has 63 to 74 of 240 destinations, and a batch is done when the last one is.
"""

from __future__ import annotations

import heapq
from zlib import crc32

Rank = tuple[int, str]
"""A total order of keys, independent of when they came: the greater one has the first choice."""

SLACK = 25
"""A partition may have one more than its part for each so many: where there are thousands, few then have to move."""

SPARE = 64
"""Entries of a queue that may be outdated before it is rebuilt."""


class Partitioner:
    """Partitions by key, with an equal share of destinations for each partition.

    Each destination gets the first partition, in an order that its key determines, that destinations of a higher rank
    have not filled. So the set of destinations alone determines the places, and a restart moves none. A destination
    that is added or removed moves few others.
    """

    def __init__(self) -> None:
        self._unplaced: set[str] = set()
        self._places: dict[str, int] = {}
        self._most = 0
        """Destinations that a partition may have."""
        self._load: list[int] = []
        self._lowest: list[list[Rank]] = []
        """Of each partition its destinations, the lowest rank first; outdated entries are dropped when they show."""
        self._passed: list[set[str]] = []
        """Of each partition the destinations that would be there if it were not full."""

    def add(self, key: str) -> None:
        if key not in self._places:
            self._unplaced.add(key)

    def remove(self, key: str) -> None:
        self._unplaced.discard(key)
        if key in self._places:
            place = self._leave(key)
            for passed in self._passed:
                passed.discard(key)
            self._fill(place)

    def place(self, key: str, partitions: int) -> int:
        """The partition of ``key``. If the number of partitions has changed, all destinations are placed again."""
        while not self.place_some(partitions, len(self._unplaced)):
            pass
        return self._places.get(key, self._first(key))

    def place_some(self, partitions: int, most: int) -> bool:
        """Place at most so many of those that have no place yet. Returns whether all have one."""
        if partitions != len(self._load):
            self._unplaced |= self._places.keys()
            self._places, self._most, self._load = {}, 0, [0] * partitions
            self._lowest, self._passed = [[] for _ in self._load], [set() for _ in self._load]
        self._allow(self._part(len(self._places) + len(self._unplaced)))
        for _ in range(min(most, len(self._unplaced))):
            key = self._unplaced.pop()
            self._seek(key, self._first(key))
        return not self._unplaced

    def _part(self, destinations: int) -> int:
        """How many of so many destinations a partition may have."""
        part = -(-destinations // len(self._load))
        return part + part // SLACK

    def _allow(self, most: int) -> None:
        """Let each partition have so many destinations."""
        before, self._most = self._most, most
        if most == before:
            return
        for place in range(len(self._load)):
            self._fill(place)
            while self._load[place] > most:
                self._put_out(place)

    def _seek(self, key: str, place: int) -> None:
        """Put a destination where it finds room, from ``place`` on; one of a lower rank makes room and goes on."""
        while self._load[place] >= self._most:
            lowest = self._lowest_at(place)
            if lowest < rank(key):
                self._leave(lowest[1])
                self._enter(key, place)
                key = lowest[1]
            self._passed[place].add(key)
            place = self._next(place)
        self._enter(key, place)

    def _put_out(self, place: int) -> None:
        key = self._lowest_at(place)[1]
        self._leave(key)
        self._passed[place].add(key)
        self._seek(key, self._next(place))

    def _fill(self, place: int) -> None:
        """Give free places to those of the highest rank that would rather be there, and what they leave to others."""
        free = [place]
        while free:
            place = free.pop()
            while self._load[place] < self._most and self._passed[place]:
                _, key = max(map(rank, self._passed[place]))
                left = self._leave(key)
                self._enter(key, place)
                self._no_longer_passed(key, place, left)
                free.append(left)

    def _no_longer_passed(self, key: str, place: int, before: int) -> None:
        while place != before:
            self._passed[place].discard(key)
            place = self._next(place)

    def _enter(self, key: str, place: int) -> None:
        self._places[key] = place
        self._load[place] += 1
        heapq.heappush(self._lowest[place], rank(key))
        if len(self._lowest[place]) > 2 * self._load[place] + SPARE:
            self._lowest[place] = sorted(rank(each) for each, where in self._places.items() if where == place)

    def _leave(self, key: str) -> int:
        place = self._places.pop(key)
        self._load[place] -= 1
        return place

    def _lowest_at(self, place: int) -> Rank:
        queue = self._lowest[place]
        while self._places.get(queue[0][1]) != place:
            heapq.heappop(queue)
        return queue[0]

    def _first(self, key: str) -> int:
        return crc32(key.encode()) % len(self._load)

    def _next(self, place: int) -> int:
        return (place + 1) % len(self._load)


def rank(key: str) -> Rank:
    return crc32(key[::-1].encode()), key
