"""``python -m bench.profile``: where the time of a warm cycle goes, on catalogs on Postgres.

The same kind of batch is done as one task in this process, with a clock around each phase; once more under
pyinstrument, for the tree; once more while Postgres writes down what it is told; and as Spark jobs, whose event log
tells what Spark adds. One thread applies, so that phases add up to the whole. pyinstrument is in the dependency group
``bench``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark import SparkContext
from rich.console import Console
from rich.table import Table

from bench import spark_times
from bench.cycle import Cycles
from bench.lakes import PostgresLakes
from bench.outcome import Size
from bench.phases import REST, clocked
from bench.results import RESULTS, machine
from bench.setting import Setting, prepared
from bench.spark_times import JobTimes, job_times
from bench.stand import Stand, standing
from bench.statements import NAMES, SETTINGS, spoken
from bench.workload import DENSE, MANY, SMALL, SOURCE, of_tenants, tenant_names
from services.applier.model.grouping import Lane
from services.applier.model.task import Limits, TaskResult
from services.applier.spark_jobs import SparkJobs
from services.applier.worker import worker_state
from shared.config.model import Config, Routing, Source, Spark
from shared.runtime.spark import session

if TYPE_CHECKING:
    from pyinstrument import Profiler

T = TypeVar("T")

QUICK_TENANTS = 80
CASES = {"small": SMALL, "dense": DENSE, "many": of_tenants(MANY, QUICK_TENANTS)}
RUNS, WARMING = 5, 4
"""Cycles that count, and those on Spark before, until both of its workers have every lake open."""

STALL_S = 120.0
"""A busy machine is no stall."""

ALL_THREADS = Limits(stall_s=STALL_S)
ONE_THREAD = replace(ALL_THREADS, threads=1, most_threads=1)
INTERVAL_S = 0.001
LEAST_SHARE = 0.01
"""Of the whole; what is less is not shown in a tree."""

DUCKDB = r"pybind11_detail_function_record_\w+\."
"""What DuckDB's functions are said to belong to."""

SETTLE_S = 0.3
"""In which a Postgres has read its settings again."""

ONE_TASK, ALL_SLOTS, EMPTY = "one task, one thread", "as the applier does it", "empty"


@dataclass(frozen=True)
class Cycle:
    """One cycle in this process: milliseconds, in all and by phase."""

    whole: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Spoken:
    """Statements to one side's catalogs in a cycle, and Postgres's milliseconds for them."""

    statements: int
    ms: float


@dataclass(frozen=True)
class OnSpark:
    """The quickest job of one way to run a cycle on Spark, in milliseconds.

    ``call`` is what the applier's lane waits for; ``inside`` what a task says that it read and applied.
    """

    call: float
    inside: float
    times: JobTimes


@dataclass(frozen=True)
class Profile:
    case: str
    changes: int
    destinations: int
    cycle: Cycle
    statements: Mapping[str, Mapping[str, Spoken]]
    spark: Mapping[str, OnSpark]


def main() -> int:
    asked = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    if find_spec("pyinstrument") is None:
        console.print("pyinstrument is not installed; `make bench-profile` does it")
        return 2
    if asked.case is None:
        return max(_alone(case, asked.runs) for case in CASES)
    with prepared(Size.QUICK, asked.runs, "postgres") as setting:
        profile, tree = measure(asked.case, setting)
    console.print(*_tables(profile))
    console.print(f"written to {' and '.join(map(str, keep(profile, tree)))}")
    return 0


def _alone(case: str, runs: int) -> int:
    """In a process of its own: Spark's keeps the environment, and with it the password, of the first server."""
    return subprocess.run([sys.executable, "-m", "bench.profile", "--case", case, "--runs", str(runs)]).returncode


def measure(case: str, setting: Setting) -> tuple[Profile, str]:
    """The profile of a case, and its tree."""
    workload, lakes = CASES[case], setting.on_postgres
    touched = tenant_names(workload)[: workload.touched_tenants]
    with standing(lakes, touched) as stand:
        cycles = Cycles(stand, workload)
        try:
            cycle = quickest([cycled(cycles) for _ in seeded(cycles, setting.runs)])
            tree = _tree(cycles)
            statements = _statements(cycles, stand, lakes)
        finally:
            worker_state.forget()
        spark = _on_spark(cycles, setting)
        stand.require_equal()
    return Profile(case, workload.changes, len(touched), cycle, statements, spark), tree


