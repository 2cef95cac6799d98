"""Each service has a principal of its own on a broker with an authorizer, as docs/how-to/connect-to-kafka.md says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from viaduck_client import ClientError

from services.cli.runtime.client import Control
from shared.kafka.acls import SERVICES, Service, grants
from shared.kafka.failure import NotDelivered
from shared.kafka.publisher import Publisher
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests.e2e.apart import Apart
from tests.e2e.deployment import Deployment, reached
from tests.e2e.parts import Parts
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.kafka_security import grant_service
from tests.servers.ports import free_port
from tests.signed import SIGNING


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka(secured=True) as kafka:
        yield kafka


class Deployed:
    """A deployment whose services run one by one, each with the rights of its own user."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        assert kafka.security is not None
        parts = Parts(kafka=kafka)
        prefix = parts.sections["kafka"]["topic_prefix"]
        properties = parts.sections["kafka"]["properties"]
        del properties["sasl.username"]
        properties["sasl.username_env"] = "KAFKA_USER"
        parts.sections |= {name: {"port": free_port()} for name in ("reader", "applier")}
        parts.environ["KAFKA_USER"] = "whoever"
        self.deployment = Deployment(folder, 41, parts=parts)
        self.services = Apart(self.deployment.file, self.deployment.port, self.deployment.environ, kafka.security)
        self._control = Control(self.services.url, timeout_s=5.0)
        for service in SERVICES:
            grant_service(kafka._admin(), service, prefix)

    def is_exact(self) -> bool:
        wanted, head = {each.id for each in self.deployment.destinations}, self.deployment.source.head()
        try:
            return reached(self._control.destinations("events"), wanted, head)
        except ClientError:
            return False

    def close(self) -> None:
        self.services.end()
        self._control.close()
        self.deployment.close()


@pytest.mark.timeout(600)
def test_changes_arrive_where_each_service_may_do_no_more_than_it_needs(broker: Kafka, tmp_path: Path) -> None:
    deployed = Deployed(tmp_path, broker)
    services = deployed.services
    try:
        services.start("control")
        services.wait(services.answers)
        services.start("reader")
        services.start("applier")
        services.wait(deployed.is_exact)
        for _ in range(3):
            deployed.deployment.step()
        services.wait(deployed.is_exact)
        sent = httpx.post(f"{services.url}/v1/pipelines/events/work:replay", json={}, timeout=60.0).json()
        assert sent["sent"] == sent["matched"] > 0
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
