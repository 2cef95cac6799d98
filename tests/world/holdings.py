"""Which rows a destination has to hold at a snapshot of the source, and which it may hold: values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shared.contracts.messages import ItemKind, SeedMode, WorkItem
from tests.world.destination import Destination, Promise
from tests.world.hostile import holds_uncarried
from tests.world.rows import Row, Rows, minus
from tests.world.stamps import Stamp
from tests.world.truth import Truth


class Holdings:
    """One destination's due, as the truth of its source has it."""

    def __init__(self, destination: Destination, truth: Truth) -> None:
        self.destination = destination
        self.truth = truth

    def required(self, seed: Stamp, stamp: Stamp, width: int) -> Rows:
        """Rows that must be there, cut to their first ``width`` columns."""
        return narrow(self._required(seed, stamp), width)

    def allowed(self, seed: Stamp, stamp: Stamp, width: int) -> Rows:
        """Rows that may be there, cut to their first ``width`` columns."""
        return narrow(self._allowed(seed, stamp), width)

    def first_change(self, after: int, through: int) -> int | None:
        """The first snapshot of ``(after, through]`` that changed something of this destination."""
        return next((snapshot for snapshot, _ in self._changes(after, through)), None)

    def uncarried(self, item: WorkItem, mode: SeedMode, end: int) -> tuple[bool, bool]:
        """Whether an item that ends at a snapshot brings rows that can't be carried, and whether it may read any."""
        value = self.destination.value
        if item.kind is ItemKind.SEED:
            seeds = mode is not SeedMode.LATEST and holds_uncarried(self.truth.slice(end, value))
            return seeds, seeds
        if not self.truth.knows(item.after) or end <= item.after:
            return False, holds_uncarried(self.truth.slice(end, value))
        rows_at = self.truth.appended if self.destination.promise is Promise.APPEND_ONLY else self.truth.slice
        width = len(self.truth.columns(item.after))
        was, now = rows_at(item.after, value), narrow(rows_at(end, value), width)
        passing = self.truth.passing(end, value) if self.destination.promise is Promise.APPEND_ONLY else ()
        return holds_uncarried(minus(now, was)), holds_uncarried((*now, *passing))

    def _required(self, seed: Stamp, stamp: Stamp) -> Rows:
        if self.destination.promise is Promise.APPEND_ONLY:
            return self._appended(seed, stamp)
        rows = self.truth.slice(stamp.through, self.destination.value)
        if self.destination.promise is Promise.LATEST:
            touched = {key for _, keys in self._changes(seed.through, stamp.through) for key in keys}
            return {row: times for row, times in rows.items() if self._key(row, stamp.through) in touched}
        return rows

    def _allowed(self, seed: Stamp, stamp: Stamp) -> Rows:
        if self.destination.promise is Promise.APPEND_ONLY:
            passing = self.truth.passing(stamp.through, self.destination.value)
            return Counter(self._appended(seed, stamp)) + Counter(passing)
        if self.destination.promise is Promise.LATEST and stamp.through == seed.through:
            return {}
        return self.truth.slice(stamp.through, self.destination.value)

    def _appended(self, seed: Stamp, stamp: Stamp) -> Rows:
        """What the seed found, and every row that was inserted since."""
        value = self.destination.value
        before = self._widened(self.truth.appended(seed.through, value), stamp.through)
        since = minus(self.truth.appended(stamp.through, value), before)
        return Counter(since) + Counter(self._widened(self.truth.slice(seed.through, value), stamp.through))

    def _widened(self, rows: Rows, snapshot: int) -> Rows:
        """Older rows with the columns that they have at ``snapshot``."""
        wide, defaults = len(self.truth.columns(snapshot)), self.truth.defaults(snapshot)
        return {row + defaults[len(defaults) - wide + len(row) :]: times for row, times in rows.items()}

    def _changes(self, after: int, through: int) -> Iterator[tuple[int, set[Row]]]:
        """Snapshots that changed rows of this destination, with the keys. A new column alone changes none."""
        append_only = self.destination.promise is Promise.APPEND_ONLY
        rows_at = self.truth.appended if append_only else self.truth.slice
        for snapshot in range(after + 1, through + 1):
            was, now = (rows_at(at, self.destination.value) for at in (snapshot - 1, snapshot))
            if was is not now:
                now = narrow(now, len(self.truth.columns(snapshot - 1)))
                changed = (*minus(was, now), *minus(now, was))
                if changed:
                    yield snapshot, {self._key(row, snapshot) for row in changed}

    def _key(self, row: Row, snapshot: int) -> Row:
        names = [column.name for column in self.truth.columns(snapshot)]
        return tuple(row[names.index(key)] for key in self.destination.keys)


def narrow(rows: Rows, width: int) -> Rows:
    if all(len(row) == width for row in rows):
        return rows
    cut: dict[Row, int] = {}
    for row, times in rows.items():
        cut[row[:width]] = cut.get(row[:width], 0) + times
    return cut