def seeded(cycles: Cycles, runs: int) -> range:
    """As many runs, with the seeds and a cycle for warmth behind them."""
    run = cycles.in_process(ONE_THREAD)
    cycles.seed(run)
    cycles.do(cycles.batch(), run)
    return range(runs)


def cycled(cycles: Cycles) -> Cycle:
    """One batch as one task in this process."""
    job = cycles.batch()
    with clocked() as clock:
        _, whole = _timed(lambda: cycles.do(job, cycles.in_process(ONE_THREAD)))
    phases = {phase: round(seconds * 1000, 3) for phase, seconds in clock.seconds.items()}
    return Cycle(whole, phases | {REST: round(whole - sum(phases.values()), 3)})


def quickest(cycles: Sequence[Cycle]) -> Cycle:
    """The least disturbed: what else the machine does only ever adds, to whatever phase it meets."""
    return min(cycles, key=lambda cycle: cycle.whole)


def _tree(cycles: Cycles) -> str:
    """What pyinstrument saw of the task's own thread and of the one that applies."""
    from pyinstrument import Profiler  # a dependency of the group bench

    job, threads = cycles.batch(), worker_state.worker(ONE_THREAD).threads
    reading, applying = (Profiler(interval=INTERVAL_S, async_mode="disabled") for _ in range(2))
    threads.submit(applying.start).result()
    reading.start()
    cycles.do(job, cycles.in_process(ONE_THREAD))
    reading.stop()
    threads.submit(applying.stop).result()
    return f"The task's thread:\n\n{_drawn(reading)}\nThe thread that applies:\n\n{_drawn(applying)}"


def _drawn(profiler: Profiler) -> str:
    """The tree alone, seconds first: what stands above it names folders of the machine."""
    text = profiler.output_text(unicode=True, color=False, processor_options={"filter_threshold": LEAST_SHARE})
    tree = text.partition("\nProfile at ")[2].partition("\n\n")[2]
    return f"{re.sub(DUCKDB, 'duckdb.', tree).strip()}\n"


# -- Postgres ---------------------------------------------------------------------------------------------------------


def _statements(cycles: Cycles, stand: Stand, lakes: PostgresLakes) -> dict[str, dict[str, Spoken]]:
    """What a cycle says to the source's catalog and to the destinations', by kind."""
    job, server = cycles.batch(), lakes.server
    with server.connect() as con:
        for name, value in SETTINGS.items():
            con.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        con.execute("SELECT pg_reload_conf()")
        time.sleep(SETTLE_S)
        before = len(server.log())
        cycles.do(job, cycles.in_process(ONE_THREAD))
        said = server.log()[before:]
        con.execute("ALTER SYSTEM RESET ALL")
        con.execute("SELECT pg_reload_conf()")
    of_destinations = "|".join(lake.name for lake in stand.mirror.values())
    sides = {SOURCE: SOURCE, "destinations": f"(?:{of_destinations})"}
    return {
        side: {kind: Spoken(len(ms), round(sum(ms), 2)) for kind, ms in spoken(said, names).items()}
        for side, names in sides.items()
    }


# -- Spark ------------------------------------------------------------------------------------------------------------


def _on_spark(cycles: Cycles, setting: Setting) -> dict[str, OnSpark]:
    """Each way to run a cycle, warm, and a job that does nothing: the quickest job of each."""
    log = setting.folder / "spark-events"
    log.mkdir()
    context = session(_config(setting.folder, log), "profile")
    try:
        ran = list(_jobs(context, cycles, setting.runs))
    finally:
        context.stop()
    by_way: dict[str, list[OnSpark]] = {}
    for (way, call, inside), times in zip(ran, job_times(log), strict=True):
        by_way.setdefault(way, []).append(OnSpark(call, inside, times))
    return {way: min(found[-setting.runs :], key=lambda each: each.call) for way, found in by_way.items()}


def _jobs(context: SparkContext, cycles: Cycles, runs: int) -> Iterator[tuple[str, float, float]]:
    """(way, milliseconds of the call, of these inside) of one job after the other, as the event log has them."""
    for way, lane, limits in ((ONE_TASK, Lane.RETRIES, ONE_THREAD), (ALL_SLOTS, Lane.CHANGES, ALL_THREADS)):
        jobs = SparkJobs(context, cycles.source, limits, "")
        for _ in range(WARMING + runs):
            job = cycles.batch()
            done, call = _timed(lambda: cycles.do(job, lambda job: jobs.run(job, lane)))  # noqa: B023 - done at once
            yield way, call, max(map(_inside, done))
    for _ in range(runs):
        yield EMPTY, _timed(jobs.warm)[1], 0.0


