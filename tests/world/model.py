"""A table as a plain dictionary: what SQL does to rows, in so few lines that they can only be right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.world.kinds import shown_as
from tests.world.rows import Cell, Column, Row

T = TypeVar("T")

ColumnId = tuple[str, int]
"""The name that a column had first, and a number that no other one of that name has."""


@dataclass
class Model:
    """Rows by a number of the model's own, which only tells how long a row has been there.

    ``appended`` are the rows that ever were there after a commit, as they were inserted; ``passing`` are those that
    were inserted and deleted in one transaction, so that nobody ever saw them.
    """

    columns: tuple[Column, ...]
    ids: tuple[ColumnId, ...] = ()
    """Which column each of them is, whatever it is called."""
    defaults: Mapping[ColumnId, Cell] = field(default_factory=dict)
    """What older rows show in the columns that were added later."""
    rows: dict[int, Row] = field(default_factory=dict)
    appended: Counter[Row] = field(default_factory=Counter)
    passing: Counter[Row] = field(default_factory=Counter)
    fresh: dict[int, Row] = field(default_factory=dict)
    next_id: int = 0
    added: int = 0
    """How many columns were ever added."""
    required: frozenset[ColumnId] = frozenset()
    """Columns that take no NULL."""
    renamed: bool = False
    """Whether the table has its other name."""

    def __post_init__(self) -> None:
        self.ids = self.ids or tuple((column.name, 0) for column in self.columns)

    def index(self, origin: str) -> int:
        """The place of a column by the name that it had first, which it is known by here."""
        return next(number for number, known in enumerate(self.ids) if known[0] == origin)

    def called(self, origin: str) -> str:
        """What a column is called now."""
        return self.columns[self.index(origin)].name

    def copy(self) -> Model:
        return replace(
            self,
            rows=dict(self.rows),
            appended=self.appended.copy(),
            passing=self.passing.copy(),
            fresh=dict(self.fresh),
        )

    def insert(self, row: Row) -> None:
        self.rows[self.next_id] = self.fresh[self.next_id] = row
        self.next_id += 1

    def delete(self, number: int) -> None:
        del self.rows[number]

    def replace(self, number: int, row: Row) -> None:
        self.rows[number] = row

    def add_column(self, column: Column, default: Cell, origin: str | None = None) -> None:
        self.added += 1
        known: ColumnId = (origin or column.name, self.added)
        self.columns, self.ids = (*self.columns, column), (*self.ids, known)
        self.defaults = {**self.defaults, known: default}
        self.rows = {number: (*row, default) for number, row in self.rows.items()}
        self.fresh = {number: (*row, default) for number, row in self.fresh.items()}
        self.appended = Counter({(*row, default): times for row, times in self.appended.items()})
        self.passing = Counter({(*row, default): times for row, times in self.passing.items()})

    def drop_column(self, origin: str) -> None:
        at = self.index(origin)
        self.columns, self.ids = _cut(self.columns, at), _cut(self.ids, at)
        for rows in (self.rows, self.fresh):
            rows.update({number: _cut(row, at) for number, row in rows.items()})
        self.appended, self.passing = (_without(rows, at) for rows in (self.appended, self.passing))

    def replace_column(self, origin: str, default: Cell) -> None:
        """Another column of that name, at the end; every row that is there shows its default."""
        column = self.columns[self.index(origin)]
        self.drop_column(origin)
        self.add_column(column, default, origin)

    def change_column(self, origin: str, column: Column) -> None:
        """Another name, a wider type, of which every value has the same text, or other fields of a nested one."""
        at = self.index(origin)
        self.columns = (*self.columns[:at], column, *self.columns[at + 1 :])
        for rows in (self.rows, self.fresh):
            rows.update({number: _shown(row, at, column) for number, row in rows.items()})
        self.appended, self.passing = (_all_shown(rows, at, column) for rows in (self.appended, self.passing))

    def commit(self) -> None:
        """End a transaction: what it inserted and left there has been appended."""
        for number, row in self.fresh.items():
            if number in self.rows:
                self.appended[self.rows[number]] += 1
            else:
                self.passing[row] += 1
        self.fresh = {}

    def matching(self, where: Where) -> list[int]:
        tests = [(self.index(column), values) for column, values in where.tests]
        return [number for number, row in self.rows.items() if all(row[at] in values for at, values in tests)]

    def has_null(self, column: ColumnId) -> bool:
        at = self.ids.index(column)
        return any(row[at] is None for row in self.rows.values())

    @property
    def breaks_a_constraint(self) -> bool:
        return any(self.has_null(column) for column in self.required if column in self.ids)

    def live(self) -> Iterator[Row]:
        return iter(self.rows.values())


def _cut(parts: tuple[T, ...], at: int) -> tuple[T, ...]:
    return (*parts[:at], *parts[at + 1 :])


def _without(rows: Counter[Row], at: int) -> Counter[Row]:
    cut: Counter[Row] = Counter()
    for row, times in rows.items():
        cut[_cut(row, at)] += times
    return cut


def _shown(row: Row, at: int, column: Column) -> Row:
    """A row of which the column at a place has its type now."""
    return (*row[:at], shown_as(row[at], column.type), *row[at + 1 :])


def _all_shown(rows: Counter[Row], at: int, column: Column) -> Counter[Row]:
    shown: Counter[Row] = Counter()
    for row, times in rows.items():
        shown[_shown(row, at, column)] += times
    return shown


@dataclass(frozen=True)
class Where:
    """Rows whose columns hold one of some values; no test at all means every row. NULL is a value like any other."""

    tests: tuple[tuple[str, frozenset[Cell]], ...] = ()

    @classmethod
    def equal(cls, columns: Sequence[str], values: Sequence[Cell]) -> Where:
        return cls(tuple((column, frozenset({value})) for column, value in zip(columns, values, strict=True)))


EVERY_ROW = Where()
