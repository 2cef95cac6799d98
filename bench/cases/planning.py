"""What planning costs beside a long history of other tables: the reader's own steps, without a reader around them.

The look at the head, at what else metadata tells, and the count of what is new, for the same commits in two sources:
one with nothing else in it, and one with a hundred thousand snapshots of another table.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

from bench.lakes import PostgresLakes
from bench.outcome import Case, Measured, at_most
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import write_file
from bench.workload import SCHEMA, SMALL, SOURCE, SourceWriter, tenant_names
from services.reader.source.lake_source import LakeSource
from shared.config.catalogs import resolve
from shared.config.deployment import load_all
from shared.contracts.ranges import Range

OTHERS = 100_000
SHARE = 1.2
OTHER = "other"
WARMING = 3

GROW = f"""
WITH newest AS (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1),
made AS (
  INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
  SELECT snapshot_id + n, now(), schema_version, next_catalog_id, next_file_id
  FROM newest, generate_series(1, {OTHERS}) n RETURNING snapshot_id
)
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
SELECT snapshot_id, 'inlined_insert:' || (SELECT table_id FROM ducklake_table WHERE table_name = '{OTHER}') FROM made
"""
"""Snapshots as commits to another table leave them, in a second instead of an hour."""


def measure(setting: Setting) -> Measured:
    lakes, commits = setting.on_postgres, setting.sized(quick=20, full=100)
    with standing(lakes, [], name="quiet") as quiet, standing(lakes, [], name="busy") as busy:
        for stand in (quiet, busy):
            _prepare(stand)
        seen = busy.head()
        _grow(lakes, busy)
        alone, among = _Planning(setting.folder / "alone", quiet), _Planning(setting.folder / "among", busy)
        across_s = among.seconds_of(Range(seen, busy.head()))
        for each in (alone, among) * WARMING:
            each.commit_s()
        pairs = [(alone.commit_s(), among.commit_s()) for _ in range(commits)]
        alone.close()
        among.close()
    ms = [round(1000 * median(each), 2) for each in zip(*pairs, strict=True)]
    what = f"planning a commit among {OTHERS:,} snapshots of others ({ms[1]} ms) as a share of it without ({ms[0]} ms)"
    figures = {"alone_ms": ms[0], "among_ms": ms[1], "across_all_of_them_s": round(across_s, 3), "commits": commits}
    return Measured([at_most(what, ms[1] / ms[0], SHARE, "x")], figures)


class _Planning:
    """The steps of a reader on one source."""

    def __init__(self, folder: Path, stand: Stand) -> None:
        folder.mkdir()
        config = load_all([write_file(folder, stand.source, {})]).common
        self._source = LakeSource(config, resolve(config.source.lake, os.environ, folder))
        self._writer = SourceWriter(stand.con, SOURCE, SMALL)
        self._stand = stand

    def commit_s(self) -> float:
        """Seconds to plan one more commit."""
        before = self._stand.head()
        self._writer.run()
        return self.seconds_of(Range(before, self._stand.head()), SMALL.changes)

    def seconds_of(self, snapshots: Range, changes: int = 0) -> float:
        began = time.perf_counter()
        head = self._source.head()
        self._source.observe(head)
        steps = [self._source.count(cut, tenant_names(SMALL)) for cut in self._source.cuts(snapshots)]
        seconds = time.perf_counter() - began
        counted = sum(step.total for step in steps)
        assert counted >= changes, f"{counted} changed rows were counted where {changes} were made"
        return seconds

    def close(self) -> None:
        self._source.close()


def _prepare(stand: Stand) -> None:
    SourceWriter(stand.con, SOURCE, SMALL).seed()
    stand.con.execute(f"CREATE TABLE {SOURCE}.{SCHEMA}.{OTHER} (id BIGINT)")


def _grow(lakes: PostgresLakes, stand: Stand) -> None:
    with lakes.server.connect(stand.source.name) as con:
        con.execute(GROW)
        con.execute("ANALYZE")


CASES = (Case("planning", "a small commit in a source with 100,000 snapshots of other tables", measure),)
