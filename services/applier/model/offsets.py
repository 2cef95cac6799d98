"""Which offsets may be committed: only those before which everything has been answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Partition = tuple[str, int]
"""Topic and partition."""


class OffsetLedger:
    """Items finish in any order; a commit says that all before it are done. One thread's property.

    TLA: ``LoseItem``, since what is committed may as well have been lost.
    """

    def __init__(self) -> None:
        self._open: dict[Partition, set[int]] = {}
        self._next: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}

    def received(self, partition: Partition, offset: int) -> None:
        self._open.setdefault(partition, set()).add(offset)
        self._next[partition] = max(offset + 1, self._next.get(partition, 0))

    def done(self, partition: Partition, offset: int) -> None:
        """An answer to the message at ``offset`` has been published; of a lost partition it no longer matters."""
        self._open.get(partition, set()).discard(offset)

    def committable(self) -> Mapping[Partition, int]:
        """The next offset to read, by partition, where it has moved since it was last asked for."""
        moved = {}
        for partition, following in self._next.items():
            low = min(self._open[partition], default=following)
            if low > self._committed.get(partition, -1):
                moved[partition] = self._committed[partition] = low
        return moved

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Another applier owns these now; items in work here are finished without a commit of offsets, harmlessly."""
        for partition in partitions:
            for kept in (self._open, self._next, self._committed):
                kept.pop(partition, None)

    @property
    def in_hand(self) -> int:
        return sum(len(offsets) for offsets in self._open.values())
