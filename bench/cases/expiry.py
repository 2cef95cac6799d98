"""What it takes to expire a long history of the source, and what the reader's polls take meanwhile.

The steps of ``viaduck source expire`` and of the reader themselves, without a command line and a service around them.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from multiprocessing import get_context
from statistics import median

from bench.cases.planning import GROW, OTHER, OTHERS
from bench.lakes import PostgresLakes
from bench.outcome import Case, Measured, at_most
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import write_file
from bench.workload import SCHEMA, SMALL, SOURCE, SourceWriter
from services.cli.expire.lake import WritableSource
from services.reader.source.lake_source import LakeSource
from shared.config.catalogs import ResolvedLake, resolve
from shared.config.deployment import load_all
from shared.lake.catalog.reader import CatalogReader
from shared.lake.upkeep.retained import LakeSnapshot
from shared.lake.upkeep.retention import freed_from, retained, snapshots_since

KEPT = 10
SECONDS, SHARE = 120.0, 2.0
POLL_EVERY_S = 0.05
POLLS_ALONE = 100


def measure(setting: Setting) -> Measured:
    with standing(setting.on_postgres, [], name="long") as stand:
        _prepare(setting.on_postgres, stand)
        config = load_all([write_file(setting.folder, stand.source, {})]).common
        source = LakeSource(config, resolve(config.source.lake, os.environ, setting.folder))
        alone = [_poll_s(source, POLL_EVERY_S) for _ in range(POLLS_ALONE)]
        lake = stand.source.resolved
        began = time.perf_counter()
        meanwhile = _polled_while(source, lake)
        seconds = time.perf_counter() - began
        source.close()
        with closing(CatalogReader(lake)) as catalog:
            left = len(snapshots_since(catalog, 0, OTHERS))
    assert left == KEPT, f"{left} snapshots are left where {KEPT} were to be kept"
    share = median(meanwhile) / median(alone)
    checks = [
        at_most(f"expiring {OTHERS:,} snapshots", seconds, SECONDS, "s"),
        at_most(f"a poll meanwhile ({1000 * median(meanwhile):.1f} ms) as a share of one before", share, SHARE, "x"),
    ]
    figures = {"snapshots": OTHERS, "seconds": round(seconds, 1), "polls": len(meanwhile),
               "poll_alone_ms": round(1000 * median(alone), 2), "poll_meanwhile_ms": round(1000 * median(meanwhile), 2),
               "slowest_poll_meanwhile_ms": round(1000 * max(meanwhile), 1)}  # fmt: skip
    return Measured(checks, figures)


def _prepare(lakes: PostgresLakes, stand: Stand) -> None:
    SourceWriter(stand.con, SOURCE, SMALL).seed()
    stand.con.execute(f"CREATE TABLE {SOURCE}.{SCHEMA}.{OTHER} (id BIGINT)")
    with lakes.server.connect(stand.source.name) as con:
        con.execute(GROW)
        con.execute("ANALYZE")


def _expire(lake: ResolvedLake) -> None:
    with closing(CatalogReader(lake)) as catalog:
        head = retained(catalog).head
        doomed: list[LakeSnapshot] = snapshots_since(catalog, 0, 2 * OTHERS)[:-KEPT]
        freed_from(catalog, head - KEPT + 1)
    with closing(WritableSource(lake)) as expiry:
        assert sum(expiry.expire(doomed)) == len(doomed)


def _polled_while(source: LakeSource, lake: ResolvedLake) -> list[float]:
    """Seconds of each poll until another process has expired the history, as the command is one."""
    expiring, polls = get_context("spawn").Process(target=_expire, args=(lake,)), []
    expiring.start()
    while expiring.is_alive():
        polls.append(_poll_s(source))
        expiring.join(POLL_EVERY_S)
    assert expiring.exitcode == 0, f"the process that expires ended with {expiring.exitcode}"
    return polls


def _poll_s(source: LakeSource, after_s: float = 0.0) -> float:
    time.sleep(after_s)
    began = time.perf_counter()
    source.observe(source.head())
    return time.perf_counter() - began


CASES = (Case("expire", "100,000 snapshots of the source expire while a reader polls it", measure),)
