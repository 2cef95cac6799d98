"""Plain statements on a catalog's own database, past DuckLake.

A SQLite catalog is only ever opened through DuckDB's own SQLite library (H11): a second copy of the library in the same
process breaks the first one's file locks, up to a malformed database. A Postgres catalog is asked by psycopg, on a
connection that no other user of the lake shares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psycopg
from psycopg.rows import dict_row

from shared.config.catalogs import patient
from shared.lake.sql import ident, literal

Row = Mapping[str, Any]


class Statements(Protocol):
    """One catalog's database."""

    def rows(self, sql: str) -> Sequence[Row]:
        """Run one query outside any transaction. Raises the driver's error."""

    def close(self) -> None: ...


class AttachedSqlite:
    """A SQLite database that a DuckDB instance has attached as ``name``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        self._con = con
        self._name = name

    def rows(self, sql: str) -> Sequence[Row]:
        with contextlib.closing(self._con.cursor()) as cursor:
            found = cursor.execute(f"SELECT * FROM sqlite_query({literal(self._name)}, {literal(sql)})")
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def close(self) -> None:
        """The instance's owner detaches."""


class OwnSqlite(AttachedSqlite):
    """A SQLite database that is attached, read-only and as ``name``, when it is first asked."""

    def __init__(self, con: duckdb.DuckDBPyConnection, file: Path, name: str = "catalog") -> None:
        super().__init__(con, name)
        self._file = file
        self._attached = False

    def rows(self, sql: str) -> Sequence[Row]:
        if not self._attached:
            if not self._file.exists():
                raise FileNotFoundError(f"there is no catalog file {self._file}")
            self._con.execute(f"ATTACH {literal(str(self._file))} AS {ident(self._name)} (TYPE sqlite, READ_ONLY)")
            self._attached = True
        return super().rows(sql)

    def close(self) -> None:
        self._con.close()


class Postgres:
    """A Postgres database on one connection of ours, opened at first use and anew after an error."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = patient(conninfo)
        self._con: psycopg.Connection[dict[str, Any]] | None = None

    def rows(self, sql: str) -> Sequence[Row]:
        try:
            if self._con is None or self._con.closed:
                self._con = psycopg.connect(self._conninfo, autocommit=True, row_factory=dict_row)
            return self._con.execute(sql.encode()).fetchall()
        except psycopg.Error:
            self.close()
            raise

    def close(self) -> None:
        if self._con is not None:
            self._con.close()
            self._con = None
