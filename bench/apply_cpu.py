"""``python -m bench.apply_cpu``: what CPU a direct apply takes, batch after batch, so also as a table's files grow.

The batches of ``many`` as one task in this process, one thread, without reader, Kafka and Spark; catalogs on Postgres.
CPU is that of the thread that applies: a machine under other load changes it less than it changes times.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from bench.cycle import Cycles
from bench.outcome import Size
from bench.setting import Setting, prepared
from bench.stand import standing
from bench.workload import MANY, of_tenants, tenant_names
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.direct.commit import DirectApplier
from services.applier.model.task import Limits
from services.applier.worker import worker_state
from shared.lake.direct.eligibility import ExtensionReason

STALL_S = 120.0
SHOWN = 110
"""Functions of a profile."""

ONE_THREAD = replace(Limits(stall_s=STALL_S), threads=1, most_threads=1)


@dataclass(frozen=True)
class Batch:
    """Milliseconds of CPU an apply: of the thread that applies, of the whole process, and of Postgres."""

    apply_ms: float
    process_ms: float
    postgres_ms: float
    direct: int
    by_extension: int


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


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--tenants", type=int, default=20)
    words.add_argument("--batches", type=int, default=10)
    words.add_argument("--profile", action="store_true", help="under cProfile, whose functions are shown")
    asked = words.parse_args()
    profile = cProfile.Profile() if asked.profile else None
    with prepared(Size.QUICK, 1, "postgres") as setting:
        found = measure(setting, asked.tenants, asked.batches, profile)
    table = Table(title=f"CPU of an apply, {asked.tenants} tenants, one thread")
    for head in ("batch", "the apply, ms", "process, ms", "Postgres, ms", "direct", "by the extension"):
        table.add_column(head, justify="right")
    for number, batch in enumerate(found, 1):
        times = (batch.apply_ms, batch.process_ms, batch.postgres_ms)
        table.add_row(str(number), *(f"{ms:.2f}" for ms in times), str(batch.direct), str(batch.by_extension))
    Console(width=110).print(table)
    if profile is not None:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("cumtime").print_stats(SHOWN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
