"""The services on the servers that users run: Kafka, Postgres, an object store, a Spark cluster, a faulty network."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from services.cli.runtime.running import RunningViaduck
from shared.contracts.errors import DependencyError
from shared.kafka.broker import Broker
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests.e2e.deployment import Deployment
from tests.e2e.parts import Parts
from tests.e2e.phases import phase
from tests.fast.waiting import eventually
from tests.servers.certificates import Authority
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, Towards
from tests.servers.s3 import S3, Key
from tests.servers.spark_cluster import SparkCluster, short_lived

READY_WITHIN_S = 180
TOLD_WITHIN_S = 60
DESCRIBED_AGAIN_S = 15.0

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    made: list[Deployment] = []

    def make(seed: int, parts: Parts, **options: Any) -> Deployment:
        made.append(Deployment(tmp_path, seed, parts=parts, **options))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


def play(deployment: Deployment, steps: int) -> None:
    for _ in range(steps):
        deployment.step()
        time.sleep(deployment.rng.uniform(0, 0.4))


def play_until(deployment: Deployment, holds: Callable[[], bool]) -> None:
    """The source goes on changing until ``holds``; a destination meets its store with its first change of any row."""
    deadline = time.monotonic() + TOLD_WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "not true in time"
        play(deployment, 1)


def status(viaduck: RunningViaduck, name: str) -> dict[str, Any]:
    return next((each for each in viaduck.destinations() if each["id"] == name), {})


def parked(viaduck: RunningViaduck, *names: str) -> bool:
    return all(status(viaduck, name).get("state") == "parked" for name in names)


def shown_secrets(deployment: Deployment) -> list[str]:
    """Secrets, by what is around them, that got into the services' output or into a file of their own."""
    files = [deployment.log, deployment.file, *deployment.folder.glob("state/**/*")]
    said = {file: file.read_bytes().decode(errors="replace") for file in files if file.is_file()}
    return [f"{file}: {secret}" for file, text in said.items() for secret in deployment.parts.secrets if secret in text]


@pytest.mark.timeout(600)
def test_a_cluster_of_two_workers_ends_exact_though_one_is_killed_in_the_middle_of_a_commit(
    deploy: Deploy, spark_cluster: SparkCluster, postgres: Postgres
) -> None:
    """The workers have another Viaduck installed, which would fail: what runs there must be what was sent along."""
    conf = {**CLUSTER, "spark.executor.extraJavaOptions": short_lived()}
    parts = Parts(postgres=postgres, sections={"spark": {"master": spark_cluster.master, "conf": conf}})
    deployment = deploy(35, parts)
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, READY_WITHIN_S)
        play(deployment, 5)
        deployment.wait_until_exact_for(viaduck, "tenant-0")
        with commits_held(postgres, parts.database("tenant-0")) as held:
            play_until(deployment, lambda: bool(working(spark_cluster, held)))
            port, number = working(spark_cluster, held).popitem()
            spark_cluster.kill_worker(number)
            assert port in held(), "its COMMIT could not end before it was killed"
        play(deployment, 5)
        deployment.wait_until_exact(viaduck)
        spark_cluster.start_worker(number)
        viaduck.wait_until("two workers", lambda: spark_cluster.alive() == 2, TOLD_WITHIN_S)
    assert deployment.findings() == []


@contextmanager
def commits_held(postgres: Postgres, database: str) -> Iterator[Callable[[], set[int]]]:
    """Commits to a lake have to wait meanwhile; yields who waits: the ports that their connections come from."""
    waiting = "SELECT client_port FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"

    def held() -> set[int]:
        with postgres.connect() as con:
            return {port for (port,) in con.execute(waiting, (database,))}

    with postgres.connect(database) as con, con.transaction():
        con.execute("LOCK TABLE ducklake_snapshot IN EXCLUSIVE MODE")
        yield held


def working(cluster: SparkCluster, held: Callable[[], set[int]]) -> dict[int, int]:
    """The workers that wait so, by the ports of their connections."""
    found = {port: cluster.connected_from(port) for port in held()}
    return {port: number for port, number in found.items() if number is not None}


CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@pytest.mark.timeout(900)
def test_kafka_postgres_and_s3_end_exact_at_every_snapshot_whatever_a_store_does(
    deploy: Deploy, kafka: Kafka, postgres: Postgres, s3: S3
) -> None:
    """A store that refuses stops only its destinations and says why: tenant-0 may only read, two more have wrong keys
    or no bucket. One that is slow, fails, or breaks off in the middle of an apply costs its tenant, tenant-1, time and
    no rows."""
    with Proxy(s3.port) as store:
        parts = Parts(kafka=kafka, postgres=postgres, s3=s3)
        parts.properties |= {"tenant-0": keys(s3.reader, parts), "tenant-1": {"s3_endpoint": f"127.0.0.1:{store.port}"}}
        stranger = {"id": "stranger", "routing_value": "nobody", **elsewhere(parts, "stranger", keys(Key.new(), parts))}
        bucketless = {"id": "bucketless", "routing_value": "", **elsewhere(parts, "bucketless", {})}
        bucketless["data_path"] = "s3://no-such-bucket/data/"
        deployment = deploy(36, parts, beside=[stranger, bucketless])
        assert deployment.source.shape.routing == "tenant", "the seed's tenants are named by text"
        with deployment.run() as viaduck:
            viaduck.wait_until("readiness", viaduck.ready, READY_WITHIN_S)
            with phase("stores refuse, and one is slow"):
                store.latency(0.1)
                refused = ("tenant-0", "stranger", "bucketless")
                play_until(deployment, lambda: parked(viaduck, *refused))
                told = {name: status(viaduck, name)["error"] for name in refused}
                assert {error["type"] for error in told.values()} == {"storage_refused"}
                assert "AccessDenied" in told["tenant-0"]["message"]
                assert "s3_secret_access_key" in told["stranger"]["hint"]
                assert "create the bucket" in told["bucketless"]["hint"]
            with phase("a store fails"):
                store.refuse()
                deployment.wait_until_exact_for(viaduck, "tenant-2")
                play_until(deployment, lambda: bool(status(viaduck, "tenant-1").get("error")))
                failing = status(viaduck, "tenant-1")
                deployment.wait_until_exact_for(viaduck, "tenant-2")
                assert viaduck.ready(), "a bad tenant makes nobody unready"
                assert failing["state"] != "parked"
                assert failing["error"]["retryable"]
            with phase("all recover"):
                store.heal()
                del parts.properties["tenant-0"]
                deployment.declare(deployment.destinations)
                psutil.Process(viaduck.pid).send_signal(signal.SIGHUP)
                deployment.wait_until_exact(viaduck)
            with phase("a store breaks off in the middle of an apply"):
                _breaks_off(deployment, viaduck, store)
            with phase("nothing is wrong any more"):
                play(deployment, 12)
                deployment.wait_until_exact(viaduck)
        assert deployment.findings() == []
    assert s3.objects(parts.bucket) == 1 + len(deployment.destinations), "every lake keeps its data in the store"
    assert shown_secrets(deployment) == []


def _breaks_off(deployment: Deployment, viaduck: RunningViaduck, store: Proxy) -> None:
    """tenant-1's connections to its store are reset, cut, broken off in a message either way, and fall silent."""
    for end in (store.reset, store.cut):
        hold_an_apply(deployment, store)
        end_until_told(viaduck, end)
        store.heal()
        deployment.wait_until_exact(viaduck)
    for towards in BOTH_WAYS:
        before = store.broken_off
        store.cut_after(deployment.rng.randrange(1, MOST_BYTES), towards)
        play_until(deployment, lambda seen=before: store.broken_off > seen)  # type: ignore[misc]
        deployment.wait_until_exact(viaduck)
    hold_an_apply(deployment, store)
    deployment.wait_until_exact_for(viaduck, "tenant-2")
    assert store.connections > 0, "the silence is not over"
    store.reset()
    store.heal()
    deployment.wait_until_exact(viaduck)


BOTH_WAYS: tuple[Towards, Towards] = ("server", "client")
MOST_BYTES = 2_000
"""Less than one file and what is said about it."""


def hold_an_apply(deployment: Deployment, store: Proxy) -> None:
    """Change the source until an apply of tenant-1 waits for its store, which is silent: nobody else asks that way."""
    store.silence()
    store.reset()
    play_until(deployment, lambda: store.connections > 0)


def end_until_told(viaduck: RunningViaduck, end: Callable[[], None]) -> None:
    """End every connection, those of new tries too, until the tenant's status says why it waits."""

    def told() -> bool:
        end()
        return bool(status(viaduck, "tenant-1").get("error"))

    viaduck.wait_until("the trouble to be told", told, TOLD_WITHIN_S)
    assert status(viaduck, "tenant-1")["state"] != "parked"


