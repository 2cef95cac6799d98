"""What one pass over a range of the source counted: a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.contracts.ranges import Range


@dataclass(frozen=True, slots=True)
class CountedStep:
    """Changed rows by routing value over one range: counted once, for all destinations.

    A count may be too high (the feed shows more images than there are changes) and the values too many, never too few.
    A pinned step may be applied to its end and no further: it is a segment of a history that only appended.
    """

    range: Range
    rows: Mapping[str, int]
    total: int = 0
    """All changed rows, those of NULL and of values without a destination included."""
    pinned: bool = False
    oldest_touch: datetime | None = None
    """When the first snapshot of the range that changed the table was committed, by the catalog's clock."""

    unrouted: int = 0
    """Changed rows of no destination that was known when the range was counted."""

    is_partial: bool = False
    """Values without a destination were too many: some of them are not in ``rows``."""

    of_any: int = 0
    """Changed rows that may be of any value, known yet or not: whose they are is found when they are read."""

    def only_above(self, exact: Mapping[str, int]) -> CountedStep:
        """The same step with the counts of those values alone that are exact up to before its end."""
        through = self.range.through
        shorter = self.rows if len(self.rows) <= len(exact) else exact
        kept = (value for value in shorter if value in self.rows and exact.get(value, through) < through)
        rows = {value: self.rows[value] for value in kept}
        return CountedStep(
            self.range, rows, self.total, self.pinned, self.oldest_touch, self.unrouted, of_any=self.of_any
        )

    def touches(self, value: str) -> bool:
        return self.of_any > 0 or value in self.rows

    def rows_of(self, value: str) -> int:
        return self.rows.get(value, 0) + self.of_any


def nothing(snapshots: Range, *, pinned: bool) -> CountedStep:
    """The step over a range without changes."""
    return CountedStep(snapshots, {}, pinned=pinned)


def merged(older: CountedStep, newer: CountedStep) -> CountedStep:
    """Two neighbours as one step: coarser, so destinations in its middle may look touched though they are not."""
    rows = dict(older.rows)
    for value, count in newer.rows.items():
        rows[value] = rows.get(value, 0) + count
    return CountedStep(
        Range(older.range.after, newer.range.through),
        rows,
        older.total + newer.total,
        older.pinned,
        older.oldest_touch or newer.oldest_touch,
        of_any=older.of_any + newer.of_any,
    )


def segments(appended_rows: Sequence[tuple[int, int]], snapshots: Range, limit: int) -> list[Range]:
    """Cut a range at snapshot borders into segments of at most ``limit`` rows.

    ``appended_rows`` are (snapshot, rows) in order. A snapshot is never cut: one with more rows than the limit is a
    segment by itself. TLA: ``Changes`` may end anywhere.
    """
    cuts, start, filled = [], snapshots.after, 0
    for snapshot, rows in appended_rows:
        border = snapshot - 1
        if filled and filled + rows > limit and border > start:
            cuts.append(Range(start, border))
            start, filled = border, 0
        filled += rows
    cuts.append(Range(start, snapshots.through))
    return cuts
