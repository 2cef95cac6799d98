"""A topic of a real broker under ``viaduck up``: whatever dies, each record is a row once, at every snapshot."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.contracts.positions import Vector
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.e2e.deployment import kill, kill_tree
from tests.e2e.prepared_viaduck import PreparedViaduck
from tests.e2e.topics import Topic, committed_places
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port
from tests.world import duck as world_duck
from tests.world.destination import Destination
from tests.world.lake import Lake
from tests.world.replay import SOAK
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_witness import TopicWitness

PARTITIONS = 3
KILLS = 4 if SOAK else 2
WITHIN_S = 180.0


class Writer(threading.Thread):
    """Sends records to a topic until it is told to stop, some in transactions of which every third is aborted."""

    def __init__(self, topic: Topic, seed: int) -> None:
        super().__init__(name="writer")
        self._rng = random.Random(seed)
        self._topic = topic
        self._stopped = threading.Event()
        self.committed = 0

    def run(self) -> None:
        plain = Producer({"bootstrap.servers": self._topic.kafka.bootstrap, "linger.ms": 2})
        transactional = Producer(
            {"bootstrap.servers": self._topic.kafka.bootstrap, "transactional.id": f"{self._topic.name}-writer"}
        )
        transactional.init_transactions(WITHIN_S)
        while not self._stopped.wait(self._rng.uniform(0, 0.05)):
            self._send(plain)
            self._in_transaction(transactional)

    def stop(self) -> None:
        self._stopped.set()
        self.join(WITHIN_S)

    def _in_transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        before = self.committed
        self._send(producer)
        if self._rng.random() < 0.3:
            producer.abort_transaction(WITHIN_S)
            self.committed = before
        else:
            producer.commit_transaction(WITHIN_S)

    def _send(self, producer: Producer) -> None:
        for _ in range(self._rng.randrange(1, 40)):
            value = json.dumps({"id": self.committed, "v": self._rng.choice(["a", 1, None])}).encode()
            producer.produce(self._topic.name, value, partition=self._rng.randrange(PARTITIONS))
            self.committed += 1
        producer.flush(WITHIN_S)


class TopicDeployment:
    """One pipeline that lands a topic, its file, and what the destination holds. ``own`` is the deployment's broker
    where that is not the topic's."""

    def __init__(self, folder: Path, topic: Topic, own: Kafka | None = None, **source: Any) -> None:
        self.topic, self.port, self.prefix = topic, free_port(), f"v-{topic.name}"
        if own is not None:
            source["bootstrap_servers"] = topic.kafka.bootstrap
        self.lake = ResolvedLake(f"sqlite:{folder}/clicks.sqlite", None, str(folder / "clicks"))
        self.file, self.log = folder / "viaduck.yaml", folder / "up.log"
        self._offsets = TopicLog(KafkaSettings(topic.kafka.bootstrap), topic.name, "test")
        self.file.write_text(yaml.safe_dump({
            "pipeline": "clicks",
            "source": {"kind": "kafka", "topic": topic.name, **source},
            "flush": {"seconds": 0.2, "rows": 2_000},
            "kafka": {"bootstrap_servers": (own or topic.kafka).bootstrap, "topic_prefix": self.prefix},
            "poll": {"interval_seconds": 0.2},
            "server": {"port": self.port},
            "state_dir": str(folder / "state"),
            "destinations": [{
                "id": "clicks", "catalog": self.lake.catalog, "data_path": self.lake.data_path, "table": "clicks",
            }],
        }))  # fmt: skip

    def run(self) -> RunningViaduck:
        return PreparedViaduck(self.file, f"http://127.0.0.1:{self.port}", "clicks", self.log)

    def wait_until_landed(self, viaduck: RunningViaduck) -> Vector:
        """Until the destination holds what the topic holds now."""
        newest = self._offsets.newest(PARTITIONS)
        viaduck.wait_until(
            f"the destination to reach {newest.text}",
            lambda: any((each["known_through"] or 0) >= newest.records for each in viaduck.destinations()),
            WITHIN_S,
        )
        return newest

    def viaduck(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command on the file, run to its end."""
        whole = [sys.executable, "-m", "services.cli.main", *arguments, "-c", str(self.file)]
        return subprocess.run(whole, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    def said(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = self.viaduck(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def verdict(self, code: int) -> dict[str, Any]:
        """What ``verify`` says of the one destination, ending with that exit code."""
        done = self.viaduck("verify", "--json")
        assert done.returncode == code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
        return found

    def write(self, *statements: str) -> None:
        """Write to the destination behind Viaduck's back."""
        with closing(connect()) as con:
            attach(con, "dst", self.lake, read_only=False)
            for statement in statements:
                con.execute(statement)

    def places(self) -> set[tuple[int, int]]:
        """Where the topic's committed records are."""
        return committed_places(self.topic.kafka, self.topic.name)

    def findings(self) -> list[str]:
        """What is wrong with the table at any snapshot, or with where it ended."""
        destination = Destination(Lake(self.lake.catalog, self.lake.data_path), "clicks", "clicks", "clicks", "")
        witness = TopicWitness(self.topic.kafka.bootstrap, self.topic.name)
        truth = witness.look()
        with closing(world_duck.connect()) as con:
            return [str(each) for each in TopicOracle(destination).look(con, witness.truths, arrived=truth)]


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    return Topic(kafka, PARTITIONS)


@pytest.fixture
def writer(topic: Topic) -> Iterator[Writer]:
    made = Writer(topic, 7)
    yield made
    made.stop()


@pytest.mark.timeout(600)
def test_a_topic_lands_at_once_and_verify_tells_a_lost_and_a_doubled_record(topic: Topic, tmp_path: Path) -> None:
    topic.send(*({"id": number} for number in range(100)), b"no JSON")
    topic.send({"id": 100, "new": "field"}, partition=2)
    deployment = TopicDeployment(tmp_path, topic)
    assert deployment.viaduck("check").returncode == 0
    assert deployment.viaduck("up", "--once", "--timeout", "120").returncode == 0
    proof = deployment.verdict(0)
    assert (proof["result"], proof["rows"], proof["position"]) == ("equal", 101, 102)
    deployment.write(
        "DELETE FROM dst.main.clicks WHERE id = 7",
        "INSERT INTO dst.main.clicks SELECT * FROM dst.main.clicks WHERE id = 8",
    )
    proof = deployment.verdict(1)
    assert (proof["result"], proof["missing"], proof["extra"]) == ("different", 1, 1)


@pytest.mark.timeout(600)
def test_services_killed_while_records_come_lose_and_double_nothing(
    topic: Topic, writer: Writer, tmp_path: Path
) -> None:
    deployment, rng = TopicDeployment(tmp_path, topic), random.Random(3)
    killed = {"reader": 0, "applier": 0, "control": 0}
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, WITHIN_S)
        writer.start()
        while min(killed.values()) < KILLS:
            time.sleep(rng.uniform(0, 1.5))
            victim = rng.choice([name for name, times in killed.items() if times < KILLS])
            killed[victim] += kill(viaduck, victim)
        writer.stop()
        deployment.wait_until_landed(viaduck)
    assert writer.committed > 0
    assert len(deployment.places()) == writer.committed
    assert deployment.findings() == []


@pytest.mark.timeout(600)
def test_the_whole_tree_killed_and_started_again_loses_and_doubles_nothing(
    topic: Topic, writer: Writer, tmp_path: Path
) -> None:
    deployment = TopicDeployment(tmp_path, topic)
    writer.start()
    for _ in range(2):
        with deployment.run() as viaduck:
            viaduck.wait_until("readiness", viaduck.ready, WITHIN_S)
            time.sleep(1.0)
            kill_tree(viaduck)
    writer.stop()
    with deployment.run() as viaduck:
        deployment.wait_until_landed(viaduck)
    assert deployment.findings() == []
