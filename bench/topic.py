"""A Kafka topic as the source of a benchmark: a real broker, records of some 380 bytes, and Viaduck that lands them."""

from __future__ import annotations

import bisect
import json
import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.lakes import Lake, PostgresLakes
from bench.plain_consumer import ALIAS, TABLE, command
from bench.records import record
from bench.setting import Setting
from bench.viaduck import FILE, LOG, PATIENCE_S, PIPELINE
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.servers.kafka import Kafka

TOPIC, PARTITIONS = "records", 8
BATCH = 250_000
"""Rows of a plain loop's insert: about as many as ``flush.bytes`` lets into one of Viaduck's."""

DELIVERED_WITHIN_S = 60.0
LIST_OFFSETS = 2
"""Kafka's number of the request that tells the head of a topic."""

PRODUCER = {"log_level": 0, "linger.ms": 20, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000}


@dataclass(frozen=True)
class PlainRun:
    """What the plain loop said of itself."""

    seconds: float
    records: int
    peak_mb: float
    json: str


class TopicSite:
    """One topic, and the lakes into which it lands: Viaduck's, and the plain loop's."""

    def __init__(self, kafka: Kafka, lakes: PostgresLakes, folder: Path) -> None:
        self.kafka, self.lakes, self._folder = kafka, lakes, folder
        self.lake, self.plain_lake = lakes.new("v_topic"), lakes.new("p_topic")
        self.sent = 0
        self._rng = random.Random(1)
        self._producer = Producer({**kafka.client(), **PRODUCER})
        admin = AdminClient({**kafka.client()})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(DELIVERED_WITHIN_S)

    @contextmanager
    def viaduck(self, **flush: Any) -> Iterator[RunningViaduck]:
        """``viaduck up`` on a file with this topic, ready, with the empty table there."""
        port, file = free_port(), self._folder / FILE
        file.write_text(yaml.safe_dump(self._config(port, flush)))
        with RunningViaduck(file, f"http://127.0.0.1:{port}", PIPELINE, self._folder / LOG) as viaduck:
            viaduck.wait_until("starting", viaduck.ready, PATIENCE_S)
            self.wait_landed(viaduck)
            yield viaduck

    def send(self, records: int) -> None:
        """As fast as it goes; they are on the broker when it returns."""
        for number in range(self.sent, self.sent + records):
            self._produce(number)
            if number % 1_000 == 0:
                self._producer.poll(0)
        self._delivered(records)

    def trickle(self, per_second: float, seconds: float) -> None:
        """One by one, at that pace."""
        count, began = int(per_second * seconds), time.monotonic()
        with closing_producer(self.kafka) as producer:
            for number in range(count):
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
                self._produce(self.sent + number, producer)
                producer.poll(0)
        self._delivered(count)

    def wait_landed(self, viaduck: RunningViaduck) -> None:
        """Until the destination is known to hold all that was sent. Raises ``DependencyError``."""

        def landed() -> bool:
            known = [each["known_through"] for each in viaduck.destinations()]
            return any(each is not None and each >= self.sent for each in known)

        viaduck.wait_until(f"landing {self.sent} records", landed, PATIENCE_S)

    def require_exact(self, lake: Lake) -> int:
        """Figures of a wrong result are worth nothing. Returns how many rows were counted."""
        with closing(connect()) as con:
            attach(con, ALIAS, self.lakes.direct(lake).resolved, read_only=True)
            sql = f"SELECT count(*), count(DISTINCT (_kafka_partition, _kafka_offset)), sum(event_id) FROM {TABLE}"
            found = con.execute(sql).fetchall()[0]
        wanted = (self.sent, self.sent, self.sent * (self.sent - 1) // 2)
        assert found == wanted, f"{lake.name} has (rows, places, sum of ids) {found}, not {wanted}"
        return self.sent

    def plain(self, records: int) -> PlainRun:
        """The plain loop lands so many more, in a process of its own."""
        lake = self.lakes.direct(self.plain_lake).resolved
        words = command(self.kafka.bootstrap, TOPIC, lake, records, BATCH)
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 0, f"the plain loop ended with {ended.returncode}: {ended.stderr[-2000:]}"
        return PlainRun(**json.loads(ended.stdout))

    def ages(self, first: int) -> list[float]:
        """Seconds from when each record from that number on was sent until its row was visible; the shortest first."""
        with closing(connect()) as con:
            attach(con, ALIAS, self.lakes.direct(self.lake).resolved, read_only=True)
            sql = f"SELECT _kafka_partition, _kafka_offset, epoch(_kafka_timestamp) FROM {TABLE} WHERE event_id >= ?"
            rows = con.execute(sql, [first]).fetchall()
        return ages_of(rows, self._arrivals())

    def snapshots(self) -> int:
        return len(self.lakes.visible(self.lake))

    def _arrivals(self) -> list[tuple[Mapping[int, int], float]]:
        """Of each commit that moved the destination: the offsets that it reached, and when it became visible."""
        visible = self.lakes.visible(self.lake)
        sql = (
            "SELECT snapshot_id, commit_extra_info::json ->> 'through_at' FROM ducklake_snapshot_changes"
            " WHERE author = 'viaduck' AND commit_extra_info LIKE '%\"through_at\"%' ORDER BY snapshot_id"
        )
        with self.lakes.server.connect(self.lake.name) as con:
            found = con.execute(sql).fetchall()
        return [(_offsets(spelled), visible[int(snapshot)]) for snapshot, spelled in found]

    def _produce(self, number: int, producer: Producer | None = None) -> None:
        value = json.dumps(record(number, self._rng)).encode()
        (producer or self._producer).produce(TOPIC, value, partition=number % PARTITIONS)

    def _delivered(self, records: int) -> None:
        left = self._producer.flush(DELIVERED_WITHIN_S)
        assert left == 0, f"{left} records were not delivered within {DELIVERED_WITHIN_S:.0f} s"
        self.sent += records

    def _config(self, port: int, flush: Mapping[str, Any]) -> dict[str, Any]:
        """The source is reached by the broker's second way in, so that what is asked of it can be counted."""
        return {
            "pipeline": PIPELINE,
            "source": {"kind": "kafka", "topic": TOPIC, "bootstrap_servers": self.kafka.faulty_bootstrap},
            "flush": dict(flush),
            "kafka": {"bootstrap_servers": self.kafka.bootstrap, "replication_factor": 1},
            "health": {"every_seconds": 0},
            "server": {"port": port},
            "state_dir": "state",
            "destinations": [
                {"id": "all", "catalog": self.lake.catalog, "data_path": self.lake.data_path, "table": "records"}
            ],
        }


@contextmanager
def topic_site(setting: Setting) -> Iterator[TopicSite]:
    with Kafka(faulty=True) as kafka:
        yield TopicSite(kafka, setting.on_postgres, setting.folder)


@contextmanager
def closing_producer(kafka: Kafka) -> Iterator[Producer]:
    """One that sends each record at once; all are delivered at the end."""
    producer = Producer({**kafka.client(), "log_level": 0, "linger.ms": 0})
    yield producer
    left = producer.flush(DELIVERED_WITHIN_S)
    assert left == 0, f"{left} records were not delivered within {DELIVERED_WITHIN_S:.0f} s"


def ages_of(rows: Sequence[tuple[int, int, float]], arrivals: Sequence[tuple[Mapping[int, int], float]]) -> list[float]:
    """``rows``: partition, offset and the second at which it was sent; ``arrivals`` are in order."""
    reached = {partition: [at.get(partition, 0) for at, _ in arrivals] for partition, _, _ in rows}
    ages = []
    for partition, offset, sent_s in rows:
        place = bisect.bisect_right(reached[partition], offset)
        assert place < len(arrivals), f"offset {offset} of partition {partition} is in no commit"
        ages.append(arrivals[place][1] - sent_s)
    return sorted(ages)


def _offsets(spelled: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(spelled).items()}


@dataclass
class RequestCounter:
    """Counts Kafka's requests on their way to the broker, by their numbers. Called with chunks of connections."""

    by_kind: dict[int, int] = field(default_factory=dict)
    _begun: dict[int, bytes] = field(default_factory=dict)

    def __call__(self, connection: object, chunk: bytes) -> None:
        rest = self._begun.get(id(connection), b"") + chunk
        while len(rest) >= 6 and len(rest) >= (size := 4 + int.from_bytes(rest[:4], "big")):
            kind = int.from_bytes(rest[4:6], "big")
            self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
            rest = rest[size:]
        self._begun[id(connection)] = rest
