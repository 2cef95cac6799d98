"""Batches of changes that appear at once: dense ones, ones that touch everybody, and the same far from the catalogs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median

from bench.delay import FarAway
from bench.outcome import LIMIT, VIADUCK, Case, Measured, Size, at_least, ratio
from bench.processes import cpu_seconds, frozen, memory_mb, since
from bench.setting import Setting
from bench.single_process import SingleProcess
from bench.stand import Stand, require_right, single_process, standing
from bench.viaduck import phase_seconds, phases_since, running_viaduck, wait_caught_up, wait_settled
from bench.workload import DENSE, MANY, SOURCE, SourceWriter, Workload, of_tenants, tenant_names
from services.cli.runtime.running import RunningViaduck

DENSE_SHARE, MANY_SHARE = 0.5, 0.2
QUICK_TENANTS, QUICK_FAR_TENANTS = 60, 30
FAR_S = 0.02
APPLIES_PER_S = 150.0
FAR_WARMING = 3
"""Batches until both workers have open what they will be given: to open a lake there takes seconds."""


@dataclass(frozen=True)
class Batch:
    """Seconds of one batch, from the moment it was all there to the last destination's commit."""

    seconds: float
    phases: Mapping[str, float]
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds by kind of process, and of Postgres, and of the benchmark itself with any proxy of its."""


@dataclass(frozen=True)
class Pair:
    """The same batch, brought by both."""

    viaduck: Batch
    limit: Batch


def dense(setting: Setting) -> Measured:
    return _beside_the_limit(setting, DENSE, DENSE_SHARE)


def many(setting: Setting) -> Measured:
    return _beside_the_limit(setting, _many(setting, QUICK_TENANTS), MANY_SHARE)


def far(setting: Setting) -> Measured:
    workload, lakes = _many(setting, QUICK_FAR_TENANTS), setting.on_postgres
    with FarAway(lakes.server.port) as way, standing(lakes.behind(way.port), tenant_names(workload)) as stand:
        batches = _far_batches(setting, stand, workload, way)
        compared = stand.require_equal()
    rate = median(workload.touched_tenants / batch.seconds for batch in batches)
    check = at_least(f"applies a second of one applier, {FAR_S * 1000:.0f} ms a round trip", rate, APPLIES_PER_S)
    figures = {"workload": asdict(workload), "compared": compared, "batches": [asdict(batch) for batch in batches]}
    return Measured([check], figures)


def _far_batches(setting: Setting, stand: Stand, workload: Workload, way: FarAway) -> list[Batch]:
    """The seeds and the batches for warmth come before the distance."""
    writer = SourceWriter(stand.con, SOURCE, workload)
    writer.seed()
    with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
        wait_settled(viaduck, stand.head())
        for _ in range(FAR_WARMING):
            bring(viaduck, stand, writer)
        way.round_trip(FAR_S)
        bring(viaduck, stand, writer)  # the workers find out how wide to work there
        return [bring(viaduck, stand, writer) for _ in range(setting.runs)]


def _beside_the_limit(setting: Setting, workload: Workload, target: float) -> Measured:
    tenants = tenant_names(workload)
    with standing(setting.lakes, tenants) as stand, single_process(stand, tenants) as limit:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_settled(viaduck, stand.head())
            limit.seed(stand.head())
            _both(viaduck, stand, writer, limit)
            pairs = [_both(viaduck, stand, writer, limit) for _ in range(setting.runs)]
            used = memory_mb(viaduck.pid)
        compared = stand.require_equal()
        require_right(limit)
    what = f"{workload.changes:,} changes in {workload.commits} snapshots, {workload.touched_tenants} tenants"
    beside = {VIADUCK: [pair.viaduck.seconds for pair in pairs], LIMIT: [pair.limit.seconds for pair in pairs]}
    figures = {"workload": asdict(workload), "compared": compared, "beside": beside,
               "pairs": [asdict(pair) for pair in pairs],
               "memory_mb": used}  # fmt: skip
    return Measured([ratio(what, beside, target)], figures)


def _both(viaduck: RunningViaduck, stand: Stand, writer: SourceWriter, limit: SingleProcess) -> Pair:
    brought = bring(viaduck, stand, writer)
    began = time.perf_counter()
    limit.apply_changes(stand.head())
    seconds = time.perf_counter() - began
    return Pair(brought, Batch(round(seconds, 3), {name: round(s, 3) for name, s in limit.seconds.items()}))


def bring(
    viaduck: RunningViaduck, stand: Stand, writer: SourceWriter, first: Callable[[], None] = lambda: None
) -> Batch:
    """Commit behind the back of a reader that stands still: else it would set out with the first commit.

    ``first`` is done at the source before the rows, as a part of the batch.
    """
    before = phase_seconds(viaduck)
    with frozen(viaduck.pid, "reader"):
        first()
        writer.run()
        spent = _cpu_seconds(viaduck, stand)
    there_at = time.time()
    wait_caught_up(viaduck, stand.head())
    cpu = since(spent, _cpu_seconds(viaduck, stand))
    return Batch(round(stand.last_commit() - there_at, 3), phases_since(viaduck, before), cpu)


def _cpu_seconds(viaduck: RunningViaduck, stand: Stand) -> dict[str, float]:
    ours = {"postgres": stand.lakes.server_cpu_seconds(), "bench": time.process_time()}
    return cpu_seconds(viaduck.pid) | ours


def _many(setting: Setting, quick_tenants: int) -> Workload:
    return MANY if setting.size is Size.FULL else of_tenants(MANY, quick_tenants)


CASES = (
    Case("dense", "20 tenants, 100,000 changes in 10 snapshots", dense, sqlite=True),
    Case("many", "3,500 changes that touch all of 200 tenants (quick: three tenths of both)", many, sqlite=True),
    Case("far", "the same, 20 ms of network before the catalogs (quick: fewer at once than the target needs)", far),
)
