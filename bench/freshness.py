"""``python -m bench.freshness``: how old a change is when it is in its tenant's lake, under a stream of small commits.

Once as it is, and with ``--broken`` again with one more tenant, whose rows come like everybody's and whose catalog
accepts connections and never answers: it must cost the others next to nothing, a fifth of their p99 at most. Postgres
tells when each snapshot became visible, on both sides by one clock.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from bench.lakes import Lake, PostgresLakes
from bench.outcome import Size
from bench.report import verdict
from bench.setting import prepared
from bench.stand import standing
from bench.viaduck import DEFAULT, PATIENCE_S, Options, running_viaduck, wait_caught_up
from bench.workload import COLUMNS, DECLARED, SCHEMA, SOURCE, TABLE, committed
from shared.kafka.signing import own_key
from tests.servers.kafka import Kafka

ROWS_PER_COMMIT = 20
TENANTS_PER_COMMIT = 3
BROKEN = "broken"
AT_MOST = 1.2
"""Times the p99 of everybody else without the broken one."""


@dataclass(frozen=True)
class Stream:
    """What happens to the source: ``per_second`` commits, each with rows of a few random tenants."""

    tenants: int
    per_second: float
    seconds: float


@dataclass(frozen=True)
class Freshness:
    """Seconds from a source commit until it is in a tenant's lake, for each commit and each healthy tenant in it."""

    stream: Stream
    broken: bool
    broken_commits: int
    """Those with rows of the broken tenant."""
    pairs: int
    p50_s: float
    p99_s: float
    longest_s: float
    commits_per_second: float
    compared: int


def main() -> None:
    asked = _arguments()
    stream = Stream(asked.tenants, asked.per_second, asked.seconds)
    console = Console(width=120)
    found = []
    for broken in (False, True) if asked.broken else (False,):
        console.print(
            f"{stream.tenants} tenants, {stream.per_second} commits a second{', one broken' if broken else ''} …"
        )
        with prepared(Size.FULL, 1, "postgres") as setting, _broker(asked.kafka, setting.folder) as options:
            found.append(measure(setting.on_postgres, setting.folder, stream, broken=broken, options=options))
    console.print(_table(found))
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    if asked.broken:
        console.print(compared(*found))


def compared(without: Freshness, beside: Freshness) -> str:
    """What a broken tenant costs the healthy ones."""
    ratio = beside.p99_s / without.p99_s
    told = f"p99 of the healthy beside a broken one: {ratio:.2f} times that without it"
    return f"{told}; target ≤ {AT_MOST}: {verdict(ratio <= AT_MOST)}"


def measure(
    lakes: PostgresLakes, folder: Path, stream: Stream, *, broken: bool = False, options: Options = DEFAULT
) -> Freshness:
    names = [f"tenant{number:03d}" for number in range(stream.tenants)]
    with standing(lakes, names) as stand, _deaf_port() as deaf:
        wanted = dict(stand.mirror)
        if broken:
            words = f"postgres:dbname=none host=127.0.0.1 port={deaf} user=nobody connect_timeout=10"
            wanted[BROKEN] = Lake(BROKEN, words, str(folder / BROKEN))
        create(stand.con, list(wanted))
        with running_viaduck(folder, stand.source, wanted, options) as viaduck:
            wait_seeded(viaduck.destinations, stand.mirror)
            began = time.monotonic()
            touched = write_stream(stand.con, stream, list(wanted))
            took = time.monotonic() - began
            if broken:
                _wait_through(viaduck.destinations, stand.mirror, stand.head())
                _require_broken(viaduck.destinations(), touched)
            else:
                wait_caught_up(viaduck, stand.head())
        ages = sorted(ages_of(lakes, stand.source, stand.mirror, touched))
        compared = stand.require_equal()
        return Freshness(
            stream, broken, _with_broken(touched), len(ages), round(statistics.median(ages), 3),
            percentile_of(ages, 99), round(ages[-1], 3), round(len(touched) / took, 2), compared,
        )  # fmt: skip


def percentile_of(sorted_seconds: Sequence[float], hundredth: int) -> float:
    return round(statistics.quantiles(sorted_seconds, n=100)[hundredth - 1], 3)


def _with_broken(touched: Mapping[int, set[str]]) -> int:
    return sum(BROKEN in tenants for tenants in touched.values())


def _require_broken(statuses: Sequence[Mapping[str, Any]], touched: Mapping[int, set[str]]) -> None:
    """A broken tenant that got its rows, or for whom none came, has shown nothing."""
    (position,) = [status["position"] for status in statuses if status["id"] == BROKEN]
    assert position is None, f"the broken tenant is at {position}: it is not broken"
    assert _with_broken(touched), "no row of the broken tenant came: let the stream run for longer"


