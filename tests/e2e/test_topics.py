"""Records of a real broker's topic become rows of a lake, each once, whatever is repeated, lost or wrong."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.cimpl import NewTopic

from services.applier.model.task import Limits, Task
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat
from services.applier.worker.task_run import run_task
from services.reader.source.group_offsets import TELL_EVERY_S, GroupOffsets
from shared.contracts.messages import ItemKind
from shared.contracts.positions import Vector
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from tests.e2e.topics import Landing, Topic, read_all, wait_for
from tests.fast.waiting import eventually

PLACES = "SELECT _kafka_partition, _kafka_offset, id FROM dst.main.clicks"
KEYED = RecordFormat(columns=(DeclaredColumn("id", "$.id", "BIGINT", required=True),), key_columns=("id",))


def wait_until_stable(topic: Topic, offset: int) -> None:
    """Until the broker has written the markers of transactions, up to before ``offset`` of partition 0."""
    log = TopicLog(KafkaSettings(topic.kafka.bootstrap), topic.name, "test")
    eventually(lambda: log.newest(2).by_partition.get(0) == offset)


Land = Callable[..., Landing]


def test_every_record_is_a_row_with_its_place(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    topic.send({"id": 3}, partition=1)
    said = landed.land(p0=2, p1=1)
    assert (said.outcome, said.position, said.position_at, said.inserted) == ("applied", 3, '{"0":2,"1":1}', 3)
    assert landed.rows_of(PLACES) == [(0, 0, 1), (0, 1, 2), (1, 0, 3)]


def test_a_life_begins_with_an_empty_table_at_its_start(topic: Topic, landing: Land) -> None:
    landed = landing()
    assert landed.rows_of() == []
    assert landed.columns() == {
        "_kafka_partition": "INTEGER",
        "_kafka_offset": "BIGINT",
        "_kafka_timestamp": "TIMESTAMP WITH TIME ZONE",
    }
    topic.send({"id": 1}, {"id": 2}, {"id": 3})
    landed.generation = 2
    assert landed.seed(Vector.of({0: 1})).position_at == '{"0":1}'
    landed.land(p0=3)
    assert landed.rows_of(PLACES) == [(0, 1, 2), (0, 2, 3)]


def test_a_repeated_item_changes_nothing(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    begin, end = landed.position, Vector.of({0: 2})
    assert landed.run(landed.target(ItemKind.CHANGES, begin, end)).outcome == "applied"
    for _ in range(2):
        again = landed.run(landed.target(ItemKind.CHANGES, begin, end))
        assert (again.outcome, again.position_at) == ("already_applied", '{"0":2}')
    assert landed.rows_of(PLACES) == [(0, 0, 1), (0, 1, 2)]


def test_an_item_from_another_vector_of_the_same_sum_is_a_gap_that_tells_the_right_one(
    topic: Topic, landing: Land
) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    topic.send({"id": 3}, {"id": 4}, partition=1)
    landed.land(p0=1)
    said = landed.run(landed.target(ItemKind.CHANGES, Vector.of({1: 1}), Vector.of({0: 2, 1: 2})))
    assert (said.outcome, said.position, said.position_at) == ("gap", 1, '{"0":1}')
    landed.land(p0=2, p1=2)
    assert landed.rows_of(PLACES) == [(0, 0, 1), (0, 1, 2), (1, 0, 3), (1, 1, 4)]


@pytest.mark.parametrize("rows", [1, 3, 500_000])
def test_any_split_ends_equal(topic: Topic, landing: Land, rows: int) -> None:
    """A task may stop before the end of its item, and says where."""
    landed = landing(rows=rows)
    for partition in range(2):
        topic.send(*({"id": number} for number in range(20)), partition=partition)
    end = {"p0": 20, "p1": 20}
    while landed.position != Vector.of({0: 20, 1: 20}):
        assert landed.land(**end).outcome == "applied"
    assert landed.rows_of(PLACES) == sorted(((p, o, o) for p in range(2) for o in range(20)), key=repr)


def test_new_fields_become_columns_and_what_fits_none_is_rescued(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1})
    landed.land(p0=1)
    topic.send({"id": 2, "name": "n"}, {"id": "three"})
    assert landed.land(p0=3).outcome == "applied"
    columns = landed.columns()
    assert (columns["id"], columns["name"], columns["_rescued"]) == ("BIGINT", "VARCHAR", "JSON")
    rows = landed.rows_of("SELECT _kafka_offset, id, name, _rescued FROM dst.main.clicks")
    assert rows == [(0, 1, None, None), (1, 2, "n", None), (2, None, None, '{"id":"three"}')]


def test_what_can_not_become_a_row_goes_to_its_topic_byte_for_byte(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send(b"\xff\xfenot json", key=b"k\x00")
    topic.send({"id": 1}, b"[1]")
    said = landed.land(p0=3)
    assert (said.outcome, said.inserted) == ("applied", 1)
    assert landed.rows_of(PLACES) == [(0, 1, 1)]
    (first, second) = read_all(topic.kafka, landed.rejected)
    assert first[:2] == (b"k\x00", b"\xff\xfenot json")
    assert second[:2] == (None, b"[1]")
    assert second[2] | {"viaduck-timestamp": "", "viaduck-message": ""} == {
        "viaduck-reason": "not_object", "viaduck-topic": topic.name, "viaduck-partition": "0",
        "viaduck-offset": "2", "viaduck-timestamp": "", "viaduck-message": "",
    }  # fmt: skip
    stamps = landed.rows_of("SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert '"rejected": 2' in stamps[0][0]
    assert '"through_at": "{\\"0\\":3}"' in stamps[0][0]


def test_more_is_rejected_at_once_than_a_producer_holds(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send(*[b"bad"] * 2_000, {"id": 1})
    landed.settings = KafkaSettings(topic.kafka.bootstrap, properties={"queue.buffering.max.messages": "100"})
    said = landed.land(p0=2_001)
    assert (said.outcome, said.error) == ("applied", None)
    assert len(read_all(topic.kafka, landed.rejected)) == 2_000
    assert landed.rows_of(PLACES) == [(0, 2_000, 1)]


def test_nothing_commits_while_a_rejected_record_is_not_delivered(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send(b"bad", {"id": 1})
    topic.admin.delete_topics([landed.rejected])[landed.rejected].result(30)
    usual, landed.settings = (
        landed.settings,
        KafkaSettings(topic.kafka.bootstrap, properties={"message.timeout.ms": "1500"}),
    )
    said = landed.land(p0=2)
    assert (said.outcome, said.error is not None and said.error.type) == ("failed", "source_unreachable")
    assert landed.rows_of() == []
    assert landed.position == Vector()
    landed.settings = usual
    wait_for(topic.admin.create_topics([NewTopic(landed.rejected, 1, 1)]))
    assert landed.land(p0=2).outcome == "applied"
    assert landed.rows_of(PLACES) == [(0, 1, 1)]


def test_a_bad_record_parks_where_the_file_says_so(topic: Topic, landing: Land) -> None:
    landed = landing(parks_bad=True)
    topic.send({"id": 1}, b"bad")
    said = landed.land(p0=2)
    assert said.outcome == "parked"
    assert said.error is not None
    assert said.error.type == "value_refused"
    assert "offset 1 of partition 0" in said.error.message
    assert landed.rows_of() == []


def test_with_key_columns_the_newest_record_of_a_key_wins_and_nothing_deletes_it(topic: Topic, landing: Land) -> None:
    landed = landing(form=KEYED)
    topic.send({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 1, "v": "c"})
    landed.land(p0=3)
    assert landed.rows_of("SELECT id, v FROM dst.main.clicks") == [(1, "c"), (2, "b")]
    topic.send({"id": 2, "v": "d"}, {"id": 3, "v": "e"})
    landed.land(p0=5)
    assert landed.rows_of("SELECT id, v FROM dst.main.clicks") == [(1, "c"), (2, "d"), (3, "e")]


def test_a_record_without_a_value_deletes_the_row_of_its_key(topic: Topic, landing: Land) -> None:
    metadata = (Metadata.PARTITION, Metadata.OFFSET, Metadata.KEY)
    landed = landing(form=RecordFormat(key=KeyFormat.TEXT, metadata=metadata, key_columns=("_kafka_key",)))
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        topic.send({"v": value}, key=key)
    landed.land(p0=3)
    topic.send(None, key="b")
    topic.send({"v": 4}, key="c")
    said = landed.land(p0=5)
    assert (said.outcome, said.deleted, said.inserted) == ("applied", 1, 1)
    assert landed.rows_of("SELECT _kafka_key, v FROM dst.main.clicks") == [("a", 3), ("c", 4)]


def test_a_column_that_is_too_narrow_is_widened_in_the_transaction_that_needs_it(topic: Topic, landing: Land) -> None:
    landed = landing()
    landed.write("ALTER TABLE dst.main.clicks ADD COLUMN small INTEGER")
    topic.send({"small": 1})
    landed.land(p0=1)
    assert landed.columns()["small"] == "INTEGER"
    topic.send({"small": 5_000_000_000})
    assert landed.land(p0=2).outcome == "applied"
    assert landed.columns()["small"] == "BIGINT"
    assert landed.rows_of("SELECT _kafka_offset, small FROM dst.main.clicks") == [(0, 1), (1, 5_000_000_000)]


def test_records_of_aborted_transactions_are_never_rows(topic: Topic, landing: Land) -> None:
    landed = landing()
    producer = Producer({"bootstrap.servers": topic.kafka.bootstrap, "transactional.id": topic.name})
    producer.init_transactions()
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic.name, f'{{"id": {number}}}'.encode(), partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    wait_until_stable(topic, 6)
    said = landed.land(p0=6)
    assert (said.outcome, said.position_at) == ("applied", '{"0":6}')
    assert landed.rows_of(PLACES) == [(0, 0, 0), (0, 4, 2)]


def test_a_range_of_nothing_but_holes_moves_the_position(topic: Topic, landing: Land) -> None:
    landed = landing()
    producer = Producer({"bootstrap.servers": topic.kafka.bootstrap, "transactional.id": topic.name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic.name, b'{"id": 1}', partition=0)
    producer.flush()
    producer.abort_transaction()
    wait_until_stable(topic, 2)
    said = landed.land(p0=2)
    assert (said.outcome, said.position_at) == ("applied", '{"0":2}')
    assert landed.rows_of() == []


def test_a_partition_that_comes_later_begins_at_its_first_record(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1})
    landed.land(p0=1)
    topic.grow(3)
    topic.send({"id": 2}, partition=2)
    landed.land(p0=1, p2=1)
    assert landed.rows_of(PLACES) == [(0, 0, 1), (2, 0, 2)]


def test_records_that_are_gone_are_an_error_and_no_jump(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send(*({"id": number} for number in range(10)))
    topic.forget_before(p0=4)
    said = landed.land(p0=10)
    assert said.outcome == "parked"
    assert said.error is not None
    assert said.error.type == "history_expired"
    assert "offset 0 of partition 0" in said.error.message
    assert landed.rows_of() == []


def test_records_that_are_gone_are_skipped_where_that_is_chosen_and_the_stamp_names_them(
    topic: Topic, landing: Land
) -> None:
    landed = landing(skips=True)
    topic.send(*({"id": number} for number in range(10)))
    topic.send({"id": 10}, partition=1)
    topic.forget_before(p0=4)
    end = Vector.of({0: 10, 1: 1})
    gone = landed.run(landed.target(ItemKind.CHANGES, Vector(), end))
    assert (gone.outcome, gone.error and gone.error.type) == ("failed", "source_behind"), "and is planned again"
    target = landed.target(ItemKind.CHANGES, Vector(), end, after=Vector.of({0: 4}))
    said = landed.run(target)
    assert (said.outcome, said.position_at, said.skipped and said.skipped.offsets) == ("applied", end.text, {0: (0, 4)})
    assert [row[:2] for row in landed.rows_of(PLACES)] == [*((0, each) for each in range(4, 10)), (1, 0)]
    ((stamp,),) = landed.rows_of("SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert json.loads(stamp)["skipped"] == {"0": [0, 4]}
    probed = landed.run(landed.target(ItemKind.PROBE, None, Vector()))
    assert probed.skipped == said.skipped, "an answer that was lost is given again"


def test_all_that_was_not_read_may_be_gone(topic: Topic, landing: Land) -> None:
    landed = landing(skips=True)
    topic.send({"id": 1}, {"id": 2})
    topic.forget_before(p0=2)
    end = Vector.of({0: 2})
    said = landed.run(landed.target(ItemKind.CHANGES, Vector(), end, after=end))
    assert (said.outcome, said.position_at, said.inserted) == ("applied", end.text, 0)


@pytest.mark.parametrize(("skips", "after"), [(False, 4), (True, 5)], ids=["not chosen", "not gone"])
def test_nothing_else_is_ever_skipped(topic: Topic, landing: Land, skips: bool, after: int) -> None:
    landed = landing(skips=skips)
    topic.send(*({"id": number} for number in range(10)))
    topic.forget_before(p0=4)
    said = landed.run(landed.target(ItemKind.CHANGES, Vector(), Vector.of({0: 10}), after=Vector.of({0: after})))
    assert (said.outcome, said.error and said.error.type) == ("failed", "source_behind")
    assert landed.rows_of() == []


def test_a_rewind_takes_back_the_rows_from_its_offsets_on_and_reads_them_again(topic: Topic, landing: Land) -> None:
    landed = landing()
    for partition in range(2):
        topic.send(*({"id": number} for number in range(6)), partition=partition)
    landed.land(p0=6, p1=5)
    said = landed.rewind(Vector.of({0: 2, 1: 5}))
    assert (said.outcome, said.position_at, said.deleted) == ("applied", '{"0":2,"1":5}', 4)
    assert landed.rows_of(PLACES) == [(0, 0, 0), (0, 1, 1), *((1, each, each) for each in range(5))]
    ((stamp,),) = landed.rows_of("SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    told = json.loads(stamp)
    assert (told["kind"], told["generation"], told["after"], told["rewound"]) == ("seed", 2, 11, True)
    landed.land(p0=6, p1=6)
    assert landed.rows_of(PLACES) == [(p, each, each) for p in range(2) for each in range(6)]
    assert landed.rewind(Vector()).deleted == 12
    assert landed.rows_of() == []


def test_a_rewind_that_is_done_twice_or_too_late_takes_back_nothing(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send(*({"id": number} for number in range(6)))
    landed.land(p0=6)
    landed.rewind(Vector.of({0: 2}))
    landed.land(p0=4)
    again = landed.run(landed.target(ItemKind.SEED, None, Vector.of({0: 2}), keeps=True))
    assert (again.outcome, again.position_at) == ("already_applied", '{"0":4}')
    landed.generation = 1
    late = landed.run(landed.target(ItemKind.SEED, None, Vector.of({0: 1}), keeps=True))
    assert late.outcome == "fenced"
    assert [row[1] for row in landed.rows_of(PLACES)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("form", "to", "why"),
    [
        (RecordFormat(), {0: 7}, "a rewind goes back"),
        (RecordFormat(), {0: 2, 1: 1}, "a rewind goes back"),
        (KEYED, {0: 2}, "has key columns"),
        (RecordFormat(metadata=(Metadata.OFFSET,)), {0: 2}, "has no columns _kafka_partition and _kafka_offset"),
    ],
    ids=["forward", "forward in one partition", "keyed", "without metadata"],
)
def test_a_rewind_that_could_not_be_exact_parks_and_changes_nothing(
    topic: Topic, landing: Land, form: RecordFormat, to: dict[int, int], why: str
) -> None:
    landed = landing(form=form)
    topic.send(*({"id": number} for number in range(6)))
    landed.land(p0=6)
    before = landed.rows_of()
    said = landed.rewind(Vector.of(to))
    assert (said.outcome, said.error and said.error.type) == ("parked", "not_allowed")
    assert said.error is not None
    assert why in said.error.message
    assert landed.rows_of() == before


def test_a_rewind_knows_rows_of_before_their_place_was_kept(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    landed.land(p0=2)
    landed.write("UPDATE dst.main.clicks SET _kafka_offset = NULL WHERE id = 1")
    said = landed.rewind(Vector.of({0: 1}))
    assert said.error is not None
    assert "has 1 rows without them" in said.error.message
    assert len(landed.rows_of()) == 2


def test_a_rewind_of_a_topic_that_was_created_again_parks(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    landed.land(p0=2)
    topic.drop()
    topic.make()
    said = landed.rewind(Vector.of({0: 1}))
    assert (said.outcome, said.error and said.error.type) == ("parked", "source_recreated")
    assert len(landed.rows_of()) == 2


def test_a_topic_that_was_created_again_is_another_one(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1})
    landed.land(p0=1)
    topic.drop()
    topic.make()
    topic.send({"id": 2}, {"id": 3})
    for target in (
        landed.target(ItemKind.CHANGES, landed.position, Vector.of({0: 2})),
        landed.target(ItemKind.PROBE, None, Vector()),
    ):
        said = landed.run(target)
        assert said.outcome == "parked"
        assert said.error is not None
        assert said.error.type == "source_recreated"
    assert landed.rows_of(PLACES) == [(0, 0, 1)]


def test_a_topic_that_is_missing_fails_and_moves_nothing(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.drop()
    said = landed.land(p0=1)
    assert (said.outcome, said.error is not None and said.error.type) == ("failed", "source_gone")


def test_two_destinations_of_one_task_are_read_one_by_one(topic: Topic, landing: Land) -> None:
    landed = landing()
    topic.send({"id": 1})
    one = landed.target(ItemKind.CHANGES, Vector(), Vector.of({0: 1}))
    other = landed.target(ItemKind.CHANGES, Vector(), Vector.of({0: 1}))
    done = run_task(Task(ItemKind.CHANGES, landed.source, (one, other), Limits())).results
    assert sorted(result.progress.outcome for result in done) == ["already_applied", "applied"]
    assert landed.rows_of(PLACES) == [(0, 0, 1)]


def test_how_far_a_destination_is_can_be_seen_as_the_offsets_of_a_group(topic: Topic) -> None:
    topic.send({"id": 1}, {"id": 2})
    log = TopicLog(KafkaSettings(topic.kafka.bootstrap), topic.name, "test")
    offsets = GroupOffsets(log, f"viaduck.{topic.name}")
    group = ConsumerGroupTopicPartitions(f"viaduck.{topic.name}")

    clock = itertools.count(0, TELL_EVERY_S)

    def seen() -> dict[int, int]:
        offsets.tell(['{"0":2}'], 2, next(clock))
        asked = topic.admin.list_consumer_group_offsets([group])
        return {each.partition: each.offset for each in asked[group.group_id].result(30).topic_partitions or ()}

    eventually(lambda: seen() == {0: 2, 1: 0})


def test_a_topic_that_was_made_again_is_read_although_its_former_one_had_more_leaders(
    topic: Topic, landing: Land
) -> None:
    """A client takes what a broker says of a leader with a lower epoch for outdated, and waits for records in vain."""
    landed = landing()
    topic.send({"id": 1})
    for _ in range(2):
        topic.kafka.restart()
    assert landed.land(p0=1).outcome == "applied"
    topic.drop()
    topic.make()
    topic.send({"id": 2})
    landed.generation += 1
    landed.seed()
    done = landed.land(p0=1)
    assert (done.outcome, done.error) == ("applied", None)
    assert landed.rows_of(PLACES) == [(0, 0, 2)]
