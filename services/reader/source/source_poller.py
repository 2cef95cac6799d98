"""Keeps the planner's view of the source fresh: looks at its head, counts what is new, catches up on what is old."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from random import Random

import structlog

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.frontier import CatalogTime
from services.reader.planner.plan import Planner
from services.reader.planner.scheduling import SourceState
from services.reader.source.source_reader import Cut, Expired, SourceReader
from services.reader.source.unrouted_values import RoutingContext, UnroutedValues
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Problem
from shared.lake.catalog.reader import Head
from shared.runtime.backoff import delay_s
from shared.runtime.metrics import Metrics

log = structlog.get_logger(__name__)

SIGHT_EVERY_S = 60.0
"""Expiry makes no snapshot, so an unmoved head does not mean that nothing else moved."""

SIZES_EVERY_S = 60.0

LOOK_WITHIN_S, COUNT_WITHIN_S = 15.0, 120.0
"""How long a look at metadata, and the counting of one bite, may take before the source is said not to answer."""

LONGEST_PAUSE_S = 30.0
"""Between looks at a source that does not answer."""

HEARD_WITHIN_S = 10.0
"""How long counting waits for a first destination: rows of a destination that is being announced are not unrouted."""


class SourcePoller:
    """Polls every ``interval_s`` and counts in between in small parts, so that a long history delays no poll."""

    def __init__(
        self,
        source: SourceReader,
        planner: Planner,
        metrics: Metrics,
        routing: RoutingContext,
        interval_s: float,
        now_s: float,
    ) -> None:
        self._source = source
        self._planner = planner
        self._metrics = metrics
        self._routing = routing
        self._interval_s = interval_s
        self._began_s = now_s
        self._above: deque[Cut] = deque()
        self._below: deque[Cut] = deque()
        self._head: tuple[Head, float] | None = None
        self._looked_s: float | None = None
        self._counted_s: float | None = None
        """The newest look of which all changes were counted."""
        self._sighted_s = 0.0
        self._sizes: tuple[Mapping[str, int] | None, float] | None = None
        self._failures = 0
        self._due: tuple[float, float] | None = None
        self._random = Random()  # noqa: S311 - spreads rivals, guards nothing
        self.problem: Problem | None = None
        """Why the source can't be read now."""
        self.poll_at_s = now_s

    @property
    def has_seen(self) -> bool:
        """Whether the source has answered yet."""
        return self._head is not None

    @property
    def seen(self) -> tuple[int | None, Problem | None]:
        """The newest snapshot that was seen, and what was wrong when the source was last looked at."""
        return None if self._head is None else self._head[0].snapshot, self.problem

    def overdue(self, now_s: float) -> str | None:
        """What the source has not answered in time, while the poller waits for it. For any thread, since the waiting
        thread cannot report."""
        due = self._due
        if due is None or now_s <= due[1]:
            return None
        return f"the source has not answered for {now_s - due[0]:.0f} s"

    def age_s(self, now_s: float) -> float | None:
        """Since the source was last looked at with success; None before. May be asked from any thread."""
        return None if self._looked_s is None else max(0.0, now_s - self._looked_s)

    def is_late(self, now_s: float) -> bool:
        """Whether what was counted is so old that no lag is known: looks fail, hang or find more than is counted in
        time, or none began. Between a look and its count it is unknown which destinations the new snapshots concern."""
        counted_s = self._counted_s
        if self.overdue(now_s) is not None:
            return True
        if self._looked_s is None:
            return self.problem is not None
        return counted_s is None or now_s - counted_s > self._patience_s

    def missed(self, now_s: float) -> str | None:
        """What no look has told for too long: the process stood still, or a count takes long. Any thread, since the
        loop's own cannot report meanwhile."""
        age_s = self.age_s(now_s)
        if age_s is None or age_s <= self._patience_s:
            return None
        return f"the source was last looked at {age_s:.0f} s ago"

    @property
    def _patience_s(self) -> float:
        return self._interval_s + LOOK_WITHIN_S

    def catalog_time(self, now_s: float) -> CatalogTime | None:
        """By the catalog's own clock, as last read, plus what has passed since by ours."""
        if self._head is None:
            return None
        head, read_s = self._head
        return CatalogTime(head.time, head.catalog_now + timedelta(seconds=now_s - read_s))

    def poll(self, now_s: float) -> None:
        """Look at the head; if it moved, at what else metadata tells, and note what is to be counted."""
        self._metrics.polls_total.inc()
        self.poll_at_s = now_s + self._interval_s
        with self._reading(now_s, LOOK_WITHIN_S):
            self._source.weigh(self._planner.record_bytes)
            self._look(now_s)
            above = self._planner.above()
            self._above = deque(self._source.cuts(above)) if above is not None else deque()
            self._works()
            self._looked_s = now_s
            self._source.measure(t.known for t in self._planner.tracked.values() if t.position is not None)
            self._note_counted()

    def has_work(self, now_s: float) -> bool:
        """Whether ``work`` has something to count."""
        if self.problem is not None:
            return False
        if self._planner.wants_sizes:
            return True
        waiting = self._above or self._below or self._planner.below() or self._wants_unknown(now_s)
        return self._may_count(now_s) and bool(waiting)

    def work(self, now_s: float) -> None:
        """Count one bite: what is new, then what seeds will bring, then what is new to those who stand further back.

        At last, where that is asked for, all values that have no destination.
        """
        with self._reading(now_s, COUNT_WITHIN_S):
            if self._above:
                self._count_above(self._above.popleft())
                self._note_counted()
            elif self._planner.wants_sizes:
                self._planner.sized(self._recent_sizes(now_s))
            elif not self._below and (below := self._planner.below()) is not None:
                self._below = deque(self._source.cuts(below))
            elif self._below:
                self._count_below(self._below.pop())
            elif self._routing.unknown is not None and self._wants_unknown(now_s):
                self._list_unknown(self._routing.unknown, now_s)

    def _look(self, now_s: float) -> None:
        head = self._source.head()
        self._head = head, now_s
        self._metrics.source_snapshot_id.set(head.snapshot)
        self._metrics.source_head_age_seconds.set(max(0.0, (head.catalog_now - head.time).total_seconds()))
        before = self._planner.observed
        is_stale = now_s - self._sighted_s >= SIGHT_EVERY_S
        has_moved = before is None or (before.head, before.at) != (head.snapshot, head.time)
        if has_moved or is_stale or self.problem is not None or is_doubted(before, self._planner.tracked.values()):
            observed = self._source.observe(head)
            self._metrics.source_oldest_snapshot_id.set(observed.oldest)
            self._planner.observe(observed, now_s)
            self._sighted_s = now_s

    def _count_above(self, cut: Cut) -> None:
        index = self._planner.index
        if index is None or cut.range.after != index.line:
            self._above.clear()
            return
        step = self._source.count(cut, self._routing.routes.values())
        self._planner.counted(step)
        if self._routing.counts_unrouted():
            self._metrics.unrouted_rows_total.inc(step.unrouted)
        if self._routing.unknown is not None:
            self._routing.unknown.note(step, self._routing.routes.values())

    def _note_counted(self) -> None:
        if self._planner.above() is None:
            self._counted_s = self._looked_s

    def _count_below(self, cut: Cut) -> None:
        index = self._planner.index
        if index is None or cut.range.through != index.floor:
            self._below.clear()
            return
        self._planner.counted_below(self._source.count(cut, self._routing.routes.values()))

    def _recent_sizes(self, now_s: float) -> Mapping[str, int] | None:
        """Estimates may be a little old: at a start, destinations ask for their seeds one after the other.

        None where they can't be had: one old file that is unreadable must not keep changes from being counted. A seed
        that needs it fails by itself.
        """
        if self._sizes is None or now_s - self._sizes[1] >= SIZES_EVERY_S:
            self._sizes = self._sizes_or_none(), now_s
        return self._sizes[0]

    def _sizes_or_none(self) -> Mapping[str, int] | None:
        try:
            return self._source.sizes()
        except ViaduckError as error:
            self._metrics.errors_total.labels(type=error.type, destination="").inc()
            log.warning("seeds_not_sized", type=error.type, why=error.message)
            return None

    def _list_unknown(self, unknown: UnroutedValues, now_s: float) -> None:
        """All values stand in old files, too. An unreadable old file must not keep changes from being counted."""
        try:
            unknown.looked(*self._source.unknown(self._routing.routes.values()), now_s)
        except ViaduckError as error:
            unknown.failed(now_s)
            self._metrics.errors_total.labels(type=error.type, destination="").inc()
            log.warning("values_not_listed", type=error.type, why=error.message)

    def _wants_unknown(self, now_s: float) -> bool:
        return self._routing.unknown is not None and self.has_seen and self._routing.unknown.wants_look(now_s)

    def _may_count(self, now_s: float) -> bool:
        return bool(self._routing.routes) or now_s - self._began_s >= HEARD_WITHIN_S

    @contextmanager
    def _reading(self, now_s: float, within_s: float) -> Iterator[None]:
        """The source's troubles are its own: they show in the frontier, and no destination suffers."""
        self._due = now_s, now_s + within_s
        try:
            yield
        except Expired as gone:
            log.warning("history_expired", snapshot=gone.snapshot)
            self._forget_cuts()
            self._planner.expired(gone.snapshot)
        except ViaduckError as error:
            self._forget_cuts()
            self._fails(error, now_s)
        finally:
            self._due = None

    def _forget_cuts(self) -> None:
        self._above.clear()
        self._below.clear()

    def _fails(self, error: ViaduckError, now_s: float) -> None:
        self._failures += 1
        pause_s = max(self._interval_s, delay_s(self._failures, self._random.random()))
        self.poll_at_s = now_s + min(pause_s, max(LONGEST_PAUSE_S, self._interval_s))
        self._metrics.errors_total.labels(type=error.type, destination="").inc()
        if self.problem is None or self.problem.type != error.type:
            log.warning("source_unreadable", type=error.type, why=error.message)
        self.problem = error.problem()

    def _works(self) -> None:
        if self.problem is not None:
            log.info("source_readable")
        self.problem, self._failures = None, 0


def is_doubted(observed: SourceState | None, tracked: Iterable[DestinationState]) -> bool:
    """Whether an applier found a topic other than this look did, as where retention went on: no head tells that."""
    if observed is None or observed.log is None:
        return False
    return any(each.trouble is not None and each.trouble.type == "source_behind" for each in tracked)
