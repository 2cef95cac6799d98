"""``python -m bench.arrival``: from a PUT until a new tenant's rows are in its lake, while the others run.

Postgres tells when the seed became visible; whoever sends the PUT looks at the same clock.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial

import duckdb
from rich.console import Console
from rich.table import Table
from viaduck_client import Client

from bench.alongside import alongside
from bench.freshness import commit_some, create, wait_seeded
from bench.lakes import Lake, PostgresLakes
from bench.outcome import Size
from bench.results import RESULTS, machine
from bench.setting import prepared
from bench.stand import open_lake, standing
from bench.viaduck import PATIENCE_S, PIPELINE, entry, running_viaduck
from bench.workload import SCHEMA, SOURCE, TABLE
from services.cli.runtime.running import RunningViaduck
from shared.lake.connection.engine import connect

MEDIAN_S = 5.0
ROWS, FIRST_ID = 100_000, 1_000_000_000


@dataclass
class Discovery:
    """Seconds from a PUT until its answer, and until the rows were there."""

    others: int
    per_second: float
    answered_s: list[float] = field(default_factory=list)
    there_s: list[float] = field(default_factory=list)


def main() -> int:
    asked = _arguments()
    console = Console(width=120)
    console.print(f"{asked.newcomers} tenants come to {asked.others}, {asked.per_second} commits a second …")
    found = measure(asked.others, asked.newcomers, asked.per_second)
    console.print(_table(found))
    now = datetime.now(UTC)
    file = RESULTS / f"arrival-{now:%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"at": now.isoformat(), "machine": machine(), "arrival": asdict(found)}, indent=1))
    console.print(f"written to {file}")
    return 0 if statistics.median(found.there_s) < MEDIAN_S else 1


def measure(others: int, newcomers: int, per_second: float) -> Discovery:
    found = Discovery(others, per_second)
    running = [f"tenant{number:03d}" for number in range(others)]
    with prepared(Size.FULL, 1, "postgres") as setting, standing(setting.on_postgres, running) as stand:
        new = {f"newcomer{number:02d}": stand.lakes.new(f"n_{number}") for number in range(newcomers)}
        create(stand.con, [*running, *new])
        _fill(stand.con, [*running, *new])
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_seeded(viaduck.destinations, stand.mirror)
            stream = partial(_commit, stand.source, running, per_second)
            with alongside("stream", stream), Client(viaduck.url) as operator:
                for name, lake in new.items():
                    _come(viaduck, operator, setting.on_postgres, name, lake, found)
    return found


def _fill(con: duckdb.DuckDBPyConnection, tenants: Sequence[str]) -> None:
    """Rows of everybody, so that a seed has a table to read."""
    con.execute(
        f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} SELECT {FIRST_ID} + i, (?)[1 + i % {len(tenants)}], i, 'filled',"
        f" TIMESTAMP '2026-01-01' FROM range({ROWS}) r(i)",
        [list(tenants)],
    )


def _come(
    viaduck: RunningViaduck, operator: Client, lakes: PostgresLakes, name: str, lake: Lake, found: Discovery
) -> None:
    began = time.time()
    operator.put(PIPELINE, name, entry(name, lake))
    found.answered_s.append(round(time.time() - began, 3))
    viaduck.wait_until(
        name, lambda: operator.destination(PIPELINE, name)["position"] is not None, PATIENCE_S, every_s=0.2
    )
    found.there_s.append(round(min(at for _, at in lakes.arrivals(lake)) - began, 3))


def _commit(source: Lake, tenants: list[str], per_second: float, stopped: threading.Event) -> None:
    """The others' changes."""
    rng, number = random.Random(7), 0
    with closing(connect()) as con:
        open_lake(con, SOURCE, source)
        while not stopped.wait(1 / per_second):
            commit_some(con, rng, number, tenants)
            number += 1


def _table(found: Discovery) -> Table:
    table = Table(title=f"a new tenant beside {found.others}: seconds from the PUT")
    for name in ("until", "p50", "longest", "tenants"):
        table.add_column(name, justify="left" if name == "until" else "right")
    shown: Mapping[str, list[float]] = {"its answer": found.answered_s, "its rows are there": found.there_s}
    for what, seconds in shown.items():
        table.add_row(what, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}", str(len(seconds)))
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", type=int, default=100)
    parser.add_argument("--newcomers", type=int, default=20)
    parser.add_argument("--per-second", type=float, default=2.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
