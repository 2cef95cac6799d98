"""What the reader tells control and users: how far it has looked, and who is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.plan import Planner
from services.reader.planner.reshapes import UNCHANGED, Reshapes
from services.reader.planner.source_problems import is_cut_off
from shared.contracts.messages import Problem
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.reports import Lagging

MOST_PER_PAGE = 2_000

UNKNOWN = Lagging(known_through=NOT_SEEDED)


@dataclass(frozen=True)
class ShareState:
    """The state of a share at one moment. Destinations not in ``lagging`` are known to be exact at ``head``, rows and
    columns."""

    head: int
    head_time: datetime | None
    lagging: tuple[str, ...]
    settled: bool
    revision: str
    notice: str | None = None
    overdue: bool = False
    """The source was not looked at for too long: what it holds now is not known."""


@dataclass(frozen=True)
class TopicEnds:
    """A topic by its partitions: the spelled offsets behind its newest stable records, and for how many seconds the
    destination has not held all of those before them, where it does not."""

    head_at: str
    waits: Mapping[int, float]


@dataclass(frozen=True)
class FrontierPage:
    """A part of those who lag in a ``standing``, as they are when the page is made."""

    standing: ShareState
    problem: Problem | None
    number: int
    pages: int
    lagging: dict[str, Lagging]
    ends: TopicEnds | None = None


@dataclass(frozen=True)
class SourceObservation:
    """What came of looking at the source: the catalog's time, what is wrong with it, and how long ago it was read.

    ``ends``: of a topic that was seen.
    """

    catalog: CatalogTime | None
    problem: Problem | None
    age_s: float | None
    is_late: bool
    ends: TopicEnds | None = None


@dataclass(frozen=True)
class CatalogTime:
    """By the source catalog's own clock: when its head was committed, and what time it is."""

    head: datetime
    now: datetime


def standing(planner: Planner, catalog: CatalogTime | None, *, readable: bool, overdue: bool = False) -> ShareState:
    """All destinations' state. ``readable``: the last poll succeeded; ``overdue``: the last success is too old."""
    line = planner.index.line if planner.index is not None else None
    reshapes = reshapes_of(planner)
    return ShareState(
        head=line or 0,
        head_time=catalog.head if catalog is not None else None,
        lagging=tuple(each.name for each in _not_at(planner, line) if _lags(each, line, reshapes)),
        settled=readable and is_settled(planner),
        revision=planner.revision,
        notice=None if planner.observed is None else planner.observed.notice,
        overdue=overdue,
    )


def lagging(
    planner: Planner, names: Iterable[str], head: int, now_s: float, catalog: CatalogTime | None
) -> dict[str, Lagging]:
    """How far those are behind that lagged when a cycle began. What was removed since is told as unknown."""
    catalog_now = catalog.now if catalog is not None else None
    line, reshapes = None if planner.index is None else head, reshapes_of(planner)
    found = {name: planner.tracked.get(name) for name in names}
    return {
        name: UNKNOWN if tracked is None else _lagging(tracked, line, reshapes, now_s, catalog_now)
        for name, tracked in found.items()
    }


def is_settled(planner: Planner) -> bool:
    """Whether everything that can move has: who lags is parked, past its retries or switched off."""
    if planner.index is None or planner.above() is not None:
        return False
    line, reshapes = planner.index.line, reshapes_of(planner)
    return all(_has_arrived(t, line, reshapes) or t.is_exhausted for t in _not_at(planner, line) if t.is_running)


def reshapes_of(planner: Planner) -> Reshapes:
    """When the source's columns changed, as far as it was seen."""
    return UNCHANGED if planner.observed is None else planner.observed.reshapes


def _not_at(planner: Planner, line: int | None) -> Iterable[DestinationState]:
    """Of tens of thousands of destinations those that may not be exact at the line, or have work in flight."""
    everybody, reshaped = planner.tracked.values(), reshapes_of(planner).newest
    if line is None:
        return everybody
    return [
        each
        for each in everybody
        if each.exact < line
        or each.position is None
        or each.position < reshaped
        or each.in_flight is not None
        or each.parked is not None
    ]


def _has_arrived(tracked: DestinationState, line: int, reshapes: Reshapes) -> bool:
    return tracked.is_seeded and known_through(tracked, reshapes) >= line and tracked.in_flight is None


def known_through(tracked: DestinationState, reshapes: Reshapes) -> int:
    """Up to where a destination is exact. One whose rows are right beyond a change of the columns, and whose position
    lies before it, has the columns that were."""
    if not tracked.is_seeded:
        return NOT_SEEDED
    lacking = reshapes.lacking(tracked)
    return tracked.exact if lacking is None else lacking - 1


def lag_seconds(
    tracked: DestinationState, reshapes: Reshapes, now_s: float, catalog_now: datetime | None
) -> float | None:
    """Age of the oldest snapshot that may hold an unapplied change, of its rows or of the columns; for a waiting seed,
    how long it has waited.

    For destinations that lag. None while it is unknown: the cursor was not read, the changes were not counted, or the
    snapshot has expired.
    """
    if tracked.position == NOT_SEEDED:
        return max(0.0, now_s - tracked.since_s)
    lacking = reshapes.lacking(tracked)
    since = tracked.waits_since if lacking is None else reshapes.times.get(lacking)
    if tracked.position is None or since is None or catalog_now is None:
        return None
    return max(0.0, (catalog_now - since).total_seconds())


def pages(lagging: Sequence[str]) -> list[Sequence[str]]:
    """``lagging`` in pages of at most 2,000; one empty page if no destination lags."""
    return [lagging[start : start + MOST_PER_PAGE] for start in range(0, max(len(lagging), 1), MOST_PER_PAGE)]


def _lags(tracked: DestinationState, line: int | None, reshapes: Reshapes) -> bool:
    if line is None or tracked.exact < line:  # of fifty thousand that lag, each costs a comparison
        return True
    return known_through(tracked, reshapes) < line or is_cut_off(tracked, None)


def _lagging(
    tracked: DestinationState, line: int | None, reshapes: Reshapes, now_s: float, catalog_now: datetime | None
) -> Lagging:
    known, seconds = known_through(tracked, reshapes), lag_seconds(tracked, reshapes, now_s, catalog_now)
    has_rows = tracked.is_seeded and tracked.exact > known
    return Lagging(
        known_through=_up_to(line, known),
        rows_through=_up_to(line, tracked.exact) if has_rows else None,
        lag_seconds=None if seconds is None else round(seconds, 3),
        in_flight=tracked.in_flight is not None,
        attempts=tracked.attempts,
        exhausted=tracked.is_exhausted,
    )


def _up_to(line: int | None, known: int) -> int:
    return known if line is None else min(known, line)