def keys(key: Key, parts: Parts) -> dict[str, str]:
    """Somebody's keys as properties; the variables are theirs alone."""
    number = len(parts.environ)
    parts.environ |= {f"KEY_ID_{number}": key.id, f"KEY_SECRET_{number}": key.secret}
    return {"s3_access_key_id_env": f"KEY_ID_{number}", "s3_secret_access_key_env": f"KEY_SECRET_{number}"}


def elsewhere(parts: Parts, name: str, properties: dict[str, str]) -> dict[str, Any]:
    """A further destination's lake, about which nothing is promised."""
    parts.properties[name] = properties
    return parts.entry(name, parts.lake(Path(), name))


@pytest.mark.timeout(600)
def test_three_nodes_with_tls_passwords_and_acls_work_and_lose_one(deploy: Deploy, kafka_cluster: Kafka) -> None:
    deployment = deploy(304, Parts(kafka=kafka_cluster))
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, READY_WITHIN_S)
        play(deployment, 4)
        kafka_cluster.nodes[0].kill()
        play(deployment, 4)
        deployment.wait_until_exact(viaduck)
        kafka_cluster.start()
    assert deployment.findings() == []
    assert shown_secrets(deployment) == []


def test_a_node_that_is_gone_is_not_waited_for_with_a_core(kafka_cluster: Kafka) -> None:
    """It was the one that topics are described by: librdkafka connects to it again and again, without a pause."""
    settings = settings_of(kafka_cluster, "viaduck-waits")
    ensure(settings)
    broker = Broker(settings)
    wanted = Topics(settings.prefix).all
    described = broker.identities(wanted)
    known = broker._admin.client.list_topics(timeout=10).controller_id
    next(node for node in kafka_cluster.nodes if node.number == known).kill()
    try:
        others = kafka_cluster._admin()
        eventually(lambda: known not in others.list_topics(timeout=10).brokers, TOLD_WITHIN_S)
        began_s = time.process_time()
        watch = RenewalWatch(settings, "waits", lambda: None, broker)
        watch.start()
        time.sleep(DESCRIBED_AGAIN_S)
        spent_s = time.process_time() - began_s
        watch.stop()
        assert broker.identities(wanted) == described
    finally:
        kafka_cluster.start()
    assert spent_s < DESCRIBED_AGAIN_S / 5


def settings_of(cluster: Kafka, prefix: str) -> KafkaSettings:
    """Those of the user that may do what Viaduck needs."""
    security = cluster.security
    assert security is not None
    properties = security.client(security.user)
    return KafkaSettings(cluster.bootstrap, prefix=prefix, replication_factor=3, properties=properties)


def test_a_wrong_password_is_told_as_one_and_not_shown(deploy: Deploy, kafka_cluster: Kafka) -> None:
    deployment = deploy(33, Parts(kafka=kafka_cluster))
    wrong = {**deployment.environ, "KAFKA_PASSWORD": "not-the-password"}
    done = viaduck_command(deployment, "up", wrong)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "kafka: " in said, said
    assert "AUTHENTICATION" in said, said
    assert "kafka.properties" in said
    assert "not-the-password" not in said


def test_a_certificate_of_a_stranger_is_told_as_such(deploy: Deploy, kafka_cluster: Kafka, tmp_path: Path) -> None:
    parts = Parts(kafka=kafka_cluster)
    parts.sections["kafka"]["properties"]["ssl.ca.location"] = str(Authority.new(tmp_path / "other").file)
    deployment = deploy(34, parts)
    done = viaduck_command(deployment, "check", deployment.environ)
    assert done.returncode == 3, done.stdout
    assert "_SSL" in done.stdout


def test_a_right_that_is_missing_is_told_with_its_topic(kafka_cluster: Kafka) -> None:
    security = kafka_cluster.security
    assert security is not None
    settings = KafkaSettings(
        kafka_cluster.bootstrap, prefix="viaduck-refused", properties=security.client(security.stranger)
    )
    with pytest.raises(DependencyError, match=r"viaduck-refused\.\w+.*AUTHORIZATION_FAILED") as refused:
        ensure(settings)
    assert "let this principal create topics" in refused.value.hint


def viaduck_command(deployment: Deployment, command: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "services.cli.main", command, "-c", str(deployment.file)]
    return subprocess.run(whole, env=environ, capture_output=True, text=True, timeout=120, check=False)
