"""What becomes of a source by its operator's hand: kept as a backup, put back to it, or replaced by another lake."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg.sql import SQL, Identifier

from tests.world.lake import Lake
from tests.world.truth import Truth


class Recovery(StrEnum):
    """A step of a history. Data files stay where they are."""

    BACK_UP = "back_up"
    RESTORE = "restore"
    REPLACE = "replace"


@dataclass(frozen=True)
class Past:
    """A history of the source that is no more.

    ``truth`` is what it was, ``kept`` its last snapshot that is one of the new history too (-1: none is), ``ended``
    the newest snapshot of each destination's lake when it ended.
    """

    truth: Truth
    kept: int
    ended: Mapping[Lake, int]


class Catalog(Protocol):
    """A lake's catalog as its operator keeps a copy of it, and puts it back."""

    def keep(self) -> None: ...

    def put_back(self) -> None: ...

    def remove(self) -> None: ...


def catalog_of(lake: Lake) -> Catalog:
    return CatalogFile(lake) if lake.is_sqlite else CatalogSchema(lake)


class CatalogFile:
    """The SQLite catalog of a lake that nobody has attached."""

    def __init__(self, lake: Lake) -> None:
        self._file = Path(lake.catalog.removeprefix("sqlite:"))
        self._backup = Path(f"{self._file}.backup")

    def keep(self) -> None:
        shutil.copyfile(self._file, self._backup)

    def put_back(self) -> None:
        self.remove()
        shutil.copyfile(self._backup, self._file)

    def remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._file}{ending}").unlink(missing_ok=True)


class CatalogSchema:
    """A lake's metadata schema on Postgres, put back in one transaction, as ``pg_restore --clean`` does.

    Connections stay as they are: an applier that has the lake attached goes on with it.
    """

    def __init__(self, lake: Lake) -> None:
        if lake.metadata_schema is None:
            raise ValueError(f"{lake} has no schema of its own")
        self._words = lake.catalog.removeprefix("postgres:")
        self._schema, self._backup = lake.metadata_schema, f"{lake.metadata_schema}_backup"

    def keep(self) -> None:
        self._copy(self._schema, self._backup)

    def put_back(self) -> None:
        self._copy(self._backup, self._schema)

    def remove(self) -> None:
        with psycopg.connect(self._words) as con:
            _drop(con, self._schema)

    def _copy(self, of: str, to: str) -> None:
        with psycopg.connect(self._words) as con:
            _drop(con, to)
            con.execute(SQL("CREATE SCHEMA {}").format(Identifier(to)))
            found = con.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [of]).fetchall()
            for (table,) in found:
                there, here = Identifier(of, table), Identifier(to, table)
                con.execute(SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(here, there))
                con.execute(SQL("INSERT INTO {} SELECT * FROM {}").format(here, there))


def _drop(con: psycopg.Connection, schema: str) -> None:
    con.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema)))
