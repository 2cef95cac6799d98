"""Each service has a principal of its own on a broker with an authorizer, as docs/how-to/connect-to-kafka.md says. A
topic is landed with the rights that it names, and what is refused is told with what to grant."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from viaduck_client import ClientError

from services.cli.commands import check
from services.cli.commands.check_topic import findings
from services.cli.output.findings import CheckFinding
from services.cli.runtime.client import Control
from shared.config import deployment
from shared.contracts.positions import Vector
from shared.kafka.acls import SERVICES, Grant, Operation, Service, grants
from shared.kafka.failure import NotDelivered
from shared.kafka.publisher import Publisher
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_records import Bounds, TopicRecords
from shared.kafka.topics import Topics, ensure
from tests.e2e.apart import Apart
from tests.e2e.deployment import Deployment, reached
from tests.e2e.parts import Parts
from tests.e2e.phases import phase
from tests.e2e.topics import wait_for
from tests.fast.control.files import write
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.kafka_security import grant_all, grant_service, grant_topic
from tests.servers.ports import free_port
from tests.signed import SIGNING

CLICKS = "clicks"
"""The pipeline that lands a topic, and its destination."""

WITHIN_S = 30.0
EACH = 50
"""Records of a partition."""

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


class Deployed:
    """A deployment whose services run one by one, each with the rights of its own user: a pipeline of a lake, and one
    that lands a topic of the same broker. Rights to topics and groups of the one are none to those of the other."""

    def __init__(self, folder: Path, kafka: Kafka, topic: str) -> None:
        assert kafka.security is not None
        parts = Parts(kafka=kafka)
        prefix = parts.sections["kafka"]["topic_prefix"]
        properties = parts.sections["kafka"]["properties"]
        del properties["sasl.username"]
        properties["sasl.username_env"] = "KAFKA_USER"
        parts.sections |= {name: {"port": free_port()} for name in ("reader", "applier")}
        parts.environ["KAFKA_USER"] = "whoever"
        self.deployment, self._kafka, self._topic = Deployment(folder, 41, parts=parts), kafka, topic
        self.group = f"{prefix}.{CLICKS}"
        files = [self.deployment.file, self._clicks(folder)]
        self.services = Apart(files, self.deployment.port, self.deployment.environ, kafka.security)
        self._control = Control(self.services.url, timeout_s=5.0)
        for service in SERVICES:
            grant_service(kafka._admin(), service, prefix)
            grant_topic(kafka._admin(), service, topic, CLICKS, prefix)

    def _clicks(self, folder: Path) -> Path:
        lake = {"catalog": f"sqlite:{folder}/clicks.sqlite", "data_path": f"{folder}/clicks", "table": CLICKS}
        (file := folder / f"{CLICKS}.yaml").write_text(yaml.safe_dump({
            "pipeline": CLICKS, "source": {"kind": "kafka", "topic": self._topic}, "routing": {},
            "kafka": self.deployment.parts.sections["kafka"],
            "flush": {"seconds": 0.2}, "poll": {"interval_seconds": 0.2}, "destinations": [{"id": CLICKS, **lake}],
        }))  # fmt: skip
        return file

    def is_exact(self) -> bool:
        wanted, head = {each.id for each in self.deployment.destinations}, self.deployment.source.head()
        try:
            return reached(self._control.destinations("events"), wanted, head)
        except ClientError:
            return False

    def has(self, records: int) -> bool:
        return reached(self._control.destinations(CLICKS), {CLICKS}, records)

    def committed(self) -> int:
        """Records of the topic up to which its group's offsets are."""
        asked = [ConsumerGroupTopicPartitions(self.group, [TopicPartition(self._topic, each) for each in range(2)])]
        admin = self._kafka._admin()  # kept: a temporary one dies in mid-request
        answer = admin.list_consumer_group_offsets(asked)[self.group].result(WITHIN_S)
        return sum(place.offset for place in answer.topic_partitions or ())

    def ask(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx.request(method, f"{self.services.url}/v1/pipelines/{path}", timeout=60.0, **body)
        assert answer.is_success, answer.text
        return answer.json()

    def close(self) -> None:
        self.services.end()
        self._control.close()
        self.deployment.close()


@pytest.mark.timeout(600)
def test_changes_arrive_and_a_topic_is_landed_where_each_service_may_do_no_more_than_it_needs(
    broker: Kafka, tmp_path: Path
) -> None:
    topic = make(broker, "landed")
    deployed = Deployed(tmp_path, broker, topic)
    services = deployed.services
    try:
        services.start("control")
        services.wait(services.answers)
        services.start("reader")
        services.start("applier")
        with phase("changes of a lake arrive"):
            services.wait(deployed.is_exact)
            for _ in range(3):
                deployed.deployment.step()
            services.wait(deployed.is_exact)
            sent = deployed.ask("POST", "events/work:replay", json={})
            assert sent["sent"] == sent["matched"] > 0
        with phase("a topic is landed"):
            services.wait(lambda: deployed.has(2 * EACH))
            send(broker, topic, b"bad")
            services.wait(lambda: deployed.has(2 * EACH + 1))
            (rejected,) = deployed.ask("GET", f"{CLICKS}/rejected")["items"]
            assert rejected["reason"] == "not_json"
            assert deployed.ask("POST", f"{CLICKS}/rejected:redrive", json={})["sent"] == 1
            services.wait(lambda: deployed.has(2 * EACH + 2))
            services.wait(lambda: deployed.committed() == 2 * EACH + 2)
            proven = services.run("control", "verify", "--pipeline", CLICKS)
            assert proven.returncode == 0, proven.stderr + proven.stdout
        services.end()
        assert deployed.deployment.findings() == []
    finally:
        deployed.close()
    for service in SERVICES:
        assert "AUTHORIZATION_FAILED" not in services.said(service)


def forbidden() -> list[tuple[Service, str]]:
    topics = Topics("t")
    return [
        (service, topic.removeprefix("t."))
        for service in SERVICES
        for topic in topics.all
        if not any(each.name == topic and each.operation == "Write" for each in grants(service, "t"))
    ]


def test_control_alone_says_what_destinations_and_pipelines_there_are() -> None:
    assert sorted(forbidden()) == [
        ("applier", "destinations"), ("applier", "pipelines"), ("applier", "work"),
        ("reader", "destinations"), ("reader", "pipelines"),
    ]  # fmt: skip


@pytest.mark.parametrize(("service", "topic"), forbidden())
def test_what_is_another_services_to_say_is_not_taken_from_it(broker: Kafka, service: Service, topic: str) -> None:
    """With the deployment's key in hand, too."""
    assert broker.security is not None
    prefix = f"viaduck-forbidden-{service}-{topic}"
    admin = KafkaSettings(broker.bootstrap, prefix=prefix, partitions=1, properties=broker.security.client("admin"))
    ensure(admin)
    grant_service(broker._admin(), service, prefix)
    own = KafkaSettings(broker.bootstrap, prefix=prefix, properties=broker.security.client(service), signing=SIGNING)
    publisher = Publisher(own, "test")
    eventually(lambda: said_of(publisher, f"{prefix}.dead-letter") is None)  # its own rights are in force by now
    refused = said_of(publisher, f"{prefix}.{topic}")
    publisher.close()
    assert isinstance(refused, NotDelivered)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(refused)


def said_of(publisher: Publisher, topic: str) -> Exception | None:
    """What becomes of a message to a topic; None where it is taken."""
    reports: list[Exception | None] = []
    publisher.send(topic, "events/a", b"{}", on_delivery=reports.append)
    assert publisher.flush(30.0) == 0
    eventually(lambda: reports)
    return reports[0]


def properties(broker: Kafka, password: str | None = None) -> dict[str, str]:
    assert broker.security is not None
    return broker.security.client(WHO, password)


def loaded(folder: Path, broker: Kafka, topic: str, password: str | None = None) -> deployment.Deployment:
    source = {"kind": "kafka", "topic": topic, "bootstrap_servers": broker.bootstrap}
    own = properties(broker, password)
    file = write(folder, source={**source, "properties": own}, routing={}, state_dir=str(folder / "state"))
    return deployment.load_all([file])


def told_of(made: deployment.Deployment) -> list[CheckFinding]:
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
    made = loaded(tmp_path, broker, make(broker, "checked", "Describe", "Read"))
    eventually(lambda: check.main(made) == check.DONE)
    assert "of the newest 100 records 100 would be rows" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("rights", [(), ("Describe",)], ids=["no right", "Describe alone"])
def test_a_missing_right_is_told_with_the_topic_and_what_to_grant(
    broker: Kafka, tmp_path: Path, rights: tuple[Operation, ...]
) -> None:
    topic = make(broker, f"refused-{len(rights)}", *rights)
    made = loaded(tmp_path, broker, topic)
    eventually(lambda: len(told_of(made)) == 1 + len(rights))  # its metadata, where it may describe; what is wrong
    *seen, wrong = told_of(made)
    assert [each.fine for each in seen] == [True] * len(rights)
    assert not wrong.fine
    assert f"does not let this client use the topic {topic}: TOPIC_AUTHORIZATION_FAILED" in wrong.said
    assert wrong.hint == "grant Read and Describe on the topic to this principal"


def test_a_wrong_password_is_told_with_the_topic_and_where_it_stands(broker: Kafka, tmp_path: Path) -> None:
    topic = make(broker, "locked", "Describe", "Read")
    (wrong,) = told_of(loaded(tmp_path, broker, topic, "not-the-password"))
    assert not wrong.fine
    assert f"the topic {topic} of {broker.bootstrap} can't be read: _AUTHENTICATION" in wrong.said
    assert "the credentials in source.properties" in (wrong.hint or "")
    assert "not-the-password" not in wrong.said
