"""A thousand tenants of which few have changes, or none: what the others cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median

from bench.cases.fleet import Fleet, create_at_once, insert_rows, lakes_of, wait_seeded
from bench.cases.small import follow
from bench.lakes import PostgresLakes, Use
from bench.outcome import Case, Check, Measured, Size, at_most, nothing
from bench.processes import cpu_seconds, memory_mb, pid_of, since
from bench.setting import Setting
from bench.stand import Stand, require_equal, standing
from bench.viaduck import POLL_S, polls, running_viaduck, wait_caught_up, wait_settled
from bench.workload import SOURCE, SPARSE, SourceWriter, of_tenants, tenant_names
from services.cli.runtime.running import RunningViaduck

QUICK_TENANTS = 50
TOUCHED_S = 0.4
IDLE_S = 60.0
ONE_STATEMENT = 1.1
"""A poll: once a minute there is a look at what expiry leaves no trace of, with a few statements more."""
STATEMENT_MS = 10.0
CPU_SHARE = 5.0
MEMORY_MB = 600.0
CONNECTIONS = 50


@dataclass(frozen=True)
class Idle:
    """A minute in which nothing happens."""

    polls: float
    cpu_seconds: Mapping[str, float]
    """By kind of process."""
    source_snapshots: int
    source: Use
    destinations_statements: int
    destinations_sessions: int

    def checks(self) -> list[Check]:
        return [
            nothing("idle: snapshots written in the source", self.source_snapshots),
            nothing("idle: statements at destinations", self.destinations_statements),
            nothing("idle: connections made to destinations", self.destinations_sessions),
            at_most("idle: source statements a poll", self.source.statements / self.polls, ONE_STATEMENT),
            at_most("idle: longest source statement", self.source.longest_ms, STATEMENT_MS, "ms"),
            at_most(
                "idle: CPU of all services", 100 * sum(self.cpu_seconds.values()) / IDLE_S, CPU_SHARE, "% of a core", 1
            ),
        ]


def measure(setting: Setting) -> Measured:
    workload = SPARSE if setting.size is Size.FULL else of_tenants(SPARSE, QUICK_TENANTS)
    with standing(setting.on_postgres, tenant_names(workload)) as stand:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        began = time.monotonic()
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_settled(viaduck, stand.head())
            seeded_s = round(time.monotonic() - began, 1)
            follow(viaduck, stand, writer, workload, POLL_S)
            touched = [follow(viaduck, stand, writer, workload, POLL_S).seconds for _ in range(2 * setting.runs)]
            wait_settled(viaduck, stand.head())
            idle = _idle(viaduck, stand, setting.on_postgres)
            used = memory_mb(pid_of(viaduck.pid, "applier"))
        compared = stand.require_equal()
    checks = [
        at_most(f"a commit for {workload.touched_tenants} of {workload.tenants:,} tenants", median(touched), TOUCHED_S,
                "s"),
        *idle.checks(),
        at_most(f"memory of an applier that knows {workload.tenants:,} destinations", sum(used.values()), MEMORY_MB,
                "MB", 0),
    ]  # fmt: skip
    figures = {"touched_s": touched, "idle": asdict(idle), "idle_s": IDLE_S, "poll_s": POLL_S, "applier_mb": used,
               "started_and_seeded_s": seeded_s, "compared": compared}  # fmt: skip
    return Measured(checks, figures)


def _idle(viaduck: RunningViaduck, stand: Stand, lakes: PostgresLakes) -> Idle:
    """We ask nobody meanwhile: what we ask would be counted."""
    head, polled = stand.head(), polls(viaduck)
    destinations = list(stand.mirror.values())
    lakes.forget_use()
    sessions, spent = lakes.use(destinations).sessions, cpu_seconds(viaduck.pid)
    time.sleep(IDLE_S)
    spent = since(spent, cpu_seconds(viaduck.pid))
    source, there = lakes.use([stand.source]), lakes.use(destinations)
    return Idle(
        polls(viaduck) - polled, spent, stand.head() - head, source, there.statements,
        there.sessions - sessions,
    )  # fmt: skip


def shared(setting: Setting) -> Measured:
    """Lakes that are metadata schemas of one database: an applier needs no connection for each of them."""
    fleet, lakes = (
        setting.sized(quick=Fleet(QUICK_TENANTS, 1, 10, 5), full=Fleet(1_000, 1, 10, 30)),
        setting.on_postgres,
    )
    with standing(lakes, ()) as stand:
        stand.mirror.update(lakes_of(lakes, fleet))
        create_at_once(stand, list(stand.mirror))
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_seeded(viaduck, stand.head())
            seeded = lakes.connections(stand.mirror.values())
            touched = [_touch(stand, lakes, viaduck, number, fleet.touched) for number in range(fleet.seconds)]
        compared = require_equal(lakes, stand.source, stand.mirror)
    what = f"connections to the database of {fleet.tenants:,} lakes, at most"
    figures = {**asdict(fleet), "connections_after_seeds": seeded, "connections": touched, "compared": compared}
    return Measured([at_most(what, max(seeded, *touched), CONNECTIONS, digits=0)], figures)


def _touch(stand: Stand, lakes: PostgresLakes, viaduck: RunningViaduck, number: int, touched: int) -> int:
    """Connections once so many tenants, others each time, have got a row each."""
    names = list(stand.mirror)
    chosen = [names[(number * touched + at) % len(names)] for at in range(touched)]
    insert_rows(stand.con, number * touched, chosen)
    wait_caught_up(viaduck, stand.head())
    return lakes.connections(stand.mirror.values())


CASES = (
    Case("crowd", "1,000 tenants (quick: 50), of which 10 are touched; then a minute of nothing", measure),
    Case("crowd-shared", "1,000 tenants (quick: 50) of one database, of which 10 others are touched each time", shared),
)
