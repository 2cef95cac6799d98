"""What stays of two thousand applies where everything of ``upkeep`` is on, and what keeping lakes small costs others.

A day passes between rounds: times in the catalogs are set back, since nothing is expired or deleted sooner. The upkeep
of a round is ordered right before its stream of commits, so that both run at once. The same stream without any upkeep,
on lakes of its own, tells how fresh its rows would have been.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
from viaduck_client import Client

from bench.freshness import ROWS_PER_COMMIT, ages_of, commit_some, create, percentile_of, wait_seeded
from bench.lakes import Lake, PostgresLakes
from bench.outcome import Case, Measured, at_most
from bench.setting import Setting
from bench.stand import Stand, open_lake, standing
from bench.viaduck import PATIENCE_S, PIPELINE, Options, running_viaduck, wait_caught_up
from bench.workload import SCHEMA, SOURCE, TABLE, committed
from shared.lake.connection.engine import connect

TENANTS, PER_S = 20, 5.0
FILES, BYTES, SCAN, P99 = 3.0, 2.0, 1.3, 1.2
SCANS = 7
EVERYTHING = {
    "every": "off",
    "compact_after_applies": 50,
    "expire_after": "12h",
    "clean_after": "12h",
    "orphans_after": "1d",
}
NOTHING = {"compact_after_applies": 0}


@dataclass
class Lived:
    """``ages_s``: of each commit and tenant, ascending. ``kept`` and ``live`` are files and bytes, in all lakes."""

    ages_s: list[float] = field(default_factory=list)
    kept: tuple[int, int] = 0, 0
    live: tuple[int, int] = 0, 0
    scan: float = 0.0
    """Seconds to read all tables, as a share of what the same rows take that were just written."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """What the steps of the last round came to, by destination."""


def measure(setting: Setting) -> Measured:
    rounds, commits = setting.sized(quick=(2, 50), full=(5, 134))
    without = _live(setting, "without", NOTHING, rounds, commits)
    found = _live(setting, "with", EVERYTHING, rounds, commits)
    p99 = percentile_of(without.ages_s, 99), percentile_of(found.ages_s, 99)
    share = [kept / live for kept, live in zip(found.kept, found.live, strict=True)]
    checks = [
        at_most(f"files on disk ({found.kept[0]:,}) to live ones, {len(found.ages_s):,} applies", share[0], FILES, "x"),
        at_most(f"bytes on disk ({found.kept[1]:,}) to live ones", share[1], BYTES, "x"),
        at_most("a scan beside that of rows just written", found.scan, SCAN, "x"),
        at_most(f"p99 of age at arrival ({p99[1]:.2f} s) to that without ({p99[0]:.2f} s)", p99[1] / p99[0], P99, "x"),
    ]
    figures = {
        "applies": len(found.ages_s), "kept": found.kept, "live": found.live, "scan": round(found.scan, 3),
        "without": {"kept": without.kept, "live": without.live, "scan": round(without.scan, 3), "p99_s": p99[0]},
        "p99_s": p99[1], "p50_s": round(median(found.ages_s), 3), "last_round": found.runs,
    }  # fmt: skip
    return Measured(checks, figures)


def _live(setting: Setting, name: str, upkeep: Mapping[str, object], rounds: int, commits: int) -> Lived:
    lakes, folder = setting.on_postgres, setting.folder / name
    folder.mkdir()
    names, found = [f"{name}{number:03d}" for number in range(TENANTS)], Lived()
    with standing(lakes, names, name=f"source_{name}") as stand:
        create(stand.con, names)
        options = Options(sections={"upkeep": dict(upkeep)})
        with running_viaduck(folder, stand.source, stand.mirror, options) as viaduck, Client(viaduck.url) as operator:
            wait_seeded(viaduck.destinations, stand.mirror)
            for number in range(rounds):
                begun = _kept_up(operator, lakes, stand) if upkeep is EVERYTHING else []
                touched = _stream(stand.con, names, number * commits, commits)
                wait_caught_up(viaduck, stand.head())
                found.ages_s += ages_of(lakes, stand.source, stand.mirror, touched)
                _await(operator, begun)
            if upkeep is EVERYTHING:
                found.runs = _await(operator, _kept_up(operator, lakes, stand))
            wait_caught_up(viaduck, stand.head())
        stand.require_equal()
        found.ages_s.sort()
        found.kept, found.live = _on_disk(stand.mirror), _live_files(lakes, stand.mirror)
        found.scan = _scan_share(lakes, stand.mirror)
    return found


def _stream(con: duckdb.DuckDBPyConnection, tenants: Sequence[str], first: int, count: int) -> dict[int, set[str]]:
    """Commits at the stream's pace, each with new rows, and a half of the commit's before changed or deleted."""
    rng, touched, began = random.Random(first), {}, time.monotonic()
    for number in range(first, first + count):
        time.sleep(max(0.0, began + (number - first) / PER_S - time.monotonic()))
        before = f"id >= {(number - 1) * ROWS_PER_COMMIT} AND id < {number * ROWS_PER_COMMIT} AND id >= 0"
        table = f"{SOURCE}.{SCHEMA}.{TABLE}"
        changed = con.execute(f"SELECT DISTINCT tenant FROM {table} WHERE {before} AND id % 4 < 2").fetchall()
        con.execute("BEGIN")
        tenants_of_commit = commit_some(con, rng, number, tenants)
        con.execute(f"UPDATE {table} SET amount = amount + 1 WHERE {before} AND id % 4 = 0")
        con.execute(f"DELETE FROM {table} WHERE {before} AND id % 4 = 1")
        con.execute("COMMIT")
        touched[committed(con, SOURCE)] = tenants_of_commit | {tenant for (tenant,) in changed}
    return touched


def _kept_up(operator: Client, lakes: PostgresLakes, stand: Stand) -> list[str]:
    """A day passes, and all of upkeep is asked for; the operations."""
    for lake in stand.mirror.values():
        with lakes.server.connect(lake.name) as con:
            con.execute("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - interval '1 day'")
            con.execute(
                "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = schedule_start - interval '1 day'"
            )
    return [operator.upkeep(PIPELINE, tenant)["id"] for tenant in stand.mirror]


def _await(operator: Client, begun: Sequence[str]) -> list[dict[str, Any]]:
    ended = [operator.wait(PIPELINE, each, PATIENCE_S) for each in begun]
    unfinished = [each for each in ended if each["state"] != "succeeded"]
    assert not unfinished, f"{len(unfinished)} of {len(ended)} upkeeps ended otherwise: {unfinished[0]}"
    return [{"destination": each["destination"], **(each["upkeep"] or {})} for each in ended]


def _on_disk(mirror: Mapping[str, Lake]) -> tuple[int, int]:
    files = [file for lake in mirror.values() for file in Path(lake.data_path).rglob("*.parquet")]
    return len(files), sum(file.stat().st_size for file in files)


def _live_files(lakes: PostgresLakes, mirror: Mapping[str, Lake]) -> tuple[int, int]:
    count = size = 0
    for lake in mirror.values():
        with lakes.server.connect(lake.name) as con:
            for table in ("data", "delete"):
                counted = f"SELECT count(*), coalesce(sum(file_size_bytes), 0) FROM ducklake_{table}_file"
                row = con.execute(f"{counted} WHERE end_snapshot IS NULL").fetchone()
                assert row is not None
                count, size = count + int(row[0]), size + int(row[1])
    return count, size


def _scan_share(lakes: PostgresLakes, mirror: Mapping[str, Lake]) -> float:
    """Median seconds to read every table, to those of the same rows in new lakes."""
    with closing(connect()) as con:
        for tenant, lake in mirror.items():
            open_lake(con, tenant, lake)
            open_lake(con, f"fresh_{tenant}", lakes.new(f"fresh_{tenant}"))
            con.execute(f"CREATE TABLE fresh_{tenant}.{SCHEMA}.{TABLE} AS FROM {tenant}.{SCHEMA}.{TABLE}")
        pairs = [(_scan_s(con, mirror), _scan_s(con, [f"fresh_{tenant}" for tenant in mirror])) for _ in range(SCANS)]
    lived, fresh = (median(each) for each in zip(*pairs, strict=True))
    return float(lived / fresh)


def _scan_s(con: duckdb.DuckDBPyConnection, aliases: Sequence[str] | Mapping[str, Lake]) -> float:
    began = time.perf_counter()
    for alias in aliases:
        con.execute(f"SELECT sum(hash(t)) FROM {alias}.{SCHEMA}.{TABLE} t").fetchall()
    return time.perf_counter() - began


CASES = (Case("upkeep", "2,000 applies in 20 lakes with all of upkeep on, and the same without", measure),)
