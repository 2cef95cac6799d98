"""What the page shows, computed once a second for everybody who looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from services.control.api.paging import page
from services.control.pulse import Beat, Pulse
from services.control.status import PipelineStatus, State, Status, View, pipeline_status, status

FRESH_S = 1.0
ROWS = 50
WORST = 5

Sort = Literal["id", "lag"]
STATES: tuple[State, ...] = ("seeding", "running", "paused", "stopped", "parked", "removing")
SORTS: dict[Sort, str] = {"id": "name", "lag": "lag, the worst first"}


@dataclass(frozen=True)
class Asked:
    """Which destinations somebody wants to see."""

    search: str = ""
    state: State | None = None
    sort: Sort = "id"
    after: str | None = None

    def query(self, after: str | None = None) -> str:
        given = {"search": self.search, "state": self.state, "sort": self.sort, "after": after}
        return urlencode({name: value for name, value in given.items() if value})


@dataclass(frozen=True)
class Glance:
    """Everything at one moment."""

    pipeline: PipelineStatus
    statuses: dict[str, Status]
    worst: tuple[Status, ...]
    pulse: Beat

    def rows(self, asked: Asked) -> tuple[list[Status], str | None]:
        """The destinations of one page, and the cursor of the next."""
        sought = asked.search.casefold()
        wanted = [
            each
            for each in self.statuses.values()
            if (asked.state is None or each.state == asked.state)
            and (not sought or sought in each.id.casefold() or sought in each.routing_value.casefold())
        ]
        if asked.sort == "id":
            names, following = page([each.id for each in wanted], ROWS, asked.after)
            return [self.statuses[name] for name in names], following
        keys, following = page([(-_badness(each), each.id) for each in wanted], ROWS, asked.after)
        return [self.statuses[name] for _, name in keys], following


class Pane:
    """Any thread may look."""

    def __init__(self, view: Callable[[], View], pulse: Pulse, clock: Callable[[], float] = time.monotonic) -> None:
        self._view, self._pulse, self._clock = view, pulse, clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._glance: Glance | None = None

    def look(self) -> Glance:
        with self._lock:
            if self._glance is None or self._clock() >= self._until:
                self._glance = self._fresh()
                self._until = self._clock() + FRESH_S
            return self._glance

    def forget(self) -> None:
        """Somebody has just changed something, and wants to see it."""
        with self._lock:
            self._glance = None

    def _fresh(self) -> Glance:
        view = self._view()
        statuses = {name: status(view, name) for name in view.destinations}
        bad = [each for each in statuses.values() if _badness(each) > 0]
        worst = tuple(sorted(bad, key=_badness, reverse=True)[:WORST])
        return Glance(pipeline_status(view), statuses, worst, self._pulse.last)


def _badness(each: Status) -> float:
    """Parked ones before those that lag, those in trouble before the quiet."""
    parked, troubled = each.state == "parked", each.error is not None
    return 1e12 * parked + 1e9 * troubled + (each.lag_seconds or 0.0)
