"""``python -m bench.arrangements``: what other arrangements of the same parts would give, beside ours.

A small cycle as a Spark job, by where Spark runs and how it talks to Python; the same in one worker, by what DuckDB is
told; and the update of a cursor, plain and prepared. Catalogs are on Postgres, lakes are open; medians count.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import cycle
from bench.cycle import Cycles
from bench.lakes import PostgresLakes
from bench.outcome import Size
from bench.results import RESULTS, machine
from bench.setting import prepared
from bench.stand import open_lake, standing
from bench.workload import SMALL, tenant_names
from services.applier.model.grouping import Job, Lane
from services.applier.model.task import Limits, Task, TaskResult, WorkerReport
from services.applier.spark_jobs import SparkJobs
from services.applier.worker.task_run import TaskRun
from services.applier.worker.worker_state import Worker
from shared.config.model import Config, Routing, Source, Spark
from shared.lake.connection import engine
from shared.lake.connection.engine import connect
from shared.runtime.spark import session
from tests.servers.spark_cluster import SparkCluster

OURS = "as it is"
CLUSTER = "a standalone cluster of two workers"
WAYS: Mapping[str, Mapping[str, str]] = {
    OURS: {},
    "Python over TCP": {"spark.python.unix.domain.socket.enabled": "false"},
    "local-cluster[2,1,900]": {"spark.master": "local-cluster[2,1,900]", "spark.executor.memory": "512m"},
    CLUSTER: {"spark.executor.memory": "512m"},
}
"""What Spark is told; of two cores each."""

OPTIONS: Mapping[str, Sequence[str]] = {
    OURS: (),
    "no health check of pooled connections": ("SET pg_pool_health_check_query = ''",),
    "Postgres answers in text": ("SET pg_use_text_protocol = true",),
    "two threads in DuckDB": ("SET threads = 2",),
    "connections idle for too long": ("SET pg_pool_idle_timeout_millis = 1",),
    "no pool of connections": ("SET pg_pool_max_connections = 0",),
}
"""What a worker's DuckDB is told before it opens a lake."""

PLAIN, PREPARED = "plain", "prepared"

WARMING = 5
"""Turns of each that don't count."""
JOBS, APPLIES, CURSORS = 15, 30, 100

LIMITS = Limits(stall_s=120.0)


@dataclass(frozen=True)
class Took:
    """Milliseconds at the median: by the clock, and of this process's own CPU."""

    wall: float
    cpu: float


Turns = dict[str, list[Took]]


def main() -> int:
    console, found = Console(width=120), dict[str, dict[str, Took]]()

    def tell(what: str, turns: Turns) -> None:
        found[what] = medians(turns)
        console.print(_table(what, found[what]))

    with prepared(Size.QUICK, 1, "postgres") as setting:
        lakes, tenants = setting.on_postgres, tenant_names(SMALL)[: SMALL.touched_tenants]
        tell("the update of a cursor", _cursors(lakes))
        with standing(lakes, tenants) as stand:
            cycles = Cycles(stand, SMALL)
            tell("20 changes for 3 destinations in a worker", _tasks(cycles))
            tell("20 changes for 3 destinations as a Spark job", _jobs(cycles, setting.folder))
            stand.require_equal()
    now = datetime.now(UTC)
    file = RESULTS / f"arrangements-{now:%Y%m%dT%H%M%S}.json"
    kept = {what: {name: asdict(each) for name, each in took.items()} for what, took in found.items()}
    file.write_text(json.dumps({"at": now.isoformat(), "machine": machine(), "arrangements": kept}, indent=1) + "\n")
    console.print(f"written to {file}")
    return 0


def medians(turns: Turns) -> dict[str, Took]:
    """Of each, without what was for warmth."""
    return {
        name: Took(
            round(statistics.median(took.wall for took in each[WARMING:]), 2),
            round(statistics.median(took.cpu for took in each[WARMING:]), 2),
        )
        for name, each in turns.items()
    }


def timed(work: Callable[[], object]) -> Took:
    began, spent = time.perf_counter(), time.process_time()
    work()
    return Took((time.perf_counter() - began) * 1000, (time.process_time() - spent) * 1000)


# -- a small cycle ----------------------------------------------------------------------------------------------------


