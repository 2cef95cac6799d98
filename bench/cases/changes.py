"""Batches of changes that appear at once: dense ones, ones that touch everybody, and the same far from the catalogs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from bench.delay import FarAway
from bench.outcome import LIMIT, VIADUCK, Case, Check, Measured, Size, at_least, at_most, ratio
from bench.processes import cpu_seconds, frozen, memory_mb, since
from bench.setting import Setting
from bench.single_process import SingleProcess
from bench.stand import Stand, require_right, single_process, standing
from bench.viaduck import Options, commits, phase_seconds, phases_since, running_viaduck, wait_caught_up, wait_settled
from bench.workload import DENSE, MANY, SOURCE, SourceWriter, Workload, of_tenants, tenant_names
from services.cli.runtime.running import RunningViaduck
from shared.config.model import CommitChoice

DENSE_SHARE, MANY_SHARE = 0.5, 0.2
QUICK_TENANTS, QUICK_FAR_TENANTS = 60, 30
MANY_S, MANY_PER_S = 1.6, 125.0
DIRECT_PERCENT = 99.0
FAR_S = 0.02
APPLIES_PER_S, FAR_OF_EXTENSION = 150.0, 8.0
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
    found = _beside_the_limit(setting, _many(setting, QUICK_TENANTS), MANY_SHARE)
    if setting.size is Size.QUICK:
        return found
    seconds = median(found.figures["beside"][VIADUCK])
    checks = [
        at_most(f"seconds for {MANY.touched_tenants} tenants", seconds, MANY_S, "s"),
        at_least("applies a second", MANY.touched_tenants / seconds, MANY_PER_S),
    ]
    return replace(found, checks=[*found.checks, *checks])


def far(setting: Setting) -> Measured:
    workload, lakes = _many(setting, QUICK_FAR_TENANTS), setting.on_postgres
    with FarAway(lakes.server.port) as way:
        ours = _batches(setting, workload, "auto", way, FAR_WARMING)
        theirs = _batches(setting, workload, "extension", way, FAR_WARMING)
    rate, of_extension = (
        median(workload.touched_tenants / batch.seconds for batch in found.batches) for found in (ours, theirs)
    )
    checks = [
        at_least(f"applies a second of one applier, {FAR_S * 1000:.0f} ms a round trip", rate, APPLIES_PER_S),
        at_least("that beside commits by the extension", rate / of_extension, FAR_OF_EXTENSION, "x", 1),
        direct_share(ours.commits),
    ]
    figures = {"workload": asdict(workload), "compared": ours.compared + theirs.compared,
               "batches": [asdict(batch) for batch in ours.batches],
               "by_extension": [asdict(batch) for batch in theirs.batches],
               "commits": dict(ours.commits)}  # fmt: skip
    return Measured(checks, figures)


@dataclass(frozen=True)
class Batches:
    """``commits`` by who made them, while the batches were brought."""

    batches: Sequence[Batch]
    commits: Mapping[str, float]
    compared: int


def direct_share(made: Mapping[str, float]) -> Check:
    total = sum(made.values())
    assert total, "no commit was counted"
    return at_least("commits that were direct", 100 * made.get("direct", 0.0) / total, DIRECT_PERCENT, "%")


def _batches(
    setting: Setting,
    workload: Workload,
    choice: CommitChoice,
    way: FarAway | None = None,
    warming: int = 1,
) -> Batches:
    """On lakes of their own. With a ``way`` the seeds and the batches for warmth come before the distance."""
    lakes, folder = setting.lakes, setting.folder / choice
    folder.mkdir()
    if way is not None:
        way.round_trip(0.0)
        lakes = setting.on_postgres.behind(way.port)
    with standing(lakes, tenant_names(workload), name=f"{choice}_{SOURCE}", prefix=choice) as stand:
        writer, options = SourceWriter(stand.con, SOURCE, workload), Options(sections={"applier": {"commit": choice}})
        writer.seed()
        with running_viaduck(folder, stand.source, stand.mirror, options) as viaduck:
            wait_settled(viaduck, stand.head())
            for _ in range(warming):
                bring(viaduck, stand, writer)
            if way is not None:
                way.round_trip(FAR_S)
                bring(viaduck, stand, writer)  # the workers find out how wide to work there
            before = commits(viaduck)
            batches = [bring(viaduck, stand, writer) for _ in range(setting.runs)]
            made = since(before, commits(viaduck))
        return Batches(batches, made, stand.require_equal())


def _beside_the_limit(setting: Setting, workload: Workload, target: float) -> Measured:
    tenants = tenant_names(workload)
    with standing(setting.lakes, tenants) as stand, single_process(stand, tenants) as limit:
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_settled(viaduck, stand.head())
            limit.seed(stand.head())
            _both(viaduck, stand, writer, limit)
            before = commits(viaduck)
            pairs = [_both(viaduck, stand, writer, limit) for _ in range(setting.runs)]
            made, used = since(before, commits(viaduck)), memory_mb(viaduck.pid)
        compared = stand.require_equal()
        require_right(limit)
    by_extension = _batches(setting, workload, "extension")
    what = f"{workload.changes:,} changes in {workload.commits} snapshots, {workload.touched_tenants} tenants"
    beside = {VIADUCK: [pair.viaduck.seconds for pair in pairs], LIMIT: [pair.limit.seconds for pair in pairs]}
    figures = {"workload": asdict(workload), "compared": compared + by_extension.compared, "beside": beside,
               "pairs": [asdict(pair) for pair in pairs],
               "by_extension": [asdict(batch) for batch in by_extension.batches], "commits": made,
               "memory_mb": used}  # fmt: skip
    return Measured([ratio(what, beside, target), direct_share(made)], figures)


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
