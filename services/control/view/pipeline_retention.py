"""What a look at the source's history came to for the destinations of one pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from shared.lake.upkeep.retained import LakeSnapshot, Retained

MOST_NAMED = 3


@dataclass(frozen=True)
class PipelineRetention:
    """The last look that succeeded.

    ``lowest``, ``near`` and ``headroom_s`` are of the moment of the look, since nothing but ``near`` may be computed
    for each of thousands of destinations whenever a page is shown.
    """

    looked_at: datetime
    """By control's clock."""
    retained: Retained
    lowest: LakeSnapshot | None = None
    """The oldest snapshot that a destination needs; None where none needs any."""
    near: tuple[str, ...] = ()
    """Destinations that have less than a tenth of the history left, those with the least first."""
    headroom_s: float | None = None
    """Until the owner's promise no longer covers ``lowest``; None without a promise, or where nothing is needed."""
    begun: LakeSnapshot | None = None
    """No running seed reads an older snapshot."""

    @property
    def headroom(self) -> int | None:
        """Snapshots that may expire before the oldest that a destination needs."""
        return None if self.lowest is None else max(0, self.lowest.id - self.retained.oldest)


def warning(retention: PipelineRetention | None) -> str | None:
    """For operators: which destinations are about to lose the source's history; None where none is."""
    if retention is None or not retention.near:
        return None
    named, more = retention.near[:MOST_NAMED], len(retention.near) - MOST_NAMED
    names = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    span = f"it reaches from snapshot {retention.retained.oldest} to {retention.retained.head}"
    return (
        f"less than a tenth of the source's history is left to {names}: {span}; bring them up to date or keep it longer"
    )
