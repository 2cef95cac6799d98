"""The reader's one thread: take events, look and count, plan, publish, tell; sleep until something is due."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable

import structlog

from services.reader.messaging.discovery import Offering
from services.reader.messaging.message_decoder import (
    Answered,
    Event,
    Inbox,
    Reached,
    Removed,
    Renewed,
    Undelivered,
    Unsaid,
    Wanted,
)
from services.reader.messaging.partitioner import Spread
from services.reader.messaging.status_repetition import Repeater
from services.reader.messaging.status_reporter import StatusReporter
from services.reader.messaging.work_publisher import WorkPublisher, new_item_id
from services.reader.planner.actions import Park, Send
from services.reader.planner.frontier import Look
from services.reader.planner.plan import Planner
from services.reader.planner.scheduling import Rules
from services.reader.planner.sharing import Sharing
from services.reader.source.source_poller import COUNT_WITHIN_S, SourceLike, Watch
from services.reader.source.unrouted_values import Unknown
from shared.config.model import Config
from shared.config.partition import assigned
from shared.contracts.messages import Destination, Frontier, Share, now
from shared.runtime.background import Heartbeat
from shared.runtime.metrics import Metrics

log = structlog.get_logger(__name__)

LOAD_LOOK_S = 0.1
TURN_EVERY_S = 60.0
TURNS_WITHIN_S = 15 * COUNT_WITHIN_S
"""A turn may look, count and publish. A source that takes its time is told of long before; to be started again helps
only where the process itself hangs."""


class Loop:
    """Drives one planner. ``run`` on one thread; ``stop`` from anywhere, then wake it through the inbox."""

    def __init__(
        self,
        config: Config,
        source: SourceLike,
        inbox: Inbox,
        outlet: WorkPublisher,
        spread: Spread,
        metrics: Metrics,
        caught_up: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``spread`` hears who is planned here; ``caught_up`` is set once the inbox has got everything that the topics
        held when we came."""
        self._config = config
        self._source = source
        self._inbox = inbox
        self._outlet = outlet
        self._spread = spread
        self._metrics = metrics
        self._caught_up = caught_up
        self._clock = clock
        self._stopped = threading.Event()
        self._recalled: dict[str, Destination] = {}
        self._routes: dict[str, str] = {}
        self._last: Frontier | None = None
        self._watch: Watch | None = None
        self._offering: Offering | None = None
        self._sharing = sharing(config)

    @property
    def source_problem(self) -> str | None:
        """None if the last look at the source succeeded, else what is wrong."""
        watch = self._watch
        if watch is not None and (overdue := watch.overdue(self._clock())) is not None:
            return overdue
        if watch is None or (not watch.has_seen and watch.problem is None):
            return "not seen yet"
        return None if watch.problem is None else watch.problem.message

    @property
    def look_age_s(self) -> float | None:
        """Since the source was last looked at with success; None where it never was. Any thread."""
        return None if self._watch is None else self._watch.age_s(self._clock())

    def exposition(self) -> str:
        """The metrics as they are now, also while the loop's own thread waits for the source. Any thread."""
        age_s, watch = self.look_age_s, self._watch
        if age_s is not None:
            self._metrics.source_look_age_seconds.labels().set(age_s)
        if watch is not None and watch.is_late(self._clock()):
            self._metrics.dest_lag_seconds.clear()
        return self._metrics.exposition()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Until ``stop``."""
        self._remember()
        if self._stopped.is_set():
            return
        self._begin()
        with Heartbeat("reader", TURNS_WITHIN_S) as heartbeat:
            while not self._stopped.is_set():
                heartbeat.turned()
                self._turn()

    # -- the beginning -----------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Take in what the topics hold from earlier. Old answers count for nothing: cursors will be asked."""
        while not self._caught_up.is_set() and not self._stopped.is_set():
            self._recall(self._inbox.take(LOAD_LOOK_S))
        self._recall(self._inbox.take(0))

    def _recall(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Wanted):
                self._recalled[event.spec.destination] = event.spec
            elif isinstance(event, Removed):
                self._recalled.pop(event.destination, None)
            elif isinstance(event, Reached):
                self._recall_frontier(event.frontier)

    def _recall_frontier(self, frontier: Frontier) -> None:
        if frontier.instance != self._config.instance.id:
            self._sharing.heard(frontier, self._clock(), now())
        elif self._last is None or frontier.cycle > self._last.cycle:
            self._last = frontier

    def _begin(self) -> None:
        config, now_s, last = self._config, self._clock(), self._last
        unknown = Unknown() if offers(config) else None
        self._offering = None if unknown is None else Offering(unknown, self._outlet)
        line = last.head if last is not None and last.head > 0 else None
        self._planner = Planner(rules(config), new_item_id, random.random, line)
        self._watch = Watch(
            self._source,
            self._planner,
            self._metrics,
            self._routes,
            config.poll.interval_seconds,
            now_s,
            counts_unrouted=lambda: self._sharing.counts(self._clock()),
            unknown=unknown,
        )
        # Cycles only grow, also where the last one was lost with the broker.
        self._teller = StatusReporter(self._outlet, self._metrics, max(last.cycle + 1 if last else 1, int(time.time())))
        self._repeater = Repeater(self._outlet, now_s)
        for spec in self._recalled.values():
            self._wants(spec, now_s)
        self._recalled.clear()
        log.info("reader_ready", destinations=len(self._planner.tracked), line=line)

    # -- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        watch, now_s = self._watching(), self._clock()
        if now_s >= watch.poll_at_s:
            before = watch.seen
            watch.poll(now_s)
            if watch.seen != before or self._teller.tells_of_lag:
                self._teller.note()
        if watch.has_work(now_s):
            watch.work(now_s)
            self._teller.note()
        self._publish(self._clock())
        self._teller.tell(self._planner, self._clock(), self._look(watch))
        self._repeater.tell(self._planner.tracked, self._clock())
        if self._offering is not None:
            self._offering.tell(self._routes.values(), self._clock())
        events = self._inbox.take(self._idle_s(watch))
        now_s = self._clock()
        for event in events:
            self._handle(event, now_s)

    def _look(self, watch: Watch) -> Look:
        now_s = self._clock()
        return Look(watch.catalog_time(now_s), watch.problem, watch.age_s(now_s), watch.is_late(now_s))

    def _publish(self, now_s: float) -> None:
        for action in self._planner.plan(now_s):
            self._outlet.publish(action)
            if isinstance(action, Send):
                self._metrics.work_items_total.labels(kind=action.draft.kind.value).inc()
            elif isinstance(action, Park):
                self._metrics.errors_total.labels(type=action.problem.type, destination=action.destination).inc()
            self._teller.note()

    def _idle_s(self, watch: Watch) -> float:
        now_s = self._clock()
        if watch.has_work(now_s):
            return 0.0
        due = [watch.poll_at_s, self._teller.due_s(), self._repeater.due_s()]
        planned = self._planner.next_due_s()
        idle_s = min([*due, planned] if planned is not None else due) - now_s
        return min(max(0.0, idle_s), TURN_EVERY_S)

    def _handle(self, event: Event, now_s: float) -> None:
        if isinstance(event, Answered):
            if self._planner.progress(event.progress, now_s):
                self._teller.note()
            return
        if isinstance(event, Reached):  # our own, another reader's, or one that was sent again
            self._sharing.heard(event.frontier, now_s)
            return
        self._teller.note()
        match event:
            case Wanted(spec):
                self._wants(spec, now_s)
            case Removed(name):
                self._forget(name)
            case Undelivered(name, item):
                self._planner.undelivered(name, item, now_s)
            case Unsaid(name):
                self._repeater.undelivered(name)
            case Renewed():
                self._planner.renewed()
                self._repeater.all(self._planner.tracked)
                if self._offering is not None:
                    self._offering.renewed()

    def _wants(self, spec: Destination, now_s: float) -> None:
        self._routes[spec.destination] = spec.routing_value
        if assigned(self._config.instance.partition, spec.destination):
            self._spread.add(spec.key)
            self._planner.destination(spec, now_s)

    def _forget(self, name: str) -> None:
        self._routes.pop(name, None)
        self._spread.remove(f"{self._config.pipeline}/{name}")
        if name in self._planner.tracked:
            self._planner.forget(name)
            self._teller.forget([name])
            self._repeater.forget(name)

    def _watching(self) -> Watch:
        if self._watch is None:
            raise RuntimeError("the loop has not begun")
        return self._watch


def rules(config: Config) -> Rules:
    reader = config.reader
    return Rules(
        reader.max_rows_in_flight,
        reader.segment_rows,
        reader.advance_after_seconds,
        reader.confirm_within_seconds,
        reader.upkeep_after_applies,
    )


def sharing(config: Config) -> Sharing:
    return Sharing(config.instance.id, Share.model_validate(config.instance.partition.model_dump()))


def offers(config: Config) -> bool:
    """Whether this reader tells control of routing values without a destination."""
    return config.appear.policy != "off" and sharing(config).counts(0.0)
