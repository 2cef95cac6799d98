"""What other threads tell the reader's own: one queue of events."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from shared.contracts.errors import UnreadableMessage
from shared.contracts.latest import Latest
from shared.contracts.messages import Destination, Progress
from shared.contracts.reports import Frontier, Offer, UnroutedRecords, parse_progress
from shared.kafka.record import Record, keyed_message
from shared.kafka.topics import Topics


@dataclass(frozen=True, slots=True)
class Wanted:
    """The destinations topic: a destination's desired state."""

    spec: Destination


@dataclass(frozen=True, slots=True)
class Removed:
    """The destinations topic: it is gone."""

    destination: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The progress topic: what became of an item."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class FrontierReached:
    """The progress topic: how far a reader had looked, perhaps this one in an earlier life."""

    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Unrouted:
    """The progress topic: what an applier found in records of a topic that no destination takes."""

    found: UnroutedRecords


@dataclass(frozen=True, slots=True)
class Proposed:
    """The progress topic: which values a reader offered, perhaps this one in an earlier life."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The broker did not take an item."""

    destination: str
    item: str


@dataclass(frozen=True, slots=True)
class Unsaid:
    """The broker did not take what was said of a destination."""

    destination: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The topics were created again: everything in flight is lost."""


@dataclass(frozen=True, slots=True)
class Woken:
    """Nothing happened, but look: a signal came."""


Event = Wanted | Removed | Answered | FrontierReached | Unrouted | Proposed | Undelivered | Unsaid | Renewed | Woken


MOST_EVENTS = 50_000
ROOM_WITHIN_S = 1.0


class EventQueue:
    """A queue that signal handlers may put to as well."""

    def __init__(self, most: int = MOST_EVENTS, wait: Callable[[float], None] = time.sleep) -> None:
        self._most = most
        self._wait = wait
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        self._events.put(event)

    def put_read(self, event: Event) -> None:
        """Of what is read from a topic, and can be left there for a while: where there is no room, slowly.

        Nothing is lost, and the thread that reads goes on turning. Who takes nothing out for half an hour is started
        again (``TURNS_WITHIN_S``); until then this adds no more than one event a second.
        """
        if self._events.qsize() >= self._most:
            self._wait(ROOM_WITHIN_S)
        self._events.put(event)

    def take(self, timeout_s: float) -> list[Event]:
        """What is there, waiting up to ``timeout_s`` for the first."""
        events: list[Event] = []
        try:
            events.append(self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait())
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return events


class Intake:
    """Records of the destinations and progress topics → events of one pipeline. Called on the follower's thread."""

    def __init__(
        self, pipeline: str, topics: Topics, events: EventQueue, unreadable: Callable[[Record, str], None]
    ) -> None:
        self._pipeline = pipeline
        self._topics = topics
        self._events = events
        self._unreadable = unreadable
        self._latest: Latest[Destination] = Latest()

    def __call__(self, record: Record) -> None:
        try:
            event = self._destination(record) if record.topic == self._topics.destinations else self._progress(record)
        except UnreadableMessage as error:
            self._unreadable(record, str(error))
            return
        if event is not None:
            self._events.put_read(event)

    def _destination(self, record: Record) -> Event | None:
        spec = keyed_message(record, Destination)
        if spec is None or spec.pipeline != self._pipeline or not self._latest.take(spec):
            return None
        return Removed(spec.destination) if spec.removed else Wanted(spec)

    def _progress(self, record: Record) -> Event | None:
        if record.value is None:
            return None
        message = parse_progress(record.value)
        if message.pipeline != self._pipeline:
            return None
        match message:
            case Frontier():
                return FrontierReached(message)
            case Progress():
                return Answered(message)
            case UnroutedRecords():
                return Unrouted(message)
            case Offer():
                return Proposed(message)
        return None
