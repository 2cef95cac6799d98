"""Work items and dead letters, for an operator who wants to see them or send them again.

Control keeps none of them: it reads the topics when it is asked. Sending an item again is harmless, because the fence
of its destination judges it as it judges every other.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal, Protocol

from services.control.status import View
from shared.kafka.dead_letter import MAX_PAYLOAD
from shared.kafka.record import Record
from shared.kafka.topics import Topics
from shared.messages import DeadLetter, ItemKind, UnreadableMessage, WorkItem

State = Literal["waiting", "in_flight", "done", "superseded"]

MAX_REPLAYED = 100_000
REPLAYED_BY = "viaduck-replayed-by"
DELIVERED_WITHIN_S = 30.0


class Reading(Protocol):
    """The part of ``shared.kafka.scan.Scan`` that is used here."""

    def newest(self, topic: str, count: int) -> list[Record]: ...
    def all(self, topic: str, since_ms: int | None = None) -> Iterator[Record]: ...


class Sending(Protocol):
    """The part of ``shared.kafka.publisher.Publisher`` that is used here."""

    def send(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        headers: Mapping[str, str] | None = None,
        on_delivery: Callable[[Exception | None], None] | None = None,
    ) -> None: ...

    def flush(self, timeout_s: float) -> int: ...


@dataclass(frozen=True)
class Found:
    """A work item, where it lies, and what became of it."""

    record: Record
    item: WorkItem
    state: State


@dataclass(frozen=True)
class Which:
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
class Sent:
    """How many matched, how many the broker has confirmed, and how many could not be sent at all."""

    matched: int
    sent: int
    refused: int = 0
    more: bool = False
    """There were more than are sent at once; ask again for the rest."""


class Work:
    """One pipeline's. Raises ``DependencyError`` while the broker does not answer."""

    def __init__(
        self, pipeline: str, topics: Topics, reading: Reading, sending: Sending, view: Callable[[], View]
    ) -> None:
        self._pipeline, self._topics, self._reading, self._sending, self._view = (
            pipeline,
            topics,
            reading,
            sending,
            view,
        )

    def items(self, limit: int, which: Which, state: State | None = None) -> list[Found]:
        """The newest items, the newest first."""
        view = self._view()
        parsed = list(self._parsed(self._reading.newest(self._topics.work, max(limit, 1_000))))
        newest = {item.destination: item.item for _, item in sorted(parsed, key=lambda each: each[1].published_at)}
        found = [
            Found(record, item, state_of(item, newest[item.destination] == item.item, view))
            for record, item in sorted(parsed, key=lambda each: each[1].published_at, reverse=True)
            if which.holds(record, item)
        ]
        return [each for each in found if state is None or each.state == state][:limit]

    def replay(self, which: Which, author: str, *, dry_run: bool = False) -> Sent:
        """Send what matches again, as it was."""
        since_ms = None if which.since is None else int(which.since.timestamp() * 1000)
        matching = (r for r, i in self._parsed(self._reading.all(self._topics.work, since_ms)) if which.holds(r, i))
        records = list(islice(matching, MAX_REPLAYED + 1))
        chosen = records[:MAX_REPLAYED]
        return self._send(
            [(self._topics.work, each) for each in chosen], author, dry_run, more=len(records) > len(chosen)
        )

    def dead_letters(self, limit: int) -> list[tuple[Record, DeadLetter]]:
        """The newest letters, the newest first: those of this pipeline, and those of which nobody can tell."""
        letters = list(self._letters(self._reading.newest(self._topics.dead_letter, max(limit, 1_000))))
        return sorted(letters, key=lambda each: each[1].at, reverse=True)[:limit]

    def redrive(self, partition: int | None, offset: int | None, author: str, *, dry_run: bool = False) -> Sent:
        """Send letters to where they came from. Of one that was cut, or of a topic that is control's own, nothing."""
        chosen = [
            (letter.topic, _original(record, letter))
            for record, letter in self._letters(self._reading.all(self._topics.dead_letter))
            if (partition is None or record.partition == partition) and (offset is None or record.offset == offset)
        ]
        takes = (self._topics.work, self._topics.progress)
        good = [(topic, each) for topic, each in chosen if topic in takes and len(each.value or b"") < MAX_PAYLOAD]
        sent = self._send(good[:MAX_REPLAYED], author, dry_run, more=len(good) > MAX_REPLAYED)
        return Sent(len(chosen), sent.sent, len(chosen) - len(good), sent.more)

    def _send(self, records: list[tuple[str, Record]], author: str, dry_run: bool, *, more: bool) -> Sent:
        if dry_run:
            return Sent(len(records), 0, more=more)
        confirmed, lock = [0], threading.Lock()

        def delivered(error: Exception | None) -> None:
            with lock:
                confirmed[0] += error is None

        for topic, record in records:
            headers = {**record.headers, REPLAYED_BY: author}
            self._sending.send(topic, record.key or "", record.value, headers, delivered)
        self._sending.flush(DELIVERED_WITHIN_S)
        return Sent(len(records), confirmed[0], more=more)

    def _parsed(self, records: Iterable[Record]) -> Iterator[tuple[Record, WorkItem]]:
        """What can't be read is a dead letter by now."""
        for record in records:
            try:
                item = WorkItem.from_bytes(record.value or b"")
            except UnreadableMessage:
                continue
            if item.pipeline == self._pipeline:
                yield record, item

    def _letters(self, records: Iterable[Record]) -> Iterator[tuple[Record, DeadLetter]]:
        for record in records:
            try:
                letter = DeadLetter.from_bytes(record.value or b"")
            except UnreadableMessage:
                continue
            pipeline, slash, _ = (letter.key or "").partition("/")
            if not slash or pipeline == self._pipeline:
                yield record, letter


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
