"""Two queries of one shape, compared as multisets: how many rows differ, and a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import duckdb

from shared.lake.catalog.reader import Column
from shared.lake.sql import ident, path

SHOWN = 5
"""Differences that are shown of each kind; all are counted."""

MAX_TEXT = 200

MISSING, EXTRA = path("memory", "main", "rows_missing"), path("memory", "main", "rows_extra")

Row = dict[str, str | None]


@dataclass(frozen=True)
class Difference:
    """A row that is ``missing``, ``extra`` or ``changed``; values as text, of a changed row those that differ."""

    key: Row
    expected: Row | None = None
    found: Row | None = None

    @property
    def kind(self) -> Literal["missing", "extra", "changed"]:
        if self.found is None:
            return "missing"
        return "extra" if self.expected is None else "changed"


@dataclass(frozen=True)
class Differences:
    missing: int = 0
    extra: int = 0
    changed: int = 0
    shown: tuple[Difference, ...] = ()

    @property
    def total(self) -> int:
        return self.missing + self.extra + self.changed


@dataclass(frozen=True)
class Multisets:
    """``required`` rows must be in ``found``; ``found`` rows must be in ``allowed`` unless that is None.

    Without keys, rows are told apart by all their columns and can't be said to have changed.
    """

    con: duckdb.DuckDBPyConnection
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    found: str
    required: str
    allowed: str | None

    def differences(self) -> Differences:
        self._subtract(MISSING, self.required, self.found)
        self._subtract(EXTRA, self.found, self.allowed or f"SELECT * FROM ({self.found})")
        missing, extra = self._count(MISSING), self._count(EXTRA)
        changed = self._count(MISSING, EXTRA) if self.keys and missing and extra else 0
        replaced = self._count(EXTRA, MISSING) if changed else 0
        shown = (
            *self._changed_rows(changed),
            *(self._one_sided(row, expected=row) for row in self._rows(MISSING, EXTRA)),
            *(self._one_sided(row, found=row) for row in self._rows(EXTRA, MISSING)),
        )
        return Differences(missing - changed, extra - replaced, changed, shown[: 2 * SHOWN])

    def _subtract(self, into: str, rows: str, without: str) -> None:
        compared = ", ".join(_comparable(column) for column in self.columns)
        self.con.execute(
            f"CREATE OR REPLACE TABLE {into} AS"
            f" SELECT {compared} FROM ({rows}) EXCEPT ALL SELECT {compared} FROM ({without})"
        )

    def _count(self, table: str, with_keys_of: str | None = None) -> int:
        where = (
            "" if with_keys_of is None else f" WHERE EXISTS (SELECT 1 FROM {with_keys_of} o WHERE {self._same_key()})"
        )
        return int(self.con.execute(f"SELECT count(*) FROM {table} t{where}").fetchall()[0][0])

    def _rows(self, table: str, other: str) -> list[Row]:
        """Rows of one side whose key is not on the other."""
        where = f" WHERE NOT EXISTS (SELECT 1 FROM {other} o WHERE {self._same_key()})" if self.keys else ""
        rows = self.con.execute(f"SELECT {self._texts('t')} FROM {table} t{where} LIMIT {SHOWN}").fetchall()
        return [self._named(row) for row in rows]

    def _one_sided(self, row: Row, **side: Row) -> Difference:
        return Difference({name: row[name] for name in self._key_names()}, **side)

    def _changed_rows(self, changed: int) -> list[Difference]:
        if not changed:
            return []
        both = f"{self._texts('t')}, {self._texts('o')}"
        rows = self.con.execute(
            f"SELECT {both} FROM {MISSING} t JOIN {EXTRA} o ON {self._same_key()} LIMIT {SHOWN}"
        ).fetchall()
        width = len(self.columns)
        return [self._two_sided(self._named(row[:width]), self._named(row[width:])) for row in rows]

    def _two_sided(self, expected: Row, found: Row) -> Difference:
        key = {name: expected[name] for name in self._key_names()}
        differing = [name for name in expected if expected[name] != found[name]] or list(expected)
        return Difference(key, {n: expected[n] for n in differing}, {n: found[n] for n in differing})

    def _texts(self, table: str) -> str:
        return ", ".join(f"left(CAST({table}.{ident(c.name)} AS VARCHAR), {MAX_TEXT})" for c in self.columns)

    def _named(self, values: Sequence[str | None]) -> Row:
        return dict(zip((column.name for column in self.columns), values, strict=True))

    def _key_names(self) -> list[str]:
        """The key columns as the table spells them."""
        wanted = {key.lower() for key in self.keys}
        return [column.name for column in self.columns if column.name.lower() in wanted]

    def _same_key(self) -> str:
        return " AND ".join(f"t.{ident(key)} IS NOT DISTINCT FROM o.{ident(key)}" for key in self.keys)


def _comparable(column: Column) -> str:
    """A value as it is compared. DuckLake keeps of a TIMETZ only the moment, in UTC."""
    name = ident(column.name)
    return f"{name} AT TIME ZONE 'UTC' AS {name}" if column.type == "TIME WITH TIME ZONE" else name
