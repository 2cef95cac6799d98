"""A small commit, from the source's commit to the last of its tenants': by Postgres's own commit times.

How much of it passes before a job begins the applier's log tells.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from bench.cases.changes import direct_share
from bench.outcome import Case, Measured, at_most
from bench.processes import since
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import (
    LOG,
    Options,
    commits,
    phase_seconds,
    phases_since,
    running_viaduck,
    wait_caught_up,
    wait_settled,
)
from bench.workload import SMALL, SOURCE, SourceWriter, Workload, of_tenants, tenant_names
from services.cli.runtime.running import RunningViaduck
from tests.servers.kafka import Kafka

POLL_S = 0.1
P50_MS, KAFKA_P50_MS, UNTIL_JOB_MS = 280.0, 200.0, 100.0
WARMING = 5
"""Commits until every worker has the touched tenants' lakes open."""

JOB = re.compile(r"^(\S+) \[info +\] job_done .*\bkind=changes ms=(\d+)", re.MULTILINE)
"""When it ended, and how long it took."""


@dataclass(frozen=True)
class Followed:
    """One commit: when it was made, in seconds since the epoch, and after how many seconds the last tenant had it."""

    committed_at: float
    seconds: float


def embedded(setting: Setting) -> Measured:
    return measure(setting, {}, P50_MS)


def on_kafka(setting: Setting) -> Measured:
    with Kafka() as kafka:
        return measure(setting, {"kafka": {"bootstrap_servers": kafka.bootstrap}}, KAFKA_P50_MS)


def measure(setting: Setting, sections: Mapping[str, Any], p50_ms: float) -> Measured:
    tenants, rounds = setting.sized(quick=(30, 10), full=(SMALL.tenants, 100))
    workload = of_tenants(SMALL, tenants)
    with standing(setting.on_postgres, tenant_names(workload)) as stand:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with running_viaduck(
            setting.folder, stand.source, stand.mirror, Options(poll_s=POLL_S, sections=sections)
        ) as viaduck:
            wait_settled(viaduck, stand.head())
            for _ in range(WARMING):
                follow(viaduck, stand, writer, workload, POLL_S)
            before, committed = phase_seconds(viaduck), commits(viaduck)
            followed = [follow(viaduck, stand, writer, workload, POLL_S) for _ in range(rounds)]
            phases = {name: round(total / rounds, 3) for name, total in phases_since(viaduck, before).items()}
            made = since(committed, commits(viaduck))
        compared = stand.require_equal()
    milliseconds = [round(each.seconds * 1000) for each in followed]
    waited = until_job_ms((setting.folder / LOG).read_text(), followed)
    what = f"{workload.touched_tenants} of {tenants} tenants, {workload.changes} rows: p50 from commit to commit"
    checks = [
        at_most(what, median(milliseconds), p50_ms, "ms", 0),
        at_most("until its job begins, half a poll taken off: look, plan and Kafka; p50",
                median(waited) - POLL_S * 1000 / 2, UNTIL_JOB_MS, "ms", 0),
        direct_share(made),
    ]  # fmt: skip
    figures = {"milliseconds": milliseconds, "until_job_ms": waited, "phases_mean": phases, "commits": made,
               "compared": compared}  # fmt: skip
    return Measured(checks, figures)


def until_job_ms(log: str, followed: Sequence[Followed]) -> list[int]:
    """Milliseconds from each commit until the first job after it began, by what ``up`` has logged."""
    begun = [datetime.fromisoformat(ended).timestamp() - int(ms) / 1000 for ended, ms in JOB.findall(log)]
    return [round(1000 * (next(at for at in begun if at > each.committed_at) - each.committed_at)) for each in followed]


def follow(viaduck: RunningViaduck, stand: Stand, writer: SourceWriter, workload: Workload, poll_s: float) -> Followed:
    """Make one commit of the workload. It comes at any moment between two looks of the reader."""
    time.sleep(random.uniform(0, poll_s))
    writer.run()
    committed_at = stand.committed_at()
    wait_caught_up(viaduck, stand.head())
    last = stand.last_commit(tenant_names(workload)[: workload.touched_tenants])
    return Followed(committed_at, round(last - committed_at, 3))


CASES = (
    Case("small", "20 rows for 3 of 100 tenants (quick: of 30), poll every 0.1 s", embedded),
    Case("small-kafka", "the same on Apache Kafka instead of the embedded broker", on_kafka),
)
