"""The reader's one thread: take events, look and count, plan, publish, tell; sleep until something is due."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterable

import structlog

from services.reader.messaging.discovery import OfferPublisher
from services.reader.messaging.message_decoder import (
    Answered,
    Event,
    EventQueue,
    FrontierReached,
    Proposed,
    Removed,
    Renewed,
    Undelivered,
    Unrouted,
    Unsaid,
    Wanted,
)
from services.reader.messaging.partitioner import Partitioner
from services.reader.messaging.status_repetition import StatusRepetition
from services.reader.messaging.status_reporter import StatusReporter
from services.reader.messaging.work_publisher import WorkPublisher, new_item_id
from services.reader.planner.actions import Park, Send
from services.reader.planner.frontier import SourceObservation
from services.reader.planner.plan import Planner
from services.reader.planner.scheduling import Rules
from services.reader.planner.sharing import Sharing
from services.reader.source.record_tally import RecordTally
from services.reader.source.source_poller import COUNT_WITHIN_S, SourcePoller
from services.reader.source.source_reader import SourceReader
from services.reader.source.unrouted_values import RoutingContext, UnroutedValues
from shared.config.model import Config
from shared.config.partition import assigned
from shared.config.upkeep_rules import compaction_of
from shared.contracts.messages import Destination, now
from shared.contracts.reports import Frontier, Offer, Share
from shared.runtime.background import Heartbeat
from shared.runtime.metrics import Metrics

log = structlog.get_logger(__name__)

LOAD_LOOK_S = 0.1
PLACED_A_TURN = 2_000
"""Destinations that get their partition in one turn, where many are new or partitions were added."""

FIRST_FREEZE_AT = 1_000
"""Destinations of which the garbage collector is told that they stay, and again whenever they have doubled."""

LEAST_POLL_S = 0.05
LOOKS_A_FLUSH = 4

TURN_EVERY_S = 60.0
TURNS_WITHIN_S = 15 * COUNT_WITHIN_S
"""A turn may look, count and publish. A slow source is reported long before; a restart helps only if the process
itself hangs."""


class Loop:
    """Drives one planner. ``run`` on one thread; ``stop`` from anywhere, then wake it through the inbox."""

    def __init__(
        self,
        config: Config,
        source: SourceReader,
        events: EventQueue,
        outlet: WorkPublisher,
        partitioner: Partitioner,
        metrics: Metrics,
        caught_up: threading.Event,
    ) -> None:
        """``partitioner`` is told the destinations of this reader. ``caught_up`` is set once all records that were on
        the topics at the start are in the queue."""
        self._config = config
        self._source = source
        self._events = events
        self._outlet = outlet
        self._partitioner = partitioner
        self._metrics = metrics
        self._caught_up = caught_up
        self._stopped = threading.Event()
        self._recalled: dict[str, Destination] = {}
        self._routes: dict[str, str] = {}
        self._last: Frontier | None = None
        self._offered: Offer | None = None
        self._poller: SourcePoller | None = None
        self._offering: OfferPublisher | None = None
        self._sharing = sharing(config)
        self._freeze_at = FIRST_FREEZE_AT
        self._counted = False
        """Whether the last turn counted a part of the source's changes."""
        self._polled = False
        """Whether the last turn looked at the source."""
        self._placed = True
        """Whether each destination has its partition."""

    @property
    def source_problem(self) -> str | None:
        """None if the last look at the source succeeded not too long ago, else what is wrong. Any thread."""
        poller, now_s = self._poller, time.monotonic()
        if poller is None:
            return "not seen yet"
        if (overdue := poller.overdue(now_s)) is not None:
            return overdue
        if poller.problem is not None:
            return poller.problem.message
        return poller.missed(now_s) if poller.has_seen else "not seen yet"

    @property
    def look_age_s(self) -> float | None:
        """Since the source was last looked at with success; None where it never was. Any thread."""
        return None if self._poller is None else self._poller.age_s(time.monotonic())

    def exposition(self) -> str:
        """The metrics as they are now, also while the loop's own thread waits for the source. Any thread."""
        age_s, poller, now_s = self.look_age_s, self._poller, time.monotonic()
        if age_s is not None:
            self._metrics.source_look_age_seconds.labels().set(age_s)
        if poller is not None and poller.is_late(now_s):
            self._metrics.dest_lag_seconds.clear()
            self._metrics.dest_lag_snapshots.clear()
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
            self._recall(self._events.take(LOAD_LOOK_S))
        self._recall(self._events.take(0))

    def _recall(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Wanted):
                self._recalled[event.spec.destination] = event.spec
            elif isinstance(event, Removed):
                self._recalled.pop(event.destination, None)
            elif isinstance(event, FrontierReached):
                self._recall_frontier(event.frontier)
            elif isinstance(event, Proposed) and event.offer.instance == self._config.instance.id:
                self._offered = event.offer

    def _recall_frontier(self, frontier: Frontier) -> None:
        if frontier.instance != self._config.instance.id:
            self._sharing.heard(frontier, time.monotonic(), now())
        elif self._last is None or frontier.cycle > self._last.cycle:
            self._last = frontier

    def _begin(self) -> None:
        config, now_s, last = self._config, time.monotonic(), self._last
        unknown = UnroutedValues() if offers(config) else None
        if unknown is not None and self._offered is not None and config.topic is not None:
            unknown.recall(self._offered)
        self._offering = None if unknown is None else OfferPublisher(unknown, self._outlet)
        line = last.head if last is not None and last.head > 0 else None
        routing = RoutingContext(self._routes, self._counts_unrouted, unknown)
        self._planner = Planner(rules(config), new_item_id, random.random, line)
        self._poller = SourcePoller(
            self._source,
            self._planner,
            self._metrics,
            routing,
            poll_interval_s(config),
            now_s,
        )
        self._tally = RecordTally(self._metrics, routing)
        # Cycles only grow, also where the last one was lost with the broker.
        self._teller = StatusReporter(self._outlet, self._metrics, max(last.cycle + 1 if last else 1, int(time.time())))
        self._repeater = StatusRepetition(self._outlet, now_s)
        for spec in self._recalled.values():
            self._wants(spec, now_s)
        self._recalled.clear()
        log.info("reader_ready", destinations=len(self._planner.tracked), line=line)

    # -- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        poller, now_s = self._watching(), time.monotonic()
        waits = self._polled and poller.has_work(now_s)  # a look that takes longer than the pause would be due again
        polls = now_s >= poller.poll_at_s and not self._counted and not waits
        if polls:
            before = poller.seen
            poller.poll(now_s)
            if poller.seen != before or self._teller.tells_of_lag:
                self._teller.note()
        self._polled = polls
        self._counted = not polls and poller.has_work(now_s) and not self._counted
        if self._counted:
            poller.work(now_s)
            self._teller.note()
        else:
            self._act(poller)
        events = self._events.take(self._idle_s(poller))
        now_s = time.monotonic()
        for event in events:
            self._handle(event, now_s)

    def _act(self, poller: SourcePoller) -> None:
        """In the turn after a count, whatever else is to be counted. A look, a count and a report each go through fifty
        thousand destinations, and answers are heard in between."""
        partitions = self._outlet.partitions()
        self._placed = partitions is None or self._partitioner.place_some(partitions, PLACED_A_TURN)
        if self._placed:
            self._publish(time.monotonic())
        self._tell(poller)

    def _tell(self, poller: SourcePoller) -> None:
        self._teller.tell(self._planner, time.monotonic(), self._look(poller))
        self._repeater.tell(self._planner.tracked, time.monotonic())
        if self._offering is not None:
            self._offering.tell(self._routes.values(), time.monotonic())

    def _look(self, poller: SourcePoller) -> SourceObservation:
        now_s = time.monotonic()
        return SourceObservation(
            poller.catalog_time(now_s), poller.problem, poller.age_s(now_s), poller.is_late(now_s), self._source.ends()
        )

    def _publish(self, now_s: float) -> None:
        for action in self._planner.plan(now_s):
            self._outlet.publish(action)
            if isinstance(action, Send):
                self._metrics.work_items_total.labels(kind=action.draft.kind.value).inc()
            elif isinstance(action, Park):
                self._metrics.errors_total.labels(type=action.problem.type, destination=action.destination).inc()
            self._teller.note()

    def _idle_s(self, poller: SourcePoller) -> float:
        now_s = time.monotonic()
        if self._counted or not self._placed or poller.has_work(now_s):
            return 0.0
        due = [poller.poll_at_s, self._teller.due_s(), self._repeater.due_s()]
        planned = self._planner.next_due_s()
        idle_s = min([*due, planned] if planned is not None else due) - now_s
        return min(max(0.0, idle_s), TURN_EVERY_S)

    def _handle(self, event: Event, now_s: float) -> None:
        if isinstance(event, Answered):
            if self._planner.progress(event.progress, now_s):
                self._teller.note()
            return
        if isinstance(event, (FrontierReached, Unrouted, Proposed)):
            self._hear(event, now_s)
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

    def _hear(self, event: FrontierReached | Unrouted | Proposed, now_s: float) -> None:
        """What changes nothing of what this reader reports about destinations."""
        if isinstance(event, FrontierReached):  # of this reader or another one, or sent again
            self._sharing.heard(event.frontier, now_s)
        elif isinstance(event, Unrouted):
            observed = self._planner.observed
            self._tally.heard(event.found, None if observed is None else observed.table, now_s)

    def _counts_unrouted(self) -> bool:
        return self._sharing.counts(time.monotonic())

    def _wants(self, spec: Destination, now_s: float) -> None:
        self._routes[spec.destination] = spec.routing_value
        if assigned(self._config.instance.partition, spec.destination):
            self._partitioner.add(spec.key)
            self._planner.destination(spec, now_s)
            self._spare_collections(len(self._planner.tracked))

    def _spare_collections(self, tracked: int) -> None:
        """Destinations stay: a full collection would look at each of them, 150 ms for fifty thousand."""
        if tracked >= self._freeze_at:
            gc.freeze()
            self._freeze_at = 2 * tracked

    def _forget(self, name: str) -> None:
        self._routes.pop(name, None)
        self._partitioner.remove(f"{self._config.pipeline}/{name}")
        if name in self._planner.tracked:
            self._planner.forget(name)
            self._teller.forget([name])
            self._repeater.forget(name)

    def _watching(self) -> SourcePoller:
        if self._poller is None:
            raise RuntimeError("the loop has not begun")
        return self._poller


def rules(config: Config) -> Rules:
    reader = config.reader
    return Rules(
        reader.max_rows_in_flight,
        reader.segment_rows,
        reader.advance_after_seconds,
        reader.confirm_within_seconds,
        config.evolution.at_once,
        compaction_of(config),
    )


def poll_interval_s(config: Config) -> float:
    """A topic is looked at often enough that no record waits much longer than ``flush.seconds``."""
    if config.topic is None:
        return config.poll.interval_seconds
    return min(config.poll.interval_seconds, max(LEAST_POLL_S, config.flush.seconds / LOOKS_A_FLUSH))


def sharing(config: Config) -> Sharing:
    return Sharing(config.instance.id, Share.model_validate(config.instance.partition.model_dump()))


def offers(config: Config) -> bool:
    """Whether this reader tells control of routing values without a destination."""
    return config.appear.policy != "off" and sharing(config).counts(0.0)
