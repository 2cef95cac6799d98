"""Which rows a destination has to hold at a snapshot of the source, and which it may hold: values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shared.contracts.messages import ItemKind, SeedMode, WorkItem
from tests.world.destination import Destination, Promise
from tests.world.hostile import holds_uncarried
from tests.world.kinds import kind_of, shown_as
from tests.world.model import ColumnId
from tests.world.rows import Row, Rows, minus
from tests.world.stamps import Stamp
from tests.world.truth import Truth


class Holdings:
    """One destination's due, as the truth of its source has it."""

    def __init__(self, destination: Destination, truth: Truth) -> None:
        self.destination = destination
        self.truth = truth

    def first_change(self, after: int, through: int) -> int | None:
        """The first snapshot of ``(after, through]`` that changed something of this destination."""
        return next((snapshot for snapshot, _ in self._changes(after, through)), None)

    def first_lack(self, after: int, through: int) -> int | None:
        """The same, where other columns count too, unless they are again what they were."""
        found = (self.first_change(after, through), self._first_reshape(after, through))
        return min((snapshot for snapshot in found if snapshot is not None), default=None)

    def _first_reshape(self, after: int, through: int) -> int | None:
        if through <= after or self._shape(after) == self._shape(through):
            return None
        return next(each for each in range(after + 1, through + 1) if self._shape(each) != self._shape(after))

    def _shape(self, snapshot: int) -> tuple[object, ...]:
        named = ((column.name, kind_of(column.type)) for column in self.truth.columns(snapshot))
        return (*zip(self.truth.ids(snapshot), named, strict=True),)

    def uncarried(self, item: WorkItem, mode: SeedMode, end: int) -> tuple[bool, bool]:
        """Whether an item that ends at a snapshot brings rows that can't be carried, and whether it may read any."""
        value = self.destination.value
        if item.kind is ItemKind.SEED:
            seeds = mode is not SeedMode.LATEST and holds_uncarried(self.truth.slice(end, value))
            return seeds, seeds
        if not self.truth.knows(item.after) or end <= item.after:
            return False, holds_uncarried(self.truth.slice(end, value))
        rows_at = self.truth.appended if self.destination.promise is Promise.APPEND_ONLY else self.truth.slice
        was, now = self._shared(rows_at(item.after, value), item.after, rows_at(end, value), end)
        passing = self.truth.passing(end, value) if self.destination.promise is Promise.APPEND_ONLY else ()
        return holds_uncarried(minus(now, was)), holds_uncarried((*now, *passing))

    def required(self, seed: Stamp, stamp: Stamp) -> Rows:
        """Rows that must be there."""
        if self.destination.promise is Promise.APPEND_ONLY:
            return self._appended(seed, stamp)
        rows = self.truth.slice(stamp.through, self.destination.value)
        if self.destination.promise is Promise.LATEST:
            touched = {key for _, keys in self._changes(seed.through, stamp.through) for key in keys}
            return {row: times for row, times in rows.items() if self._key(row, stamp.through) in touched}
        return rows

    def allowed(self, seed: Stamp, stamp: Stamp) -> Rows:
        """Rows that may be there."""
        if self.destination.promise is Promise.APPEND_ONLY:
            passing = self.truth.passing(stamp.through, self.destination.value)
            return Counter(self._appended(seed, stamp)) + Counter(passing)
        if self.destination.promise is Promise.LATEST and stamp.through == seed.through:
            return {}
        return self.truth.slice(stamp.through, self.destination.value)

    def _appended(self, seed: Stamp, stamp: Stamp) -> Rows:
        """What the seed found, and every row that was inserted since."""
        value = self.destination.value
        before = self._widened(self.truth.appended(seed.through, value), seed.through, stamp.through)
        since = minus(self.truth.appended(stamp.through, value), before)
        return Counter(since) + Counter(
            self._widened(self.truth.slice(seed.through, value), seed.through, stamp.through)
        )

    def _widened(self, rows: Rows, since: int, snapshot: int) -> Rows:
        """Rows of an older snapshot with the columns that they have at ``snapshot``."""
        if self._shape(since) == self._shape(snapshot):
            return rows
        before, now = self.truth.ids(since), self.truth.ids(snapshot)
        columns = self.truth.columns(snapshot)
        defaults = {} if {*now} <= {*before} else self.truth.defaults(snapshot)
        places = [(before.index(each), None) if each in before else (None, defaults[each]) for each in now]
        wide = Counter[Row]()
        for row, times in rows.items():
            cells = (default if place is None else row[place] for place, default in places)
            wide[tuple(shown_as(cell, column.type) for cell, column in zip(cells, columns, strict=True))] += times
        return wide

    def _shared(self, was: Rows, then: int, now: Rows, later: int) -> tuple[Rows, Rows]:
        """Rows of two snapshots in the columns that are there at both."""
        before, after = self.truth.ids(then), self.truth.ids(later)
        shared = [each for each in before if each in after]
        return _projected(was, before, shared), _projected(now, after, shared)

    def _changes(self, after: int, through: int) -> Iterator[tuple[int, set[Row]]]:
        """Snapshots that changed rows of this destination, with the keys. Other columns alone change none."""
        append_only = self.destination.promise is Promise.APPEND_ONLY
        rows_at = self.truth.appended if append_only else self.truth.slice
        for snapshot in range(after + 1, through + 1):
            was, now = (rows_at(at, self.destination.value) for at in (snapshot - 1, snapshot))
            if was is not now:
                was = self._widened(was, snapshot - 1, snapshot)
                changed = (*minus(was, now), *minus(now, was))
                if changed:
                    yield snapshot, {self._key(row, snapshot) for row in changed}

    def _key(self, row: Row, snapshot: int) -> Row:
        origins = [origin for origin, _ in self.truth.ids(snapshot)]
        return tuple(row[origins.index(key)] for key in self.destination.keys)


def _projected(rows: Rows, ids: Sequence[ColumnId], shared: Sequence[ColumnId]) -> Rows:
    if [*ids] == [*shared]:
        return rows
    places = [ids.index(each) for each in shared]
    cut = Counter[Row]()
    for row, times in rows.items():
        cut[tuple(row[place] for place in places)] += times
    return cut
