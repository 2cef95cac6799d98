"""More appliers on one real Kafka, where what takes time is the destinations' catalogs and not our processor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx

from bench.cases.changes import bring
from bench.delay import FarAway
from bench.lakes import PostgresLakes
from bench.outcome import Case, Check, Measured, at_least
from bench.processes import started
from bench.setting import Setting, prepared
from bench.stand import Stand, standing
from bench.viaduck import FILE, PATIENCE_S, Options, running_viaduck, wait_settled
from bench.workload import MANY, SOURCE, SourceWriter, Workload, of_tenants, tenant_names
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck
from shared.runtime.own_address import OWN_PORT
from tests.servers.kafka import Kafka

STATEMENT_S = 0.05
LINEAR = 0.8
PARTITIONS = 48
QUICK_TENANTS = 40
"""So that half of them, too, are more than the eight that an applier gives to one task, of only two threads here."""

THREADS = 2
"""Of a worker, and no more where it waits: four appliers of more threads would want more than our two cores have."""
WARMING = 3
END_WITHIN_S = 35.0


def measure(setting: Setting) -> Measured:
    tenants, counts = setting.sized(quick=(QUICK_TENANTS, (1, 2)), full=(240, (1, 2, 4)))
    workload = of_tenants(MANY, tenants)
    seconds, compared = {}, 0
    for count in counts:
        with prepared(setting.size, setting.runs, PostgresLakes.kind) as own:
            seconds[count], equal = _with_appliers(count, own, workload)
            compared += equal
    found = {count: tenants / median(each) for count, each in seconds.items()}
    checks = [_check(count, rate, found[1]) for count, rate in found.items() if count > 1]
    figures = {"tenants": tenants, "threads_per_worker": THREADS, "partitions": PARTITIONS, "seconds": seconds,
               "applies_per_s": {count: round(rate, 2) for count, rate in found.items()},
               "compared": compared}  # fmt: skip
    return Measured(checks, figures)


def _with_appliers(count: int, setting: Setting, workload: Workload) -> tuple[list[float], int]:
    """Seconds of each batch, and how many destinations were compared.

    On new lakes and a new Kafka, so that every number of appliers meets the same: an apply costs two statements more
    for each file that loses rows, and there are more of them with each batch.
    """
    lakes = setting.on_postgres
    with (
        Kafka() as kafka,
        FarAway(lakes.server.port) as way,
        standing(lakes, tenant_names(workload), mirrored=lakes.behind(way.port)) as stand,
    ):
        sections = {
            "kafka": {"bootstrap_servers": kafka.bootstrap, "partitions": PARTITIONS},
            "applier": {"threads_per_worker": THREADS, "max_threads_per_worker": THREADS},
        }
        writer = SourceWriter(stand.con, SOURCE, workload)
        writer.seed()
        with (
            running_viaduck(setting.folder, stand.source, stand.mirror, Options(sections=sections)) as viaduck,
            ExitStack() as others,
        ):
            for _ in range(count - 1):
                others.enter_context(_another_applier(setting.folder, viaduck))
            wait_settled(viaduck, stand.head())
            seconds = _batches(setting, viaduck, stand, writer, way)
        return seconds, stand.require_equal()


def _check(count: int, rate: float, one: float) -> Check:
    what = f"{count} appliers ({rate:.1f} applies/s) beside one ({one:.1f}), {STATEMENT_S * 1000:.0f} ms a statement"
    return at_least(what, rate / one / count, LINEAR, "linear")


def _batches(
    setting: Setting, viaduck: RunningViaduck, stand: Stand, writer: SourceWriter, way: FarAway
) -> list[float]:
    """Seconds of each. The distance comes once everybody has the lakes open that it will be given."""
    way.round_trip(0)
    for _ in range(WARMING):
        bring(viaduck, stand, writer)
    way.round_trip(STATEMENT_S)
    return [bring(viaduck, stand, writer).seconds for _ in range(setting.sized(quick=1, full=3))]


@contextmanager
def _another_applier(folder: Path, viaduck: RunningViaduck) -> Iterator[None]:
    """Beside the one of ``viaduck up``, on the same file."""
    port = free_port()
    command = [sys.executable, "-m", "services.cli.main", "applier", "-c", str(folder / FILE)]
    log = folder / f"applier-{port}.log"
    with started(command, log, {OWN_PORT: str(port)}, end_within_s=END_WITHIN_S):
        viaduck.wait_until("another applier", lambda: _is_ready(port), PATIENCE_S)
        yield


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False


CASES = (Case("scale-out", "1, 2 and 4 appliers (quick: 1 and 2) on real Kafka, 50 ms a catalog statement", measure),)
