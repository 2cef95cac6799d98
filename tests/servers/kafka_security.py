"""TLS, SCRAM passwords and ACLs for a Kafka of tests: what the server is told, and what a client needs."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from shared.kafka.acls import SERVICES, Grant, Service, grants, rejected_grants, source_grants
from tests.servers.certificates import Authority

MECHANISM = "SCRAM-SHA-512"
ANSWER_WITHIN_S = 20.0
PREFIX = "viaduck"
USERS = ("admin", "viaduck", "stranger", *SERVICES)


@dataclass(frozen=True)
class Security:
    """``admin`` may do everything; ``user`` what Viaduck needs (docs/how-to/connect-to-kafka.md);
    ``stranger`` nothing at all.

    Each service has a user of its own, too, which may do nothing before ``grant_service``.
    """

    folder: Path
    authority: Authority = field(repr=False)
    passwords: dict[str, str] = field(repr=False)
    admin: str = "admin"
    user: str = "viaduck"
    stranger: str = "stranger"

    @classmethod
    def new(cls, folder: Path) -> Security:
        authority = Authority.new(folder)
        authority.server(folder / "server.pem")
        return cls(folder, authority, {name: secrets.token_hex(12) for name in USERS})

    def password(self, who: str) -> str:
        return self.passwords[who]

    @property
    def format_options(self) -> list[str]:
        """Users have to be there before the first broker is."""
        return [
            part
            for who in self.passwords
            for part in ("--add-scram", f"{MECHANISM}=[name={who},password={self.password(who)}]")
        ]

    @property
    def server_properties(self) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        own = f'{module} required username="{self.admin}" password="{self.password(self.admin)}";'
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": own,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Whoever is anonymous came over the controllers' own listener: clients have only the one with passwords.
            "super.users": f"User:{self.admin};User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }

    def client(self, who: str, password: str | None = None) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": who,
            "sasl.password": password or self.password(who),
            "ssl.ca.location": str(self.authority.file),
        }


def grant(admin: AdminClient, who: str) -> None:
    """The rights that docs/how-to/connect-to-kafka.md names: all on its topics, reading for its groups."""
    wanted = [
        _allow(who, ResourceType.TOPIC, AclOperation.ALL),
        _allow(who, ResourceType.GROUP, AclOperation.READ),
    ]
    _create(admin, wanted)


def grant_service(admin: AdminClient, service: Service, prefix: str) -> None:
    """The rights that docs/how-to/connect-to-kafka.md names of one service, and not one more."""
    grant_all(admin, service, grants(service, prefix))


def grant_topic(admin: AdminClient, service: Service, topic: str, pipeline: str, prefix: str) -> None:
    """Those beyond it for a pipeline that lands a topic of this broker."""
    wanted = (*source_grants(service, topic, pipeline, prefix), *rejected_grants(service, pipeline, prefix))
    grant_all(admin, service, wanted)


def grant_all(admin: AdminClient, who: str, wanted: Iterable[Grant]) -> None:
    kinds = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
    patterns = {True: ResourcePatternType.PREFIXED, False: ResourcePatternType.LITERAL}
    _create(
        admin,
        [
            _allow(
                who, kinds[each.kind], AclOperation[each.operation.upper()], each.name,
                patterns[each.kind == "group" and each.name.endswith(".")],
            )
            for each in wanted
        ],
    )  # fmt: skip


def _create(admin: AdminClient, wanted: list[AclBinding]) -> None:
    for created in admin.create_acls(wanted, request_timeout=ANSWER_WITHIN_S).values():
        created.result(ANSWER_WITHIN_S)


def _allow(
    who: str,
    kind: ResourceType,
    operation: AclOperation,
    name: str = PREFIX,
    pattern: ResourcePatternType = ResourcePatternType.PREFIXED,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{who}", "*", operation, AclPermissionType.ALLOW)
