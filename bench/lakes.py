"""New, empty lakes for a benchmark: SQLite files in a folder, or a Postgres database each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bench.processes import cpu_seconds
from shared.config.catalogs import ResolvedLake
from tests.servers.postgres import Postgres

VARIABLES = "BENCH_LAKE_"
"""How the names of all lakes' variables begin."""


@dataclass(frozen=True)
class Lake:
    """Where a lake is, in the words of the configuration file. There, passwords travel in ``PGPASSWORD``."""

    name: str
    catalog: str
    data_path: str
    variable: str | None = None
    """Of its catalog with the password, for entries over REST: what is ambient reaches none of theirs."""
    schema: str | None = None
    """Of DuckLake's own tables, where several lakes share a database."""

    @property
    def resolved(self) -> ResolvedLake:
        return ResolvedLake(self.catalog, self.schema, self.data_path)


class Lakes(Protocol):
    """Makes lakes of one kind of catalog."""

    kind: str

    def new(self, name: str) -> Lake: ...

    def last_commit(self, lake: Lake) -> float:
        """When the lake's newest commit became visible, in seconds since the epoch. Upkeep does not count."""
        ...

    def direct(self, lake: Lake) -> Lake:
        """The same lake, past any proxy."""
        ...

    def server_cpu_seconds(self) -> float:
        """CPU time that the catalogs' server has used so far; none where there is no server."""
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

    def direct(self, lake: Lake) -> Lake:
        return lake

    def server_cpu_seconds(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Use:
    """What some databases have been asked since the last ``PostgresLakes.forget_use``."""

    statements: int
    mean_ms: float
    longest_ms: float
    sessions: int
    """Connections that were ever made; these are never forgotten."""


class PostgresLakes:
    kind = "postgres"
    settings: ClassVar = {
        "shared_preload_libraries": "pg_stat_statements",
        "pg_stat_statements.max": "50000",  # of a thousand databases, else the rarest are forgotten
        "max_connections": "1500",  # an applier's two workers keep 200 lakes each
    }
    """What the server must be started with."""

    def __init__(self, root: Path, server: Postgres, port: int | None = None) -> None:
        """``port``: of a proxy, by which everybody but us is to reach the lakes."""
        self._root = root
        self.server = server
        self._port = port
        os.environ["PGPASSWORD"] = server.password
        with server.connect() as con:
            con.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def behind(self, port: int) -> PostgresLakes:
        """The same server's, with a proxy in front."""
        return PostgresLakes(self._root, self.server, port)

    def new(self, name: str) -> Lake:
        self.server.create_database(name)
        return self._lake(name, self._port)

    def direct(self, lake: Lake) -> Lake:
        return replace(self._lake(lake.name, None), data_path=lake.data_path, schema=lake.schema)

    def server_cpu_seconds(self) -> float:
        return sum(cpu_seconds(self.server.pid).values())

    def _lake(self, name: str, port: int | None) -> Lake:
        """Its variable is set from here on, for services that are started later."""
        variable = f"{VARIABLES}{name.upper()}"
        os.environ[variable] = f"postgres:{self.server.uri(name, port=port)}"
        return Lake(name, f"postgres:{self.server.words(name, port=port)}", str(self._root / name), variable)

    def last_commit(self, lake: Lake) -> float:
        """The newest of Viaduck's stamped ones, where there are any: upkeep carries no stamp."""
        newest = (
            "SELECT extract(epoch FROM pg_xact_commit_timestamp(s.xmin))::float8 FROM ducklake_snapshot s"
            " LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)"
            " ORDER BY coalesce(c.author, '') = 'viaduck' DESC, snapshot_id DESC LIMIT 1"
        )
        return float(self._one(lake.name, newest)[0])

    def visible(self, lake: Lake) -> dict[int, float]:
        """When each snapshot became visible, in seconds since the epoch."""
        sql = "SELECT snapshot_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 FROM ducklake_snapshot"
        with self.server.connect(lake.name) as con:
            return {int(snapshot): float(at) for snapshot, at in con.execute(sql)}

    def arrivals(self, lake: Lake) -> list[tuple[int, float]]:
        """(through, when it became visible) of each snapshot of ours."""
        visible = self.visible(lake)
        sql = "SELECT snapshot_id, commit_extra_info FROM ducklake_snapshot_changes WHERE author = 'viaduck'"
        with self.server.connect(lake.name) as con:
            return [(int(json.loads(extra)["through"]), visible[int(snapshot)]) for snapshot, extra in con.execute(sql)]

    def connections(self, lakes: Iterable[Lake]) -> int:
        """How many there are to the databases of these lakes, by anyone."""
        there = "SELECT count(*) FROM pg_stat_activity WHERE datname = ANY(%s) AND backend_type = 'client backend'"
        return int(self._one("postgres", there, sorted({lake.name for lake in lakes}))[0])

    def forget_use(self) -> None:
        self._one("postgres", "SELECT pg_stat_statements_reset()")

    def use(self, lakes: Iterable[Lake]) -> Use:
        names = [lake.name for lake in lakes]
        counted = (
            "SELECT coalesce(sum(calls), 0), coalesce(sum(total_exec_time) / nullif(sum(calls), 0), 0),"
            " coalesce(max(max_exec_time), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            " WHERE d.datname = ANY(%s)"
        )
        calls, mean, longest = self._one("postgres", counted, names)
        sessions = "SELECT coalesce(sum(sessions), 0) FROM pg_stat_database WHERE datname = ANY(%s)"
        return Use(
            int(calls), round(float(mean), 3), round(float(longest), 3), int(self._one("postgres", sessions, names)[0])
        )

    def _one(self, database: str, sql: str, *parameters: object) -> tuple[Any, ...]:
        with self.server.connect(database) as con:
            row = con.execute(sql, parameters).fetchone()
        assert row is not None, f"{database} has no row for {sql}"
        return row
