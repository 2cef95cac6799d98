"""What a topic may name that is not of the operator's file: one of a pipeline that came over REST.

Its properties go to librdkafka, which opens files and runs commands that they name, so only those are let through that
do neither. Secrets are named by variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from shared.config.catalogs import ENV_SUFFIX
from shared.config.lake_rules import section_of, text_of
from shared.config.limits import LakeLimits

Topic = Mapping[str, Any]
"""The section ``source`` of a pipeline whose kind is ``kafka``."""

SECRETS = frozenset({"sasl.password", "ssl.key.password", "ssl.key.pem"})
PUBLIC = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "ssl.ca.pem", "ssl.certificate.pem"}
    | {"ssl.endpoint.identification.algorithm", "client.rack", "socket.timeout.ms", "socket.keepalive.enable"}
)
REGISTRY_SECRETS = frozenset({"basic.auth.user.info", "bearer.auth.token"})

NO_SECRET = "is no secret, and a variable could be one; write the value itself"  # noqa: S105 - a message
OF_FILES = "may name a file or a command of the server, so only a configuration file can set it"
OWN_BROKER = "goes with source.bootstrap_servers; the deployment's own broker is reached as its file says"
HIDDEN_HOST = "would keep the host from being checked; write format.registry.url"


def secrets(topic: Topic) -> Iterator[tuple[str, str]]:
    """Path within the section, and message, of each secret that is written out. To be looked for first, so that no
    other message quotes one."""
    registry = section_of(section_of(topic, "format"), "registry")
    places = (("properties", topic, SECRETS), ("format.registry.properties", registry, REGISTRY_SECRETS))
    for path, section, secret in places:
        for name in section_of(section, "properties"):
            if name.lower() in secret:
                yield f"{path}.{name}", f"is a secret; write {name}{ENV_SUFFIX} with a variable's name"


def refusals(topic: Topic, limits: LakeLimits) -> Iterator[tuple[str, str]]:
    """Path within the section, and message, of all that it may not name; one for each path."""
    first: dict[str, str] = {}
    for path, said in (*_cluster(topic, limits), *_registry(section_of(topic, "format"), limits)):
        first.setdefault(path, said)
    yield from first.items()


def _cluster(topic: Topic, limits: LakeLimits) -> Iterator[tuple[str, str]]:
    servers, properties = text_of(topic, "bootstrap_servers"), section_of(topic, "properties")
    for host in hosts(servers or ""):
        if (said := limits.refused_host(host)) is not None:
            yield "bootstrap_servers", said
    for name, value in properties.items():
        place = f"properties.{name}"
        if servers is None:
            yield place, OWN_BROKER
        elif (said := _property(name, value, SECRETS, PUBLIC, limits)) is not None:
            yield place, said


def _registry(form: Topic, limits: LakeLimits) -> Iterator[tuple[str, str]]:
    place, registry = "format.registry", section_of(form, "registry")
    url = text_of(registry, "url")
    if text_of(registry, "url_env") is not None:
        yield f"{place}.url_env", HIDDEN_HOST
    if url is not None and (said := limits.refused_host(_host(url))) is not None:
        yield f"{place}.url", said
    for name, value in section_of(registry, "properties").items():
        if (said := _property(name, value, REGISTRY_SECRETS, frozenset(), limits)) is not None:
            yield f"{place}.properties.{name}", said


def _property(
    name: str, value: object, secret: frozenset[str], public: frozenset[str], limits: LakeLimits
) -> str | None:
    plain = name.removesuffix(ENV_SUFFIX)
    if plain not in secret | public:
        return OF_FILES
    if plain == name:
        return f"is a secret; write {name}{ENV_SUFFIX} with a variable's name" if plain in secret else None
    if plain not in secret:
        return NO_SECRET
    return limits.refused_variable(value) if isinstance(value, str) else None


def hosts(servers: str) -> list[str]:
    """Those of a list of brokers, such as ``a:9092,SSL://[::1]:9093``."""
    each = (part.strip().rpartition("://")[2] for part in servers.split(","))
    return [_without_port(part) for part in each if part]


def _without_port(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
