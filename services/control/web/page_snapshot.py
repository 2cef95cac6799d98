"""What the page shows, computed once a second for all its users."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Literal
from urllib.parse import urlencode

from services.control.view.destination_status import (
    MOVING,
    OFF,
    PipelineStatus,
    Status,
    StatusSummary,
    View,
    pipeline_status,
    status,
)
from services.control.view.history import History, HistorySample
from services.control.view.lake_health import rank
from services.control.web.paging import page

FRESH_S = 1.0
ROWS = 50
WORST = 5

UNKNOWN = "unknown"
MOST_REASONS = 5
"""Why destinations are parked: so many kinds are told, those with most of them first."""

Sort = Literal["id", "lag", "files", "old_bytes", "oldest_age"]
Shown = Literal["seeding", "running", "failing", "paused", "stopped", "parked", "removing"]
"""A state as the page shows it: a destination that is retried is shown as neither seeding nor running."""
STATES: tuple[Shown, ...] = ("seeding", "running", "failing", "paused", "stopped", "parked", "removing")
SORTS: dict[Sort, str] = {
    "id": "name",
    "lag": "lag, worst first",
    "files": "files, most first",
    "old_bytes": "bytes that expiry frees",
    "oldest_age": "oldest snapshot first",
}


@dataclass(frozen=True)
class DestinationQuery:
    """The filter and order of a list of destinations."""

    search: str = ""
    state: Shown | None = None
    sort: Sort = "id"
    after: str | None = None
    reason: str = ""
    """The type of an error."""

    def query(self, after: str | None = None) -> str:
        sort = None if self.sort == "id" else self.sort
        given = {"search": self.search, "state": self.state, "reason": self.reason, "sort": sort, "after": after}
        return urlencode({name: value for name, value in given.items() if value})


class Statuses(Mapping[str, Status]):
    """Every destination's status by id, created on access: a page shows fifty of thousands."""

    def __init__(self, view: View) -> None:
        self.view = view

    def __getitem__(self, destination: str) -> Status:
        return status(self.view, destination)

    def __iter__(self) -> Iterator[str]:
        return iter(self.view.destinations)

    def __len__(self) -> int:
        return len(self.view.destinations)


@dataclass(frozen=True)
class PageSnapshot:
    """Everything at one moment."""

    pipeline: PipelineStatus
    statuses: Statuses
    worst: tuple[Status, ...]
    pulse: HistorySample
    states: Mapping[Shown, int]
    """How many are in each state, as the page shows it; without the states that are empty."""
    reasons: tuple[tuple[str, int], ...]
    """Why destinations are parked, and how many for each."""

    def rows(self, asked: DestinationQuery) -> tuple[list[Status], str | None]:
        """The destinations of one page, and the cursor of the next."""
        view, wanted = self.statuses.view, self.wanted(asked)
        if asked.sort == "id":
            names, following = page(wanted, ROWS, asked.after)
        else:
            keys, following = page([(_rank(view, name, asked.sort), name) for name in wanted], ROWS, asked.after)
            names = [name for _, name in keys]
        return [self.statuses[name] for name in names], following

    def wanted(self, asked: DestinationQuery) -> list[str]:
        """All destinations that fit, on whatever page."""
        view, sought = self.statuses.view, asked.search.casefold()
        return [
            name
            for name, each in view.standings.items()
            if (asked.state is None or shown_as(each) == asked.state)
            and (not asked.reason or each.trouble == asked.reason)
            and (not sought or sought in name.casefold() or sought in _value(view, name).casefold())
        ]


class SnapshotCache:
    """Any thread may look."""

    def __init__(self, view: Callable[[], View], history: History, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._history = history
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._page_snapshot: PageSnapshot | None = None

    def look(self) -> PageSnapshot:
        """The snapshot of this second. While one thread computes it, the others get the previous one."""
        before = self._page_snapshot
        if not self._lock.acquire(blocking=before is None):
            assert before is not None  # noqa: S101 - else we would have waited
            return before
        try:
            page_snapshot = self._page_snapshot
            if page_snapshot is None or self._clock() >= self._until:
                self._page_snapshot = page_snapshot = self._fresh()
                self._until = self._clock() + FRESH_S
            return page_snapshot
        finally:
            self._lock.release()

    def forget(self) -> None:
        """After a change, so that its author sees it."""
        with self._lock:
            self._page_snapshot = None

    def _fresh(self) -> PageSnapshot:
        view = self._view()
        standings = view.standings
        badness = {name: _badness(each) for name, each in standings.items()}
        worst = nlargest(WORST, badness, key=lambda name: badness[name])
        shown = tuple(status(view, name) for name in worst if badness[name] > 0)
        kinds = Counter((each.state, each.trouble) for each in standings.values())  # few, of thousands
        counted: Counter[Shown] = Counter()
        reasons: Counter[str] = Counter()
        for (state, trouble), number in kinds.items():
            counted["failing" if trouble is not None and state in MOVING else state] += number
            reasons[trouble or UNKNOWN] += number if state == "parked" else 0
        states = {each: counted[each] for each in STATES if counted[each]}
        return PageSnapshot(
            pipeline_status(view), Statuses(view), shown, self._history.last, states,
            tuple(each for each in reasons.most_common(MOST_REASONS) if each[1]),
        )  # fmt: skip


def shown_as(each: StatusSummary) -> Shown:
    return "failing" if each.failing else each.state


def _rank(view: View, name: str, sort: Sort) -> float:
    """What comes first has the lowest."""
    return -_badness(view.standings[name]) if sort == "lag" else rank(view.health_of(name), f"-{sort}")


def _badness(each: StatusSummary) -> float:
    """Parked destinations first, then failing ones, then by lag; paused and stopped ones last."""
    if each.state in OFF:
        return 0.0
    return 1e12 * (each.state == "parked") + 1e9 * (each.trouble is not None) + (each.lag_seconds or 0.0)


def _value(view: View, name: str) -> str:
    return view.destinations[name].declared.routing_value
