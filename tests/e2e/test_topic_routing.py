"""A topic of a real broker that fans out to tenants under ``viaduck up``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
import yaml

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.e2e.topics import Topic, read_all
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port
from tests.world.destination import Destination
from tests.world.lake import Lake
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_witness import TopicWitness

WITHIN_S = 180.0
UNROUTED = "viaduck_unrouted_rows_total{"
TENANTS = ("acme", "globex", "initech")
APPEARS = "hooli"
BY_KEY = {
    "source": {"format": {"key": "text"}, "metadata": ["partition", "offset", "timestamp", "key"]},
    "routing": {"key_columns": ["_kafka_key"]},
}


class Tenants:
    """A pipeline that routes a topic to three lakes; ``more`` is what its sections have besides."""

    def __init__(self, folder: Path, topic: Topic, more: Mapping[str, Any] | None = None) -> None:
        sections: Mapping[str, Any] = {"source": {}, "routing": {}, **(more or {})}
        self.topic, self.file, self.port = topic, folder / "viaduck.yaml", free_port()
        self.prefix, self.log = f"v-{topic.name}", folder / "up.log"
        self.lakes = {
            each: ResolvedLake(f"sqlite:{folder}/{each}.sqlite", None, str(folder / each))
            for each in (*TENANTS, APPEARS)
        }
        self.oracles = {
            each: TopicOracle(Destination(Lake(lake.catalog, lake.data_path), "events", "events", each, each))
            for each, lake in self.lakes.items()
        }
        self.witness = TopicWitness(topic.kafka.bootstrap, topic.name, keyed=bool(sections["routing"]))
        self.file.write_text(yaml.safe_dump({
            "pipeline": "events",
            "source": {
                "kind": "kafka", "topic": topic.name,
                "columns": [{"name": "tenant", "path": "$.tenant", "type": "VARCHAR"}],
                **sections["source"],
            },
            "routing": {"field": "tenant", **sections["routing"]},
            "flush": {"seconds": 0.2},
            "kafka": {"bootstrap_servers": topic.kafka.bootstrap, "topic_prefix": self.prefix},
            "poll": {"interval_seconds": 0.2},
            "server": {"port": self.port},
            "state_dir": str(folder / "state"),
            "destinations": [
                {"id": each, "routing_value": each, "catalog": lake.catalog, "data_path": lake.data_path,
                 "table": "events"}
                for each, lake in self.lakes.items() if each in TENANTS
            ],
            "template": {"catalog": f"sqlite:{folder}/{{routing_value}}.sqlite",
                         "data_path": f"{folder}/{{routing_value}}", "table": "events"},
            "appear": {"policy": "propose"},
        }))  # fmt: skip

    def viaduck(self, *arguments: str, code: int = 0) -> str:
        command, *options = arguments
        whole = [sys.executable, "-m", "services.cli.main", command, "-c", str(self.file), *options]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def run(self) -> RunningViaduck:
        return RunningViaduck(self.file, f"http://127.0.0.1:{self.port}", "events", self.log)

    def accept(self, value: str) -> None:
        proposals = f"http://127.0.0.1:{self.port}/v1/pipelines/events/proposals"
        with httpx.Client(timeout=30.0) as rest:
            (shown,) = [each for each in rest.get(proposals).json()["items"] if each["routing_value"] == value]
            answer = rest.post(f"{proposals}/{shown['id']}:accept")
        assert answer.status_code == 201, answer.text

    def proofs(self, code: int) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.viaduck("verify", "--json", code=code).splitlines()]
        return {each["destination"]: each for each in lines if "destination" in each}

    def findings(self, world: duckdb.DuckDBPyConnection, names: Sequence[str] = TENANTS) -> list[str]:
        whole = self.witness.look()
        found = list[str]()
        for tenant in names:
            oracle = self.oracles[tenant]
            truths = {name: each.of("tenant", tenant) for name, each in self.witness.truths.items()}
            found += map(str, oracle.look(world, truths, arrived=whole.of("tenant", tenant)))
        return found

    def keys(self, tenant: str) -> list[str]:
        return [key for (key,) in self.query(tenant, "SELECT _kafka_key FROM dst.main.events ORDER BY ALL")]

    def snapshots(self) -> dict[str, int]:
        return {each: self.query(each, "SELECT count(*) FROM dst.snapshots()")[0][0] for each in TENANTS}

    def query(self, tenant: str, sql: str) -> list[tuple[Any, ...]]:
        with closing(connect()) as con:
            attach(con, "dst", self.lakes[tenant], read_only=False)
            return con.execute(sql).fetchall()


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    return Topic(kafka, 2)


@pytest.mark.timeout(600)
def test_each_tenant_holds_its_records_and_what_is_of_no_tenant_is_counted_and_offered(
    topic: Topic, tmp_path: Path, world: duckdb.DuckDBPyConnection
) -> None:
    tenants = Tenants(tmp_path, topic)
    for number in range(40):
        topic.send({"tenant": TENANTS[number % 2], "id": number}, partition=number % 2)
    topic.send({"tenant": None, "id": 98}, {"tenant": APPEARS, "id": 99}, {"id": 97}, b"no JSON", None)
    topic.send({"tenant": "acme", "only_acme": 1}, partition=1)
    assert "; 41 go to the file's destinations, 1 are of 1 values" in tenants.viaduck("check")
    with tenants.run() as viaduck:
        viaduck.wait_until("all to be there", lambda: _are_at(viaduck, 46), WITHIN_S)
        snapshots = {each: tenants.query(each, "SELECT count(*) FROM dst.snapshots()") for each in TENANTS}
        topic.send({"tenant": "acme", "id": 100}, {"tenant": 5, "id": 101})
        viaduck.wait_until("what came later", lambda: _are_at(viaduck, 48), WITHIN_S)
        quiet = [each for each in TENANTS if tenants.query(each, "SELECT count(*) FROM dst.snapshots()")
                 == snapshots[each]]  # fmt: skip
        viaduck.wait_until("no lag to be shown", lambda: _lags(viaduck) == dict.fromkeys(TENANTS, 0), WITHIN_S)
        viaduck.wait_until("a proposal", lambda: _unrouted(viaduck) == ({(APPEARS, 1, "asks")}, 4), WITHIN_S)
        tenants.accept(APPEARS)
        viaduck.wait_until("what appeared", lambda: _are_at(viaduck, 48, (*TENANTS, APPEARS)), WITHIN_S)
        viaduck.wait_until("no proposal", lambda: _unrouted(viaduck) == (set(), 4), WITHIN_S)
    assert quiet == ["globex", "initech"]
    assert tenants.findings(world, (*TENANTS, APPEARS)) == []
    assert tenants.query("initech", "SELECT count(*) FROM dst.main.events") == [(0,)]
    there = "SELECT count(*) FROM (DESCRIBE dst.main.events) WHERE column_name = 'only_acme'"
    assert [tenants.query(each, there) for each in TENANTS] == [[(1,)], [(0,)], [(0,)]]
    rejected = read_all(topic.kafka, f"{tenants.prefix}.rejected.events")
    told = {(headers["viaduck-reason"], headers["viaduck-offset"]) for _, _, headers in rejected}
    assert told == {("not_json", "23"), ("type_mismatch", "26")}
    assert {each: found["rows"] for each, found in tenants.proofs(0).items()} == {
        "acme": 22, "globex": 20, "initech": 0, APPEARS: 1
    }  # fmt: skip
    tenants.query("acme", "DELETE FROM dst.main.events WHERE id = 100")
    tenants.query("globex", "INSERT INTO dst.main.events SELECT * FROM dst.main.events WHERE id = 1")
    proofs = tenants.proofs(1)
    assert (proofs["acme"]["missing"], proofs["globex"]["extra"], proofs["initech"]["result"]) == (1, 1, "equal")


@pytest.mark.timeout(600)
def test_a_key_is_where_its_newest_record_goes_and_no_tenant_that_it_does_not_concern_gets_a_snapshot(
    topic: Topic, tmp_path: Path, world: duckdb.DuckDBPyConnection
) -> None:
    tenants = Tenants(tmp_path, topic, BY_KEY)
    for key in ("moves", "goes", "moved before", "stays"):
        topic.send({"tenant": "acme", "first": key}, key=key)
    topic.send({"tenant": "globex"}, key="loses its tenant", partition=1)
    topic.send({"tenant": "globex"}, key="moved before")
    topic.send(b"no JSON", key="stays")
    topic.send({"tenant": 5}, key="stays")
    topic.send({"first": "of no tenant"}, None, key="strange")
    assert "each at the destination of its newest record only" in tenants.viaduck("check")
    with tenants.run() as viaduck:
        viaduck.wait_until("all to be there", lambda: _are_at(viaduck, 10), WITHIN_S)
        assert tenants.keys("acme") == ["goes", "moves", "stays"]
        snapshots = tenants.snapshots()
        topic.send({"tenant": "globex", "second": 1}, key="moved before")
        viaduck.wait_until("a record of globex alone", lambda: _are_at(viaduck, 11), WITHIN_S)
        concerned = [each for each, count in tenants.snapshots().items() if count != snapshots[each]]
        topic.send({"tenant": "globex"}, key="moves")
        topic.send(None, key="goes")
        topic.send({"tenant": None}, key="loses its tenant", partition=1)
        viaduck.wait_until("what came last", lambda: _are_at(viaduck, 14), WITHIN_S)
        viaduck.wait_until("unrouted records", lambda: _unrouted(viaduck) == (set(), 2), WITHIN_S)
    assert concerned == ["globex"]
    assert tenants.findings(world) == []
    assert {each: tenants.keys(each) for each in TENANTS} == {
        "acme": ["stays"], "globex": ["moved before", "moves"], "initech": []
    }  # fmt: skip
    rejected = read_all(topic.kafka, f"{tenants.prefix}.rejected.events")
    told = {(headers["viaduck-reason"], headers["viaduck-offset"]) for _, _, headers in rejected}
    assert told == {("not_json", "5"), ("type_mismatch", "6")}
    assert {each: found["rows"] for each, found in tenants.proofs(0).items()} == {"acme": 1, "globex": 2, "initech": 0}
    tenants.query("acme", "INSERT INTO dst.main.events SELECT * REPLACE (0 AS _kafka_offset) FROM dst.main.events")
    tenants.query("globex", "DELETE FROM dst.main.events WHERE _kafka_key = 'moves'")
    proofs = tenants.proofs(1)
    assert (proofs["acme"]["extra"], proofs["globex"]["missing"], proofs["initech"]["result"]) == (1, 1, "equal")


def _lags(viaduck: RunningViaduck) -> dict[str, int | None]:
    return {each["id"]: each["topic"]["lag_records"] for each in viaduck.destinations()}


def _are_at(viaduck: RunningViaduck, records: int, names: tuple[str, ...] = TENANTS) -> bool:
    found = {each["id"]: each["known_through"] or 0 for each in viaduck.destinations()}
    return found.keys() == set(names) and min(found.values()) >= records


def _unrouted(viaduck: RunningViaduck) -> tuple[set[tuple[str, int, str]], float]:
    """The proposals, and how many records the metrics count."""
    shown = httpx.get(f"{viaduck.url}/v1/pipelines/events/proposals", timeout=30.0).json()["items"]
    counted = [line.split()[-1] for line in viaduck.metrics().splitlines() if line.startswith(UNROUTED)]
    return {(each["routing_value"], each["rows"], each["reason"]) for each in shown}, sum(map(float, counted))
