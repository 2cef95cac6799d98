"""A member of a consumer group that commits exactly what it is told to."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from shared.kafka.failure import ClientLost, Watch, build, describe
from shared.kafka.message_batch import receive
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings

log = structlog.get_logger(__name__)

BATCH = 1_000
ASK_EVERY_S, ANSWER_WITHIN_S = 2.0, 1.0
UNSUPPORTED = "ConsumerGroupHeartbeat"
"""The request that a broker without the new group protocol does not know; librdkafka names it when it gives up."""


class PartitionId(NamedTuple):
    topic: str
    number: int


OnPartitions = Callable[[frozenset[PartitionId]], None]


def _ignore(_: frozenset[PartitionId]) -> None:
    """For members that keep nothing by partition."""


class WorkConsumer:
    """Offsets are committed by ``commit`` alone. The broker balances the group where it can (KIP-848), else the classic
    cooperative protocol does; either way partitions that stay where they are go on being read.

    One consumer, one thread: every method but ``renew`` belongs to the thread that built it, because librdkafka blocks
    without end when another thread calls a consumer that is being polled. Callbacks come out of ``poll`` and ``close``.
    ``on_revoke`` also gets partitions that were lost; their offsets can't be committed any more.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        group: str,
        topics: Sequence[str],
        on_assign: OnPartitions = _ignore,
        on_revoke: OnPartitions = _ignore,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._group = group
        self._topics = list(topics)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._assigned: set[PartitionId] = set()
        self._watch = Watch(client_id)
        self._renewed = threading.Event()
        self._ask_at_s = 0.0
        self._classic = settings.must_be_classic
        self._consumer = self._join()

    @property
    def problem(self) -> str | None:
        """Why the broker can't be used now; None while nothing is known to be wrong."""
        return self._watch.problem

    @property
    def assigned(self) -> frozenset[PartitionId]:
        return frozenset(self._assigned)

    def renew(self) -> None:
        """The topics were created again: rejoin with the next ``poll``. The only method for any thread."""
        self._renewed.set()

    def poll(self, timeout_s: float, limit: int = BATCH) -> list[Record]:
        """Up to ``limit`` records as soon as there is one; empty after ``timeout_s``.

        Must be called again within five minutes even while every partition is paused, or the group expels the member.
        A consumer that died is created again: its partitions are revoked first.
        """
        try:
            if self._renewed.is_set():
                self._renewed.clear()
                raise ClientLost("the topics are others than before")
            records = receive(self._consumer, self._watch, timeout_s, limit, self._settings.signing)
            if self._watch.problem is not None and time.monotonic() >= self._ask_at_s:
                self._ask()
            return records
        except ClientLost as lost:
            self._classic = self._classic or UNSUPPORTED in str(lost)
            log.warning("group_rejoined", client=self._client_id, group=self._group, because=str(lost))
            self._rejoin()
            return []

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Stop fetching; what was not handed out yet comes after ``resume``. Partitions of others are left out."""
        self._consumer.pause(self._ours(partitions))

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        self._consumer.resume(self._ours(partitions))

    def commit(self, offsets: Mapping[PartitionId, int]) -> None:
        """Commit the next offset to read of each partition, in the background; a failure is logged.

        Nothing depends on a commit: a record that is read again finds its work done.
        """
        positions = self._positions(offsets)
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=True)

    def close(self, offsets: Mapping[PartitionId, int] | None = None) -> None:
        """Commit ``offsets``, leave the group, and end."""
        try:
            positions = self._positions(offsets or {})
            if positions:
                self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets_not_committed", client=self._client_id, error=describe(error.args[0]))
        finally:
            self._consumer.close()

    def _ask(self) -> None:
        """Whether a broker in trouble answers again: where no item comes, nothing would tell."""
        with contextlib.suppress(KafkaException):  # the consumer itself waits for it
            self._consumer.list_topics(self._topics[0], timeout=ANSWER_WITHIN_S)
            self._watch.works()
        self._ask_at_s = time.monotonic() + ASK_EVERY_S

    def _join(self) -> Consumer:
        self._watch = Watch(self._client_id)
        properties = self._settings.member(self._client_id, self._group, self._watch, classic=self._classic)
        consumer = build(Consumer, {**properties, "on_commit": self._committed})
        consumer.subscribe(self._topics, on_assign=self._gained, on_revoke=self._gone, on_lost=self._gone)
        return consumer

    def _rejoin(self) -> None:
        self._consumer.close()
        self._gone(self._consumer, [TopicPartition(p.topic, p.number) for p in self._assigned])
        self._consumer = self._join()

    def _gained(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gained = frozenset(PartitionId(p.topic, p.partition) for p in partitions)
        self._assigned |= gained
        if gained:
            log.info("partitions_assigned", client=self._client_id, partitions=sorted(p.number for p in gained))
            self._on_assign(gained)

    def _gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = frozenset(PartitionId(p.topic, p.partition) for p in partitions) & self._assigned
        self._assigned -= gone
        if gone:
            log.info("partitions_revoked", client=self._client_id, partitions=sorted(p.number for p in gone))
            self._on_revoke(gone)

    def _committed(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            log.warning("offsets_not_committed", client=self._client_id, error=describe(error))

    def _ours(self, partitions: Iterable[PartitionId]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.number) for p in partitions if p in self._assigned]

    def _positions(self, offsets: Mapping[PartitionId, int]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.number, offset) for p, offset in offsets.items() if p in self._assigned]
