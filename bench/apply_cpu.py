"""``python -m bench.apply_cpu``: what CPU a direct apply takes, batch after batch, so also as a table's files grow.

The batches of ``many`` as one task in this process, one thread, without reader, Kafka and Spark; catalogs on Postgres.
CPU is that of the thread that applies: a machine under other load changes it less than it changes times. Below stands
what no apply can do without: a Parquet file of its rows, and a transaction with as many statements as a commit has.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from bench.cycle import Cycles
from bench.outcome import Size
from bench.setting import Setting, prepared
from bench.stand import standing
from bench.workload import DECLARED, MANY, of_tenants, tenant_names
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.direct.commit import DirectApplier
from services.applier.model.task import Limits
from services.applier.worker import worker_state
from shared.lake.connection.engine import connect
from shared.lake.direct.eligibility import ExtensionReason
from shared.lake.sql import literal

STALL_S = 120.0
SHOWN = 110
"""Functions of a profile."""

TIMES, STATEMENTS = 300, 10

ONE_THREAD = replace(Limits(stall_s=STALL_S), threads=1, most_threads=1)


@dataclass(frozen=True)
class Batch:
    """Milliseconds of CPU an apply: of the thread that applies, of the whole process, and of Postgres."""

    apply_ms: float
    process_ms: float
    postgres_ms: float
    direct: int
    by_extension: int


@dataclass(frozen=True)
class Floor:
    """Milliseconds of CPU: a Parquet file, and a transaction at its client and in Postgres."""

    file_ms: float
    client_ms: float
    postgres_ms: float


class ThreadCpu:
    """CPU seconds of the calling threads within ``DirectApplier.apply``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.paths: Counter[bool] = Counter()
        self.profile: cProfile.Profile | None = None


@contextmanager
def counted() -> Iterator[ThreadCpu]:
    """Whatever this process applies directly meanwhile is counted."""
    cpu, apply = ThreadCpu(), DirectApplier.apply

    def measured(applier: DirectApplier, change: DestinationChange) -> Applied | ExtensionReason | None:
        began = time.thread_time()
        try:
            with cpu.profile or nullcontext():
                done = apply(applier, change)
        finally:
            cpu.seconds += time.thread_time() - began
        cpu.paths[isinstance(done, Applied)] += 1
        return done

    DirectApplier.apply = measured  # type: ignore[method-assign, assignment]
    try:
        yield cpu
    finally:
        DirectApplier.apply = apply  # type: ignore[method-assign]


def measure(setting: Setting, tenants: int, batches: int, profile: cProfile.Profile | None) -> list[Batch]:
    """The profile, where one is given, sees all batches after the first; it adds to the CPU that is told."""
    workload, lakes = of_tenants(MANY, tenants), setting.on_postgres
    with standing(lakes, tenant_names(workload)) as stand:
        cycles = Cycles(stand, workload)
        run = cycles.in_process(ONE_THREAD)
        try:
            cycles.seed(run)
            cycles.do(cycles.batch(), run)
            found = []
            for _ in range(batches):
                job = cycles.batch()
                with counted() as cpu:
                    cpu.profile = profile
                    used, server = time.process_time(), lakes.server_cpu_seconds()
                    cycles.do(job, run)
                    used, server = time.process_time() - used, lakes.server_cpu_seconds() - server
                each = 1000 / max(1, cpu.paths.total())
                found.append(Batch(cpu.seconds * each, used * each, server * each, cpu.paths[True], cpu.paths[False]))
        finally:
            worker_state.forget()
        stand.require_equal()
    return found


def floor(setting: Setting) -> Floor:
    """Of a file with the rows that ``many`` brings to a tenant, and of plain inserts into one table."""
    lakes, file = setting.on_postgres, setting.folder / "floor.parquet"
    rows = MANY.changes // MANY.touched_tenants
    with closing(connect(catalogs=())) as con:
        con.execute("SET threads = 1")
        con.execute(f"CREATE TABLE kept ({DECLARED})")
        con.execute("INSERT INTO kept SELECT i, 'tenant', i / 3, 'a note', now()::TIMESTAMP FROM range(?) r(i)", [rows])
        began = time.thread_time()
        for _ in range(TIMES):
            con.execute(f"COPY kept TO {literal(str(file))} (FORMAT parquet)")
        file_s = time.thread_time() - began
    with lakes.server.connect(lakes.new("floor").name) as server:
        server.execute("CREATE TABLE kept (id BIGINT, note TEXT)")
        began, used = time.thread_time(), lakes.server_cpu_seconds()
        for _ in range(TIMES):
            with server.pipeline(), server.transaction():
                for number in range(STATEMENTS):
                    server.execute("INSERT INTO kept VALUES (%s, 'a note')", (number,))
        client_s, server_s = time.thread_time() - began, lakes.server_cpu_seconds() - used
    return Floor(*(1000 * seconds / TIMES for seconds in (file_s, client_s, server_s)))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--tenants", type=int, default=20)
    words.add_argument("--batches", type=int, default=10)
    words.add_argument("--profile", action="store_true", help="under cProfile, whose functions are shown")
    asked = words.parse_args()
    profile = cProfile.Profile() if asked.profile else None
    with prepared(Size.QUICK, 1, "postgres") as setting:
        found = measure(setting, asked.tenants, asked.batches, profile)
        least = floor(setting)
    table = Table(title=f"CPU of an apply, {asked.tenants} tenants, one thread")
    for head in ("batch", "the apply, ms", "process, ms", "Postgres, ms", "direct", "by the extension"):
        table.add_column(head, justify="right")
    for number, batch in enumerate(found, 1):
        times = (batch.apply_ms, batch.process_ms, batch.postgres_ms)
        table.add_row(str(number), *(f"{ms:.2f}" for ms in times), str(batch.direct), str(batch.by_extension))
    console = Console(width=110)
    console.print(table)
    console.print(
        f"The least: {least.file_ms:.2f} ms for a Parquet file, {least.client_ms:.2f} ms for a transaction of"
        f" {STATEMENTS} statements, and {least.postgres_ms:.2f} ms of it in Postgres."
    )
    if profile is not None:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("cumtime").print_stats(SHOWN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
