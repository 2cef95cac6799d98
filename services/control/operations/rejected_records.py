"""Rejected records as they lie on their topic, and pages of them, the newest first."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from confluent_kafka import Message

from services.control.store.redriven import RedriveClaim
from shared.kafka.rejected import Header, RejectedOrigin, told_apart
from shared.kafka.scan import Spans
from shared.kafka.topic_records import Bounds, Take

PAGE_BYTES = 64_000_000
"""Read for one page, at most; a page of larger records holds fewer."""

EVERYTHING = Bounds(2**62, 2**62)


class PartReading(Protocol):
    """The part of ``shared.kafka.topic_part.TopicPart`` that is used here."""

    def spans(self, topic: str) -> Spans | None: ...
    def read(self, topic: str, spans: Spans, bounds: Bounds, take: Take) -> Spans: ...


@dataclass(frozen=True)
class Excerpt:
    """A key or a value: its beginning, and how many bytes it has."""

    beginning: bytes
    size: int


@dataclass(frozen=True)
class RejectedRecord:
    """A record on the topic of rejected records. ``origin`` is None where no applier has put it there."""

    partition: int
    offset: int
    at: datetime | None
    key: Excerpt | None
    value: Excerpt | None
    headers: list[Header] = field(repr=False)
    origin: RejectedOrigin | None

    @property
    def place(self) -> str:
        """A digest of where it stood: a record that an applier has delivered twice is one."""
        known = self.origin
        here = ("", self.partition, self.offset) if known is None else (
            known.topic, known.partition, known.offset, known.timestamp
        )  # fmt: skip
        return hashlib.sha256(repr(here).encode()).hexdigest()

    @property
    def claim(self) -> RedriveClaim:
        return RedriveClaim(self.place, self.partition, self.offset)


def record_of(message: Message, shown: int | None = None) -> RejectedRecord:
    """``shown``: how many bytes of key and value are kept; None for all."""
    headers, origin = told_apart(message.headers())
    kind, milliseconds = message.timestamp()
    return RejectedRecord(
        message.partition() or 0,
        message.offset() or 0,
        datetime.fromtimestamp(milliseconds / 1000, UTC) if kind and milliseconds >= 0 else None,
        _content(message.key(), shown),
        _content(message.value(), shown),
        headers,
        origin,
    )


def _content(raw: str | bytes | None, shown: int | None) -> Excerpt | None:
    if raw is None:
        return None
    whole = raw.encode() if isinstance(raw, str) else raw
    return Excerpt(whole[:shown], len(whole))


def newest(
    reading: PartReading, topic: str, spans: Spans, limit: int, shown: int
) -> tuple[list[RejectedRecord], Spans | None]:
    """About the newest ``limit`` of what lies there, and where the rest does; None where that was all."""
    while True:
        wanted, found = shares(spans, limit), list[RejectedRecord]()

        def take(messages: Sequence[Message], found: list[RejectedRecord] = found) -> None:
            found.extend(record_of(each, shown) for each in messages)

        bounds = Bounds(EVERYTHING.rows, PAGE_BYTES) if limit > 1 else EVERYTHING
        if not reading.read(topic, wanted, bounds, take):
            return _merged(found, spans, wanted, limit)
        limit = max(1, limit // 8)


def shares(spans: Spans, limit: int) -> Spans:
    """The ends of the partitions that make about ``limit`` records, at least one of each; what a short one leaves is
    the others'."""
    found: Spans = {}
    left = limit
    for waiting, (number, (first, end)) in enumerate(sorted(spans.items(), key=lambda each: each[1][1] - each[1][0])):
        mine = min(end - first, max(1, -(-left // (len(spans) - waiting))))
        found[number] = (end - mine, end)
        left = max(0, left - mine)
    return found


def _merged(
    found: Iterable[RejectedRecord], spans: Spans, wanted: Spans, limit: int
) -> tuple[list[RejectedRecord], Spans | None]:
    """Of each partition the last ones are given out, so that one offset tells where its rest ends."""
    lists: dict[int, list[RejectedRecord]] = {}
    for each in sorted(found, key=lambda each: each.offset, reverse=True):
        lists.setdefault(each.partition, []).append(each)
    given = list(heapq.merge(*lists.values(), key=_age))[:limit]
    ends = _ends(given, lists, wanted)
    rest = {number: (first, ends[number]) for number, (first, _) in spans.items() if first < ends[number]}
    return given, rest or None


def _ends(
    given: Sequence[RejectedRecord], lists: Mapping[int, Sequence[RejectedRecord]], wanted: Spans
) -> dict[int, int]:
    """Behind the last record that was not given out, by partition; where all were, before the first that was read."""
    lowest = {each.partition: each.offset for each in given}
    counts = Counter(each.partition for each in given)
    return {
        number: first if counts[number] == len(lists.get(number, ())) else lowest.get(number, end)
        for number, (first, end) in wanted.items()
    }


def _age(record: RejectedRecord) -> float:
    return 0.0 if record.at is None else -record.at.timestamp()
