"""One case on one kind of catalog: Viaduck and the single process bring the same changes to lakes of their own."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from bench.lakes import Lake, Lakes
from bench.processes import cpu_seconds, frozen, memory_mb
from bench.single_process import SingleProcess, SourceTable
from bench.viaduck import PIPELINE, POLL_S, phase_seconds, polls, running_viaduck, wait_caught_up
from bench.workload import KEY_COLUMN, ROUTING_FIELD, SCHEMA, TABLE, Case, SourceWriter, committed, tenant_names
from services.cli.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.lake.attach import attach
from shared.lake.compare import Finding, Origin, Subject, compare_all
from shared.lake.engine import connect
from shared.messages import SeedMode

SOURCE = "source"
IDLE_S = 15.0


@dataclass
class Run:
    """Seconds of one run, and of its phases, for Viaduck and for the limit."""

    viaduck_s: float
    limit_s: float
    viaduck_phases: dict[str, float]
    limit_phases: dict[str, float]


@dataclass
class Idle:
    """What an idle source costs."""

    seconds: float
    polls: float
    cpu_seconds: float
    source_snapshots: int
    source_statements: int | None
    """Statements on the source's database, where somebody counts them."""


@dataclass
class Figures:
    """Everything that a trial measured."""

    case: str
    catalog: str
    seed_viaduck_s: float = 0.0
    """From a ready Viaduck that waits for its destinations' seeds to the last one's commit."""
    seed_limit_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    memory_mb: dict[str, float] = field(default_factory=dict)
    """By kind of process, at the end of the run in which all together used most."""
    idle: Idle | None = None


class Trial:
    """``with`` nothing: ``Trial(case, lakes, root).measure(runs)``."""

    def __init__(self, case: Case, lakes: Lakes, root: Path) -> None:
        self._case = case
        self._lakes = lakes
        self._root = root
        self._tenants = tenant_names(case)
        self._source = lakes.new(SOURCE)
        self._mirror = {tenant: lakes.new(f"v_{tenant}") for tenant in self._tenants}
        self._figures = Figures(case.name, lakes.kind)

    def measure(self, runs: int) -> Figures:
        with closing(connect()) as con, closing(connect()) as alone:
            self._attach(con, SOURCE, self._source)
            self._writer = SourceWriter(con, SOURCE, self._case)
            self._con = con
            self._writer.seed()
            limit = self._limit(alone)
            with running_viaduck(self._root, self._source, self._mirror) as viaduck:
                self._seed(viaduck, limit)
                self._once(viaduck, limit)  # warm-up
                self._figures.runs = [self._once(viaduck, limit) for _ in range(runs)]
                self._figures.idle = self._idle(viaduck)
            self._require_equal(limit)
        return self._figures

    def _limit(self, con: duckdb.DuckDBPyConnection) -> SingleProcess:
        self._attach(con, SOURCE, self._source)
        for tenant in self._tenants:
            self._attach(con, tenant, self._lakes.new(f"s_{tenant}"))
        table = SourceTable(SOURCE, SCHEMA, TABLE, ROUTING_FIELD, KEY_COLUMN)
        return SingleProcess(con, table, {tenant: tenant for tenant in self._tenants})

    def _attach(self, con: duckdb.DuckDBPyConnection, alias: str, lake: Lake) -> None:
        attach(con, alias, ResolvedLake(lake.catalog, data_path=lake.data_path), read_only=False, create=True)

    def _seed(self, viaduck: RunningViaduck, limit: SingleProcess) -> None:
        began = time.time()
        wait_caught_up(viaduck, self._head())
        self._figures.seed_viaduck_s = self._last_commit(self._tenants) - began
        with _stopwatch() as watch:
            limit.seed(self._head())
        self._figures.seed_limit_s = watch.seconds

    def _once(self, viaduck: RunningViaduck, limit: SingleProcess) -> Run:
        before = phase_seconds(viaduck)
        committed_at = self._write(viaduck)
        wait_caught_up(viaduck, self._head())
        taken = self._last_commit(self._tenants[: self._case.touched_tenants]) - committed_at
        phases = {name: round(total - before.get(name, 0.0), 3) for name, total in phase_seconds(viaduck).items()}
        self._remember_memory(viaduck)
        with _stopwatch() as watch:
            limit.apply_changes(self._head())
        return Run(round(taken, 3), round(watch.seconds, 3), phases, _rounded(limit.seconds))

    def _write(self, viaduck: RunningViaduck) -> float:
        """Write one run's changes; returns when the last of them was there for the reader to see.

        Several commits are made behind the back of a reader that stands still: else it would set out with the first.
        """
        if self._case.commits == 1:
            time.sleep(random.uniform(0, POLL_S))
            self._writer.run()
            return time.time()
        with frozen(viaduck.pid, "reader"):
            self._writer.run()
        return time.time()

    def _idle(self, viaduck: RunningViaduck) -> Idle:
        snapshots = self._head()
        polled, used = polls(viaduck), cpu_seconds(viaduck.pid)
        asked = self._lakes.statements(self._source)
        time.sleep(IDLE_S)
        after = self._lakes.statements(self._source)
        return Idle(
            IDLE_S,
            polls(viaduck) - polled,
            round(cpu_seconds(viaduck.pid) - used, 2),
            self._head() - snapshots,
            None if after is None or asked is None else after - asked,
        )

    def _remember_memory(self, viaduck: RunningViaduck) -> None:
        now = _rounded(memory_mb(viaduck.pid))
        if sum(now.values()) > sum(self._figures.memory_mb.values()):
            self._figures.memory_mb = now

    def _require_equal(self, limit: SingleProcess) -> None:
        """Figures of a wrong result are worth nothing."""
        source = ResolvedLake(self._source.catalog, data_path=self._source.data_path)
        origin = Origin(source, SCHEMA, TABLE, Routing(field=ROUTING_FIELD, key_columns=(KEY_COLUMN,)))
        verdicts = compare_all(origin, [self._subject(tenant) for tenant in self._tenants])
        wrong = [verdict for verdict in verdicts if verdict.finding is not Finding.EQUAL]
        assert not wrong, f"not equal: {wrong}"
        assert not limit.unequal(), f"the single process is wrong: {limit.unequal()}"

    def _subject(self, tenant: str) -> Subject:
        lake = self._mirror[tenant]
        resolved = ResolvedLake(lake.catalog, data_path=lake.data_path)
        return Subject(PIPELINE, tenant, tenant, resolved, SCHEMA, TABLE, SeedMode.SCAN)

    def _head(self) -> int:
        return committed(self._con, SOURCE)

    def _last_commit(self, tenants: list[str]) -> float:
        return max(self._lakes.last_commit(self._mirror[tenant]) for tenant in tenants)


@dataclass
class _Watch:
    seconds: float = 0.0


@contextmanager
def _stopwatch() -> Iterator[_Watch]:
    watch, began = _Watch(), time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - began


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(figure, 3) for name, figure in figures.items()}
