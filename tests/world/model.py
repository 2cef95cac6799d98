"""A table as a plain dictionary: what SQL does to rows, in so few lines that they can only be right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.world.rows import Cell, Column, Row


@dataclass
class Model:
    """Rows by a number of the model's own, which only tells how long a row has been there.

    ``appended`` are the rows that ever were there after a commit, as they were inserted; ``passing`` are those that
    were inserted and deleted in one transaction, so that nobody ever saw them.
    """

    columns: tuple[Column, ...]
    defaults: tuple[Cell, ...] = ()
    """What older rows show in the columns that were added later, by the order of their coming."""
    rows: dict[int, Row] = field(default_factory=dict)
    appended: Counter[Row] = field(default_factory=Counter)
    passing: Counter[Row] = field(default_factory=Counter)
    fresh: dict[int, Row] = field(default_factory=dict)
    next_id: int = 0
    replaced: int = 0
    """How often a column was dropped and another one of its name added."""

    def index(self, column: str) -> int:
        return next(number for number, known in enumerate(self.columns) if known.name == column)

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

    def add_column(self, column: Column, default: Cell) -> None:
        self.columns = (*self.columns, column)
        self.defaults = (*self.defaults, default)
        self.rows = {number: (*row, default) for number, row in self.rows.items()}
        self.fresh = {number: (*row, default) for number, row in self.fresh.items()}
        self.appended = Counter({(*row, default): times for row, times in self.appended.items()})
        self.passing = Counter({(*row, default): times for row, times in self.passing.items()})

    def replace_column(self, name: str, default: Cell) -> None:
        """Another column of that name, at the end; every row that is there shows its default."""
        at = self.index(name)
        column, came_later = self.columns[at], at - (len(self.columns) - len(self.defaults))
        if came_later >= 0:
            self.defaults = (*self.defaults[:came_later], *self.defaults[came_later + 1 :])
        self.columns = (*self.columns[:at], *self.columns[at + 1 :])
        for rows in (self.rows, self.fresh):
            rows.update({number: (*row[:at], *row[at + 1 :]) for number, row in rows.items()})
        self.appended, self.passing = (_without(rows, at) for rows in (self.appended, self.passing))
        self.add_column(column, default)
        self.replaced += 1

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

    def live(self) -> Iterator[Row]:
        return iter(self.rows.values())


def _without(rows: Counter[Row], at: int) -> Counter[Row]:
    cut: Counter[Row] = Counter()
    for row, times in rows.items():
        cut[(*row[:at], *row[at + 1 :])] += times
    return cut


@dataclass(frozen=True)
class Where:
    """Rows whose columns hold one of some values; no test at all means every row. NULL is a value like any other."""

    tests: tuple[tuple[str, frozenset[Cell]], ...] = ()

    @classmethod
    def equal(cls, columns: Sequence[str], values: Sequence[Cell]) -> Where:
        return cls(tuple((column, frozenset({value})) for column, value in zip(columns, values, strict=True)))


EVERY_ROW = Where()
