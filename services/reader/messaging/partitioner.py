"""Which partition of the work topic a destination's items go to, so that appliers get equally many of them.

By chance alone the fullest of four appliers has 63 to 74 of 240 destinations, and a batch is done when the last one is.
"""

from __future__ import annotations

from zlib import crc32


class Spread:
    """Partitions by key, but none gets more destinations than its part.

    A destination stays where it is until it is removed, since its applier has the lake open. Those known before
    the first is placed are placed together, whatever order they came in: a reader that starts again moves nobody.
    """

    def __init__(self) -> None:
        self._unplaced: set[str] = set()
        self._places: dict[str, int] = {}
        self._load: list[int] = []

    def add(self, key: str) -> None:
        if key not in self._places:
            self._unplaced.add(key)

    def remove(self, key: str) -> None:
        self._unplaced.discard(key)
        place = self._places.pop(key, None)
        if place is not None:
            self._load[place] -= 1

    def place(self, key: str, partitions: int) -> int:
        """The partition of ``key``, of so many. Where their number has changed, all are placed anew."""
        if partitions != len(self._load):
            self._unplaced |= self._places.keys()
            self._places, self._load = {}, [0] * partitions
        self._place_all()
        return self._places.get(key, self._by_key(key))

    def _place_all(self) -> None:
        """By key while that is even; who finds no room there, where the least are."""
        if not self._unplaced:
            return
        most, crowded = self._part(len(self._places) + len(self._unplaced)), []
        for key in sorted(self._unplaced):
            by_key = self._by_key(key)
            if self._load[by_key] < most:
                self._put(key, by_key)
            else:
                crowded.append(key)
        for key in crowded:
            self._put(key, self._load.index(min(self._load)))
        self._unplaced.clear()

    def _put(self, key: str, place: int) -> None:
        self._places[key] = place
        self._load[place] += 1

    def _part(self, destinations: int) -> int:
        """How many of so many destinations a partition gets at most."""
        return -(-destinations // len(self._load))

    def _by_key(self, key: str) -> int:
        return crc32(key.encode()) % len(self._load)
