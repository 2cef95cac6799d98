"""What both kinds of consumer do with a batch of messages."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from shared.kafka.failure import ClientLost, Watch, describe, is_fatal
from shared.kafka.record import Record, from_message
from shared.kafka.signing import Signing

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

OnEnd = Callable[[str, int], None]


def receive(
    consumer: Consumer, watch: Watch, timeout_s: float, limit: int, signing: Signing | None, on_end: OnEnd | None = None
) -> list[Record]:
    """Up to ``limit`` records, as soon as there is one; empty after ``timeout_s``. Raises ``ClientLost``.

    ``consume`` with a timeout would wait for a full batch; so wait for one message, then take what lies there.
    """
    try:
        first = consumer.poll(timeout_s)
        messages = [] if first is None else [first, *consumer.consume(limit - 1, timeout=0)]
    except KafkaException as error:
        raise ClientLost(describe(error.args[0])) from None
    if watch.fatal is not None:
        raise ClientLost(watch.fatal)
    return [from_message(message, signing) for message in messages if _carries_data(message, watch, on_end)]


def _carries_data(message: Message, watch: Watch, on_end: OnEnd | None) -> bool:
    error = message.error()
    if error is None:
        watch.works()
        return True
    if error.code() == KafkaError._PARTITION_EOF:
        watch.works()
        if on_end is not None:
            on_end(message.topic() or "", message.partition() or 0)
        return False
    if is_fatal(error) or error.code() in MISSING:
        raise ClientLost(describe(error))
    watch(error)
    return False
