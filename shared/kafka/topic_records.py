"""Reads the records of a topic between two vectors, by assignment: no group, no commits, no reset of offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from shared.contracts.errors import SourceError
from shared.contracts.positions import Vector
from shared.kafka.failure import Watch, build, is_fatal
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import source_error

BATCH = 8_192
POLL_S = 0.5

LATE_S = 0.02
"""A client takes a moment to stop fetching. Only who has more to read than fits into one reading waits for that."""

FETCH = {
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 8_192,
    "fetch.max.bytes": 8_388_608,
    "fetch.message.max.bytes": 4_194_304,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
}
"""What is fetched ahead is bounded, and an offset that is gone is an error. A broker's answer holds records of all
partitions: it is bounded as a whole, or each of them would add 4 MB. A client that has fetched as much as it may looks
again after the backoff, by default a second, in which all that was fetched is long taken."""

Take = Callable[[Sequence[Message]], None]


@dataclass(frozen=True)
class Bounds:
    """Where a reading ends though there is more: with the batch that reaches one of the two."""

    rows: int
    bytes: int


@dataclass
class ReadingProgress:
    """How far a reading has got. ``records`` and ``bytes`` (values, keys and headers) are those that were
    taken."""

    next: dict[int, int]
    records: int = 0
    bytes: int = 0
    open: set[int] = field(default_factory=set)

    @property
    def vector(self) -> Vector:
        return Vector.of(self.next)


def size_of(messages: Sequence[Message]) -> int:
    """Bytes of values, keys and headers, but characters of headers' names. All at once, since a loop in Python would
    take several times as long for each of a million records."""
    keys = filter(None, map(Message.key, messages))
    headers = filter(None, map(Message.headers, messages))
    parts = filter(None, chain.from_iterable(chain.from_iterable(headers)))
    return sum(map(len, messages)) + sum(map(len, keys)) + sum(map(len, parts))


class TopicRecords:
    """One consumer of one topic, which is used by one thread at a time.

    A consumer remembers the epoch of each partition's leader, takes what brokers say of a lower one for outdated, and
    waits for records in vain where the topic was created again. So each topic id has a consumer of its own, and so has
    what comes after a failure.
    """

    def __init__(self, settings: KafkaSettings, topic: str, client_id: str) -> None:
        self._settings = settings
        self._topic = topic
        self._topic_id: str | None = None
        self._watch = Watch(client_id, is_member=False)
        self._own = {**settings.consumer(client_id, f"{client_id} (unused)", self._watch), **FETCH}
        self._consumer = build(Consumer, self._own)

    def close(self) -> None:
        self._consumer.close()

    def follow(self, topic_id: str) -> None:
        """Read what has this id from now on."""
        if self._topic_id is not None and self._topic_id != topic_id:
            self._begin_again()
        self._topic_id = topic_id

    def _begin_again(self) -> None:
        self._consumer.close()
        self._consumer = build(Consumer, self._own)

    def read(self, begin: Vector, end: Vector, bounds: Bounds, within_s: float, take: Take) -> ReadingProgress:
        """Hand every committed record from ``begin`` up to before ``end`` to ``take``, in batches.

        Ends early where a bound is reached. Positions decide when a partition is done, not counts: control records,
        aborted ones and compaction leave holes. Raises ``SourceError``: ``history_expired`` with partition and offset
        where records are gone, ``source_unreachable`` where nothing comes for ``within_s`` seconds.
        """
        first, last = begin.by_partition, end.by_partition
        reached = ReadingProgress({**first}, open={each for each in last if last[each] > first.get(each, 0)})
        if not reached.open:
            return reached
        with self._assigned({each: first.get(each, 0) for each in reached.open}):
            heard_s = time.monotonic()
            while reached.open and reached.records < bounds.rows and reached.bytes < bounds.bytes:
                messages = self._consume(min(BATCH, bounds.rows - reached.records))
                if messages:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > within_s:
                    raise self._failed(KafkaError(KafkaError._TIMED_OUT))
                self._take(messages, last, reached, take)
        self._drop_ahead(LATE_S if reached.open else 0.0)
        return reached

    @contextmanager
    def _assigned(self, offsets: dict[int, int]) -> Iterator[None]:
        try:
            self._consumer.assign([TopicPartition(self._topic, each, offset) for each, offset in offsets.items()])
            yield
        except BaseException as error:
            self._begin_again()
            if isinstance(error, KafkaException):
                raise self._failed(error.args[0]) from None
            raise
        self._consumer.unassign()

    def _drop_ahead(self, late_s: float) -> None:
        """A client keeps what it fetched ahead, some 25 MB, until it is asked again, and then finds it unwanted.
        An answer that is on its way may still come within ``late_s``."""
        self._consumer.consume(1, timeout=late_s)

    def _consume(self, most: int) -> list[Message]:
        """Whatever is there once something is: a batch would be waited for in full."""
        first = self._consumer.poll(POLL_S)
        if first is None:
            return []
        return [first] if most < 2 else [first, *self._consumer.consume(most - 1, timeout=0)]

    def _take(self, messages: Sequence[Message], last: dict[int, int], reached: ReadingProgress, take: Take) -> None:
        wanted: list[Message] = []
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            if (error := message.error()) is not None:
                self._note(error, message, last, reached)
                continue
            if offset < reached.next.get(partition, 0):
                continue  # each record once, whatever a client does after it lost its broker
            if offset >= last[partition]:
                self._done(partition, last[partition], reached)
                continue
            wanted.append(message)
            reached.next[partition] = offset + 1
            if offset + 1 >= last[partition]:
                self._done(partition, offset + 1, reached)
        if wanted:
            self._watch.works()
            reached.records += len(wanted)
            reached.bytes += size_of(wanted)
            take(wanted)

    def _note(self, error: KafkaError, message: Message, last: dict[int, int], reached: ReadingProgress) -> None:
        """An end of a partition tells that nothing is left before it, whatever the numbers of its last records."""
        partition, offset = message.partition() or 0, message.offset() or 0
        if error.code() == KafkaError._PARTITION_EOF:
            self._done(partition, min(last[partition], max(offset, reached.next.get(partition, 0))), reached)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            at = reached.next.get(partition, 0)
            raise SourceError(
                "history_expired",
                f"the topic {self._topic} no longer has offset {at} of partition {partition}",
                "reseed the destination; source.on_gap: reseed does so by itself",
            )
        elif self._watch.concerns(error) and (is_fatal(error) or not error.retriable()):
            raise self._failed(error)

    def _done(self, partition: int, at: int, reached: ReadingProgress) -> None:
        """Nothing before ``at`` is left to be read."""
        reached.next[partition] = at
        if partition in reached.open:
            reached.open.discard(partition)
            self._consumer.incremental_unassign([TopicPartition(self._topic, partition)])

    def _failed(self, error: KafkaError) -> SourceError:
        return source_error(self._settings, self._topic, error, self._watch.problem)
