"""What our Kafka clients do on a real broker, where the embedded one behaves otherwise or can't be asked."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from services.applier.destination_cache import DestinationCache
from services.reader.messaging.message_decoder import EventQueue, Intake, Removed, Wanted
from shared.contracts.messages import Destination
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.kafka.work_consumer import WorkConsumer
from tests.fast.reader.simulation import spec
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.signed import SIGNING

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
def test_no_message_is_taken_for_that_of_a_producer_from_before_a_wipe() -> None:
    """A wiped broker gives out producer ids from the start again, while clients go on using those that they have."""
    with Kafka() as kafka:
        settings = settings_on(kafka)
        topics = Topics(settings.prefix)
        ensure(settings)
        old = Publisher(settings, "old")
        delivered(old, topics.progress, b"before")
        kafka.wipe()
        ensure(settings)
        delivered(old, topics.work, b"first")
        new = Publisher(settings, "new")
        delivered(new, topics.work, b"second")
        old.close()
        new.close()
        consumer = WorkConsumer(settings, "test", "readers", [topics.work])
        found: list[bytes | None] = []

        def both() -> bool:
            found.extend(record.value for record in consumer.poll(0.2))
            return len(found) == 2

        try:
            eventually(both, WITHIN_S)
        finally:
            consumer.close()
        assert found == [b"first", b"second"]


def delivered(publisher: Publisher, topic: str, value: bytes) -> None:
    """Send, and see the broker confirm it."""
    reports: list[Exception | None] = []
    publisher.send(topic, "p/d", value, on_delivery=reports.append)
    assert publisher.flush(WITHIN_S) == 0
    eventually(lambda: reports == [None])


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


def test_a_follower_catches_up_with_a_topic_that_never_rests(kafka: Kafka) -> None:
    """A reader that starts beside busy ones has to begin, and control has to read what it lost."""
    settings, stopped = settings_on(kafka), threading.Event()
    ensure(settings)
    topic, publisher = Topics(settings.prefix).progress, Publisher(settings, "test")

    def publish() -> None:
        while not stopped.wait(0.1):
            publisher.send(topic, "p/d", b"answer")

    busy = threading.Thread(target=publish)
    busy.start()
    follower = Follower(settings, "test", [topic])
    try:
        time.sleep(1.0)
        follower.start(lambda _: None)
        assert follower.caught_up.wait(WITHIN_S / 2)
    finally:
        stopped.set()
        busy.join()
        follower.stop()
        publisher.close()


def told(settings: KafkaSettings, messages: Iterable[Destination]) -> None:
    publisher = Publisher(settings, "test")
    for each in messages:
        publisher.send(Topics(settings.prefix).destinations, each.key, each.to_bytes())
    assert publisher.flush(WITHIN_S) == 0
    publisher.close()


def heard(settings: KafkaSettings) -> tuple[dict[str, int], DestinationCache]:
    """What a reader (generations by name) and an applier that start now believe in the end."""
    inbox, directory, unreadable = EventQueue(), DestinationCache(), list[str]()
    intake = Intake("p", Topics(settings.prefix), inbox, lambda _, reason: unreadable.append(reason))

    def hear(record: Record) -> None:
        intake(record)
        directory.put(record)

    follower = Follower(settings, "test", [Topics(settings.prefix).destinations])
    follower.start(hear)
    assert follower.caught_up.wait(WITHIN_S)
    follower.stop()
    believed: dict[str, int] = {}
    for event in inbox.take(0):
        if isinstance(event, Wanted):
            believed[event.spec.destination] = event.spec.generation
        elif isinstance(event, Removed):
            believed.pop(event.destination, None)
    assert unreadable == []
    return believed, directory


@pytest.mark.timeout(180)
def test_after_partitions_were_added_nobody_who_was_removed_comes_back_and_no_older_life(kafka: Kafka) -> None:
    """A key lies in another partition then, what was said before stays in the old one, and either is read last."""
    settings = replace(settings_on(kafka), partitions=4, signing=SIGNING)
    ensure(settings)
    first = [spec(f"d{number}").model_copy(update={"registry": 1, "version": 1}) for number in range(60)]
    told(settings, first)
    admin, topic = AdminClient({**kafka.client()}), Topics(settings.prefix).destinations
    for future in admin.create_partitions([NewPartitions(topic, 12)]).values():
        future.result(WITHIN_S)
    time.sleep(1.0)
    gone = [each.model_copy(update={"removed": True, "version": 2}) for each in first[:20]]
    anew = [each.model_copy(update={"generation": 2, "version": 3}) for each in first[20:40]]
    told(settings, [*gone, *anew])
    for _ in range(3):
        believed, directory = heard(settings)
        assert believed == {each.destination: each.generation for each in [*anew, *first[40:]]}
        for each in gone:
            assert directory.get(each.key) is None
        for each in anew:
            assert directory.get(each.key) == each
