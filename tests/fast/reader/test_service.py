"""The reader as a process of its own, on a real source and the embedded broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from shared.contracts.reports import Frontier, parse_progress
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests.fast.reader.lakes import Lake
from tests.fast.reader.simulation import spec
from tests.fast.waiting import eventually
from tests.signed import ENVIRON, SIGNING

FILE = """
pipeline: p
source: {{catalog: "sqlite:source.sqlite", data_path: data, table: {table}}}
routing: {{field: {field}, key_columns: [id]}}
poll: {{interval_seconds: 0.1}}
reader: {{port: 0}}
"""


def write(folder: Path, table: str = "t", field: str = "tenant") -> Path:
    file = folder / "viaduck.yaml"
    file.write_text(FILE.format(table=table, field=field))
    return file


def start(file: Path, bootstrap: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "services.cli.main", "reader", "-c", str(file)]
    environ = {**os.environ, **ENVIRON, BOOTSTRAP: bootstrap}
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


class Bus:
    """The broker, and everything that was published on it."""

    def __init__(self) -> None:
        self.broker = EmbeddedBroker()
        self.settings = KafkaSettings(bootstrap=self.broker.bootstrap, embedded=True, signing=SIGNING)
        self.topics = Topics()
        ensure(self.settings)
        self.records: list[Record] = []
        self.publisher = Publisher(self.settings, "test")
        self._follower = Follower(
            self.settings, "test", [self.topics.work, self.topics.progress, self.topics.dead_letter]
        )
        self._follower.start(self.records.append)

    def close(self) -> None:
        self._follower.stop()
        self.publisher.close()

    @property
    def items(self) -> list[WorkItem]:
        return [WorkItem.from_bytes(r.value or b"") for r in self.records if r.topic == self.topics.work]

    @property
    def frontier(self) -> Frontier | None:
        told = [parse_progress(r.value or b"") for r in self.records if r.key == "p/@viaduck-0/0"]
        return told[-1] if told and isinstance(told[-1], Frontier) else None

    def answer(self, item: WorkItem, position: int) -> None:
        outcome = Outcome.ALREADY_APPLIED if item.kind is ItemKind.PROBE else Outcome.APPLIED
        progress = Progress(
            pipeline="p",
            destination=item.destination,
            item=item.item,
            kind=item.kind,
            outcome=outcome,
            generation=item.generation,
            position=position,
            through=max(position, 0),
        )
        self.publisher.send(self.topics.progress, progress.key, progress.to_bytes())

    def item(self, number: int) -> WorkItem:
        eventually(lambda: len(self.items) > number)
        return self.items[number]


@pytest.fixture
def bus() -> Iterator[Bus]:
    made = Bus()
    yield made
    made.close()


def test_a_destination_is_probed_seeded_followed_and_told_of_and_the_process_ends_at_once(
    tmp_path: Path, lake: Lake, bus: Bus
) -> None:
    head = lake.insert("a", 0, 20)
    bus.publisher.send(bus.topics.destinations, "p/garbage", b"garbage")
    bus.publisher.send(bus.topics.destinations, "p/a", spec("a").to_bytes())
    reader = start(write(tmp_path), bus.broker.bootstrap)
    try:
        bus.answer(bus.item(0), -1)
        seed = bus.item(1)
        assert (seed.kind, seed.through, seed.rows) == (ItemKind.SEED, head, 20)
        bus.answer(seed, head)
        after = lake.insert("a", 100, 30)
        changes = bus.item(2)
        assert (changes.kind, changes.expected, changes.through, changes.rows) == ("changes", head, after, 30)
        bus.answer(changes, after)
        eventually(lambda: bus.frontier is not None and bus.frontier.settled and bus.frontier.head == after)
        assert any(record.topic == bus.topics.dead_letter for record in bus.records)
    finally:
        began = time.monotonic()
        reader.send_signal(signal.SIGHUP)
        reader.send_signal(signal.SIGTERM)
        _, said = reader.communicate(timeout=30)
    assert reader.returncode == 143, said
    assert time.monotonic() - began < 20
    assert "Traceback" not in said
    assert lake.head == after


def test_a_source_without_the_routing_column_ends_with_2_and_one_line(tmp_path: Path, lake: Lake, bus: Bus) -> None:
    assert lake.head > 0
    reader = start(write(tmp_path, field="tennant"), bus.broker.bootstrap)
    _, said = reader.communicate(timeout=60)
    assert reader.returncode == 2
    assert "routing.field" in said
    assert "tenant" in said
    assert "Traceback" not in said
