"""What the reader tells control and users: how far it has looked, and who is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.reader.planner.destination_state import Tracked
from services.reader.planner.plan import Planner
from services.reader.planner.source_problems import is_cut_off
from shared.contracts.digest import digest
from shared.contracts.messages import Lagging, Problem
from shared.contracts.ranges import NOT_SEEDED

MOST_PER_PAGE = 2_000


@dataclass(frozen=True)
class Standing:
    """The state of a share at one moment. Whoever is not in ``lagging`` is known to be exact at ``head``."""

    head: int
    head_time: datetime | None
    lagging: Mapping[str, Lagging]
    settled: bool
    revision: str
    notice: str | None = None
    overdue: bool = False
    """The source was not looked at for too long: what it holds now is not known."""


@dataclass(frozen=True)
class Look:
    """What came of looking at the source: the catalog's time, what is wrong with it, and how long ago it was read."""

    catalog: CatalogTime | None
    problem: Problem | None
    age_s: float | None
    is_late: bool


@dataclass(frozen=True)
class CatalogTime:
    """By the source catalog's own clock: when its head was committed, and what time it is."""

    head: datetime
    now: datetime


def standing(
    planner: Planner, now_s: float, catalog: CatalogTime | None, *, readable: bool, overdue: bool = False
) -> Standing:
    """Where everybody is. ``readable``: the last look at the source succeeded; ``overdue``: none has for too long."""
    catalog_now = catalog.now if catalog is not None else None
    line = planner.ledger.line if planner.ledger is not None else None
    everybody = planner.tracked.values()
    return Standing(
        head=line or 0,
        head_time=catalog.head if catalog is not None else None,
        lagging={t.name: _lagging(t, line, now_s, catalog_now) for t in everybody if _lags(t, line)},
        settled=readable and is_settled(planner),
        revision=digest((t.name, t.spec.generation, t.spec.revision) for t in everybody),
        notice=None if planner.sight is None else planner.sight.notice,
        overdue=overdue,
    )


def is_settled(planner: Planner) -> bool:
    """Whether everything that can move has: who lags is parked, past its retries or switched off."""
    if planner.ledger is None or planner.above() is not None:
        return False
    line = planner.ledger.line
    return all(_has_arrived(t, line) or t.is_exhausted for t in planner.tracked.values() if t.is_running)


def _has_arrived(tracked: Tracked, line: int) -> bool:
    return tracked.is_seeded and tracked.exact >= line and tracked.in_flight is None


def known_through(tracked: Tracked) -> int:
    return tracked.exact if tracked.is_seeded else NOT_SEEDED


def lag_seconds(tracked: Tracked, now_s: float, catalog_now: datetime | None) -> float | None:
    """Age of the oldest snapshot that may hold an unapplied change; of a seed that waits, since when it does.

    For who is behind; None where nobody can say: its cursor has not told yet, or what it lacks is not counted.
    """
    if tracked.position == NOT_SEEDED:
        return max(0.0, now_s - tracked.since_s)
    if tracked.position is None or tracked.waits_since is None or catalog_now is None:
        return None
    return max(0.0, (catalog_now - tracked.waits_since).total_seconds())


def pages(lagging: Mapping[str, Lagging]) -> list[dict[str, Lagging]]:
    """``lagging`` in pages of at most 2,000, by name; one empty page if nobody lags."""
    names = sorted(lagging)
    starts: Iterable[int] = range(0, max(len(names), 1), MOST_PER_PAGE)
    return [{name: lagging[name] for name in names[start : start + MOST_PER_PAGE]} for start in starts]


def _lags(tracked: Tracked, line: int | None) -> bool:
    return line is None or known_through(tracked) < line or is_cut_off(tracked, None)


def _lagging(tracked: Tracked, line: int | None, now_s: float, catalog_now: datetime | None) -> Lagging:
    known, seconds = known_through(tracked), lag_seconds(tracked, now_s, catalog_now)
    return Lagging(
        known_through=known if line is None else min(known, line),
        lag_seconds=None if seconds is None else round(seconds, 3),
        in_flight=tracked.in_flight is not None,
        attempts=tracked.attempts,
        exhausted=tracked.is_exhausted,
    )
