"""A real Apache Kafka in KRaft mode, of one node or three; plain, or with TLS, passwords and ACLs.

``with Kafka() as kafka: kafka.bootstrap``, ``kafka.nodes[0].kill()``, ``kafka.wipe()``. A node keeps its ports for
life, so what was told ``bootstrap`` finds it again after any of these.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.cache import locked
from tests.servers.jars import VERSION, archive, java_command
from tests.servers.kafka_security import Security, grant
from tests.servers.machine import Image, Local, Machine, machine, run_to_end, wait_until_ready
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.server import Server
from tests.servers.way import Way, way

IMAGE = f"apache/kafka:{VERSION}"
READY_WITHIN_S = 120.0
ANSWER_WITHIN_S = 2.0

FOR_TESTS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",  # a node that was killed and starts again waits this out
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
}
"""Small and quick, and no topic is made behind a test's back."""


class Node:
    """One broker, which is a controller too. It must not be running when it is wiped."""

    def __init__(self, number: int, root: Path, properties: Mapping[str, str], format_options: Sequence[str]) -> None:
        self.number = number
        self._root, self._properties, self._format_options = root, properties, format_options
        self._machine: Machine | None = None

    @property
    def bootstrap(self) -> str:
        return self._properties["advertised.listeners"].split(",")[0].partition("://")[2]

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def runs(self) -> bool:
        return self._machine is not None and self._machine.runs

    def start(self, cluster_id: str, *jvm: str) -> None:
        """Start, formatting what is not formatted; who listens is told by ``Kafka.wait_until_ready``."""
        if self._machine is None:
            self._machine = self._made(jvm)
        if not (self._root / "data" / "meta.properties").exists():
            self._format(cluster_id)
        self._machine.start()

    def stop(self) -> None:
        self._running.stop()

    def kill(self) -> None:
        self._running.kill()

    def freeze(self) -> None:
        """Let it hang: connections stay open and are not answered."""
        self._running.freeze()

    def thaw(self) -> None:
        self._running.thaw()

    def wipe(self) -> None:
        shutil.rmtree(self._root / "data", ignore_errors=True)

    def log(self) -> str:
        return self._running.log()

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()

    @property
    def _running(self) -> Machine:
        assert self._machine is not None, "not started"
        return self._machine

    @property
    def machine(self) -> Machine:
        return self._running

    def _made(self, jvm: Sequence[str]) -> Machine:
        self._root.mkdir(parents=True, exist_ok=True)
        told = "".join(f"{name}={value}\n" for name, value in self._properties.items())
        (self._root / "server.properties").write_text(told)
        arguments = ["kafka.Kafka", str(self._root / "server.properties")]
        local = Local([*java_command(*jvm), *arguments]) if way() is Way.LOCAL else None
        return machine(self._root, local, _image(arguments))

    def _format(self, cluster_id: str) -> None:
        where = ["-c", str(self._root / "server.properties"), *self._format_options]
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, *where]
        local = Local([*java_command(*_shared()), *arguments]) if way() is Way.LOCAL else None
        run_to_end(self._root, local, _image(arguments))


