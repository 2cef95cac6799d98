"""New, empty lakes for a benchmark: SQLite files in a folder, or a Postgres database each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from tests.servers.postgres import Postgres


@dataclass(frozen=True)
class Lake:
    """Where a lake is, in the words of the configuration file. Passwords travel in ``PGPASSWORD``."""

    name: str
    catalog: str
    data_path: str


class Lakes(Protocol):
    """Makes lakes of one kind of catalog."""

    kind: str

    def new(self, name: str) -> Lake: ...

    def last_commit(self, lake: Lake) -> float:
        """When the lake's newest commit became visible, in seconds since the epoch."""
        ...

    def statements(self, lake: Lake) -> int | None:
        """Statements that the lake's database has run, reads included; None where nobody counts them."""
        ...


class SqliteLakes:
    kind = "sqlite"

    def __init__(self, root: Path) -> None:
        self._root = root

    def new(self, name: str) -> Lake:
        return Lake(name, f"sqlite:{self._root / name}.sqlite", str(self._root / name))

    def last_commit(self, lake: Lake) -> float:
        """A commit ends with a write to the write-ahead log, or to the file itself when that is folded in."""
        file = Path(lake.catalog.removeprefix("sqlite:"))
        written = [part for part in (file, file.with_name(file.name + "-wal")) if part.exists()]
        return max(part.stat().st_mtime for part in written)

    def statements(self, lake: Lake) -> int | None:  # noqa: ARG002 - SQLite counts none
        return None


class PostgresLakes:
    kind = "postgres"
    settings: ClassVar = {"shared_preload_libraries": "pg_stat_statements"}
    """What the server must be started with."""

    def __init__(self, root: Path, server: Postgres) -> None:
        self._root = root
        self._server = server
        os.environ["PGPASSWORD"] = server.password
        with server.connect() as con:
            con.execute("CREATE EXTENSION pg_stat_statements")

    def new(self, name: str) -> Lake:
        self._server.create_database(name)
        return Lake(name, f"postgres:{self._server.words(name)}", str(self._root / name))

    def last_commit(self, lake: Lake) -> float:
        newest = (
            "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM ducklake_snapshot"
            " ORDER BY snapshot_id DESC LIMIT 1"
        )
        with self._server.connect(lake.name) as con:
            row = con.execute(newest).fetchone()
        assert row is not None, f"{lake.name} has no snapshot"
        return float(row[0])

    def statements(self, lake: Lake) -> int | None:
        counted = (
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            " WHERE d.datname = %s"
        )
        with self._server.connect() as con:
            row = con.execute(counted, [lake.name]).fetchone()
        assert row is not None, "a sum has one row"
        return int(row[0])
