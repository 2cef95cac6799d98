"""A lot at once, in bounded memory: a long history to catch up on, and rows that are very wide."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median

from bench.cases.changes import Batch, bring
from bench.outcome import Case, Check, Measured, at_least, at_most
from bench.processes import Peaks, frozen
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import running_viaduck, wait_caught_up, wait_settled
from bench.workload import SCHEMA, SOURCE, TABLE, SourceWriter, Workload, tenant_names

PROCESS_MB = 1_500.0
AS_FAST = 0.8
SHORT_COMMITS = 10

TENANTS, REPEATED = 20, 312
NAMES = [f"c{number}" for number in range(198)]
"""Of the columns beside key and routing value. A value is so many MD5 sums of 32 digits, 10 kB; a row is 2 MB."""


@dataclass(frozen=True)
class Appends:
    """The same rows in a short and in a long history."""

    short: Batch
    long: Batch


def deep(setting: Setting) -> Measured:
    rows, commits = setting.sized(quick=(250_000, 50), full=(5_000_000, 1_000))
    short, long = (Workload(f"{count}", 50, 5_000, count, rows, 0, 0, 50) for count in (SHORT_COMMITS, commits))
    with standing(setting.lakes, tenant_names(short)) as stand:
        found, peaks = _appends(setting, stand, short, long)
        compared = stand.require_equal()
    speeds = median(rows / each.short.seconds for each in found), median(rows / each.long.seconds for each in found)
    what = f"{rows:,} rows in {commits:,} snapshots ({speeds[1]:,.0f} rows/s) beside {SHORT_COMMITS} ({speeds[0]:,.0f})"
    checks = [at_least(what, speeds[1] / speeds[0], AS_FAST, "x"), _bounded(peaks)]
    figures = {"rows": rows, "commits": commits, "appends": [asdict(each) for each in found], "peaks_mb": peaks.mb,
               "compared": compared}  # fmt: skip
    return Measured(checks, figures)


def _appends(setting: Setting, stand: Stand, short: Workload, long: Workload) -> tuple[list[Appends], Peaks]:
    """Short and long histories by turns, so that both find tables that have grown alike."""
    writer, found = SourceWriter(stand.con, SOURCE, short), []
    writer.seed()
    with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck, Peaks(viaduck.pid) as peaks:
        wait_settled(viaduck, stand.head())
        bring(viaduck, stand, writer)
        for _ in range(setting.sized(quick=1, full=3)):
            writer.take(short)
            first = bring(viaduck, stand, writer)
            writer.take(long)
            found.append(Appends(first, bring(viaduck, stand, writer)))
    return found, peaks


def wide(setting: Setting) -> Measured:
    rows, commits = setting.sized(quick=(100, 2), full=(1_000, 10))
    with standing(setting.lakes, [f"tenant{number:03d}" for number in range(TENANTS)]) as stand:
        declared = "".join(f", {name} VARCHAR" for name in NAMES)
        stand.con.execute(f"CREATE TABLE {SOURCE}.{SCHEMA}.{TABLE} (id BIGINT, tenant VARCHAR{declared})")
        _insert_wide(stand, 0, TENANTS)
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck, Peaks(viaduck.pid) as peaks:
            wait_settled(viaduck, stand.head())
            with frozen(viaduck.pid, "reader"):
                for number in range(commits):
                    _insert_wide(stand, TENANTS + number * rows // commits, rows // commits)
            there_at = time.time()
            wait_caught_up(viaduck, stand.head())
            seconds = round(stand.last_commit() - there_at, 2)
        compared = stand.require_equal()
    megabytes = rows * len(NAMES) * REPEATED * 32 / 1e6
    figures = {"rows": rows, "megabytes": megabytes, "seconds": seconds, "peaks_mb": peaks.mb, "compared": compared}
    return Measured([_bounded(peaks)], figures)


def _insert_wide(stand: Stand, first: int, rows: int) -> None:
    values = "".join(f", repeat(md5(i || {name!r}), {REPEATED})" for name in NAMES)
    stand.con.execute(
        f"INSERT INTO {SOURCE}.{SCHEMA}.{TABLE} SELECT i, printf('tenant%03d', i % {TENANTS}){values}"
        f" FROM range({first}, {first + rows}) r(i)"
    )


def _bounded(peaks: Peaks) -> Check:
    kind, megabytes = max(peaks.mb.items(), key=lambda found: found[1])
    return at_most(f"resident memory of the largest process ({kind})", megabytes, PROCESS_MB, "MB", 0)


CASES = (
    Case("deep", "catch-up over 1,000 snapshots of appends, 5M rows, 50 tenants (quick: a twentieth of both)", deep),
    Case("wide", "rows of 200 columns with values of 10 kB, 2 GB in 10 snapshots (quick: 0.2 GB in 2)", wide),
)