class Kafka(Server):
    """A cluster. ``secured`` puts TLS, SCRAM passwords and ACLs in front of it; ``faulty`` gives its one node a second
    way in, through ``proxy``, for whoever is told ``faulty_bootstrap``."""

    def __init__(
        self, nodes: int = 1, *, secured: bool = False, faulty: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-kafka-"))
        self.security = Security.new(self._root) if secured else None
        self._cluster_id = _uuid()
        ports = free_ports(2 * nodes)
        brokers, controllers = ports[:nodes], ports[nodes:]
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
        format_options = self.security.format_options if self.security else []
        self.proxy = Proxy(free_ports(1)[0]) if faulty else None
        self.nodes = [
            Node(
                number,
                self._root / f"node-{number}",
                self._properties(number, ports, voters, nodes) | self._second_way(ports) | dict(settings or {}),
                format_options,
            )
            for number, ports in enumerate(zip(brokers, controllers, strict=True), 1)
        ]
        self._jvm: tuple[str, ...] | None = None

    def open(self) -> None:
        if self.proxy is not None:
            self.proxy.__enter__()
        self.start()
        if self.security is not None:
            grant(self._admin(), self.security.user)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def faulty_bootstrap(self) -> str:
        assert self.proxy is not None, "only a faulty one has it"
        return f"127.0.0.1:{self.proxy.port}"

    def client(self, who: str | None = None) -> dict[str, str]:
        """librdkafka's properties of a client, or of one ``who`` has a password."""
        told = self.security.client(who or self.security.user) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap, **told}

    def start(self) -> None:
        """Start whatever does not run: all at once, because one alone has no quorum and never gets ready."""
        if self._jvm is None:
            self._jvm = _archived() if way() is Way.LOCAL else ()
        started = [node for node in self.nodes if not node.runs]
        for node in started:
            node.start(self._cluster_id, *self._jvm)
        self.wait_until_ready(started)

    def wait_until_ready(self, nodes: Sequence[Node]) -> None:
        """Wait until each of ``nodes`` listens and belongs to the cluster."""
        for node in nodes:
            wait_until_ready(
                node.machine, f"Kafka's node {node.number}", lambda n=node: self._joined(n), READY_WITHIN_S
            )

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Lose everything: another cluster with nothing in it will answer under the same address."""
        self.kill()
        self._cluster_id = _uuid()
        for node in self.nodes:
            node.wipe()
        self.start()
        if self.security is not None:
            grant(self._admin(), self.security.user)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        if self.proxy is not None:
            self.proxy.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _admin(self, bootstrap: str | None = None) -> AdminClient:
        told = self.client(self.security.admin if self.security else None)
        return AdminClient({**told, "bootstrap.servers": bootstrap or self.bootstrap, "log_level": 0})

    def _joined(self, node: Node) -> bool:
        host, _, port = node.bootstrap.rpartition(":")
        try:  # a look at the port first: a client that was refused once waits before it asks again
            socket.create_connection((host, int(port)), 0.2).close()
        except OSError:
            return False
        admin = self._admin(node.bootstrap)
        with contextlib.suppress(KafkaException):
            return node.number in admin.list_topics(timeout=ANSWER_WITHIN_S).brokers
        return False

    def _second_way(self, ports: tuple[int, int]) -> dict[str, str]:
        """A listener that advertises the proxy's port, so that clients who come through it stay there."""
        if self.proxy is None:
            return {}
        port, controller = ports
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},FAULTY://127.0.0.1:{self.proxy.target_port},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},FAULTY://127.0.0.1:{self.proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAULTY:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def _properties(self, number: int, ports: tuple[int, int], voters: str, nodes: int) -> dict[str, str]:
        listener = "SASL_SSL" if self.security is not None else "PLAINTEXT"
        port, controller = ports
        copies, enough = str(nodes), str(min(nodes, 2))
        secured = self.security.server_properties if self.security is not None else {}
        return {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"{listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{listener}://127.0.0.1:{port}",
            "listener.security.protocol.map": f"{listener}:{listener},CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": listener,
            "log.dirs": str(self._root / f"node-{number}" / "data"),
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
            **FOR_TESTS,
            **secured,
        }


def _image(arguments: Sequence[str]) -> Image:
    # The folder of the pom is not in the image, so a broker in a container logs in the image's own way.
    return Image(IMAGE, ["-cp", "/opt/kafka/libs/*", *arguments], entrypoint=["java", "-Xmx256m"])


def _uuid() -> str:
    """A cluster id: url-safe base64 of 16 bytes. One that begins with a dash would be taken for an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        continue
    return text


def _shared() -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={archive()}",) if archive().exists() else ()


def _archived() -> tuple[str, ...]:
    """Options that halve the CPU of a start. The first time ever, a broker runs for a moment to make the archive."""
    with locked("archive"):
        if not archive().exists():
            unfinished = archive().with_suffix(".new")
            with contextlib.closing(Kafka()) as model:
                model._jvm = (f"-XX:ArchiveClassesAtExit={unfinished}",)
                model.start()
                model.stop()
            unfinished.rename(archive())
    return _shared()
