"""How to reach the broker, and with which librdkafka properties each kind of client is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from confluent_kafka import KafkaError

from shared.config.model import Config
from shared.contracts.errors import ConfigError
from shared.kafka.signing import Signing, signing_of

BOOTSTRAP = "VIADUCK_BOOTSTRAP"
"""The environment variable by which ``viaduck up`` tells its services where the embedded broker listens."""

ENV_SUFFIX = "_env"

Properties = dict[str, Any]
ErrorHandler = Callable[[KafkaError], None]

# Ours under the user's: a deployment may know better.
# Trouble with the broker reaches us by callback and is logged once; librdkafka itself would say it every second.
CLIENT = {"log_level": 2, "log.connection.close": False, "reconnect.backoff.max.ms": 2_000}
PRODUCER = {"linger.ms": 5, "compression.type": "lz4", "message.timeout.ms": 30_000, "partitioner": "murmur2_random"}
CLASSIC = {
    "group.protocol": "classic",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "partition.assignment.strategy": "cooperative-sticky",
}

# Ours over the user's: what we promise depends on them.
# Not idempotent: a wiped broker gives out producer ids from the start again, and confirms a message without keeping it
# whose id and number it has seen from another service. A message may come twice instead, which harms nothing; one
# request at a time keeps their order through retries.
PRODUCER_FIXED = {"acks": "all", "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
CONSUMER_FIXED = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "earliest"}

# The mock cluster answers a fetch that finds nothing only after the full wait, even when a message arrives meanwhile.
EMBEDDED_URGENT = {"fetch.wait.max.ms": 75}
EMBEDDED_PATIENT = {"fetch.wait.max.ms": 150}
EMBEDDED_MEMBER = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 40}


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KafkaSettings:
    """Where the broker is and how to talk to it. ``properties`` may hold secrets and stays out of the repr."""

    bootstrap: str
    prefix: str = "viaduck"
    partitions: int = 12
    replication_factor: int = 1
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    embedded: bool = False
    signing: Signing | None = field(default=None, repr=False)
    """Signs what is sent and checks what is received; None where neither is done."""

    @classmethod
    def from_config(cls, config: Config, environ: Mapping[str, str] = os.environ) -> KafkaSettings:
        """Raises ``ConfigError`` where no broker or no key is named, or a variable is missing."""
        reached = cls.reaching(config, environ)
        if config.kafka.signing == "off":
            log.warning(
                "signing_off",
                hint="messages are neither signed nor checked: write access to the topics decides what tenants get",
                prefix=reached.prefix,
            )
        return replace(reached, signing=signing_of(config.kafka, config.path.parent, environ))

    @classmethod
    def reaching(cls, config: Config, environ: Mapping[str, str] = os.environ) -> KafkaSettings:
        """The same for who only looks whether the broker answers, and needs no key."""
        kafka = config.kafka
        embedded = kafka.bootstrap_servers is None
        bootstrap = environ.get(BOOTSTRAP) if embedded else kafka.bootstrap_servers
        if not bootstrap:
            raise ConfigError(
                ["kafka.bootstrap_servers: needed by a service that runs alone; only `viaduck up` brings one"]
            )
        return cls(
            bootstrap=bootstrap,
            prefix=kafka.topic_prefix,
            partitions=kafka.partitions,
            replication_factor=kafka.replication_factor,
            properties={} if embedded else resolved_properties(kafka.properties, "kafka.properties", environ),
            embedded=embedded,
        )

    def client(self, client_id: str, on_error: ErrorHandler) -> Properties:
        """For an admin client. A wrong password or certificate is never raised: only ``on_error`` gets it."""
        own = {"bootstrap.servers": self.bootstrap, "client.id": client_id, "error_cb": on_error}
        return {**CLIENT, **self.properties, **own}

    def producer(self, client_id: str, on_error: ErrorHandler) -> Properties:
        return {**PRODUCER, **self.client(client_id, on_error), **PRODUCER_FIXED}

    def consumer(self, client_id: str, group: str, on_error: ErrorHandler, *, urgent: bool = True) -> Properties:
        """For a client with an assignment. What is not ``urgent`` may be late, and costs little while idle."""
        embedded = (EMBEDDED_URGENT if urgent else EMBEDDED_PATIENT) if self.embedded else {}
        return {**embedded, **self.client(client_id, on_error), **CONSUMER_FIXED, "group.id": group}

    def member(self, client_id: str, group: str, on_error: ErrorHandler, *, classic: bool) -> Properties:
        """For a member of a group, by the classic protocol or the broker's own (KIP-848)."""
        protocol = CLASSIC if classic else {"group.protocol": "consumer"}
        embedded = EMBEDDED_MEMBER if self.embedded else {}
        return {**protocol, **self.consumer(client_id, group, on_error), **embedded}

    @property
    def must_be_classic(self) -> bool:
        """Whether groups have to use the classic protocol: what the user tunes exists only there, or it is said so."""
        return self.embedded or any(name in self.properties for name in CLASSIC)


def resolved_properties(properties: Mapping[str, str], section: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Properties with the values of the variables that they name. Raises ``ConfigError`` where one is missing."""
    missing = [
        f"{section}.{name}: the environment variable {value} is not set; set it, or correct the name"
        for name, value in properties.items()
        if name.endswith(ENV_SUFFIX) and value not in environ
    ]
    if missing:
        raise ConfigError(missing)
    return {
        name.removesuffix(ENV_SUFFIX): environ[value] if name.endswith(ENV_SUFFIX) else value
        for name, value in properties.items()
    }
