"""A compacted topic of a real broker: the log cleaner takes records before Viaduck reads them, and while it waits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.e2e.topics import Topic, committed_places
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port

WITHIN_S = 180.0
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "1000",
    "min_cleanable_dirty_ratio": "0.0",
    "min_compaction_lag_ms": "0",
    "max_compaction_lag_ms": "1000",
}
SECTIONS: dict[str, dict[str, Any]] = {
    "keyed": {
        "source": {"format": {"key": "text"}, "metadata": ["partition", "offset", "timestamp", "key"]},
        "routing": {"key_columns": ["_kafka_key"]},
    },
    "appended": {"source": {}, "routing": {}},
}
"""Of two pipelines that land one topic."""

ROWS = {
    "keyed": "SELECT _kafka_key, v, _kafka_offset FROM dst.main.t ORDER BY ALL",
    "appended": "SELECT _kafka_partition, _kafka_offset FROM dst.main.t ORDER BY ALL",
}


class Compacted:
    """A topic whose records each begin a segment, so that all but the newest record of each partition are cleaned."""

    def __init__(self, kafka: Kafka) -> None:
        self.topic = Topic(kafka, 2, **COMPACTED)
        self._at_ms = int(time.time() * 1000) - 36_000_000

    def send(self, key: str, value: Any, partition: int = 0) -> None:
        """A broker rolls a segment by the times of its records, so nobody waits for it."""
        self._at_ms += 10_000
        self.topic.send(value, partition=partition, key=key, at_ms=self._at_ms)

    def places(self) -> set[tuple[int, int]]:
        return committed_places(self.topic.kafka, self.topic.name)

    def wait_until_cleaned(self, *left: tuple[int, int]) -> None:
        """Until a consumer sees these records alone."""
        eventually(lambda: self.places() == set(left), WITHIN_S)


class Pipelines:
    """Both, in one deployment."""

    def __init__(self, folder: Path, topic: Topic) -> None:
        self.port, self.log = free_port(), folder / "up.log"
        self.files = folder / "files"
        self.files.mkdir()
        self.lakes = {each: ResolvedLake(f"sqlite:{folder}/{each}.sqlite", None, f"{folder}/{each}") for each in ROWS}
        deployment = {
            "kafka": {"bootstrap_servers": topic.kafka.bootstrap, "topic_prefix": f"v-{topic.name}"},
            "server": {"port": self.port},
            "state_dir": str(folder / "state"),
        }
        for name, sections in SECTIONS.items():
            lake = self.lakes[name]
            (self.files / f"{name}.yaml").write_text(yaml.safe_dump({
                **deployment,
                "pipeline": name,
                "source": {"kind": "kafka", "topic": topic.name, **sections["source"]},
                "routing": sections["routing"],
                "flush": {"seconds": 0.2},
                "poll": {"interval_seconds": 0.2},
                "destinations": [{"id": name, "catalog": lake.catalog, "data_path": lake.data_path, "table": "t"}],
            }))  # fmt: skip
        self._url = f"http://127.0.0.1:{self.port}"

    def run(self) -> RunningViaduck:
        return RunningViaduck(self.files, self._url, "keyed", self.log)

    def ask(self, method: str, name: str, path: str = "") -> Any:
        answer = httpx.request(method, f"{self._url}/v1/pipelines/{name}/destinations/{name}{path}", timeout=30.0)
        assert answer.is_success, answer.text
        return answer.json()

    def are_at(self, records: int) -> bool:
        """Whether neither lacks a record of the topic, which has this many offsets."""
        return all(self._is_at(name, records) for name in SECTIONS)

    def _is_at(self, name: str, records: int) -> bool:
        try:
            found = self.ask("GET", name)
        except (httpx.HTTPError, AssertionError):  # starting
            return False
        return bool(found["known_through"] == records and found["topic"] and found["topic"]["lag_records"] == 0)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        with closing(connect()) as con:
            attach(con, "dst", self.lakes[name], read_only=True)
            return con.execute(ROWS[name]).fetchall()

    def proofs(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "services.cli.main", "verify", "-c", str(self.files), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return {each["destination"]: each for each in lines if "destination" in each}


@pytest.mark.timeout(600)
def test_of_a_compacted_topic_a_key_has_its_newest_record_and_holes_are_no_gap(kafka: Kafka, tmp_path: Path) -> None:
    compacted = Compacted(kafka)
    for version in range(3):
        for key in ("a", "b", "c"):
            compacted.send(key, {"v": f"{key}{version}"})
        compacted.send("d", {"v": f"d{version}"}, partition=1)
    compacted.send("c", None)
    compacted.send("x", {"v": "x"})
    compacted.send("y", {"v": "y"}, partition=1)
    compacted.wait_until_cleaned((0, 6), (0, 7), (0, 9), (0, 10), (1, 2), (1, 3))
    pipelines, others = Pipelines(tmp_path, compacted.topic), [("x", "x", 10), ("y", "y", 3)]
    with pipelines.run() as viaduck:
        viaduck.wait_until("what compaction left", lambda: pipelines.are_at(15), WITHIN_S)
    assert pipelines.rows("keyed") == [("a", "a2", 6), ("b", "b2", 7), ("d", "d2", 2), *others]
    assert pipelines.rows("appended") == sorted(compacted.places())
    proofs = pipelines.proofs()
    assert {name: (each["result"], each["rows"]) for name, each in proofs.items()} == {
        "keyed": ("equal", 5), "appended": ("equal", 6),
    }  # fmt: skip

    for value in ("a3", "a4", "a5"):
        compacted.send("a", {"v": value})
    compacted.send("b", None)
    compacted.send("e", {"v": "e"})
    compacted.wait_until_cleaned((0, 9), (0, 10), (0, 13), (0, 14), (0, 15), (1, 2), (1, 3))
    with pipelines.run() as viaduck:
        viaduck.wait_until("what compaction left behind the position", lambda: pipelines.are_at(20), WITHIN_S)
    assert pipelines.rows("keyed") == [("a", "a5", 13), ("d", "d2", 2), ("e", "e", 15), *others]
    assert pipelines.rows("appended") == [*((0, each) for each in (6, 7, 9, 10, 13, 14, 15)), (1, 2), (1, 3)]
    proofs = pipelines.proofs()
    assert (proofs["keyed"]["result"], proofs["keyed"]["rows"]) == ("equal", 5)
    since = (proofs["appended"]["missing"], proofs["appended"]["extra"])
    assert since == (0, 2), "the records of two rows were taken after they had landed"
