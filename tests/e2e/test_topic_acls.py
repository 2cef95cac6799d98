"""A topic on a broker with an authorizer is landed with the rights that docs/how-to/connect-to-kafka.md names, and what
is refused is told with what to grant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from services.cli.commands import check
from services.cli.commands.check_topic import findings
from services.cli.output.findings import CheckFinding
from shared.config.deployment import Deployment, load_all
from shared.contracts.positions import Vector
from shared.kafka.acls import SERVICES, Grant, Operation
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import Bounds, TopicRecords
from tests.e2e.apart import Apart
from tests.e2e.topics import wait_for
from tests.fast.control.files import write
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.kafka_security import grant_all, grant_service, grant_topic
from tests.servers.ports import free_port
from tests.signed import KEY, SECTION, VARIABLE

WITHIN_S = 30.0
EACH = 50
WHO = "stranger"
"""Has no right but those that a test gives."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka(secured=True) as kafka:
        yield kafka


def make(broker: Kafka, name: str, *operations: Operation) -> str:
    """A topic with records, on which ``WHO`` has these rights."""
    assert broker.security is not None
    admin = broker._admin()
    wait_for(admin.create_topics([NewTopic(name, 2, 1)]))
    send(broker, name, *({"id": number} for number in range(2 * EACH)))
    if operations:
        grant_all(admin, WHO, [Grant("topic", name, each) for each in operations])
    return name


def send(broker: Kafka, topic: str, *values: Mapping[str, Any] | bytes) -> None:
    assert broker.security is not None
    producer = Producer(broker.client(broker.security.admin))
    for number, value in enumerate(values):
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, raw, partition=number % 2)
    assert producer.flush(WITHIN_S) == 0


def properties(broker: Kafka, password: str | None = None) -> dict[str, str]:
    assert broker.security is not None
    return broker.security.client(WHO, password)


def deployment(folder: Path, broker: Kafka, topic: str, password: str | None = None) -> Deployment:
    source = {"kind": "kafka", "topic": topic, "bootstrap_servers": broker.bootstrap}
    own = properties(broker, password)
    file = write(folder, source={**source, "properties": own}, routing={}, state_dir=str(folder / "state"))
    return load_all([file])


def said_of(made: Deployment) -> list[CheckFinding]:
    config = made.configs[0]
    assert config.topic is not None
    return list(findings(config, config.topic))


def test_records_are_read_without_a_right_to_any_group(broker: Kafka) -> None:
    topic = make(broker, "read", "Describe", "Read")
    settings = KafkaSettings(broker.bootstrap, properties=properties(broker))
    with closing(TopicRecords(settings, topic, "viaduck-test")) as records:
        for _ in range(6):  # that the group is refused comes while records do, or between two readings
            reached = records.read(
                Vector(), Vector.of({0: EACH, 1: EACH}), Bounds(10**6, 10**9), WITHIN_S, lambda _: None
            )
            assert reached.records == 2 * EACH
            time.sleep(0.5)


