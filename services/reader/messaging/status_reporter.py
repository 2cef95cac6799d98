"""Tells the others where everybody is: frontiers on the progress topic, gauges for metrics."""

from __future__ import annotations

from collections.abc import Iterable

from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.frontier import MOST_PER_PAGE, Look, Standing, known_through, lag_seconds, standing
from services.reader.planner.plan import Planner
from shared.contracts.messages import Problem
from shared.runtime.metrics import Metrics

AT_LEAST_EVERY_S = 5.0
PAUSE_S = 0.2
"""Between two frontiers of one page; more pages, more pause."""

GAUGES_PAUSE_S = 1.0
"""Between two updates of the gauges, for every page's worth of destinations."""


class StatusReporter:
    """Decides when it is time to tell, and tells."""

    def __init__(self, outlet: WorkPublisher, metrics: Metrics, first_cycle: int) -> None:
        self._outlet = outlet
        self._metrics = metrics
        self._cycle = first_cycle
        self._told: tuple[Standing, Problem | None] | None = None
        self._told_s = self._gauged_s = float("-inf")
        self._pause_s = PAUSE_S
        self._is_stale = True

    def note(self) -> None:
        """Something happened that may have moved somebody."""
        self._is_stale = True

    @property
    def tells_of_lag(self) -> bool:
        """Whether somebody lags, by what was told last: then time alone makes it old."""
        return self._told is None or bool(self._told[0].lagging)

    def due_s(self) -> float:
        """When ``tell`` has something to do again."""
        return self._told_s + (self._pause_s if self._is_stale else AT_LEAST_EVERY_S)

    def tell(self, planner: Planner, now_s: float, look: Look) -> None:
        """Publish a frontier if one is due and says something new, or has not been sent for a while."""
        if now_s < self.due_s():
            return
        now = standing(planner, now_s, look.catalog, readable=look.problem is None, overdue=look.is_late)
        if (now, look.problem) != self._told or now_s - self._told_s >= AT_LEAST_EVERY_S:
            self._outlet.frontier(now, self._cycle, look.problem, look.age_s)
            self._cycle += 1
            self._told, self._told_s = (now, look.problem), now_s
            self._pause_s = PAUSE_S * (1 + len(now.lagging) // MOST_PER_PAGE)
        self._is_stale = False
        self._gauge(planner, now_s, look)

    def forget(self, names: Iterable[str]) -> None:
        """Destinations that are gone have no gauges."""
        for name in names:
            self._metrics.forget(name)

    def _gauge(self, planner: Planner, now_s: float, look: Look) -> None:
        self._metrics.rows_in_flight.set(planner.rows_in_flight)
        if planner.ledger is None or now_s - self._gauged_s < GAUGES_PAUSE_S * (
            1 + len(planner.tracked) // MOST_PER_PAGE
        ):
            return
        self._gauged_s = now_s
        line, catalog_now = planner.ledger.line, look.catalog.now if look.catalog is not None else None
        for tracked in planner.tracked.values():
            behind = max(0, line - known_through(tracked))
            self._metrics.dest_lag_snapshots.labels(destination=tracked.name).set(behind)
            seconds = lag_seconds(tracked, now_s, catalog_now) if behind else 0.0
            if seconds is None or look.is_late:
                self._metrics.dest_lag_seconds.remove(destination=tracked.name)
            else:
                self._metrics.dest_lag_seconds.labels(destination=tracked.name).set(seconds)
