"""Laws of topics on a real broker and real lakes, held by the oracle: however records come, the same rows are left."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import duckdb
import pytest
from confluent_kafka import Producer

from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat
from shared.contracts.messages import ItemKind
from shared.contracts.positions import Vector
from tests.e2e.topics import Landing, Topic
from tests.world.destination import Destination
from tests.world.lake import Lake
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_witness import TopicWitness

Land = Callable[..., Landing]

PARTITIONS, RECORDS, LIVES, KEYS = 2, 40, 2, 7

APPENDED = RecordFormat(columns=(DeclaredColumn("id", "$.id", "BIGINT"),))
KEYED = RecordFormat(
    key=KeyFormat.TEXT, metadata=(Metadata.PARTITION, Metadata.OFFSET, Metadata.KEY), key_columns=("_kafka_key",)
)
VALUES = ("a", 1, 1.5, True, None, {"b": [None, 2**70]}, "é")


def write(topic: Topic, rng: random.Random) -> None:
    """Records of a few keys, each of which stays in a partition; some have no value, and some are no JSON."""
    producer = Producer({"bootstrap.servers": topic.kafka.bootstrap})
    for number in range(RECORDS):
        key = rng.randrange(KEYS)
        record = {"id": number, "v": rng.choice(VALUES), f"f{rng.randrange(3)}": rng.choice(VALUES)}
        value = rng.choices((json.dumps(record).encode(), b"no JSON", None), (8, 1, 1))[0]
        producer.produce(topic.name, value, key=f"k{key}", partition=key % PARTITIONS)
    assert producer.flush(30) == 0


def step(rng: random.Random, position: Vector, end: Vector) -> Vector:
    """A vector beyond the position, up to the end: any of its partitions may stay where it is."""
    at = position.by_partition
    while True:
        found = Vector.of({each: rng.randint(at.get(each, 0), last) for each, last in end.offsets})
        if found != position:
            return found


def live(landed: Landing, rng: random.Random, end: Vector) -> None:
    """From where it begins to the end, by random vectors, and some items are done twice."""
    while landed.position != end:
        target = landed.target(ItemKind.CHANGES, landed.position, step(rng, landed.position, end))
        said = landed.run(target)
        assert (said.outcome, said.error) == ("applied", None)
        if rng.random() < 0.3:
            is_done = said.position_at == target.item.through_at
            assert landed.run(target).outcome == ("already_applied" if is_done else "gap")
        landed.position = Vector.parse(said.position_at or "")


@pytest.mark.parametrize("form", [APPENDED, KEYED], ids=["appended", "keyed"])
def test_any_split_repetition_and_interleaving_of_partitions_ends_equal(
    topic: Topic, landing: Land, world: duckdb.DuckDBPyConnection, form: RecordFormat
) -> None:
    rng = random.Random(f"{form.key_columns}")
    write(topic, rng)
    landed = landing(form=form, rows=25)
    witness = TopicWitness(topic.kafka.bootstrap, topic.name, keyed=bool(form.key_columns))
    truth = witness.look()
    ends = list[object]()
    for generation in range(1, LIVES + 1):
        if generation > 1:
            landed.generation = generation
            landed.seed()
        live(landed, rng, Vector.of(truth.newest))
        ends.append(landed.rows_of("SELECT _kafka_partition, _kafka_offset FROM dst.main.clicks"))
    oracle = TopicOracle(Destination(Lake(landed.lake.catalog, landed.lake.data_path), "clicks", "p", "d", ""))
    assert [str(found) for found in oracle.look(world, witness.truths, arrived=truth)] == []
    assert oracle.compared > 2 * LIVES
    assert ends[1:] == ends[:-1]
