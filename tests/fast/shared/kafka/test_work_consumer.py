from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError

from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from shared.kafka.work_consumer import PartitionId, WorkConsumer
from tests.fast.waiting import eventually

GROUP = "appliers"


@contextmanager
def member(settings: KafkaSettings, name: str = "one") -> Iterator[WorkConsumer]:
    prefix = settings.prefix
    consumer = WorkConsumer(settings, name, f"{prefix}-{GROUP}", [Topics(prefix).work])
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: WorkConsumer, count: int) -> list[Record]:
    taken: list[Record] = []

    def enough() -> bool:
        taken.extend(consumer.poll(0.2))
        return len(taken) >= count

    eventually(enough)
    return taken


def publish(publisher: Publisher, topics: Topics, keys: list[str]) -> None:
    for key in keys:
        publisher.send(topics.work, key, b"item")
    assert publisher.flush(30) == 0


def test_items_published_before_the_first_member_joined_are_received(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    publish(publisher, topics, ["a", "b", "c"])
    with member(settings) as consumer:
        assert sorted(record.key or "" for record in take(consumer, 3)) == ["a", "b", "c"]


def test_items_whose_offsets_were_not_committed_come_again(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    publish(publisher, topics, ["a", "a", "a"])
    with member(settings) as consumer:
        first = take(consumer, 3)
        done = first[0]
        consumer.commit({PartitionId(done.topic, done.partition): done.offset + 1})
    with member(settings, "two") as consumer:
        assert [record.offset for record in take(consumer, 2)] == [record.offset for record in first[1:]]


def test_offsets_given_at_the_end_are_committed(settings: KafkaSettings, topics: Topics, publisher: Publisher) -> None:
    publish(publisher, topics, ["a", "a"])
    consumer = WorkConsumer(settings, "one", f"{settings.prefix}-{GROUP}", [topics.work])
    last = take(consumer, 2)[-1]
    consumer.close({PartitionId(last.topic, last.partition): last.offset + 1})
    publish(publisher, topics, ["a"])
    with member(settings, "two") as after:
        assert [record.offset for record in take(after, 1)] == [last.offset + 1]


def test_a_broker_that_answers_again_is_no_problem_although_no_item_comes(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    """An applier that has nothing to do stayed unready until its next item."""
    publish(publisher, topics, ["a"])
    with member(settings) as consumer:
        take(consumer, 1)
        consumer._watch(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert consumer.problem is not None

        def answers() -> bool:
            assert consumer.poll(0.2) == []
            return consumer.problem is None

        eventually(answers, 20.0)


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    with member(settings) as consumer:
        eventually(lambda: consumer.poll(0.1) == [] and consumer.assigned)
        consumer.pause(consumer.assigned)
        publish(publisher, topics, ["a", "b"])
        assert [consumer.poll(0.2) for _ in range(5)] == [[]] * 5
        consumer.resume(consumer.assigned)
        assert len(take(consumer, 2)) == 2


def test_pausing_or_committing_partitions_of_others_does_nothing(settings: KafkaSettings, topics: Topics) -> None:
    with member(settings) as consumer:
        foreign = PartitionId(topics.work, 77)
        consumer.pause([foreign])
        consumer.commit({foreign: 1})


def test_a_second_member_takes_over_some_partitions_and_the_first_hears_of_it(
    settings: KafkaSettings, topics: Topics
) -> None:
    revoked: list[frozenset[PartitionId]] = []
    group = f"{settings.prefix}-{GROUP}"
    one = WorkConsumer(settings, "one", group, [topics.work], on_revoke=revoked.append)
    eventually(lambda: one.poll(0.1) == [] and one.assigned)
    whole = one.assigned
    with member(settings, "two") as two:
        eventually(lambda: one.poll(0.05) == two.poll(0.05) == [] and two.assigned)
        assert revoked
        assert not one.assigned & two.assigned
        eventually(lambda: one.poll(0.05) == two.poll(0.05) == [] and one.assigned | two.assigned == whole)
    one.close()
