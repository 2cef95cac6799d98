"""Ten thousand tenants of ten databases, of which five hundred get rows each second: whether two cores keep up.

The lakes are metadata schemas, so that an applier needs a connection for each database and not for each tenant.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import duckdb
from psycopg.sql import SQL, Identifier

from bench.freshness import create, percentile_of
from bench.lakes import Lake, PostgresLakes
from bench.outcome import Case, Measured, at_most
from bench.processes import cpu_seconds, memory_mb, pid_of, since
from bench.setting import Setting
from bench.stand import Stand, require_equal, standing
from bench.viaduck import PATIENCE_S, running_viaduck, wait_settled
from bench.workload import SCHEMA, SOURCE, TABLE, committed
from services.cli.runtime.running import RunningViaduck

P99_S = 8.0
SEED_WITHIN_S = 3 * PATIENCE_S
COMPARED = 300
"""Lakes that are compared with the source row by row, drawn by chance: all of them would take longer than the rest."""

ARRIVED = (
    "SELECT s.snapshot_id, extract(epoch FROM pg_xact_commit_timestamp(s.xmin))::float8, c.commit_extra_info"
    " FROM {0}.ducklake_snapshot s JOIN {0}.ducklake_snapshot_changes c USING (snapshot_id) WHERE c.author = 'viaduck'"
)


@dataclass(frozen=True)
class Fleet:
    """``touched`` tenants get a row each second, for so many ``seconds``."""

    tenants: int
    databases: int
    touched: int
    seconds: int


FULL, QUICK = Fleet(10_000, 10, 500, 60), Fleet(200, 2, 20, 10)


def measure(setting: Setting) -> Measured:
    fleet, lakes = setting.sized(quick=QUICK, full=FULL), setting.on_postgres
    with standing(lakes, ()) as stand:
        stand.mirror.update(lakes_of(lakes, fleet))
        create_at_once(stand, list(stand.mirror))
        began = time.monotonic()
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_seeded(viaduck, stand.head())
            seeded_s = round(time.monotonic() - began, 1)
            found = _stream(viaduck, stand, lakes, fleet)
            used = memory_mb(pid_of(viaduck.pid, "applier"))
        ages = sorted(ages_of(lakes, stand, found.touched))
        drawn = random.Random(7).sample(sorted(stand.mirror), min(COMPARED, fleet.tenants))
        compared = require_equal(lakes, stand.source, {tenant: stand.mirror[tenant] for tenant in drawn})
    told = f"{fleet.touched} of {fleet.tenants:,} tenants a second"
    checks = [
        at_most(f"age at arrival, p99: {told}", percentile_of(ages, 99), P99_S, "s"),
        at_most("until all had the last commit", found.behind_s, P99_S, "s"),
    ]
    applies = len(ages)
    figures = {
        **asdict(fleet), "applies": applies, "applies_per_s": round(applies / (found.stream_s + found.behind_s), 1),
        "p50_s": round(median(ages), 3), "p99_s": percentile_of(ages, 99), "longest_s": round(ages[-1], 3),
        "stream_s": found.stream_s, "behind_s": found.behind_s, "cpu_s": dict(found.cpu_s),
        "cpu_ms_per_apply": round(1_000 * sum(found.cpu_s.values()) / applies, 2),
        "server_cpu_ms_per_apply": round(1_000 * found.server_cpu_s / applies, 2),
        "transactions_per_apply": round(found.transactions / applies, 2), "applier_mb": used,
        "started_and_seeded_s": seeded_s, "compared": compared,
    }  # fmt: skip
    return Measured(checks, figures)


@dataclass(frozen=True)
class _Streamed:
    """``touched`` tenants by the source's snapshot; what it took until all of them had their rows."""

    touched: Mapping[int, Sequence[str]]
    stream_s: float
    behind_s: float
    cpu_s: Mapping[str, float]
    server_cpu_s: float
    transactions: int


def lakes_of(lakes: PostgresLakes, fleet: Fleet) -> Iterator[tuple[str, Lake]]:
    shared = [lakes.new(f"fleet{number}") for number in range(fleet.databases)]
    for number in range(fleet.tenants):
        tenant, within = f"tenant{number:05d}", shared[number % fleet.databases]
        yield tenant, Lake(within.name, within.catalog, f"{within.data_path}/{tenant}", schema=f"lake_{tenant}")


