"""``python -m bench.arrival``: from a PUT until a new tenant's rows are in its lake, while the others run.

Postgres tells when the seed became visible; whoever sends the PUT looks at the same clock.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.freshness import SOURCE, arrivals, commit_some, create, wait_seeded
from bench.lakes import Lake, PostgresLakes
from bench.run import RESULTS, machine
from bench.viaduck import PATIENCE_S, PIPELINE, running_viaduck
from services.cli.running import RunningViaduck
from shared.client import Client
from shared.config.catalogs import ResolvedLake
from shared.lake.attach import attach
from shared.lake.engine import connect
from tests.servers.postgres import Postgres

MEDIAN_S = 5.0


@dataclass
class Arrivals:
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


def measure(others: int, newcomers: int, per_second: float) -> Arrivals:
    found = Arrivals(others, per_second)
    with tempfile.TemporaryDirectory(prefix="viaduck-arrival-") as folder, Postgres(
        settings=PostgresLakes.settings
    ) as server:  # fmt: skip
        lakes = PostgresLakes(Path(folder), server)
        source = lakes.new(SOURCE)
        running = {f"tenant{number:03d}": lakes.new(f"v_{number}") for number in range(others)}
        new = {f"newcomer{number:02d}": lakes.new(f"n_{number}") for number in range(newcomers)}
        with closing(connect()) as con:
            create(con, source, [*running, *new])
        with running_viaduck(Path(folder), source, running) as viaduck:
            wait_seeded(viaduck.destinations, running)
            with _stream(source, list(running), per_second), Client(viaduck.url) as operator:
                for name, lake in new.items():
                    _come(viaduck, operator, server, name, lake, found)
    return found


def _come(viaduck: RunningViaduck, operator: Client, server: Postgres, name: str, lake: Lake, found: Arrivals) -> None:
    entry = {"routing_value": name, "catalog": lake.catalog, "data_path": lake.data_path}
    began = time.time()
    operator.put(PIPELINE, name, entry)
    found.answered_s.append(round(time.time() - began, 3))
    viaduck.wait_until(
        name, lambda: operator.destination(PIPELINE, name)["position"] is not None, PATIENCE_S, every_s=0.2
    )
    found.there_s.append(round(min(at for _, at in arrivals(server, lake)) - began, 3))


@contextmanager
def _stream(source: Lake, tenants: list[str], per_second: float) -> Iterator[None]:
    """The others' changes, until the end of the block."""
    stopped = threading.Event()

    def write() -> None:
        rng, number = random.Random(7), 0
        with closing(connect()) as con:
            attach(con, SOURCE, ResolvedLake(source.catalog, data_path=source.data_path), read_only=False)
            while not stopped.wait(1 / per_second):
                commit_some(con, rng, number, tenants)
                number += 1

    thread = threading.Thread(target=write, name="stream", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _table(found: Arrivals) -> Table:
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
