"""Which partition of the work topic a destination's items go to, so that appliers get equally many of them.

By chance alone the fullest of four appliers has 63 to 74 of 240 destinations, and a batch is done when the last one is.
"""

from __future__ import annotations

from zlib import crc32


class Spread:
    """Partitions by key, as a producer would choose them, but none gets more destinations than its part.

    A destination stays where it is until it is forgotten: its applier has the lake open.
    """

    def __init__(self, partitions: int) -> None:
        self._load = [0] * partitions
        self._places: dict[str, int] = {}

    @property
    def partitions(self) -> int:
        return len(self._load)

    def place(self, key: str, destinations: int) -> int:
        """The partition of ``key``, where there are so many ``destinations``, this one and those to come among them."""
        known = self._places.get(key)
        if known is not None:
            return known
        most = -(-destinations // self.partitions)
        place = crc32(key.encode()) % self.partitions
        if self._load[place] >= most:
            place = self._load.index(min(self._load))
        self._load[place] += 1
        self._places[key] = place
        return place

    def forget(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            self._load[place] -= 1
