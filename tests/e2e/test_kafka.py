"""What our Kafka clients do on a real broker, where the embedded one behaves otherwise or can't be asked."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from shared.kafka.publisher import Publisher
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.kafka.work_consumer import WorkConsumer
from tests.servers.kafka import Kafka

WITHIN_S = 30.0


def settings_on(kafka: Kafka, **properties: str) -> KafkaSettings:
    return KafkaSettings(kafka.bootstrap, prefix=f"k{uuid.uuid4().hex[:8]}", partitions=3, properties=properties)


def group_type(settings: KafkaSettings, group: str) -> ConsumerGroupType:
    """By which protocol a member reads what was published; the member leaves afterwards."""
    topics = Topics(settings.prefix)
    ensure(settings)
    publisher = Publisher(settings, "test")
    publisher.send(topics.work, "p/d", b"item")
    publisher.close()
    consumer = WorkConsumer(settings, "test", group, [topics.work])
    try:
        deadline = time.monotonic() + WITHIN_S
        while not consumer.poll(0.2):
            assert time.monotonic() < deadline, "nothing was received"
        admin = AdminClient({"bootstrap.servers": settings.bootstrap})
        described = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
        assert isinstance(described.type, ConsumerGroupType)
        return described.type
    finally:
        consumer.close()


def test_the_broker_itself_balances_the_group(kafka: Kafka) -> None:
    assert group_type(settings_on(kafka), "new") is ConsumerGroupType.CONSUMER


def test_a_group_that_is_tuned_for_the_classic_protocol_keeps_to_it(kafka: Kafka) -> None:
    tuned = settings_on(kafka, **{"session.timeout.ms": "8000"})
    assert group_type(tuned, "tuned") is ConsumerGroupType.CLASSIC


def test_a_broker_without_the_new_protocol_is_joined_by_the_classic_one() -> None:
    with Kafka(settings={"group.coordinator.rebalance.protocols": "classic"}) as old:
        assert group_type(settings_on(old), "old") is ConsumerGroupType.CLASSIC


@pytest.mark.timeout(120)
def test_topics_that_were_deleted_are_made_again_and_told(kafka: Kafka) -> None:
    settings = settings_on(kafka)
    names = Topics(settings.prefix).all
    ensure(settings)
    renewed = threading.Event()
    watch = RenewalWatch(settings, "test", renewed.set)
    watch.start()
    time.sleep(1.0)
    admin = AdminClient({**kafka.client()})
    for future in admin.delete_topics(list(names), operation_timeout=WITHIN_S).values():
        future.result(WITHIN_S)
    assert renewed.wait(WITHIN_S)
    assert set(names) <= set(admin.list_topics(timeout=WITHIN_S).topics)
    watch.stop()