@contextmanager
def _broker(kind: str, folder: Path) -> Iterator[Options]:
    """Viaduck's own broker, or a real Kafka beside it, with a signing key in ``folder``."""
    if kind == "embedded":
        yield DEFAULT
        return
    with Kafka() as kafka:
        key = str(own_key(folder))
        signed = {"bootstrap_servers": kafka.bootstrap, "replication_factor": 1, "signing_key_file": key}
        yield Options(sections={"kafka": signed})


@contextmanager
def _deaf_port() -> Iterator[int]:
    """Accepts connections (the kernel does) and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def create(con: duckdb.DuckDBPyConnection, tenants: Sequence[str]) -> None:
    """The source's table, with a row for each tenant."""
    con.execute(f"CREATE TABLE {SOURCE}.{SCHEMA}.{TABLE} ({DECLARED})")
    for number, tenant in enumerate(tenants, 1):
        row = f"{-number}, '{tenant}', 0, '', TIMESTAMP '2026-01-01'"
        con.execute(f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} SELECT {row}")


def write_stream(
    con: duckdb.DuckDBPyConnection, stream: Stream, tenants: Sequence[str], first: int = 0
) -> dict[int, set[str]]:
    """Commit at the stream's pace; returns which tenants each snapshot touches. ``first``: the number of its first."""
    rng, touched, began = random.Random(7), {}, time.monotonic()
    for number in range(int(stream.per_second * stream.seconds)):
        time.sleep(max(0.0, began + number / stream.per_second - time.monotonic()))
        tenants_of_commit = commit_some(con, rng, first + number, tenants)
        touched[committed(con, SOURCE)] = tenants_of_commit
    return touched


def commit_some(con: duckdb.DuckDBPyConnection, rng: random.Random, number: int, tenants: Sequence[str]) -> set[str]:
    """The stream's commit of that number; returns whose rows are in it."""
    chosen = rng.sample(tenants, TENANTS_PER_COMMIT)
    rows = ", ".join(
        f"({number * ROWS_PER_COMMIT + row}, '{rng.choice(chosen)}', 1.5, 'a note', TIMESTAMP '2026-01-01')"
        for row in range(ROWS_PER_COMMIT)
    )
    con.execute(f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} ({COLUMNS}) VALUES {rows}")
    return {tenant for tenant in chosen if f"'{tenant}'" in rows}


def ages_of(
    lakes: PostgresLakes, source: Lake, mirror: Mapping[str, Lake], touched: Mapping[int, set[str]]
) -> Iterator[float]:
    visible = lakes.visible(source)
    for tenant, lake in mirror.items():
        arrived_at = lakes.arrivals(lake)
        for snapshot, tenants in touched.items():
            if tenant in tenants:
                arrived = min((at for through, at in arrived_at if through >= snapshot), default=None)
                assert arrived is not None, f"{tenant} never got snapshot {snapshot}"
                yield arrived - visible[snapshot]


def wait_seeded(statuses: Callable[[], list[dict[str, Any]]], mirror: Mapping[str, Lake]) -> None:
    _wait(statuses, mirror, lambda status: status["position"] is not None)


def _wait_through(statuses: Callable[[], list[dict[str, Any]]], mirror: Mapping[str, Lake], head: int) -> None:
    _wait(statuses, mirror, lambda status: (status["known_through"] or 0) >= head)


def _wait(
    statuses: Callable[[], list[dict[str, Any]]], mirror: Mapping[str, Lake], done: Callable[[dict[str, Any]], bool]
) -> None:
    """Until it holds for every tenant of ``mirror``; the broken one is waited for by nobody."""
    deadline = time.monotonic() + PATIENCE_S
    while {status["id"] for status in statuses() if done(status)} < set(mirror):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not everybody was there within {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def _table(found: Sequence[Freshness]) -> Table:
    table = Table(title="freshness: from a source commit to the tenant's")
    for name in ("tenants", "broken ones", "commits with theirs", "commits/s", "pairs", "p50 s", "p99 s", "longest s"):
        table.add_column(name, justify="right")
    for each in found:
        table.add_row(
            str(each.stream.tenants), str(int(each.broken)), str(each.broken_commits),
            f"{each.commits_per_second:.1f}", str(each.pairs),
            f"{each.p50_s:.2f}", f"{each.p99_s:.2f}", f"{each.longest_s:.2f}",
        )  # fmt: skip
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=100)
    parser.add_argument("--per-second", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--broken", action="store_true", help="again, with one more tenant that never answers")
    parser.add_argument("--kafka", choices=("embedded", "real"), default="embedded", help="which broker it runs on")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
