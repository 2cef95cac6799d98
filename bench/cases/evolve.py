"""Other columns at the source: what they cost a batch that brings them, and when those without a row have them too.

The source's owner renames a column and adds another one. A batch of changes for everybody comes with that and without
by turns. Then a fleet is idle but for a few tenants, whose stream of commits goes on when the columns change: it tells
what it costs them that all others are followed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.cases.changes import Batch, bring
from bench.cases.fleet import Fleet, ages_of, arrivals_of, create_at_once, lakes_of, wait_seeded
from bench.freshness import Stream, percentile_of, write_stream
from bench.outcome import Case, Check, Measured, at_most
from bench.setting import Setting
from bench.stand import Stand, standing
from bench.viaduck import running_viaduck, wait_caught_up, wait_settled
from bench.workload import MANY, SOURCE, Columns, SourceWriter, Workload, of_tenants, tenant_names

SHARE, FOLLOWED_S, P99 = 1.25, 60.0, 1.3
QUICK_TENANTS = 30
PER_S = 5.0
WARM_S = 5.0
"""Of the stream, before what counts."""


@dataclass(frozen=True)
class Pair:
    """The same batch with other columns and without."""

    plain: Batch
    evolved: Batch


@dataclass(frozen=True)
class Idle:
    """``idle`` destinations get no row; ``busy`` ones do, for so many ``seconds`` before columns change and after."""

    idle: int
    busy: int
    databases: int
    seconds: float

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.idle + self.busy, self.databases, self.busy, int(self.seconds))


FULL, QUICK = Idle(1_000, 50, 10, 60.0), Idle(60, 10, 2, 10.0)


@dataclass(frozen=True)
class Followed:
    """``ages_s``: of each commit and busy tenant, ascending. ``idle_s``: from the change of columns on, ascending."""

    ages_before_s: Sequence[float]
    ages_after_s: Sequence[float]
    idle_s: Sequence[float]
    compared: int

    def figures(self) -> dict[str, float]:
        p99 = (percentile_of(ages, 99) for ages in (self.ages_before_s, self.ages_after_s))
        return {
            **dict(zip(("p99_before_s", "p99_after_s"), p99, strict=True)), "compared": self.compared,
            "idle_p50_s": round(median(self.idle_s), 3), "idle_last_s": round(self.idle_s[-1], 3),
        }  # fmt: skip


def measure(setting: Setting) -> Measured:
    workload = setting.sized(quick=of_tenants(MANY, QUICK_TENANTS), full=MANY)
    pairs, compared = _pairs(setting, workload)
    idle = setting.sized(quick=QUICK, full=FULL)
    followed = _followed(setting, idle)
    figures = {
        "workload": asdict(workload), "pairs": [asdict(pair) for pair in pairs], "compared": compared,
        "fleet": asdict(idle) | followed.figures(),
    }  # fmt: skip
    what = f"{workload.changes:,} changes for {workload.tenants} tenants with a column added and one renamed"
    return Measured([batch_check(what, pairs), *fleet_checks(idle, followed)], figures)


def batch_check(what: str, pairs: Sequence[Pair]) -> Check:
    evolved, plain = median(p.evolved.seconds for p in pairs), median(p.plain.seconds for p in pairs)
    return at_most(f"{what} ({evolved:.2f} s) to the same without ({plain:.2f} s)", evolved / plain, SHARE, "x")


def fleet_checks(idle: Idle, found: Followed) -> list[Check]:
    before, after = (percentile_of(ages, 99) for ages in (found.ages_before_s, found.ages_after_s))
    told = f"p99 of age at arrival of {idle.busy} busy ones meanwhile ({after:.2f} s) to that before ({before:.2f} s)"
    return [
        at_most(f"until {idle.idle:,} idle destinations had the columns", found.idle_s[-1], FOLLOWED_S, "s"),
        at_most(told, after / before, P99, "x"),
    ]


def _pairs(setting: Setting, workload: Workload) -> tuple[list[Pair], int]:
    """By turns, so that both find tables that have grown alike; the first of each is for warmth."""
    with standing(setting.lakes, tenant_names(workload)) as stand:
        writer, columns = SourceWriter(stand.con, SOURCE, workload), Columns(stand.con, SOURCE)
        writer.seed()
        columns.add()
        with running_viaduck(setting.folder, stand.source, stand.mirror) as viaduck:
            wait_settled(viaduck, stand.head())
            pairs = [
                Pair(bring(viaduck, stand, writer), bring(viaduck, stand, writer, columns.change))
                for _ in range(1 + setting.runs)
            ]
        return pairs[1:], stand.require_equal()


def _followed(setting: Setting, idle: Idle) -> Followed:
    lakes, folder = setting.on_postgres, setting.folder / "fleet"
    folder.mkdir()
    with standing(lakes, (), name="source_of_fleet") as stand:
        stand.mirror.update(lakes_of(lakes, idle.fleet))
        create_at_once(stand, list(stand.mirror))
        columns = Columns(stand.con, SOURCE)
        columns.add()
        busy, quiet = list(stand.mirror)[: idle.busy], list(stand.mirror)[idle.busy :]
        with running_viaduck(folder, stand.source, stand.mirror) as viaduck:
            wait_seeded(viaduck, stand.head())
            _stream(stand, busy, WARM_S, 0)
            before = _stream(stand, busy, idle.seconds, 1)
            wait_caught_up(viaduck, stand.head())
            columns.change()
            changed = stand.head()
            after = _stream(stand, busy, idle.seconds, 2)
            wait_caught_up(viaduck, stand.head())
        ages = [sorted(ages_of(lakes, stand, touched)) for touched in (before, after)]
        waited = sorted(followed_after(changed, lakes.visible(stand.source), arrivals_of(lakes, stand), quiet))
        return Followed(ages[0], ages[1], waited, stand.require_equal())


def _stream(stand: Stand, tenants: Sequence[str], seconds: float, number: int) -> dict[int, set[str]]:
    return write_stream(stand.con, Stream(len(tenants), PER_S, seconds), tenants, first=number * 1_000_000)


def followed_after(
    changed: int,
    visible: Mapping[int, float],
    arrived: Mapping[str, Sequence[tuple[int, float]]],
    tenants: Iterable[str],
) -> Iterator[float]:
    """Seconds from the snapshot that changed columns until each of these tenants had them, rows or none.

    ``arrived``: (through, when it became visible) by tenant, ``visible`` the same of the source's snapshots.
    """
    for tenant in tenants:
        at = min((at for through, at in arrived[tenant] if through >= changed), default=None)
        assert at is not None, f"{tenant} never got the columns of snapshot {changed}"
        yield at - visible[changed]


CASES = (
    Case("evolve", "3,500 changes for 200 tenants with a column added and one renamed, and the same without; 1,000 idle"
         " destinations followed beside 50 busy ones (quick: 30 tenants; 60 and 10)", measure),
)  # fmt: skip
