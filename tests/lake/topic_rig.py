"""Destinations of a topic on real lakes, and a broker within the process that has the topic's records."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Message

from services.applier.model.task import Limits, SourceTopic, Target, Task
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat, ValueFormat
from services.applier.records.rejection import Rejection
from services.applier.worker import worker_state
from services.applier.worker.task_run import run_task
from services.applier.worker.topic_clients import BrokerClients
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice
from shared.contracts.errors import SourceError
from shared.contracts.layout import TableLayout
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, Progress, SeedMode, WorkItem
from shared.contracts.positions import Vector
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicIdentity
from shared.kafka.topic_records import Bounds, ReadingProgress
from shared.lake.connection.attach import attach, detach
from shared.lake.connection.engine import connect
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import path
from tests.lake.rig import MakeLake, looking

PARTITIONS = 2
SETTINGS = KafkaSettings("nowhere:1")
COLUMNS = (DeclaredColumn("id", "$.id", "BIGINT"), DeclaredColumn("v", "$.v", "VARCHAR"))
APPENDED = RecordFormat(columns=COLUMNS, metadata=(Metadata.PARTITION, Metadata.OFFSET))
KEYED = RecordFormat(columns=COLUMNS, key=KeyFormat.JSON, key_columns=("id",), metadata=APPENDED.metadata)
EVENTS = RecordFormat(
    value=ValueFormat.DEBEZIUM, key=KeyFormat.JSON, columns=COLUMNS, key_columns=("id",), metadata=APPENDED.metadata
)

_items = itertools.count(1)


@dataclass
class FakeBroker:
    """All clients of a topic in one: what was sent to it, what of it is gone, and what was delivered as rejected."""

    sent: dict[int, list[Message]] = field(default_factory=lambda: {each: [] for each in range(PARTITIONS)})
    gone: Vector = field(default_factory=Vector)
    delivered: list[tuple[int, int]] = field(default_factory=list)
    is_away: bool = False

    @property
    def log(self) -> FakeBroker:
        return self

    records = log

    @contextmanager
    def of(self, _: SourceTopic) -> Iterator[FakeBroker]:
        yield self

    def identity(self) -> TopicIdentity:
        return TopicIdentity("cluster", "topic id", PARTITIONS)

    def oldest(self, partitions: int) -> Vector:
        assert partitions == PARTITIONS
        return self.gone

    def follow(self, topic_id: str) -> None:
        assert topic_id == "topic id"

    def schemas(self, _: SourceTopic) -> None: ...

    def close(self) -> None: ...

    def rejected(self, _: SourceTopic) -> FakeBroker:
        return self

    def read(
        self, begin: Vector, end: Vector, bounds: Bounds, silence_s: float, take: Callable[[Sequence[Any]], None]
    ) -> ReadingProgress:
        del bounds, silence_s
        first = begin.by_partition
        found = [self.sent[each][first.get(each, 0) : last] for each, last in end.offsets]
        take(list(itertools.chain(*found)))
        return ReadingProgress({**first, **end.by_partition}, sum(map(len, found)), 100)

    def deliver(self, topic: str, records: Sequence[Rejection]) -> None:
        assert topic == "clicks"
        if self.is_away:
            raise SourceError("source_unreachable", "no broker", "wait")
        self.delivered += [(each.partition, each.offset) for each in records]

    def send(self, value: Any, partition: int = 0, key: Any = None) -> None:
        """Bytes and None are sent as they are, all else as JSON."""
        raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        named = None if key is None else json.dumps(key).encode()
        at = len(self.sent[partition])
        sent = Message(topic="clicks", partition=partition, offset=at, key=named, value=raw, timestamp=(1, at))
        self.sent[partition].append(sent)

    @property
    def end(self) -> Vector:
        return Vector.of({each: len(found) for each, found in self.sent.items()})


class TopicRig:
    """Destinations of one topic without routing, by name, each in a lake of its own."""

    def __init__(self, folder: Path, make_lake: MakeLake, form: RecordFormat = APPENDED) -> None:
        self.folder, self._make_lake, self.form = folder, make_lake, form
        self.broker = FakeBroker()
        self.lakes: dict[str, ResolvedLake] = {}
        self.positions: dict[str, Vector] = {}
        self.generations: dict[str, int] = {}
        self.layout: TableLayout | None = None
        """Of all destinations."""

    def add(self, name: str, lake: ResolvedLake | None = None) -> None:
        """Declare a destination, and begin its first life with an empty table."""
        self.lakes[name] = lake or self._make_lake(name, self.folder / f"{name}-data")
        self.generations[name] = 1
        said = self.run(self.target(name, ItemKind.SEED, None, Vector()))
        assert said.outcome == "applied", said.error

    def target(
        self, name: str, kind: ItemKind, begin: Vector | None, end: Vector, item: str = "", **changed: Any
    ) -> Target:
        generation, expected = self.generations[name], -1 if begin is None else begin.records
        destination = Destination(
            pipeline="p", destination=name, generation=generation, routing_value="", state=DesiredState.RUNNING,
            lake=LakeRef(catalog="sqlite:elsewhere"), table="t", seed_mode=SeedMode.REPLAY, revision="1",
            layout=self.layout,
        )  # fmt: skip
        known: dict[str, Any] = {
            "item": item or f"item-{next(_items)}", "kind": kind, "pipeline": "p", "destination": name,
            "generation": generation, "expected": expected, "after": expected, "through": end.records, "pinned": True,
            "expected_at": None if begin is None else begin.text, "through_at": end.text,
        }  # fmt: skip
        return Target(WorkItem.model_validate(known | changed), destination, self.lakes[name], is_spelled=True)

    def run(self, target: Target, commit: CommitChoice = "auto") -> Progress:
        source = SourceTopic(
            SETTINGS, "clicks", self.form, 500_000, 100_000_000, SETTINGS, "rejected", skips_gaps=True
        )  # fmt: skip
        limits = Limits(commit=commit)
        worker_state.worker(limits).brokers = cast(BrokerClients, self.broker)
        (result,) = run_task(Task(target.item.kind, source, (target,), limits)).results
        said = result.progress
        if said.outcome in ("applied", "already_applied") and said.position_at:
            self.positions[target.destination.destination] = Vector.parse(said.position_at)
        return said

    def land(self, name: str, end: Vector | None = None, commit: CommitChoice = "auto", **changed: Any) -> Progress:
        """Bring a destination from where it is to ``end``, or to the topic's."""
        begin = self.positions[name]
        return self.run(self.target(name, ItemKind.CHANGES, begin, end or self.broker.end, **changed), commit)

    def look(self, name: str, query: str) -> list[tuple[Any, ...]]:
        with looking(self.lakes[name]) as con:
            return con.execute(query).fetchall()

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.look(name, "SELECT * FROM dst.main.t"), key=repr)

    def cursor(self, name: str) -> list[tuple[Any, ...]]:
        """All of it but what differs between destinations and tries."""
        table = path("dst", SCHEMA, cursor_name("p", name))
        return self.look(name, f"SELECT * EXCLUDE (destination, updated_at) FROM {table}")

    def stamps(self, name: str) -> list[dict[str, Any]]:
        """Of all snapshots that have one, in their order."""
        said = "SELECT commit_extra_info FROM dst.snapshots() WHERE author = 'viaduck' ORDER BY snapshot_id"
        return [json.loads(text) for (text,) in self.look(name, said)]

    def write(self, name: str, *statements: str) -> None:
        """Write to a destination behind Viaduck's back."""
        con = connect()
        try:
            attach(con, "dst", self.lakes[name], read_only=False)
            for statement in statements:
                con.execute(statement)
        finally:
            detach(con, "dst")
            con.close()

    def files(self, name: str) -> set[str]:
        return {str(each) for each in (self.folder / f"{name}-data").rglob("*.parquet")}
