"""Work items and dead letters, for an operator who wants to see them or send them again.

Control keeps none of them: it reads the topics when it is asked. Sending an item again is harmless, because the fence
of its destination judges it as it judges every other. What was sent again is not sent again itself, or every call would
send more than the one before.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import structlog

from services.control.operations.replay_pacing import USUAL_RATE, ReplayTurn, most_of_a_call, paced
from services.control.store.audit_log import WHOLE, AuditLog
from services.control.view.destination_status import View
from shared.contracts.errors import DependencyError, UnreadableMessage
from shared.contracts.messages import DeadLetter, ItemKind, WorkItem
from shared.kafka.dead_letter import MAX_PAYLOAD
from shared.kafka.record import Record
from shared.kafka.sender import FlushingSender
from shared.kafka.topics import Topics

log = structlog.get_logger(__name__)

State = Literal["waiting", "in_flight", "done", "superseded"]
Spans = dict[int, tuple[int, int]]
"""The first offset to look at and the one behind the last, by partition."""
T = TypeVar("T")
Read = TypeVar("Read", WorkItem, DeadLetter)

MAX_SENT = 100_000
"""Messages that one call sends again, at most."""
REPLAYED_BY = "viaduck-replayed-by"
DELIVERED_WITHIN_S = 30.0


class TopicScan(Protocol):
    """The part of ``shared.kafka.scan.Scan`` that is used here."""

    def newest(self, topic: str, count: int) -> list[Record]: ...
    def spans(self, topic: str, since_ms: int | None = None) -> Spans: ...
    def within(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[Record]: ...


@dataclass(frozen=True)
class FoundItem:
    """A work item, where it lies, and what became of it."""

    record: Record
    item: WorkItem
    state: State


@dataclass(frozen=True)
class WorkItemFilter:
    """Which work items are meant; everything that is given must hold."""

    destination: str | None = None
    kind: ItemKind | None = None
    since: datetime | None = None
    until: datetime | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    after: int | None = None
    through: int | None = None
    """``(after, through]``: items whose range shares a snapshot with it."""

    @property
    def given(self) -> dict[str, Any]:
        """What is asked for, for the trail."""
        told = {name: value for name, value in vars(self).items() if value is not None}
        return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in told.items()}

    def holds(self, record: Record, item: WorkItem) -> bool:
        return self._lies_there(record) and self._was_then(item) and self._is_such(item)

    def _lies_there(self, record: Record) -> bool:
        return (
            (self.partition is None or record.partition == self.partition)
            and (self.from_offset is None or record.offset >= self.from_offset)
            and (self.to_offset is None or record.offset <= self.to_offset)
        )

    def _was_then(self, item: WorkItem) -> bool:
        return (self.since is None or item.published_at >= self.since) and (
            self.until is None or item.published_at <= self.until
        )

    def _is_such(self, item: WorkItem) -> bool:
        return (
            (self.destination is None or item.destination == self.destination)
            and (self.kind is None or item.kind is self.kind)
            and (self.after is None or item.through > self.after)
            and (self.through is None or item.after < self.through)
        )


@dataclass(frozen=True)
class ReplayCall:
    """What one call may send: up to ``most`` messages, ``rate`` a second, from ``rest`` of the call before on.

    With ``dry_run`` it only counts. What lies behind the topic's end as of the first call is new, and no call looks at
    it.
    """

    dry_run: bool = False
    most: int = MAX_SENT
    rest: Spans | None = None
    rate: int = USUAL_RATE


@dataclass(frozen=True)
class Sent:
    """How many matched, how many the broker has confirmed, and how many could not be sent at all."""

    matched: int
    sent: int
    refused: int = 0
    rest: Spans | None = None
    """Where more that matches lies than is sent at once; None where that was all."""


def in_turn(turn: ReplayTurn, send: Callable[[int, int | None], Sent], call: ReplayCall) -> Sent:
    """As many as go out within a call, and the turn for the next call. ``send`` is told how many, and at which rate;
    None to count only. Raises ``Refused`` while others are being sent."""
    if call.dry_run:
        return send(call.most, None)
    with turn.taken(call.rest) as keep:
        sent = send(min(call.most, most_of_a_call(call.rate)), call.rate)
        keep(sent.rest)
        return sent


class Work:
    """One pipeline's. Raises ``DependencyError`` while the broker does not answer; to send, the registry must, too."""

    def __init__(
        self,
        pipeline: str,
        topics: Topics,
        reading: TopicScan,
        sending: FlushingSender,
        view: Callable[[], View],
        audit_log: AuditLog,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pipeline = pipeline
        self._topics = topics
        self._reading = reading
        self._sending = sending
        self._view = view
        self._trail = audit_log
        self._now = now
        self._turn = ReplayTurn()

    def items(self, limit: int, which: WorkItemFilter, state: State | None = None) -> list[FoundItem]:
        """The newest items, the newest first."""
        view = self._view()
        parsed = list(self._parsed(self._reading.newest(self._topics.work, max(limit, 1_000))))
        newest = {item.destination: item.item for _, item in sorted(parsed, key=lambda each: each[1].published_at)}
        found = [
            FoundItem(record, item, state_of(item, newest[item.destination] == item.item, view))
            for record, item in sorted(parsed, key=lambda each: each[1].published_at, reverse=True)
            if which.holds(record, item)
        ]
        return [each for each in found if state is None or each.state == state][:limit]

    def replay(self, which: WorkItemFilter, author: str, call: ReplayCall) -> Sent:
        """Send what matches again, as it was. Raises ``Refused`` while others are being sent."""
        return in_turn(self._turn, partial(self._replay, which, author, call.rest), call)

    def _replay(self, which: WorkItemFilter, author: str, rest: Spans | None, most: int, rate: int | None) -> Sent:
        """``rate`` None: only count."""
        since_ms = None if which.since is None else int(which.since.timestamp() * 1000)
        spans = rest if rest is not None else self._reading.spans(self._topics.work, since_ms)
        spans = narrowed(spans, which.partition, which.from_offset, which.to_offset)

        def choose(record: Record) -> Record | None:
            if REPLAYED_BY in record.headers:
                return None
            return next((each for each, item in self._parsed([record]) if which.holds(each, item)), None)

        chosen, rest = _first(self._reading.within(self._topics.work, spans), spans, choose, most)
        about = which.destination if which.destination in self._view().destinations else None
        sent = Sent(len(chosen), 0, rest=rest)
        good = [(self._topics.work, each) for each in chosen]
        return sent if rate is None else self._send(good, sent, author, "replayed", which.given, about or WHOLE, rate)

    def dead_letters(self, limit: int) -> list[tuple[Record, DeadLetter]]:
        """The newest letters, newest first: those of this pipeline, and those whose pipeline is unknown."""
        letters = list(self._letters(self._reading.newest(self._topics.dead_letter, max(limit, 1_000))))
        return sorted(letters, key=lambda each: each[1].at, reverse=True)[:limit]

    def redrive(self, partition: int | None, offset: int | None, author: str, call: ReplayCall) -> Sent:
        """Send letters to where they came from. Skips letters that were cut, are not signed by a service of ours, or
        belong to a topic of control.

        A letter that has come back is left out, because its first copy is there, too; naming its partition and offset
        sends it anyway.
        """
        return in_turn(self._turn, partial(self._redrive, partition, offset, author, call.rest), call)

    def _redrive(
        self, partition: int | None, offset: int | None, author: str, rest: Spans | None, most: int, rate: int | None
    ) -> Sent:
        """``rate`` None: only count."""
        spans = rest if rest is not None else self._reading.spans(self._topics.dead_letter)
        spans = narrowed(spans, partition, offset, offset)
        named = partition is not None and offset is not None

        def choose(record: Record) -> tuple[DeadLetter, Record] | None:
            if REPLAYED_BY in record.headers and not named:
                return None
            return next(((letter, _original(each, letter)) for each, letter in self._letters([record])), None)

        chosen, rest = _first(self._reading.within(self._topics.dead_letter, spans), spans, choose, most)
        good = [(letter.topic, each) for letter, each in chosen if self._may_be_sent(letter, each)]
        sent = Sent(len(chosen), 0, len(chosen) - len(good), rest)
        given = {name: each for name, each in (("partition", partition), ("offset", offset)) if each is not None}
        return sent if rate is None else self._send(good, sent, author, "redriven", given, WHOLE, rate)

    def _may_be_sent(self, letter: DeadLetter, original: Record) -> bool:
        takes = (self._topics.work, self._topics.progress)
        return letter.topic in takes and not letter.distrusted and len(original.raw or b"") < MAX_PAYLOAD

    def _send(
        self,
        records: list[tuple[str, Record]],
        sent: Sent,
        author: str,
        deed: str,
        given: dict[str, Any],
        about: str,
        rate: int,
    ) -> Sent:
        """It is in the trail before anything is sent: what can't be written down is not done."""
        if not records:
            return sent
        told = {"which": given, "matched": sent.matched, "refused": sent.refused, "more": sent.rest is not None}
        self._trail.note(deed, author, self._now(), told, about)
        confirmed = self._sent(records, author, rate)
        if confirmed < len(records):
            self._note_missing(deed, author, {"sent": confirmed, "of": len(records)}, about)
        return replace(sent, sent=confirmed)

    def _note_missing(self, deed: str, author: str, told: dict[str, Any], about: str) -> None:
        """The caller gets the answer anyway."""
        try:
            self._trail.note(f"{deed} in part", author, self._now(), told, about)
        except DependencyError as error:
            log.warning("replay_not_audited", **told, reason=error.message)

    def _sent(self, records: list[tuple[str, Record]], author: str, rate: int) -> int:
        """How many the broker has confirmed."""
        confirmed, lock = [0], threading.Lock()

        def delivered(error: Exception | None) -> None:
            with lock:
                confirmed[0] += error is None

        for topic, record in paced(records, rate):
            headers = {**record.headers, REPLAYED_BY: author}
            self._sending.send(topic, record.key or "", record.value, headers, delivered)
        self._sending.flush(DELIVERED_WITHIN_S)
        return confirmed[0]

    def _parsed(self, records: Iterable[Record]) -> Iterator[tuple[Record, WorkItem]]:
        return (found for found in _readable(records, WorkItem) if found[1].pipeline == self._pipeline)

    def _letters(self, records: Iterable[Record]) -> Iterator[tuple[Record, DeadLetter]]:
        for record, letter in _readable(records, DeadLetter):
            pipeline, slash, _ = (letter.key or "").partition("/")
            if not slash or pipeline == self._pipeline:
                yield record, letter


def _readable(records: Iterable[Record], model: type[Read]) -> Iterator[tuple[Record, Read]]:
    """What can't be read is a dead letter by now."""
    for record in records:
        try:
            message = model.from_bytes(record.value or b"")
        except UnreadableMessage:
            continue
        yield record, message


def narrowed(spans: Spans, partition: int | None, first: int | None, last: int | None) -> Spans:
    """The part of the spans on that partition and between these offsets, both included."""
    return {
        number: (max(start, first or 0), end if last is None else min(end, last + 1))
        for number, (start, end) in spans.items()
        if partition in (None, number)
    }


def _first(
    records: Iterable[Record], spans: Spans, choose: Callable[[Record], T | None], most: int
) -> tuple[list[T], Spans | None]:
    """The first ``most`` of what is chosen, and what is left to look at where there is one more."""
    found: list[T] = []
    left = dict(spans)
    for record in records:
        chosen = choose(record)
        if chosen is not None and len(found) == most:
            return found, {number: (first, end) for number, (first, end) in left.items() if first < end}
        if chosen is not None:
            found.append(chosen)
        left[record.partition] = record.offset + 1, spans[record.partition][1]
    return found, None


def state_of(item: WorkItem, newest: bool, view: View) -> State:
    """What became of an item, by what control knows. ``newest``: no later one of its destination is known."""
    held, seen = view.destinations.get(item.destination), view.seen.get(item.destination)
    if held is None or item.generation < held.generation:
        return "superseded"
    if seen is not None and seen.generation == item.generation:
        reached = max(seen.position or -1, seen.through or -1)
        answered = seen.at >= item.published_at  # two clocks, for display only
        if (reached >= item.through and item.kind is not ItemKind.PROBE) or (answered and item.kind is ItemKind.PROBE):
            return "done"
    if not newest:
        return "superseded"
    flying = any(
        whole.lagging[item.destination].in_flight for whole in view.newest if item.destination in whole.lagging
    )
    return "in_flight" if flying else "waiting"


def _original(record: Record, letter: DeadLetter) -> Record:
    return Record(letter.topic, letter.partition, letter.offset, letter.key, base64.b64decode(letter.payload),
                  record.headers)  # fmt: skip
