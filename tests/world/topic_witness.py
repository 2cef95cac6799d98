"""Reads a topic as its truth: whatever was committed to it, under each id that it has had."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicIdentity, TopicLog
from tests.world.topic_truth import TopicRecord, TopicTruth

READ_WITHIN_S = 60.0

READING = {
    "group.id": "nobody",
    "auto.offset.reset": "earliest",  # what retention took before it was read is not known
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,
}


class TopicWitness:
    """``look`` reads what came since the last time. What a former topic of the name held is remembered.

    It believes that retention has taken nothing; who lets it do so says so in the truth.
    """

    def __init__(self, bootstrap: str, topic: str, *, keyed: bool = False) -> None:
        self._topic, self._keyed = topic, keyed
        self._bootstrap = bootstrap
        self.truths: dict[str, TopicTruth] = {}
        """By topic id."""

    def look(self) -> TopicTruth:
        """The truth of the topic that is there now, up to its last stable records. Nobody may delete it meanwhile."""
        # A client of its own each time: one that had known a broker before it was wiped has ended its process.
        known = TopicLog(KafkaSettings(self._bootstrap), self._topic, "witness").identity()
        truth = self.truths.setdefault(known.topic_id, TopicTruth(known.topic_id, self._keyed, oldest={}))
        records, newest = self._read(known, truth.newest)
        truth.add(records, newest)
        return truth

    def _read(self, known: TopicIdentity, since: Mapping[int, int]) -> tuple[list[TopicRecord], dict[int, int]]:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **READING})
        wanted = {number: since.get(number, 0) for number in range(known.partitions)}
        found, newest, deadline = list[TopicRecord](), dict[int, int](), time.monotonic() + READ_WITHIN_S
        try:
            consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in wanted.items()])
            while newest.keys() < wanted.keys():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._topic} could not be read within {READ_WITHIN_S:.0f} s")
                message = consumer.poll(1.0)
                if message is None:
                    continue
                partition, offset = message.partition() or 0, message.offset() or 0
                error = message.error()
                if error is None:
                    found.append(TopicRecord(partition, offset, message.value(), _bytes(message.key())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    newest[partition] = offset
        finally:
            consumer.close()
        return found, {number: offset for number, offset in newest.items() if offset}


def _bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
