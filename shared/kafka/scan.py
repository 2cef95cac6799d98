"""Reads a bounded part of a topic for a request: without waiting for later messages, and with a timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from shared.contracts.errors import DependencyError
from shared.kafka.failure import ClientLost, Watch, build, describe
from shared.kafka.message_batch import MISSING, receive
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings

ANSWER_WITHIN_S = 5.0
POLL_S = 0.2
BATCH = 1_000
READ_WITHIN_S = 60.0

NOBODY_LEADS_YET = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""Of a partition whose topic was made a moment ago, or whose broker has just gone."""

Spans = dict[int, tuple[int, int]]
"""The first offset to read and the one behind the last, by partition."""


class Scan:
    """Each call has a consumer of its own, on the caller's thread. Raises ``DependencyError``."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id

    def newest(self, topic: str, count: int) -> list[Record]:
        """About the newest ``count`` records: an equal part from the end of each partition."""
        return list(self._read(topic, newest=count))

    def all(self, topic: str) -> Iterator[Record]:
        """What the topic holds now."""
        return self._read(topic)

    def spans(self, topic: str, since_ms: int | None = None) -> Spans:
        """Where lies what the topic holds now, from ``since_ms`` on where the broker can tell."""
        with self._consumer() as (consumer, _):
            return self._spans(consumer, topic, since_ms=since_ms)

    def spans_of(self, topic: str) -> Spans | None:
        """The same of a topic that may be missing: None then."""
        with self._consumer() as (consumer, _):
            known = consumer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
            if known.error is not None and known.error.code() in MISSING:
                return None
            if known.error is not None:
                raise KafkaException(known.error)
            return self._spans(consumer, topic)

    def within(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterator[Record]:
        """What of these spans the topic still holds."""
        with self._consumer() as (consumer, watch):
            there = self._spans(consumer, topic)
            wanted = {number: overlap(span, there[number]) for number, span in spans.items() if number in there}
            yield from self._records(consumer, watch, topic, _not_empty(wanted))

    def _read(self, topic: str, newest: int | None = None) -> Iterator[Record]:
        with self._consumer() as (consumer, watch):
            yield from self._records(consumer, watch, topic, self._spans(consumer, topic, newest))

    @contextmanager
    def _consumer(self) -> Iterator[tuple[Consumer, Watch]]:
        watch = Watch(self._client_id, is_member=False)
        properties = self._settings.consumer(self._client_id, f"{self._client_id} (unused)", watch)
        consumer = build(Consumer, {**properties, "enable.partition.eof": True})
        try:
            yield consumer, watch
        except KafkaException as error:
            raise self._away(describe(error.args[0])) from None
        except ClientLost as lost:
            raise self._away(watch.problem or str(lost)) from None
        finally:
            consumer.close()

    def _spans(self, consumer: Consumer, topic: str, newest: int | None = None, since_ms: int | None = None) -> Spans:
        known = consumer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
        found: Spans = {}
        for number in known.partitions:
            low, high = ends_of(consumer, TopicPartition(topic, number))
            first = low if newest is None else max(low, high - max(1, newest // len(known.partitions)))
            found[number] = first, high
        # The embedded broker stores no times; callers check each record's own time anyway.
        if since_ms is not None and not self._settings.embedded:
            asked = [TopicPartition(topic, number, since_ms) for number in found]
            for place in consumer.offsets_for_times(asked, timeout=ANSWER_WITHIN_S):
                first, high = found[place.partition]
                found[place.partition] = max(first, place.offset) if place.offset >= 0 else high, high
        return _not_empty(found)

    def _records(self, consumer: Consumer, watch: Watch, topic: str, ends: Spans) -> Iterator[Record]:
        if not ends:
            return
        consumer.assign([TopicPartition(topic, number, first) for number, (first, _) in ends.items()])
        open_ = set(ends)
        deadline = time.monotonic() + READ_WITHIN_S
        while open_:
            if time.monotonic() > deadline:
                raise ClientLost(f"not read within {READ_WITHIN_S:g} s")
            ended: set[int] = set()
            for record in receive(consumer, watch, POLL_S, BATCH, self._settings.signing, partial(_note, ended)):
                _, high = ends[record.partition]
                if record.offset < high:
                    yield record
                if record.offset >= high - 1:
                    open_.discard(record.partition)
            open_.difference_update(ended)

    def _away(self, said: str) -> DependencyError:
        return DependencyError("broker", f"the topic could not be read: {said}", "check that the broker answers")


def _is_momentary(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in NOBODY_LEADS_YET


@retry(
    retry=retry_if_exception(_is_momentary),
    stop=stop_after_delay(ANSWER_WITHIN_S),
    wait=wait_fixed(POLL_S),
    reraise=True,
)
def ends_of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The partition's first offset and the one behind its last, as soon as it has a leader. Raises KafkaException."""
    low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_WITHIN_S)
    return low, high


def overlap(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _not_empty(spans: Mapping[int, tuple[int, int]]) -> Spans:
    return {number: (first, end) for number, (first, end) in spans.items() if first < end}


def _note(ended: set[int], _: str, number: int) -> None:
    ended.add(number)