def test_check_passes_with_the_rights_that_the_documentation_names(
    broker: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = deployment(tmp_path, broker, make(broker, "checked", "Describe", "Read"))
    eventually(lambda: check.main(made) == check.DONE)
    assert "of the newest 100 records 100 would be rows" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("rights", [(), ("Describe",)], ids=["no right", "Describe alone"])
def test_a_missing_right_is_told_with_the_topic_and_what_to_grant(
    broker: Kafka, tmp_path: Path, rights: tuple[Operation, ...]
) -> None:
    topic = make(broker, f"refused-{len(rights)}", *rights)
    made = deployment(tmp_path, broker, topic)
    eventually(lambda: len(said_of(made)) == 1 + len(rights))  # its metadata, where it may describe; what is wrong
    *seen, wrong = said_of(made)
    assert [each.fine for each in seen] == [True] * len(rights)
    assert not wrong.fine
    assert f"does not let this client use the topic {topic}: TOPIC_AUTHORIZATION_FAILED" in wrong.said
    assert wrong.hint == "grant Read and Describe on the topic to this principal"


def test_a_wrong_password_is_told_with_the_topic_and_where_it_stands(broker: Kafka, tmp_path: Path) -> None:
    topic = make(broker, "locked", "Describe", "Read")
    (wrong,) = said_of(deployment(tmp_path, broker, topic, "not-the-password"))
    assert not wrong.fine
    assert f"the topic {topic} of {broker.bootstrap} can't be read: _AUTHENTICATION" in wrong.said
    assert "the credentials in source.properties" in (wrong.hint or "")
    assert "not-the-password" not in wrong.said


class Landed:
    """A pipeline that lands a topic of the deployment's own broker, with services of one user each."""

    def __init__(self, folder: Path, broker: Kafka, topic: str) -> None:
        assert broker.security is not None
        port = free_port()
        own = {**broker.security.client(WHO), "sasl.username_env": "KAFKA_USER", "sasl.password_env": "KAFKA_PASSWORD"}
        del own["sasl.username"], own["sasl.password"]
        file = write(
            folder, [{"id": "clicks", "catalog": f"sqlite:{folder}/clicks.sqlite", "table": "clicks"}],
            pipeline="clicks", source={"kind": "kafka", "topic": topic}, routing={}, flush={"seconds": 0.2},
            kafka={"bootstrap_servers": broker.bootstrap, "partitions": 2, "properties": own, **SECTION},
            poll={"interval_seconds": 0.2}, server={"port": port}, state_dir=str(folder / "state"),
            **{name: {"port": free_port()} for name in ("reader", "applier")},
        )  # fmt: skip
        self.file, self._at = file, f"http://127.0.0.1:{port}/v1/pipelines/clicks"
        self.services = Apart(file, port, {**os.environ, VARIABLE: KEY}, broker.security)
        for service in SERVICES:
            grant_service(broker._admin(), service, "viaduck")
            grant_topic(broker._admin(), service, topic, "clicks", "viaduck")

    def has(self, records: int) -> bool:
        found = self.ask("GET", "destinations")["items"]
        return any((each["known_through"] or 0) >= records for each in found)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx.request(method, f"{self._at}/{path}", timeout=60.0, **body)
        assert answer.is_success, answer.text
        return answer.json()

    def verified(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.cli.main", "verify", "-c", str(self.file)]
        environ = self.services.environ("control")
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)


def offsets_of(broker: Kafka, group: str, topic: str) -> list[int]:
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, each) for each in range(2)])]
    admin = broker._admin()  # kept: a temporary one dies in mid-request
    answer = admin.list_consumer_group_offsets(asked)[group].result(WITHIN_S)
    return [place.offset for place in answer.topic_partitions or ()]


@pytest.mark.timeout(600)
def test_a_topic_is_landed_where_each_service_may_do_no_more_than_it_needs(broker: Kafka, tmp_path: Path) -> None:
    topic = make(broker, "landed")
    landed = Landed(tmp_path, broker, topic)
    services = landed.services
    try:
        services.start("control")
        services.wait(services.answers)
        services.start("reader")
        services.start("applier")
        services.wait(lambda: landed.has(2 * EACH))
        send(broker, topic, b"bad")
        services.wait(lambda: landed.has(2 * EACH + 1))
        (rejected,) = landed.ask("GET", "rejected")["items"]
        assert rejected["reason"] == "not_json"
        assert landed.ask("POST", "rejected:redrive", json={})["sent"] == 1
        services.wait(lambda: landed.has(2 * EACH + 2))
        services.wait(lambda: sum(offsets_of(broker, "viaduck.clicks", topic)) == 2 * EACH + 2)
        proven = landed.verified()
        assert proven.returncode == 0, proven.stderr + proven.stdout
    finally:
        services.end()
    for service in SERVICES:
        assert "AUTHORIZATION_FAILED" not in services.said(service)
