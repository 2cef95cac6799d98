"""Kafka, as a stranger sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from shared.kafka.signing import SIGNATURE_HEADER, Signing
from tests.signed import SIGNING
from tests.torture.rig import FaultRig

READ_WITHIN_S = 30.0
WORKED_OFF_WITHIN_S = 600.0
HUGE = 900_000

Wire = tuple[bytes | None, bytes | None]
"""Key and value."""

Headers = list[tuple[str, str | bytes | None]]
Sign = Callable[[str, bytes | None, bytes | None], Headers]


def everything(rig: FaultRig, topic: str) -> list[Wire]:
    """All that a topic holds now."""
    return [(message.key(), message.value()) for message in _read(rig, topic)]


def _read(rig: FaultRig, topic: str) -> Iterator[Message]:
    """What there was when the reading began: services that go on talking don't prolong it."""
    consumer = Consumer({**rig.servers.kafka.client(), "group.id": "nobody", "enable.partition.eof": True})
    try:
        ends = _ends(consumer, topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
        deadline = time.monotonic() + READ_WITHIN_S
        while ends:
            message = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: {len(ends)} partitions could not be read in {READ_WITHIN_S:.0f} s")
            if message is None:
                continue
            if message.error() is None:
                yield message
            if _is_last(message, ends):
                ends.pop(message.partition() or 0, None)
    finally:
        consumer.close()


def _is_last(message: Message, ends: Mapping[int, int]) -> bool:
    error = message.error()
    if error is not None:
        return bool(error.code() == KafkaError._PARTITION_EOF)
    return (message.offset() or 0) + 1 >= ends.get(message.partition() or 0, 0)


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """The next offset of each partition that holds anything."""
    numbers = consumer.list_topics(topic, timeout=READ_WITHIN_S).topics[topic].partitions
    marks = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=READ_WITHIN_S) for n in numbers}
    return {number: high for number, (low, high) in marks.items() if high > low}


def signed(topic: str, key: bytes | None, value: bytes | None, signing: Signing = SIGNING) -> Headers:
    return [(SIGNATURE_HEADER, signing.signature(topic, key, value).encode())]


def send(rig: FaultRig, topic: str, messages: list[Wire], sign: Sign = signed) -> None:
    """``sign``: what stands in a message's headers."""
    producer = Producer({**rig.servers.kafka.client(), "message.max.bytes": 2 * HUGE})
    for key, value in messages:
        while True:
            try:
                producer.produce(topic, key=key, value=value, headers=sign(topic, key, value))
                break
            except BufferError:
                producer.poll(0.5)
    assert producer.flush(60) == 0, "the broker did not take the messages"


def worked_off(rig: FaultRig) -> None:
    """Wait until the appliers have committed everything that the work topic holds."""
    topic = f"{rig.prefix}.work"
    consumer = Consumer({**rig.servers.kafka.client(), "group.id": f"{rig.prefix}.appliers.events"})
    try:
        numbers = consumer.list_topics(topic, timeout=READ_WITHIN_S).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in numbers]
        rig.fleet.wait_until(
            "the appliers to work off what was sent",
            lambda: all(
                place.offset >= consumer.get_watermark_offsets(place, timeout=READ_WITHIN_S)[1]
                or consumer.get_watermark_offsets(place, timeout=READ_WITHIN_S)[1] == 0
                for place in consumer.committed(places, timeout=READ_WITHIN_S)
            ),
            WORKED_OFF_WITHIN_S,
        )
    finally:
        consumer.close()
