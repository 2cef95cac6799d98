"""Topics of a real broker that fan out to tenants under ``viaduck up``: one deployment has a pipeline for each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from tests.e2e.prepared_viaduck import PreparedViaduck
from tests.e2e.topics import Topic, read_all
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port
from tests.world.destination import Destination
from tests.world.lake import Lake
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_witness import TopicWitness

WITHIN_S = 180.0
UNROUTED = "viaduck_unrouted_rows_total{"
PLAIN, KEYED = "events", "keyed"
TENANTS = ("acme", "globex", "initech")
APPEARS = "hooli"
BY_KEY = {
    "source": {"format": {"key": "text"}, "metadata": ["partition", "offset", "timestamp", "key"]},
    "routing": {"key_columns": ["_kafka_key"]},
}


class Tenants:
    """A pipeline that routes a topic to three lakes; ``more`` is what its sections have besides, and ``common`` what
    those of all pipelines have."""

    def __init__(
        self, files: Path, name: str, topic: Topic, common: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> None:
        sections: Mapping[str, Any] = {"source": {}, "routing": {}, **(more or {})}
        self.topic, self.name, self.file, folder = topic, name, files / f"{name}.yaml", files.parent / name
        folder.mkdir()
        self.url = f"http://127.0.0.1:{common['server']['port']}"
        self.rejected = f"{common['kafka']['topic_prefix']}.rejected.{name}"
        self.lakes = {
            each: ResolvedLake(f"sqlite:{folder}/{each}.sqlite", None, str(folder / each))
            for each in (*TENANTS, APPEARS)
        }
        self.oracles = {
            each: TopicOracle(Destination(Lake(lake.catalog, lake.data_path), "events", name, each, each))
            for each, lake in self.lakes.items()
        }
        self.witness = TopicWitness(topic.kafka.bootstrap, topic.name, keyed=bool(sections["routing"]))
        self.file.write_text(yaml.safe_dump({
            "pipeline": name,
            "source": {
                "kind": "kafka", "topic": topic.name,
                "columns": [{"name": "tenant", "path": "$.tenant", "type": "VARCHAR"}],
                **sections["source"],
            },
            "routing": {"field": "tenant", **sections["routing"]},
            "flush": {"seconds": 0.2},
            "poll": {"interval_seconds": 0.2},
            **common,
            "destinations": [
                {"id": each, "routing_value": each, "catalog": lake.catalog, "data_path": lake.data_path,
                 "table": "events"}
                for each, lake in self.lakes.items() if each in TENANTS
            ],
            "template": {"catalog": f"sqlite:{folder}/{{routing_value}}.sqlite",
                         "data_path": f"{folder}/{{routing_value}}", "table": "events"},
            "appear": {"policy": "propose"},
        }))  # fmt: skip

    def viaduck(self, command: str, place: Path, *options: str, code: int = 0) -> str:
        whole = [sys.executable, "-m", "services.cli.main", command, "-c", str(place), *options]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def destinations(self) -> dict[str, dict[str, Any]]:
        """What control says of each."""
        try:
            answer = httpx.get(f"{self.url}/v1/pipelines/{self.name}/destinations", timeout=30.0)
        except httpx.HTTPError:  # it starts
            return {}
        return {each["id"]: each for each in answer.json()["items"]} if answer.is_success else {}

    def are_at(self, records: int, names: tuple[str, ...] = TENANTS) -> bool:
        found = {each: status["known_through"] or 0 for each, status in self.destinations().items()}
        return found.keys() == set(names) and min(found.values()) >= records

    def lags(self) -> dict[str, int | None]:
        return {each: status["topic"]["lag_records"] for each, status in self.destinations().items()}

    def unrouted(self, viaduck: RunningViaduck) -> tuple[set[tuple[str, int, str]], float]:
        """The proposals, and how many records the metrics count."""
        shown = httpx.get(f"{self.url}/v1/pipelines/{self.name}/proposals", timeout=30.0).json()["items"]
        mine = f'pipeline="{self.name}"'
        lines = [line for line in viaduck.metrics().splitlines() if line.startswith(UNROUTED) and mine in line]
        counted = sum(float(line.split()[-1]) for line in lines)
        return {(each["routing_value"], each["rows"], each["reason"]) for each in shown}, counted

    def accept(self, value: str) -> None:
        proposals = f"{self.url}/v1/pipelines/{self.name}/proposals"
        with httpx.Client(timeout=30.0) as rest:
            (shown,) = [each for each in rest.get(proposals).json()["items"] if each["routing_value"] == value]
            answer = rest.post(f"{proposals}/{shown['id']}:accept")
        assert answer.status_code == 201, answer.text

    def proofs(self, code: int) -> dict[str, Any]:
        said = self.viaduck("verify", self.file.parent, "--pipeline", self.name, "--json", code=code)
        lines = map(json.loads, said.splitlines())
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


@dataclass(frozen=True)
class Routed:
    """What runs, and the pipeline of each topic, whose first records were there before it."""

    viaduck: RunningViaduck
    plain: Tenants
    keyed: Tenants


@pytest.fixture(scope="module")
def routed(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    """Each test has a pipeline of its own."""
    folder = tmp_path_factory.mktemp("routed")
    (files := folder / "files").mkdir()
    port = free_port()
    common = {
        "kafka": {"bootstrap_servers": kafka.bootstrap, "topic_prefix": f"v{port}"},
        "server": {"port": port},
        "state_dir": str(folder / "state"),
    }
    plain = Tenants(files, PLAIN, Topic(kafka, 2), common)
    keyed = Tenants(files, KEYED, Topic(kafka, 2), common, BY_KEY)
    for number in range(40):
        plain.topic.send({"tenant": TENANTS[number % 2], "id": number}, partition=number % 2)
    plain.topic.send({"tenant": None, "id": 98}, {"tenant": APPEARS, "id": 99}, {"id": 97}, b"no JSON", None)
    plain.topic.send({"tenant": "acme", "only_acme": 1}, partition=1)
    for key in ("moves", "goes", "moved before", "stays"):
        keyed.topic.send({"tenant": "acme", "first": key}, key=key)
    keyed.topic.send({"tenant": "globex"}, key="loses its tenant", partition=1)
    keyed.topic.send({"tenant": "globex"}, key="moved before")
    keyed.topic.send(b"no JSON", key="stays")
    keyed.topic.send({"tenant": 5}, key="stays")
    keyed.topic.send({"first": "of no tenant"}, None, key="strange")
    with PreparedViaduck(files, f"http://127.0.0.1:{port}", PLAIN, folder / "up.log") as viaduck:
        yield Routed(viaduck, plain, keyed)


@pytest.mark.timeout(600)
def test_each_tenant_holds_its_records_and_what_is_of_no_tenant_is_counted_and_offered(
    routed: Routed, world: duckdb.DuckDBPyConnection
) -> None:
    viaduck, tenants = routed.viaduck, routed.plain
    assert "; 41 go to the file's destinations, 1 are of 1 values" in tenants.viaduck("check", tenants.file)
    viaduck.wait_until("all to be there", lambda: tenants.are_at(46), WITHIN_S)
    snapshots = tenants.snapshots()
    tenants.topic.send({"tenant": "acme", "id": 100}, {"tenant": 5, "id": 101})
    viaduck.wait_until("what came later", lambda: tenants.are_at(48), WITHIN_S)
    quiet = [each for each, count in tenants.snapshots().items() if count == snapshots[each]]
    viaduck.wait_until("no lag to be shown", lambda: tenants.lags() == dict.fromkeys(TENANTS, 0), WITHIN_S)
    viaduck.wait_until("a proposal", lambda: tenants.unrouted(viaduck) == ({(APPEARS, 1, "asks")}, 4), WITHIN_S)
    tenants.accept(APPEARS)
    viaduck.wait_until("what appeared", lambda: tenants.are_at(48, (*TENANTS, APPEARS)), WITHIN_S)
    viaduck.wait_until("no proposal", lambda: tenants.unrouted(viaduck) == (set(), 4), WITHIN_S)
    assert quiet == ["globex", "initech"]
    assert tenants.findings(world, (*TENANTS, APPEARS)) == []
    assert tenants.query("initech", "SELECT count(*) FROM dst.main.events") == [(0,)]
    there = "SELECT count(*) FROM (DESCRIBE dst.main.events) WHERE column_name = 'only_acme'"
    assert [tenants.query(each, there) for each in TENANTS] == [[(1,)], [(0,)], [(0,)]]
    rejected = read_all(tenants.topic.kafka, tenants.rejected)
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
    routed: Routed, world: duckdb.DuckDBPyConnection
) -> None:
    viaduck, tenants = routed.viaduck, routed.keyed
    topic = tenants.topic
    assert "each at the destination of its newest record only" in tenants.viaduck("check", tenants.file)
    viaduck.wait_until("all to be there", lambda: tenants.are_at(10), WITHIN_S)
    assert tenants.keys("acme") == ["goes", "moves", "stays"]
    snapshots = tenants.snapshots()
    topic.send({"tenant": "globex", "second": 1}, key="moved before")
    viaduck.wait_until("a record of globex alone", lambda: tenants.are_at(11), WITHIN_S)
    concerned = [each for each, count in tenants.snapshots().items() if count != snapshots[each]]
    topic.send({"tenant": "globex"}, key="moves")
    topic.send(None, key="goes")
    topic.send({"tenant": None}, key="loses its tenant", partition=1)
    viaduck.wait_until("what came last", lambda: tenants.are_at(14), WITHIN_S)
    viaduck.wait_until("unrouted records", lambda: tenants.unrouted(viaduck) == (set(), 2), WITHIN_S)
    assert concerned == ["globex"]
    assert tenants.findings(world) == []
    assert {each: tenants.keys(each) for each in TENANTS} == {
        "acme": ["stays"], "globex": ["moved before", "moves"], "initech": []
    }  # fmt: skip
    rejected = read_all(topic.kafka, tenants.rejected)
    told = {(headers["viaduck-reason"], headers["viaduck-offset"]) for _, _, headers in rejected}
    assert told == {("not_json", "5"), ("type_mismatch", "6")}
    assert {each: found["rows"] for each, found in tenants.proofs(0).items()} == {"acme": 1, "globex": 2, "initech": 0}
    tenants.query("acme", "INSERT INTO dst.main.events SELECT * REPLACE (0 AS _kafka_offset) FROM dst.main.events")
    tenants.query("globex", "DELETE FROM dst.main.events WHERE _kafka_key = 'moves'")
    proofs = tenants.proofs(1)
    assert (proofs["acme"]["extra"], proofs["globex"]["missing"], proofs["initech"]["result"]) == (1, 1, "equal")
