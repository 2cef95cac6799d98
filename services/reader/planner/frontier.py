"""What the reader tells control and users: how far it has looked, and who is behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.plan import Planner
from services.reader.planner.source_problems import is_cut_off
from shared.contracts.messages import Problem
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.reports import Lagging

MOST_PER_PAGE = 2_000

UNKNOWN = Lagging(known_through=NOT_SEEDED)


@dataclass(frozen=True)
class ShareState:
    """The state of a share at one moment. Destinations not in ``lagging`` are known to be exact at ``head``."""

    head: int
    head_time: datetime | None
    lagging: tuple[str, ...]
    settled: bool
    revision: str
    notice: str | None = None
    overdue: bool = False
    """The source was not looked at for too long: what it holds now is not known."""


@dataclass(frozen=True)
class Page:
    """A part of those who lag in a ``standing``, as they are when the page is made."""

    standing: ShareState
    problem: Problem | None
    number: int
    pages: int
    lagging: dict[str, Lagging]


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


def standing(planner: Planner, catalog: CatalogTime | None, *, readable: bool, overdue: bool = False) -> ShareState:
    """All destinations' state. ``readable``: the last poll succeeded; ``overdue``: the last success is too old."""
    line = planner.index.line if planner.index is not None else None
    return ShareState(
        head=line or 0,
        head_time=catalog.head if catalog is not None else None,
        lagging=tuple(each.name for each in _not_at(planner, line) if _lags(each, line)),
        settled=readable and is_settled(planner),
        revision=planner.revision,
        notice=None if planner.sight is None else planner.sight.notice,
        overdue=overdue,
    )


def lagging(
    planner: Planner, names: Iterable[str], head: int, now_s: float, catalog: CatalogTime | None
) -> dict[str, Lagging]:
    """How far those are behind that lagged when a cycle began. What was removed since is told as unknown."""
    catalog_now = catalog.now if catalog is not None else None
    line = None if planner.index is None else head
    found = {name: planner.tracked.get(name) for name in names}
    return {
        name: UNKNOWN if tracked is None else _lagging(tracked, line, now_s, catalog_now)
        for name, tracked in found.items()
    }


def is_settled(planner: Planner) -> bool:
    """Whether everything that can move has: who lags is parked, past its retries or switched off."""
    if planner.index is None or planner.above() is not None:
        return False
    line = planner.index.line
    return all(_has_arrived(t, line) or t.is_exhausted for t in _not_at(planner, line) if t.is_running)


def _not_at(planner: Planner, line: int | None) -> Iterable[DestinationState]:
    """Of tens of thousands of destinations those that may not be exact at the line, or have work in flight."""
    everybody = planner.tracked.values()
    if line is None:
        return everybody
    return [
        each
        for each in everybody
        if each.exact < line or each.position is None or each.in_flight is not None or each.parked is not None
    ]


def _has_arrived(tracked: DestinationState, line: int) -> bool:
    return tracked.is_seeded and tracked.exact >= line and tracked.in_flight is None


def known_through(tracked: DestinationState) -> int:
    return tracked.exact if tracked.is_seeded else NOT_SEEDED


def lag_seconds(tracked: DestinationState, now_s: float, catalog_now: datetime | None) -> float | None:
    """Age of the oldest snapshot that may hold an unapplied change; for a waiting seed, how long it has waited.

    For destinations that lag. None while it is unknown: the cursor was not read, or the changes were not counted.
    """
    if tracked.position == NOT_SEEDED:
        return max(0.0, now_s - tracked.since_s)
    if tracked.position is None or tracked.waits_since is None or catalog_now is None:
        return None
    return max(0.0, (catalog_now - tracked.waits_since).total_seconds())


def pages(lagging: Sequence[str]) -> list[Sequence[str]]:
    """``lagging`` in pages of at most 2,000; one empty page if no destination lags."""
    return [lagging[start : start + MOST_PER_PAGE] for start in range(0, max(len(lagging), 1), MOST_PER_PAGE)]


def _lags(tracked: DestinationState, line: int | None) -> bool:
    return line is None or known_through(tracked) < line or is_cut_off(tracked, None)


def _lagging(tracked: DestinationState, line: int | None, now_s: float, catalog_now: datetime | None) -> Lagging:
    known, seconds = known_through(tracked), lag_seconds(tracked, now_s, catalog_now)
    return Lagging(
        known_through=known if line is None else min(known, line),
        lag_seconds=None if seconds is None else round(seconds, 3),
        in_flight=tracked.in_flight is not None,
        attempts=tracked.attempts,
        exhausted=tracked.is_exhausted,
    )
