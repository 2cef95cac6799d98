"""A small commit, from the source's commit to the last of its tenants': by Postgres's own commit times."""

from __future__ import annotations

import random
import time
from statistics import median

from bench.outcome import Case, Measured, at_most
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import Options, phase_seconds, phases_since, running_viaduck, wait_caught_up, wait_settled
from bench.workload import SMALL, SOURCE, SourceWriter, Workload, of_tenants, tenant_names
from services.cli.running import RunningViaduck

POLL_S = 0.1
P50_MS = 400.0
WARMING = 5
"""Commits until every worker has the touched tenants' lakes open."""


def measure(setting: Setting) -> Measured:
    tenants, commits = setting.sized(quick=(30, 10), full=(SMALL.tenants, 100))
    workload = of_tenants(SMALL, tenants)
    with standing(setting.on_postgres, tenant_names(workload)) as stand:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with running_viaduck(setting.folder, stand.source, stand.mirror, Options(poll_s=POLL_S)) as viaduck:
            wait_settled(viaduck, stand.head())
            for _ in range(WARMING):
                follow(viaduck, stand, writer, workload, POLL_S)
            before = phase_seconds(viaduck)
            seconds = [follow(viaduck, stand, writer, workload, POLL_S) for _ in range(commits)]
            phases = {name: round(total / commits, 3) for name, total in phases_since(viaduck, before).items()}
        compared = stand.require_equal()
    milliseconds = [round(each * 1000) for each in seconds]
    what = f"{workload.touched_tenants} of {tenants} tenants, {workload.changes} rows: p50 from commit to commit"
    check = at_most(what, median(milliseconds), P50_MS, "ms", 0)
    return Measured([check], {"milliseconds": milliseconds, "phases_mean": phases, "compared": compared})


def follow(viaduck: RunningViaduck, stand: Stand, writer: SourceWriter, workload: Workload, poll_s: float) -> float:
    """Seconds of one commit of the workload. It comes at any moment between two looks of the reader."""
    time.sleep(random.uniform(0, poll_s))
    writer.run()
    committed_at = stand.committed_at()
    wait_caught_up(viaduck, stand.head())
    return round(stand.last_commit(tenant_names(workload)[: workload.touched_tenants]) - committed_at, 3)


CASES = (Case("small", "20 rows for 3 of 100 tenants (quick: of 30), poll every 0.1 s", measure),)
