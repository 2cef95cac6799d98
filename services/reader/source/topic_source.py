"""A Kafka topic as the reader sees it: offsets by partition, and never a record."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Protocol

from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.flushing import Flushing, FlushRules
from services.reader.planner.frontier import TopicEnds
from services.reader.planner.scheduling import LogState, SourceState
from services.reader.source.group_offsets import GroupOffsets
from services.reader.source.source_reader import Cut
from services.reader.source.waiting_records import WaitingRecords, longest
from shared.config.model import Config, TopicStart
from shared.config.topic_rules import size_in_bytes
from shared.contracts.errors import SourceError
from shared.contracts.positions import SpelledPosition, Vector
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.contracts.reports import Offered
from shared.kafka.topic_log import TopicIdentity
from shared.lake.catalog.reader import Head
from shared.runtime.metrics import MOST_PARTITIONS, Metrics

MOST_HEADS = 2_048
"""Heads of which the vectors are remembered; an item up to an older one goes up to the newest."""


class OffsetLog(Protocol):
    """``shared.kafka.topic_log.TopicLog`` is one."""

    topic: str

    def identity(self) -> TopicIdentity: ...
    def newest(self, partitions: int) -> Vector: ...
    def oldest(self, partitions: int) -> Vector: ...
    def since(self, partitions: int, timestamp_ms: int) -> Vector: ...


class KafkaSource:
    """One topic. An idle poll costs one question for its ends, whatever the number of partitions; the poller has it
    observed once a minute as well."""

    def __init__(
        self,
        config: Config,
        log: OffsetLog,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        metrics: Metrics | None = None,
        offsets: GroupOffsets | None = None,
    ) -> None:
        """``offsets``: tells other programs how far the destination is; None where nothing does."""
        if config.topic is None:
            raise ValueError("the pipeline reads no topic")
        self._start = config.topic.start
        self._skips = config.topic.on_gap == "skip"
        self._rules = FlushRules(config.flush.rows, size_in_bytes(config.flush.bytes), config.flush.seconds)
        self._log = log
        self._clock = clock
        self._now = now
        self._metrics = metrics or Metrics(config.pipeline)
        self._offsets = offsets
        self._identity: TopicIdentity | None = None
        self._newest = Vector()
        self._record_bytes = 0
        self._waiting = WaitingRecords()
        self._ends: TopicEnds | None = None
        self._begin: Vector | None = None
        self._forget()

    def close(self) -> None:
        """Its client ends with the process."""

    def head(self) -> Head:
        if self._identity is None:
            self._identity = self._log.identity()
        self._newest = self._newest_of(self._identity)
        now_s, now, since_s = self._clock(), self._now(), self._flushing.waits_since_s
        trigger = self._flushing.look(self._newest, now_s, self._record_bytes)
        if trigger is not None:
            self._metrics.flushes_total.labels(trigger=trigger.value).inc()
            first_s = now_s if since_s is None else since_s
            self._note_head(now - timedelta(seconds=now_s - first_s))
        head = self._flushing.head or Vector()
        return Head(head.records, self._times[head.records], now)

    def observe(self, head: Head) -> SourceState:
        """Raises ``source_gone`` where there is no such topic."""
        identity = self._log.identity()
        if self._identity is not None and _is_another(self._identity, identity):
            self._identity = identity
            self._forget()
            head = self.head()
        self._identity = identity
        oldest = self._log.oldest(identity.partitions)
        planned = self._flushing.head or Vector()
        begin = self._begin = self._beginning(identity, oldest, planned)
        return SourceState(
            head=head.snapshot,
            oldest=0,
            born=0,
            first=begin.records,
            lake=identity.cluster,
            table=identity.topic_id,
            at=head.time,
            log=LogState(oldest, planned, self._newest, {**self._heads, begin.records: begin}, self._skips),
        )

    def weigh(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes

    def measure(self, reached: Iterable[SpelledPosition]) -> None:
        """``reached``: up to where each destination has its records. What is measured is the one furthest behind.

        Before the first seed, records wait from where a life begins.
        """
        vectors = [Vector.parse(each.spelled) for each in reached if each.number != NOT_SEEDED and each.spelled]
        at = reduce(Vector.met, vectors) if vectors else None
        now_s = self._clock()
        behind = self._begin if at is None else at
        waits = self._waiting.look(self._newest, behind, now_s)
        self._ends = TopicEnds(self._newest.text, longest(waits, MOST_PARTITIONS))
        if behind is not None:
            self._metrics.topic_lag_records.labels().set(max(0, self._newest.records - behind.records))
            self._metrics.topic_lag_seconds.labels().set(max(waits.values(), default=0.0))
        self._show_offsets(at)
        if self._offsets is not None and self._identity is not None and at is not None:
            self._offsets.tell([at.text], self._identity.partitions, now_s)

    def ends(self) -> TopicEnds | None:
        return self._ends

    def cuts(self, snapshots: Range) -> list[Cut]:
        return [Cut(snapshots, pinned=True, oldest_touch=self._times.get(snapshots.through))]

    def count(self, cut: Cut, routed: Collection[str]) -> CountedStep:
        """Offsets tell how many records there are at most; whose they are is found by the appliers, who read them. A
        destination is believed to get an equal part."""
        records = cut.range.through - cut.range.after
        part = -(-records // max(1, len(routed)))
        return CountedStep(cut.range, {}, records, pinned=True, oldest_touch=cut.oldest_touch, of_any=part)

    def sizes(self) -> dict[str, int] | None:
        """A life begins with an empty table."""
        return {}

    def unknown(self, routed: Collection[str]) -> tuple[list[Offered], bool]:  # noqa: ARG002 - no record is read
        return [], False

    def _show_offsets(self, at: Vector | None) -> None:
        partitions = 0 if self._identity is None else self._identity.partitions
        self._metrics.topic_head_offset.show(self._newest.by_partition, partitions)
        if at is None:
            self._metrics.topic_position_offset.show({}, 0)
        else:
            self._metrics.topic_position_offset.show(at.by_partition, partitions)

    def _newest_of(self, identity: TopicIdentity) -> Vector:
        try:
            return self._log.newest(identity.partitions)
        except SourceError:
            self._identity = None  # the topic may have been created again, with fewer partitions
            raise

    def _note_head(self, since: datetime) -> None:
        head = self._flushing.head or Vector()
        self._heads[head.records], self._times[head.records] = head, since
        while len(self._heads) > MOST_HEADS:
            del self._times[self._heads.popitem(last=False)[0]]

    def _forget(self) -> None:
        """All that speaks of another topic."""
        self._flushing = Flushing(self._rules)
        self._heads: OrderedDict[int, Vector] = OrderedDict()
        self._times: dict[int, datetime] = {}
        self._begin = None

    def _beginning(self, identity: TopicIdentity, oldest: Vector, planned: Vector) -> Vector:
        """Where a life begins that is seeded now. A partition that comes later begins at its first record."""
        start = self._start
        if start.offsets:
            return Vector.of({**oldest.by_partition, **offsets_of(start)})
        if start.timestamp is not None:
            if self._begin is not None and self._begin.covers(oldest):
                return self._begin
            return self._log.since(identity.partitions, _milliseconds(start.timestamp))
        return oldest if start.position == "earliest" else planned


def offsets_of(start: TopicStart) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in start.offsets.items()}


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _is_another(one: TopicIdentity, other: TopicIdentity) -> bool:
    return (one.cluster, one.topic_id) != (other.cluster, other.topic_id)
