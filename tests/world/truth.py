"""What is true of a source at each of its snapshots: what every destination has to hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import duckdb

from tests.world.duck import name, quote
from tests.world.identities import Numbered, numbered_columns
from tests.world.lake import Lake
from tests.world.model import ColumnId, Model
from tests.world.rows import Cell, Column, Row, Rows, plain, rows_of
from tests.world.rows import columns_of as columns_of_table

NOTHING: Rows = Counter()


class Truth(Protocol):
    """Asked by snapshot and by routing value, which is the text of the routing column."""

    @property
    def head(self) -> int: ...

    def knows(self, snapshot: int) -> bool:
        """Whether the snapshot is one of the source's own."""

    def columns(self, snapshot: int) -> tuple[Column, ...]: ...

    def ids(self, snapshot: int) -> tuple[ColumnId, ...]:
        """Which column each of them is, whatever it is called."""

    def defaults(self, snapshot: int) -> Mapping[ColumnId, Cell]:
        """What older rows show in the columns that came later than the table."""

    def slice(self, snapshot: int, value: str) -> Rows:
        """The rows that are routed by ``value``."""

    def appended(self, snapshot: int, value: str) -> Rows:
        """Every row that was ever inserted and seen, as it was inserted; columns that came later show their default."""

    def passing(self, snapshot: int, value: str) -> Rows:
        """Rows that were inserted and deleted in one transaction: seen by nobody, inserted all the same."""


@dataclass(frozen=True)
class _State:
    columns: tuple[Column, ...]
    ids: tuple[ColumnId, ...]
    defaults: Mapping[ColumnId, Cell]
    slices: Mapping[str | None, Rows]
    appended: Mapping[str | None, Rows]
    passing: Mapping[str | None, Rows]


@dataclass
class RecordedTruth:
    """Written down by whoever made each snapshot. What did not change from one to the next is kept once."""

    routing: str
    _states: dict[int, _State] = field(default_factory=dict)
    head: int = -1

    def record(self, snapshot: int, model: Model) -> None:
        if snapshot <= self.head:
            raise ValueError(f"snapshot {snapshot} is not after {self.head}")
        last = self._states.get(self.head)
        at = model.index(self.routing)
        self._states[snapshot] = _State(
            model.columns,
            model.ids,
            model.defaults,
            _by_value(Counter(model.live()), at, last.slices if last else {}),
            _by_value(model.appended, at, last.appended if last else {}),
            _by_value(model.passing, at, last.passing if last else {}),
        )
        self.head = snapshot

    def copy(self) -> RecordedTruth:
        return replace(self, _states=dict(self._states))

    def rewind(self, kept: int) -> None:
        """Forget what came after a snapshot, which is no more; -1 forgets all."""
        self._states = {snapshot: state for snapshot, state in self._states.items() if snapshot <= kept}
        self.head = max(self._states, default=-1)

    def record_same(self, snapshot: int) -> None:
        """A snapshot that changed no row."""
        self._states[snapshot] = self._states[self.head]
        self.head = snapshot

    def knows(self, snapshot: int) -> bool:
        return snapshot in self._states

    def columns(self, snapshot: int) -> tuple[Column, ...]:
        return self._states[snapshot].columns

    def ids(self, snapshot: int) -> tuple[ColumnId, ...]:
        return self._states[snapshot].ids

    def defaults(self, snapshot: int) -> Mapping[ColumnId, Cell]:
        return self._states[snapshot].defaults

    def slice(self, snapshot: int, value: str) -> Rows:
        return self._states[snapshot].slices.get(value, NOTHING)

    def appended(self, snapshot: int, value: str) -> Rows:
        return self._states[snapshot].appended.get(value, NOTHING)

    def passing(self, snapshot: int, value: str) -> Rows:
        return self._states[snapshot].passing.get(value, NOTHING)


def _by_value(rows: Rows, at: int, last: Mapping[str | None, Rows]) -> Mapping[str | None, Rows]:
    """Rows by routing value; a slice that equals the last one is the last one."""
    slices: dict[str | None, Counter[Row]] = {}
    for row, times in rows.items():
        kept = plain(row)
        slices.setdefault(kept[at], Counter())[kept] += times
    return {value: last[value] if last.get(value) == mine else mine for value, mine in slices.items()}


@dataclass
class LakeTruth:
    """Read from the source itself: by time travel, which is only sure of itself as long as nothing was compacted.

    For sources that nobody kept a record of. It can't tell what was appended and deleted since. What a snapshot holds
    is read once.
    """

    con: duckdb.DuckDBPyConnection
    alias: str
    lake: Lake
    schema: str
    table: str
    routing: str
    _columns: dict[int, tuple[Column, ...]] = field(default_factory=dict)
    _ids: dict[int, tuple[ColumnId, ...]] = field(default_factory=dict)
    _slices: dict[tuple[int, str], Rows] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return int(self.con.execute(f"SELECT id FROM {name(self.alias)}.current_snapshot()").fetchall()[0][0])

    def knows(self, snapshot: int) -> bool:
        return snapshot <= self.head

    def columns(self, snapshot: int) -> tuple[Column, ...]:
        if snapshot not in self._columns:
            self._columns[snapshot] = columns_of_table(self.con, self._at(snapshot))
        return self._columns[snapshot]

    def ids(self, snapshot: int) -> tuple[ColumnId, ...]:
        if snapshot not in self._ids:
            self._ids[snapshot] = tuple((column.origin, column.number) for column in self._numbered(snapshot))
        return self._ids[snapshot]

    def defaults(self, snapshot: int) -> Mapping[ColumnId, Cell]:
        """Of every column, also of those that were there from the beginning."""
        columns = zip(self._numbered(snapshot), self.columns(snapshot), strict=True)
        return {(one.origin, one.number): self._shown(one.default, column.type) for one, column in columns}

    def slice(self, snapshot: int, value: str) -> Rows:
        if (snapshot, value) not in self._slices:
            where = f"CAST({name(self.routing)} AS VARCHAR) = {quote(value)}"
            self._slices[snapshot, value] = rows_of(self.con, self._at(snapshot), self.columns(snapshot), where)
        return self._slices[snapshot, value]

    def appended(self, snapshot: int, value: str) -> Rows:
        raise LookupError("a source does not remember what was deleted from it")

    def passing(self, snapshot: int, value: str) -> Rows:
        raise LookupError("a source does not remember what was never there")

    def _numbered(self, snapshot: int) -> list[Numbered]:
        return numbered_columns(self.con, self.alias, self.lake, self.schema, self.table, snapshot)

    def _shown(self, default: Cell, declared: str) -> Cell:
        if default is None:
            return None
        return str(self.con.execute(f"SELECT CAST(CAST(? AS {declared}) AS VARCHAR)", [default]).fetchall()[0][0])

    def _at(self, snapshot: int) -> str:
        return f"{name(self.alias, self.schema, self.table)} AT (VERSION => {snapshot})"
