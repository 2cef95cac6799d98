"""Which ranges under the floor are counted for destinations that are exact only there."""

from __future__ import annotations

from collections.abc import Iterable

from shared.contracts.ranges import Range

MOST_BOUNDARIES = 8
"""Ranges that one catch-up is counted in; each costs a scan of the deletions (H9)."""


class CatchUp:
    """Ten thousand destinations may stand at ten thousand positions: they are counted from a few boundaries.

    Whoever stands between two boundaries is served by the lower one; what was counted before its own position only
    makes it look touched when it may not be, since an item still begins where the destination itself stands.
    """

    def __init__(self) -> None:
        self._boundaries: list[int] = []

    def next(self, exact: Iterable[int], floor: int) -> Range | None:
        """The range to be counted next, down from the floor; None if nobody stands below it."""
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
