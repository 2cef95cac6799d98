"""Topics of a real broker for tests: made, written to, and landed by tasks of a worker."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from services.applier.model.task import Limits, SourceTopic, Target, Task
from services.applier.records.record_format import RecordFormat
from services.applier.worker import worker_state
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import (
    DesiredState,
    Destination,
    ItemKind,
    LakeRef,
    Progress,
    SeedMode,
    WorkItem,
)
from shared.contracts.positions import Vector
from shared.kafka.schema_registry import RegistrySettings
from shared.kafka.settings import KafkaSettings
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka

WITHIN_S = 30.0

_items = itertools.count(1)


class Topic:
    """One topic of a broker."""

    def __init__(self, kafka: Kafka, partitions: int = 2, name: str | None = None, **config: str) -> None:
        self.name = name or f"t{uuid.uuid4().hex[:10]}"
        self.kafka = kafka
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.make(partitions, **config)

    def make(self, partitions: int = 2, **config: str) -> None:
        """What is sent from now on is sent by a client that knows of no former topic of the name."""
        given = {name.replace("_", "."): value for name, value in config.items()}
        wait_for(self.admin.create_topics([NewTopic(self.name, partitions, 1, config=given)]))
        eventually(lambda: self._is_told(partitions))  # a broker hears of it after the controller
        self._producer = self._connected()

    def _is_told(self, partitions: int) -> bool:
        told = self.admin.list_topics(self.name, timeout=10).topics[self.name]
        return told.error is None and len(told.partitions) == partitions

    def _connected(self) -> Producer:
        return Producer({"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 5, "message.max.bytes": 100_000_000})

    def drop(self) -> None:
        wait_for(self.admin.delete_topics([self.name]))

    def take_records_of(self, most_bytes: int, name: str | None = None) -> None:
        """Let the broker take larger records for this topic, or for another one."""
        entry = ConfigEntry("max.message.bytes", str(most_bytes), incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, name or self.name, incremental_configs=[entry])
        wait_for(self.admin.incremental_alter_configs([wanted]))

    def grow(self, partitions: int) -> None:
        wait_for(self.admin.create_partitions([NewPartitions(self.name, partitions)]))
        self._producer = self._connected()  # a client learns of new partitions after minutes

    def forget_before(self, **offsets: int) -> None:
        """Retention takes the records before them: ``p0=10``."""
        places = [TopicPartition(self.name, int(each[1:]), offset) for each, offset in offsets.items()]
        wait_for(self.admin.delete_records(places))

    def send(self, *values: Any, partition: int = 0, key: str | bytes | None = None, at_ms: int = 0) -> None:
        """Anything but bytes and None is sent as JSON. Without ``at_ms`` its time is now."""
        for value in values:
            raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            self._producer.produce(self.name, raw, key=key, partition=partition, timestamp=at_ms)
        assert self._producer.flush(WITHIN_S) == 0


def wait_for(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(WITHIN_S)


def messages_of(kafka: Kafka, topic: str) -> list[Message]:
    """All committed records of a topic."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "unused", "enable.partition.eof": True})
    known = consumer.list_topics(topic, WITHIN_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, 0) for each in known])
    found, ends = list[Message](), 0
    while ends < len(known):
        message = consumer.poll(WITHIN_S)
        assert message is not None
        ends += message.error() is not None
        if message.error() is None:
            found.append(message)
    consumer.close()
    return found


def committed_places(kafka: Kafka, topic: str) -> set[tuple[int, int]]:
    """Partition and offset of each of them."""
    return {(each.partition() or 0, each.offset() or 0) for each in messages_of(kafka, topic)}


def read_all(kafka: Kafka, topic: str) -> list[tuple[Any, Any, dict[str, str]]]:
    """Key, value and headers of all records of a topic, by partition and offset."""
    found = sorted(messages_of(kafka, topic), key=lambda each: (each.partition() or 0, each.offset() or 0))
    return [(each.key(), each.value(), _headers(each)) for each in found]