def _inside(task: TaskResult) -> float:
    """Milliseconds that a task read and applied; of several threads together."""
    applied = sum(result.progress.seconds["apply"] for result in task.results)
    return round((task.report.tally.read_seconds + applied) * 1000, 3)


def _config(folder: Path, log: Path) -> Config:
    """As much of a configuration as a Spark session looks at."""
    source = Source(catalog="sqlite:nowhere", table="t")
    spark = Spark(conf={"spark.local.dir": str(folder), **spark_times.settings(log)})
    return Config(path=folder, pipeline="p", source=source, routing=Routing(field="r"), spark=spark, state_dir=folder)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What came of it, and milliseconds."""
    began = time.perf_counter()
    result = work()
    return result, round((time.perf_counter() - began) * 1000, 3)


# -- what is shown and kept -------------------------------------------------------------------------------------------


def _tables(profile: Profile) -> tuple[Table, Table, Table]:
    return _phases_table(profile), _statements_table(profile), _spark_table(profile)


def _phases_table(profile: Profile) -> Table:
    cycle, what = profile.cycle, f"{profile.changes:,} changes, {profile.destinations} destinations"
    table = _table(f"{profile.case}: {what}, one task in this process", "phase", "ms", "share")
    for phase, ms in cycle.phases.items():
        table.add_row(phase, f"{ms:.1f}", f"{ms / cycle.whole:.1%}")
    table.add_row("the task", f"{cycle.whole:.1f}", "", style="bold")
    return table


def _statements_table(profile: Profile) -> Table:
    sides = profile.statements
    heads = [f"{side}{unit}" for side in sides for unit in ("", ", ms")]
    table = _table(f"{profile.case}: statements to Postgres, by its own clock", "what", *heads)
    nothing = Spoken(0, 0.0)
    for kind in NAMES:
        found = [side.get(kind, nothing) for side in sides.values()]
        if any(each.statements for each in found):
            table.add_row(kind, *(cell for each in found for cell in (str(each.statements), f"{each.ms:.2f}")))
    sums = [_sum(side) for side in sides.values()]
    table.add_row("all", *(cell for each in sums for cell in (str(each.statements), f"{each.ms:.2f}")), style="bold")
    return table


def _sum(side: Mapping[str, Spoken]) -> Spoken:
    return Spoken(sum(each.statements for each in side.values()), sum(each.ms for each in side.values()))


def _spark_table(profile: Profile) -> Table:
    """Beside the same cycle in this process, whose tasks are the whole."""
    table = _table(f"{profile.case}: on Spark, ms", "", *profile.spark)
    rows: dict[str, Callable[[OnSpark], float]] = {
        "the call": lambda way: way.call,
        "job": lambda way: way.times.job,
        "stage": lambda way: way.times.stage,
        "last task": lambda way: way.times.task,
        "  scheduler delay": lambda way: way.times.scheduler_delay,
        "  deserialisation": lambda way: way.times.deserialize,
        "  run": lambda way: way.times.run,
        "  result serialisation": lambda way: way.times.result_serialize,
        "  getting the result": lambda way: way.times.getting_result,
    }
    for name, ms in rows.items():
        table.add_row(name, *(f"{ms(way):.1f}" for way in profile.spark.values()))
    alone = profile.spark[ONE_TASK]
    table.add_row("read and applied, as one task says", f"{alone.inside:.1f}")
    table.add_row("the task in this process", f"{profile.cycle.whole:.1f}")
    return table


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    return table


def keep(profile: Profile, tree: str, folder: Path = RESULTS) -> tuple[Path, Path]:
    """The profile as JSON, and its tree beside it."""
    now = datetime.now(UTC)
    folder.mkdir(exist_ok=True)
    file = folder / f"profile-{profile.case}-{now:%Y%m%dT%H%M%S}.json"
    written = {"at": now.isoformat(), "machine": machine(), "profile": asdict(profile)}
    file.write_text(json.dumps(written, indent=1) + "\n")
    text = file.with_suffix(".txt")
    text.write_text(tree)
    return file, text


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="default: all")
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the quickest counts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
