"""Publishes the status of all destinations: frontiers on the progress topic, gauges for metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import Gauge

from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.frontier import (
    FrontierPage,
    ShareState,
    SourceObservation,
    known_through,
    lag_seconds,
    lagging,
    pages,
    reshapes_of,
    standing,
)
from services.reader.planner.plan import Planner
from shared.contracts.messages import Problem
from shared.runtime.metrics import Labelled, Metrics

AT_LEAST_EVERY_S = 5.0
PAUSE_S = 0.2
"""Between two frontiers of one page; more pages, more pause."""

GAUGES_PAUSE_S, GAUGED_AT_ONCE = 0.25, 500
"""Between two updates of gauges, and of how many destinations each of them is."""


@dataclass
class Cycle:
    """One frontier. ``waiting`` are the pages that are still to be sent, by their number."""

    number: int
    standing: ShareState
    problem: Problem | None
    pages: int
    waiting: deque[tuple[int, Sequence[str]]]


class StatusReporter:
    """Decides when it is time to tell, and tells: a page a turn, so that changes never wait for fifty thousand."""

    def __init__(self, outlet: WorkPublisher, metrics: Metrics, first_cycle: int) -> None:
        self._outlet = outlet
        self._metrics = metrics
        self._next_cycle = first_cycle
        self._cycle: Cycle | None = None
        self._told: tuple[ShareState, Problem | None] | None = None
        self._told_s = self._gauged_s = float("-inf")
        self._pause_s = PAUSE_S
        self._is_stale = True
        self._ungauged: deque[str] = deque()

    def note(self) -> None:
        """An event may have moved a destination."""
        self._is_stale = True

    @property
    def tells_of_lag(self) -> bool:
        """Whether a destination lagged in the last report, which is then outdated by time alone."""
        return self._told is None or bool(self._told[0].lagging)

    def due_s(self) -> float:
        """When ``tell`` has something to do again."""
        if self._cycle is not None:
            return float("-inf")
        return self._told_s + (self._pause_s if self._is_stale else AT_LEAST_EVERY_S)

    def tell(self, planner: Planner, now_s: float, look: SourceObservation) -> None:
        """Begin a frontier that is due, or publish its next page: both in one turn only where there is a single page.

        A frontier is due if it says something new, or if none has been sent for a while.
        """
        if now_s < self.due_s():
            return
        cycle = self._cycle
        if cycle is None:
            cycle = self._cycle = self._begun(planner, now_s, look)
            if cycle is not None and cycle.pages > 1:
                return
        if cycle is not None:
            self._send_page(cycle, planner, now_s, look)
        self._gauge(planner, now_s, look)

    def _begun(self, planner: Planner, now_s: float, look: SourceObservation) -> Cycle | None:
        """The next cycle; None where it would say nothing new."""
        self._is_stale = False
        now = standing(planner, look.catalog, readable=look.problem is None, overdue=look.is_late)
        is_news = bool(now.lagging) or (now, look.problem) != self._told
        if not is_news and now_s - self._told_s < AT_LEAST_EVERY_S:
            return None
        parts, number = pages(now.lagging), self._next_cycle
        self._next_cycle += 1
        self._told, self._told_s = (now, look.problem), now_s
        self._pause_s = PAUSE_S * len(parts)
        return Cycle(number, now, look.problem, len(parts), deque(enumerate(parts)))

    def _send_page(self, cycle: Cycle, planner: Planner, now_s: float, look: SourceObservation) -> None:
        number, names = cycle.waiting.popleft()
        found = lagging(planner, names, cycle.standing.head, now_s, look.catalog)
        page = FrontierPage(cycle.standing, cycle.problem, number, cycle.pages, found, look.ends)
        self._outlet.frontier(page, cycle.number, look.age_s)
        if not cycle.waiting:
            self._cycle = None

    def forget(self, names: Iterable[str]) -> None:
        """Destinations that are gone have no gauges."""
        for name in names:
            self._metrics.forget(name)

    def _gauge(self, planner: Planner, now_s: float, look: SourceObservation) -> None:
        self._metrics.rows_in_flight.set(planner.rows_in_flight)
        if planner.index is None or now_s - self._gauged_s < GAUGES_PAUSE_S:
            return
        self._gauged_s = now_s
        line, catalog_now = planner.index.line, look.catalog.now if look.catalog is not None else None
        reshapes = reshapes_of(planner)
        for tracked in self._next_to_gauge(planner):
            behind = max(0, line - known_through(tracked, reshapes))
            seconds = lag_seconds(tracked, reshapes, now_s, catalog_now) if behind else 0.0
            _show(self._metrics.dest_lag_snapshots, tracked.name, None if look.is_late else behind)
            _show(self._metrics.dest_lag_seconds, tracked.name, None if look.is_late else seconds)

    def _next_to_gauge(self, planner: Planner) -> Iterator[DestinationState]:
        """Some destinations, in turn: those of fifty thousand at once would hold up all changes."""
        if not self._ungauged:
            self._ungauged.extend(planner.tracked)
        for _ in range(min(GAUGED_AT_ONCE, len(self._ungauged))):
            if (tracked := planner.tracked.get(self._ungauged.popleft())) is not None:
                yield tracked


def _show(gauge: Labelled[Gauge], destination: str, value: float | None) -> None:
    """What is not known has no series."""
    if value is None:
        gauge.remove(destination)
    else:
        gauge.labels(destination=destination).set(value)