def _headers(message: Message) -> dict[str, str]:
    pairs: Any = message.headers() or []
    return {name: (value or b"").decode() for name, value in pairs}


@dataclass
class Landing:
    """A topic's destination in a lake of its own, and tasks that bring records there."""

    topic: Topic
    folder: Path
    form: RecordFormat = field(default_factory=RecordFormat)
    rows: int = 500_000
    parks_bad: bool = False
    registry: RegistrySettings | None = None
    skips: bool = False
    position: Vector = field(default_factory=Vector)
    generation: int = 1

    def __post_init__(self) -> None:
        self.settings = KafkaSettings(self.topic.kafka.bootstrap)
        self.lake = ResolvedLake(f"sqlite:{self.folder}/clicks.sqlite", None, str(self.folder / "clicks"))
        self.rejected = f"{self.topic.name}.rejected"
        wait_for(self.topic.admin.create_topics([NewTopic(self.rejected, 1, 1)]))

    @property
    def source(self) -> SourceTopic:
        return SourceTopic(
            self.settings, self.topic.name, self.form, self.rows, 100_000_000, self.settings, self.rejected,
            self.parks_bad, self.registry, self.skips,
        )  # fmt: skip

    def target(
        self, kind: ItemKind, begin: Vector | None, end: Vector, after: Vector | None = None, *, keeps: bool = False
    ) -> Target:
        """``after``: records before it are to be skipped. ``keeps``: a seed leaves the rows before its end."""
        destination = Destination(
            pipeline="p", destination="d", generation=self.generation, routing_value="", state=DesiredState.RUNNING,
            lake=LakeRef(catalog="sqlite:elsewhere"), table="clicks", seed_mode=SeedMode.REPLAY, revision="1",
        )  # fmt: skip
        expected = -1 if begin is None else begin.records
        item = WorkItem(
            item=f"item-{next(_items)}", kind=kind, pipeline="p", destination="d", generation=self.generation,
            expected=expected, after=expected if after is None else after.records, through=end.records, pinned=True,
            through_at=end.text, expected_at=None if begin is None else begin.text,
            after_at=None if after is None else after.text, keeps=keeps or None,
        )  # fmt: skip
        return Target(item, destination, self.lake, looks_first=kind is ItemKind.CHANGES, is_spelled=True)

    def run(self, target: Target) -> Progress:
        (result,) = run_task(Task(target.item.kind, self.source, (target,), Limits())).results
        return result.progress

    def seed(self, start: Vector | None = None) -> Progress:
        begin = start or Vector()
        said = self.run(self.target(ItemKind.SEED, None, begin))
        assert said.error is None, said.error
        self._learn(said)
        return said

    def rewind(self, to: Vector) -> Progress:
        """Begin the next generation there, with the rows before it."""
        self.generation += 1
        said = self.run(self.target(ItemKind.SEED, None, to, keeps=True))
        self._learn(said)
        return said

    def land(self, **offsets: int) -> Progress:
        """Bring the destination from where it is to these offsets: ``p0=10``."""
        end = Vector.of({int(each[1:]): offset for each, offset in offsets.items()})
        said = self.run(self.target(ItemKind.CHANGES, self.position, end))
        self._learn(said)
        return said

    def _learn(self, said: Progress) -> None:
        if said.position_at is not None and said.outcome in ("applied", "already_applied"):
            self.position = Vector.parse(said.position_at)

    def rows_of(self, query: str = "SELECT * FROM dst.main.clicks") -> list[tuple[Any, ...]]:
        with closing(connect()) as con:
            attach(con, "dst", self.lake, read_only=True)
            return sorted(con.execute(query).fetchall(), key=repr)

    def columns(self) -> dict[str, str]:
        found = self.rows_of("SELECT column_name, column_type FROM (DESCRIBE dst.main.clicks)")
        return dict(found)

    def write(self, *statements: str) -> None:
        with closing(connect()) as con:
            attach(con, "dst", self.lake, read_only=False)
            for statement in statements:
                con.execute(statement)

    def close(self) -> None:
        worker_state.forget()


def values(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [value for (value,) in rows]
