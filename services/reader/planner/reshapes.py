"""When the columns of the source's table changed: a destination before such a snapshot is not exact there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from services.reader.planner.destination_state import DestinationState


@dataclass(frozen=True, slots=True)
class Reshapes:
    """The snapshots that made a table's columns what they are, oldest first, and when they were committed."""

    snapshots: tuple[int, ...] = ()
    times: Mapping[int, datetime] = field(default_factory=dict)
    """By the catalog's own clock; of those that are no longer retained there is none."""

    @property
    def newest(self) -> int:
        """0 where the columns of a source have no history."""
        return self.snapshots[-1] if self.snapshots else 0

    def lacking(self, tracked: DestinationState) -> int | None:
        """The first snapshot whose columns a destination lacks although its rows are those of then, or of later.

        TLA: ``PlanColumns``.
        """
        if tracked.position is None or not self.snapshots or tracked.position >= self.newest:
            return None
        first = self.snapshots[bisect_right(self.snapshots, tracked.position)]
        return first if first <= tracked.exact else None


UNCHANGED = Reshapes()