def create_at_once(stand: Stand, tenants: Sequence[str]) -> None:
    """The source's table, with a row for each tenant in one commit."""
    create(stand.con, ())
    rows = ", ".join(
        f"({-number}, '{tenant}', 0, '', TIMESTAMP '2026-01-01')" for number, tenant in enumerate(tenants, 1)
    )
    stand.con.execute(f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} VALUES {rows}")


def insert_rows(con: duckdb.DuckDBPyConnection, first: int, tenants: Sequence[str]) -> None:
    """A row for each of them in one commit, with ids from ``first`` on."""
    rows = ", ".join(
        f"({first + at}, '{tenant}', 1.5, 'a note', TIMESTAMP '2026-01-01')" for at, tenant in enumerate(tenants)
    )
    con.execute(f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} VALUES {rows}")


def wait_seeded(viaduck: RunningViaduck, head: int) -> None:
    viaduck.wait_until("seeding", lambda: viaduck.caught_up(head), SEED_WITHIN_S, 2.0)
    wait_settled(viaduck, head)


def _stream(viaduck: RunningViaduck, stand: Stand, lakes: PostgresLakes, fleet: Fleet) -> _Streamed:
    rng, touched, tenants = random.Random(7), dict[int, Sequence[str]](), list(stand.mirror)
    spent, server, transactions = cpu_seconds(viaduck.pid), lakes.server_cpu_seconds(), _transactions(lakes, stand)
    began = time.monotonic()
    for number in range(fleet.seconds):
        time.sleep(max(0.0, began + number - time.monotonic()))
        chosen = rng.sample(tenants, fleet.touched)
        insert_rows(stand.con, number * fleet.touched, chosen)
        touched[committed(stand.con, SOURCE)] = chosen
    stream_s = time.monotonic() - began
    viaduck.wait_until("the last commit", lambda: viaduck.caught_up(stand.head()), PATIENCE_S, 0.5)
    behind_s = time.monotonic() - began - stream_s
    return _Streamed(
        touched, round(stream_s, 1), round(behind_s, 1), since(spent, cpu_seconds(viaduck.pid)),
        lakes.server_cpu_seconds() - server, _transactions(lakes, stand) - transactions,
    )  # fmt: skip


def _transactions(lakes: PostgresLakes, stand: Stand) -> int:
    """Those that the tenants' databases have seen so far. The server tells it late, when connections are idle."""
    names = sorted({lake.name for lake in stand.mirror.values()})
    with lakes.server.connect() as con:
        counted = "SELECT coalesce(sum(xact_commit + xact_rollback), 0) FROM pg_stat_database WHERE datname = ANY(%s)"
        row = con.execute(counted, (names,)).fetchone()
    assert row is not None, "a sum has one row"
    return int(row[0])


def ages_of(lakes: PostgresLakes, stand: Stand, touched: Mapping[int, Collection[str]]) -> Iterator[float]:
    """Seconds from each commit until each tenant with rows in it had them."""
    visible = lakes.visible(stand.source)
    arrived = arrivals_of(lakes, stand)
    for snapshot, tenants in touched.items():
        for tenant in tenants:
            at = min((at for through, at in arrived[tenant] if through >= snapshot), default=None)
            assert at is not None, f"{tenant} never got snapshot {snapshot}"
            yield at - visible[snapshot]


def arrivals_of(lakes: PostgresLakes, stand: Stand) -> dict[str, list[tuple[int, float]]]:
    """(through, when it became visible) of each snapshot of ours, by tenant."""
    found: dict[str, list[tuple[int, float]]] = {}
    for database in {lake.name for lake in stand.mirror.values()}:
        with lakes.server.connect(database) as con:
            for tenant, lake in stand.mirror.items():
                if lake.name == database:
                    rows = con.execute(SQL(ARRIVED).format(Identifier(str(lake.schema)))).fetchall()
                    found[tenant] = [(int(json.loads(extra)["through"]), float(at)) for _, at, extra in rows]
    return found


CASES = (
    Case("fleet", "500 of 10,000 tenants of ten databases get rows each second for a minute (quick: 20 of 200, 10 s)",
         measure),
)  # fmt: skip
