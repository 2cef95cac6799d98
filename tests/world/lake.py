"""Where a lake is, and how the world opens one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg

from tests.world.duck import name, quote

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Lake:
    """``catalog`` is what stands behind ``ducklake:`` in ATTACH; ``options`` are added to it as they are."""

    catalog: str
    data_path: str | None = None
    metadata_schema: str | None = None
    options: tuple[str, ...] = ()

    @classmethod
    def in_folder(cls, folder: Path, *, encrypted: bool = False) -> Lake:
        """A lake with a SQLite catalog, catalog and data in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        options = ("ENCRYPTED",) if encrypted else ()
        return cls(f"sqlite:{folder / 'catalog.sqlite'}", str(folder / "data"), options=options)

    @property
    def is_sqlite(self) -> bool:
        return self.catalog.startswith("sqlite:")

    @property
    def exists(self) -> bool:
        """Whether its catalog has been made."""
        if self.is_sqlite:
            return Path(self.catalog.removeprefix("sqlite:")).exists()
        with psycopg.connect(self.catalog.removeprefix("postgres:")) as con:
            table = name(self.metadata_schema or "public", "ducklake_snapshot")
            return con.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchall()[0][0] is True

    @property
    def is_local(self) -> bool:
        return "://" not in (self.data_path or "")


def attach(
    con: duckdb.DuckDBPyConnection, alias: str, lake: Lake, *, read_only: bool = False, create: bool = False
) -> None:
    options = ["READ_ONLY"] if read_only else [f"CREATE_IF_NOT_EXISTS {str(create).lower()}"]
    if lake.is_sqlite and not read_only:
        options.append("META_JOURNAL_MODE 'WAL'")  # H8
    if lake.data_path is not None:
        options.append(f"DATA_PATH {quote(lake.data_path)}")
    if lake.metadata_schema is not None:
        options.append(f"METADATA_SCHEMA {quote(lake.metadata_schema)}, META_SCHEMA {quote(lake.metadata_schema)}")
    options.extend(lake.options)
    con.execute(f"ATTACH {quote('ducklake:' + lake.catalog)} AS {name(alias)} ({', '.join(options)})")


def detach(con: duckdb.DuckDBPyConnection, alias: str) -> None:
    con.execute(f"DETACH DATABASE IF EXISTS {name(alias)}")


@contextlib.contextmanager
def opened(
    con: duckdb.DuckDBPyConnection, lake: Lake, *, read_only: bool = True, create: bool = False
) -> Iterator[str]:
    """Attach a lake under a name of its own, for a while; yields that name."""
    alias = f"world_{next(_numbers)}"
    attach(con, alias, lake, read_only=read_only, create=create)
    try:
        yield alias
    finally:
        detach(con, alias)


@contextlib.contextmanager
def looked_at(con: duckdb.DuckDBPyConnection, lake: Lake) -> Iterator[str]:
    """The same for many looks, in one transaction: a statement in one of its own has DuckLake ask the catalog for the
    newest snapshot and all that is in force then, which costs as much as the look."""
    with opened(con, lake) as alias:
        con.execute("BEGIN")
        try:
            yield alias
        finally:
            con.execute("ROLLBACK")


def look_again(con: duckdb.DuckDBPyConnection) -> None:
    """Go on after an error within ``looked_at``, which has ended its transaction."""
    con.execute("ROLLBACK")
    con.execute("BEGIN")


def make_old(con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Date all snapshots of a lake, and the files that it let go, back by forty days."""
    if not lake.exists:
        return
    with opened(con, lake, read_only=False) as alias:
        then = "CAST(now() - INTERVAL '40 days' AS VARCHAR)" + ("" if lake.is_sqlite else "::TIMESTAMPTZ")
        snapshots = metadata(con, alias, "ducklake_snapshot", lake)
        waiting = metadata(con, alias, "ducklake_files_scheduled_for_deletion", lake)
        con.execute(f"UPDATE {snapshots} SET snapshot_time = {then}")
        con.execute(f"UPDATE {waiting} SET schedule_start = {then}")


def metadata(con: duckdb.DuckDBPyConnection, alias: str, table: str, lake: Lake) -> str:
    """The path of one of the catalog's own tables."""
    catalog = f"__ducklake_metadata_{alias}"
    return name(catalog, lake.metadata_schema, table) if lake.metadata_schema else name(catalog) + "." + name(table)
