"""The records of a topic between two vectors, as one topic id has them: what an item asks for, or the first of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from services.applier.model.task import SourceTopic
from services.applier.worker.topic_clients import BrokerClients, TopicClients
from shared.contracts.errors import SourceError
from shared.contracts.messages import WorkItem
from shared.contracts.positions import Vector
from shared.kafka.topic_log import TopicIdentity
from shared.kafka.topic_records import Bounds, ReadingProgress, Take

SILENCE_S = 30.0
"""A broker that sends nothing for so long, though there is something to read, does not answer."""

IN_JSON = 4
"""About so many times more bytes are values in binary once they are in JSON, in which they are kept beside."""

SPARING = 8
"""So many times less is read at once where a reading did not fit into memory."""


@dataclass(frozen=True)
class Ranged:
    """How far a range was read."""

    identity: TopicIdentity
    reached: ReadingProgress
    seconds: float


class TopicRanges:
    """Reads one topic, through the worker's clients."""

    def __init__(self, clients: BrokerClients, source: SourceTopic) -> None:
        self._clients = clients
        self._source = source

    def read(self, item: WorkItem, take: Take, *, sparing: bool) -> Ranged:
        """Hands the records that an item asks for, or the first of them, to ``take``."""
        begin, end = begin_of(item), vector_of(item.through_at)
        if not end.covers(begin):
            raise SourceError(
                "source_behind", f"the item ends at {end.text}, which is not beyond {begin.text}", "it is planned again"
            )
        with self._clients.of(self._source) as clients:
            began = time.perf_counter()
            identity = clients.log.identity()
            clients.records.follow(identity.topic_id)
            if item.after_at is not None:
                self._require_gone(clients, identity, item)
            reached = self._fetch(clients, begin, end, take, sparing=sparing)
            if clients.log.identity().topic_id != identity.topic_id:
                raise SourceError(
                    "source_behind", f"the topic {self._source.table} was created again while it was read",
                    "the destination is asked for its position again",
                )  # fmt: skip
        if reached.vector == begin != end:
            said = f"the topic {self._source.table} ends before {end.text}, up to which it is to be read"
            raise SourceError("source_behind", said, "a replica may lag; it is tried again")
        return Ranged(identity, reached, time.perf_counter() - began)

    def _require_gone(self, clients: TopicClients, identity: TopicIdentity, item: WorkItem) -> None:
        """Raises ``SourceError`` unless all that the item skips is gone, and may be skipped. TLA: ``AreGone``."""
        skipped = {} if item.skipped is None else item.skipped.offsets
        oldest = clients.log.oldest(identity.partitions).by_partition
        there = next((each for each, (_, end) in skipped.items() if oldest.get(each, 0) < end), None)
        if not self._source.skips_gaps or there is not None:
            why = "source.on_gap is not skip" if there is None else f"partition {there} of the topic still has some"
            said = f"records of {self._source.table} were to be skipped, and {why}"
            raise SourceError("source_behind", said, "it is planned again")

    def _fetch(
        self, clients: TopicClients, begin: Vector, end: Vector, take: Take, *, sparing: bool
    ) -> ReadingProgress:
        source = self._source
        less = (SPARING if sparing else 1) * (IN_JSON if source.form.is_decoded else 1)
        bounds = Bounds(max(1, source.rows // less), max(1, source.bytes // less))
        try:
            return clients.records.read(begin, end, bounds, SILENCE_S, take)
        except SourceError as error:
            if error.type != "history_expired" or not source.skips_gaps:
                raise
            raise SourceError("source_behind", error.message, "it is planned again, from what is retained on") from None


def begin_of(item: WorkItem) -> Vector:
    return vector_of(item.read_at or item.after_at or item.expected_at)


def vector_of(offsets: str | None) -> Vector:
    """Raises ``SourceError`` for an item without one, which no reader of a topic sends."""
    if offsets is None:
        raise SourceError("source_behind", "the item says nothing of the topic's offsets", "it is planned again")
    return Vector.parse(offsets)
