"""A topic on a broker with an authorizer is landed with the rights that docs/how-to/connect-to-kafka.md names, and what
is refused is told with what to grant."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from services.cli.commands import check
from services.cli.commands.check_topic import findings
from services.cli.output.findings import CheckFinding
from shared.config.deployment import Deployment, load_all
from shared.contracts.positions import Vector
from shared.kafka.acls import Grant, Operation
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import Bounds, TopicRecords
from tests.e2e.topics import wait_for
from tests.fast.control.files import write
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.kafka_security import grant_all

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
