"""The reader's one thread: take events, look and count, plan, publish, tell; sleep until something is due."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable

import structlog

from services.reader.actions import Park, Send
from services.reader.choose import Rules
from services.reader.inbox import Answered, Event, Inbox, Reached, Removed, Renewed, Undelivered, Wanted
from services.reader.offering import Offering
from services.reader.plan import Planner
from services.reader.publish import Outlet, new_item_id
from services.reader.spread import Spread
from services.reader.tell import Teller
from services.reader.unknown import Unknown
from services.reader.watch import SourceLike, Watch
from shared.config.model import Config
from shared.config.partition import assigned
from shared.messages import Destination, Frontier
from shared.metrics import Metrics

log = structlog.get_logger(__name__)

LOAD_LOOK_S = 0.1


class Loop:
    """Drives one planner. ``run`` on one thread; ``stop`` from anywhere, then wake it through the inbox."""

    def __init__(
        self,
        config: Config,
        source: SourceLike,
        inbox: Inbox,
        outlet: Outlet,
        spread: Spread,
        metrics: Metrics,
        caught_up: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``spread`` hears who is planned here; ``caught_up`` is set once the inbox has got everything that the topics
        held when we came."""
        self._config, self._source, self._inbox, self._outlet, self._spread = config, source, inbox, outlet, spread
        self._metrics, self._caught_up, self._clock = metrics, caught_up, clock
        self._stopped = threading.Event()
        self._recalled: dict[str, Destination] = {}
        self._routes: dict[str, str] = {}
        self._last: Frontier | None = None
        self._watch: Watch | None = None
        self._offering: Offering | None = None

    @property
    def source_problem(self) -> str | None:
        """None if the last look at the source succeeded, else what is wrong."""
        watch = self._watch
        if watch is not None and (overdue := watch.overdue(self._clock())) is not None:
            return overdue
        if watch is None or (not watch.has_seen and watch.problem is None):
            return "not seen yet"
        return None if watch.problem is None else watch.problem.message

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Until ``stop``."""
        self._remember()
        if self._stopped.is_set():
            return
        self._begin()
        while not self._stopped.is_set():
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
            elif isinstance(event, Reached) and event.frontier.instance == self._config.instance.id:
                newer = self._last is None or event.frontier.cycle > self._last.cycle
                self._last = event.frontier if newer else self._last

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
            counts_unrouted=counts_unrouted(config),
            unknown=unknown,
        )
        # Cycles only grow, also where the last one was lost with the broker.
        self._teller = Teller(self._outlet, self._metrics, max(last.cycle + 1 if last else 1, int(time.time())))
        for spec in self._recalled.values():
            self._wants(spec, now_s)
        log.info("reader ready", destinations=len(self._planner.tracked), line=line)

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
        self._teller.tell(self._planner, self._clock(), watch.catalog_time(self._clock()), watch.problem)
        if self._offering is not None:
            self._offering.tell(self._routes.values(), self._clock())
        events = self._inbox.take(self._idle_s(watch))
        now_s = self._clock()
        for event in events:
            self._handle(event, now_s)

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
        due = [watch.poll_at_s, self._teller.due_s()]
        planned = self._planner.next_due_s()
        return max(0.0, min([*due, planned] if planned is not None else due) - now_s)

    def _handle(self, event: Event, now_s: float) -> None:
        self._teller.note()
        match event:
            case Wanted(spec):
                self._wants(spec, now_s)
            case Removed(name):
                self._forget(name)
            case Answered(progress):
                self._planner.progress(progress, now_s)
            case Undelivered(name, item):
                self._planner.undelivered(name, item, now_s)
            case Renewed():
                self._planner.renewed()
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


def counts_unrouted(config: Config) -> bool:
    """Of the readers that share a pipeline by hash, one counts the rows that are nobody's."""
    return config.instance.partition.mode != "hash" or config.instance.partition.ordinal == 0


def offers(config: Config) -> bool:
    """Whether this reader tells control of routing values without a destination."""
    return config.appear.policy != "off" and counts_unrouted(config)
