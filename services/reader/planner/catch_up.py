"""Which ranges under the floor are counted for destinations that are exact only there."""

from __future__ import annotations

from collections.abc import Iterable

from shared.contracts.ranges import Range

MOST_BOUNDARIES = 8
"""Ranges that one catch-up is counted in; each costs a scan of the deletions (H9)."""


class CatchUp:
    """Counts changes for destinations at many positions from a few boundaries.

    A destination between two boundaries uses the lower one. Changes before its own position may make it look touched
    when it is not; an item still begins at the destination's own position.
    """

    def __init__(self) -> None:
        self._boundaries: list[int] = []

    def next(self, exact: Iterable[int], floor: int) -> Range | None:
        """The next range to count, down from the floor; None if no destination is below it."""
        waiting = sorted({snapshot for snapshot in exact if snapshot < floor})
        if not waiting:
            self._boundaries = []
            return None
        self._boundaries = [boundary for boundary in self._boundaries if boundary < floor]
        if not self._boundaries:
            self._boundaries = spread(waiting, MOST_BOUNDARIES)
        return Range(max(self._boundaries), floor)

    def drop(self, boundary: int) -> None:
        """``boundary`` can't be counted from."""
        self._boundaries = [kept for kept in self._boundaries if kept != boundary]


def spread(values: list[int], most: int) -> list[int]:
    """At most ``most`` of the sorted ``values``, evenly, the lowest always among them."""
    if len(values) <= most:
        return list(values)
    return [values[index * len(values) // most] for index in range(most)]