def _tasks(cycles: Cycles) -> Turns:
    """As one task in this process, by a worker of each kind in turn; the first cycle of all is the seed."""
    workers, turns = {name: Worker(LIMITS) for name in OPTIONS}, Turns()
    try:
        with _told(OPTIONS[OURS]):
            cycles.seed(_by(workers[OURS], cycles))
        for name in itertools.islice(itertools.cycle(workers), (WARMING + APPLIES) * len(workers)):
            job, run = cycles.batch(), _by(workers[name], cycles)
            with _told(OPTIONS[name]):
                turns.setdefault(name, []).append(timed(lambda: cycles.do(job, run)))  # noqa: B023 - done at once
    finally:
        for worker in workers.values():
            worker.close()
    return turns


@contextmanager
def _told(options: Sequence[str]) -> Iterator[None]:
    """Every instance that is built meanwhile is told ``options``."""
    usual = engine.SETTINGS
    engine.SETTINGS = (*usual, *options)
    try:
        yield
    finally:
        engine.SETTINGS = usual


def _by(worker: Worker, cycles: Cycles) -> cycle.Run:
    def run(job: Job) -> Sequence[TaskResult]:
        results = TaskRun(worker, Task(job.kind, cycles.source, job.targets, LIMITS)).results()
        return [TaskResult(tuple(results), WorkerReport(os.getpid()))]

    return run


def _jobs(cycles: Cycles, folder: Path) -> Turns:
    """As jobs, which each arrangement does one after the other, since it needs a Spark of its own."""
    turns = Turns()
    with SparkCluster(environ={"PGPASSWORD": os.environ["PGPASSWORD"]}) as cluster:
        for way in WAYS:
            with _on_spark(way, folder, cycles, cluster.master) as run:
                batches = (cycles.batch() for _ in range(WARMING + JOBS))
                turns[way] = [timed(lambda: cycles.do(job, run)) for job in batches]  # noqa: B023 - done at once
    return turns


@contextmanager
def _on_spark(way: str, folder: Path, cycles: Cycles, cluster: str) -> Iterator[cycle.Run]:
    conf = {"spark.local.dir": str(folder), **WAYS[way]}
    master = conf.pop("spark.master", cluster if way == CLUSTER else "local[2]")
    source = Source(catalog="sqlite:nowhere", table="t")
    spark = Spark(master=master, conf=conf)
    config = Config(path=folder, pipeline="p", source=source, routing=Routing(field="r"), spark=spark, state_dir=folder)
    context = session(config, "arrangements")
    try:
        jobs = SparkJobs(context, cycles.source, LIMITS, "", most_tasks=2)
        yield lambda job: jobs.run(job, Lane.CHANGES)
    finally:
        context.stop()


# -- a cursor ---------------------------------------------------------------------------------------------------------


def _cursors(lakes: PostgresLakes) -> Turns:
    """A compare-and-set in a table of one row, each in a transaction of its own; only the statement is timed."""
    table, turns = "lake.main.cursor", Turns()
    with closing(connect()) as con:
        open_lake(con, "lake", lakes.new("cursors"))
        con.execute(f"CREATE TABLE {table} (generation BIGINT, position BIGINT)")
        con.execute(f"INSERT INTO {table} VALUES (1, 0)")
        update = f"UPDATE {table} SET position = {{}} WHERE (generation || '/' || position) = {{}}"
        con.execute(f"PREPARE move AS {update.format('$1', '$2')}")
        ways = {PLAIN: update, PREPARED: "EXECUTE move({}, {})"}
        for position, way in enumerate(itertools.islice(itertools.cycle(ways), (WARMING + CURSORS) * len(ways))):
            statement = ways[way].format(position + 1, f"'1/{position}'")
            con.execute("BEGIN")
            turns.setdefault(way, []).append(timed(lambda: con.execute(statement)))  # noqa: B023 - done at once
            con.execute("COMMIT")
        (moved,) = con.execute(f"SELECT position FROM {table}").fetchall()[0]
        assert moved == position + 1, "an update changed nothing"
    return turns


def _table(title: str, took: Mapping[str, Took]) -> Table:
    table = Table(title=title)
    for number, head in enumerate(("", "ms", "of it CPU of this process")):
        table.add_column(head, justify="right" if number else "left")
    for name, each in took.items():
        table.add_row(name, f"{each.wall:.1f}", f"{each.cpu:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
