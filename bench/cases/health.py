"""What a look at the health of a thousand lakes costs an applier: its own sweep, without an applier around it.

The lakes are metadata schemas of one Postgres database: copies of one that has files, delete files, inlined rows and
snapshots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import psutil
import psycopg
from psycopg.sql import SQL, Identifier

from bench.lakes import PostgresLakes
from bench.outcome import Case, Measured, at_most
from bench.setting import Setting
from bench.stand import open_lake
from services.applier.health_sweep import HealthSweep
from services.applier.model.health_plan import TableWanted
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.contracts.reports import LakeHealth, parse_progress
from shared.lake.connection.engine import connect

LAKES = 1_000
FILES, ROWS = 50, 1_000
SECONDS, CPU_SECONDS, MEGABYTES = 30.0, 8.0, 100.0
ENDED_AFTER_S = 1.0
"""The server's process of a connection that was closed has ended then, and what it used is known."""

COPIED_AT_ONCE = 20
"""Lakes in one transaction: a table takes a lock."""


def measure(setting: Setting) -> Measured:
    lakes, number = setting.on_postgres, setting.sized(quick=50, full=LAKES)
    made = _made(lakes, number)
    process = psutil.Process()
    before = process.memory_info().rss
    sweeps = [_sweep(lakes, made) for _ in range(setting.runs)]
    grown = (process.memory_info().rss - before) / 1e6
    seconds, ours, theirs = (median(each) for each in zip(*sweeps, strict=True))
    checks = [
        at_most(f"a look at {number:,} lakes of one database", seconds, SECONDS, "s"),
        at_most("CPU of a look, the server's included", ours + theirs, CPU_SECONDS, "s"),
        at_most("memory that the applier grew by", grown, MEGABYTES, "MB"),
    ]
    figures = {"lakes": number, "seconds": seconds, "cpu_s": ours, "server_cpu_s": theirs, "grown_mb": round(grown, 1)}
    return Measured(checks, figures)


def _sweep(lakes: PostgresLakes, made: list[ResolvedLake]) -> tuple[float, float, float]:
    """Seconds on the clock, of our CPU, and of the server's."""
    heard = _Heard()
    sweep = HealthSweep(lambda: SECONDS, lambda: [_Consumer(made)], heard, "progress", "bench")
    server, ours, began = _server_cpu_s(lakes), time.process_time(), time.perf_counter()
    sweep.sweep(3_600.0)
    seconds, ours = time.perf_counter() - began, time.process_time() - ours
    time.sleep(ENDED_AFTER_S)
    server = _server_cpu_s(lakes) - server
    assert len(heard.rows) == len(made), f"{len(heard.rows)} of {len(made)} lakes were looked at"
    assert set(heard.rows.values()) == {FILES * ROWS - 1}, "a lake has other rows than were written to it"
    return seconds, ours, server


def _server_cpu_s(lakes: PostgresLakes) -> float:
    """With that of connections which have ended."""
    ended = psutil.Process(lakes.server.pid).cpu_times()
    return lakes.server_cpu_seconds() + ended.children_user + ended.children_system


class _Consumer:
    is_busy = False

    def __init__(self, lakes: list[ResolvedLake]) -> None:
        self._lakes = lakes

    def tables(self) -> Iterator[tuple[TableWanted, ResolvedLake | ViaduckError]]:
        for number, lake in enumerate(self._lakes):
            yield TableWanted("bench", f"d{number}", 1, "main", "t"), lake


class _Heard:
    """What would go to the broker: rows by destination."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def send(
        self,
        topic: str,  # noqa: ARG002 - as the publisher takes it
        key: str,
        value: bytes | None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
        on_delivery: Callable[[Exception | None], None] | None = None,  # noqa: ARG002
    ) -> None:
        said = parse_progress(value or b"")
        assert isinstance(said, LakeHealth)
        assert said.figures is not None, said.error
        self.rows[key] = said.figures.rows


def _made(lakes: PostgresLakes, number: int) -> list[ResolvedLake]:
    lake = lakes.new("health")
    con = connect()
    open_lake(con, "l", lake)
    con.execute("CREATE TABLE l.main.t (id BIGINT, v VARCHAR)")
    for file in range(FILES):
        con.execute(f"INSERT INTO l.main.t SELECT i, 'v' FROM range({file * ROWS}, {(file + 1) * ROWS}) r(i)")
    con.execute("DELETE FROM l.main.t WHERE id % 3000 < 20")
    con.execute("INSERT INTO l.main.t SELECT i, 'again' FROM range(9) r(i)")
    held = con.execute("SELECT count(*) FROM (SELECT * FROM l.main.t)").fetchall()[0][0]
    con.execute("INSERT INTO l.main.t SELECT i, 'more' FROM range(?) r(i)", [FILES * ROWS - 1 - held])
    con.close()
    with lakes.server.connect(lake.name) as server:
        _copy(server, number)
    return [ResolvedLake(lake.resolved.catalog, f"lake_{each}", lake.resolved.data_path) for each in range(number)]


def _copy(server: psycopg.Connection[tuple[object, ...]], number: int) -> None:
    found = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'ducklake%'")
    tables = [str(name) for (name,) in found.fetchall()]
    for start in range(0, number, COPIED_AT_ONCE):
        with server.transaction():
            for each in range(start, min(start + COPIED_AT_ONCE, number)):
                schema = Identifier(f"lake_{each}")
                server.execute(SQL("CREATE SCHEMA {}").format(schema))
                for name in tables:
                    names = {"to": SQL("{}.{}").format(schema, Identifier(name)), "of": Identifier(name)}
                    server.execute(SQL("CREATE TABLE {to} (LIKE public.{of} INCLUDING ALL)").format(**names))
                    server.execute(SQL("INSERT INTO {to} SELECT * FROM public.{of}").format(**names))
    server.execute("ANALYZE")


CASES = (Case("health", "a look at the health of 1,000 lakes in one Postgres database", measure),)
