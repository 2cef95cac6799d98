"""Checks a pipeline's document from REST by the rules for files and by those for untrusted input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.control.model.conflicts import Neighbour, UniquenessIndex
from services.control.model.declared import declarations
from services.control.model.lifecycle import Declared
from services.control.model.problems import FieldError, InvalidEntry
from services.control.operations.destination_entry import NOT_ALLOWED, SECRET, Section, relative, secret
from shared.config import topic_limits
from shared.config.config_errors import Mistakes, join, quoted
from shared.config.deployment import NOT_ITS_OWN, OF_THE_DEPLOYMENT, Deployment
from shared.config.document import from_json
from shared.config.lake_rules import inherit, section_of
from shared.config.limits import LakeLimits, limits_of
from shared.config.loading import load_tree
from shared.config.model import Config
from shared.config.template_rules import filled
from shared.config.upkeep_rules import least_age_of
from shared.contracts.errors import ConfigError, SourceError
from shared.lake.checks.source import SourceLook

Document = Mapping[str, Any]
Look = Callable[[Config, Mapping[str, str]], SourceLook]

EXAMPLE: dict[str, Any] = {
    "source": {"catalog_env": "ORDERS_CATALOG", "table": "orders"},
    "routing": {"field": "company", "key_columns": ["order_id"]},
    "destinations": [
        {
            "id": "quacksworth-orders",
            "routing_value": "quacksworth",
            "catalog_env": "QUACKSWORTH_CATALOG",
            "data_path": "s3://quacksworth-orders/",
        }
    ],
}


TOPIC_EXAMPLE: dict[str, Any] = {
    "source": {
        "kind": "kafka",
        "topic": "clicks",
        "bootstrap_servers": "kafka:9093",
        "properties": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "viaduck",
            "sasl.password_env": "CLICKS_PASSWORD",
        },
    },
    "routing": {},
    "flush": {"seconds": 10},
    "destinations": [
        {"id": "clicks", "catalog_env": "LAKE_CATALOG", "data_path": "s3://lake/clicks/", "table": "clicks"}
    ],
}


def declare_pipeline(name: str, document: Document, deployment: Deployment, environ: Mapping[str, str]) -> Config:
    """The pipeline as it would be in this deployment. Raises ``InvalidEntry``."""
    faults, mistakes = list(_misplaced(name, document)), Mistakes()
    tree = from_json({key: value for key, value in document.items() if key not in NOT_ITS_OWN}, mistakes)
    file = deployment.copies.file(name)
    secrets = [fault for path, lake in _lakes(document) for fault in _at(path, secret(lake, file.parent))]
    secrets += [FieldError(f"source.{path}", said, SECRET) for path, said in topic_limits.secrets(_topic(document))]
    if mistakes or secrets:  # first, so that nothing else quotes what is in them
        raise InvalidEntry([*faults, *secrets, *_faults(mistakes)])
    limits = _limits(deployment, file)
    refused = {fault.path: fault for fault in _refusals(document, limits)}
    seen = limits.visible(environ)
    loaded = load_tree(
        {**tree, "pipeline": name}, file, seen, mistakes, deployment.kafka, least_age_of(deployment.common)
    )
    faults += [*refused.values(), *(fault for fault in _faults(mistakes) if fault.path not in refused)]
    for path, lake in _lakes(document):
        faults += _at(path, relative(lake, seen))
    if faults or loaded is None:
        raise InvalidEntry(faults)
    return deployment.joined(loaded.config)


def source_faults(config: Config, environ: Mapping[str, str], look: Look) -> list[FieldError]:
    """What a look at the source says against it."""
    try:
        look(config, environ)
    except ConfigError as error:
        return [_fault(line) for line in error.mistakes]
    except SourceError as error:
        return [FieldError("source", f"{error.type}: {error.message}; {error.hint}", "check_failed")]
    return []


def clash_faults(
    config: Config, neighbours: Iterable[Neighbour], environ: Mapping[str, str], *, policies: bool
) -> Iterator[FieldError]:
    """Its destinations in tables of other pipelines, and with ``policies`` in lakes that those keep otherwise."""
    taken = UniquenessIndex((), neighbours, upkeep=config.upkeep if policies else None)
    for number, declared in enumerate(declared_in(config, environ)):
        place = join("destinations", number)
        yield from (FieldError(join(place, path), said) for path, said in taken.clashes(declared))


def declared_in(config: Config, environ: Mapping[str, str]) -> list[Declared]:
    """A file's destinations, their routing values as they are written: for where they lie alone."""
    return declarations(config, {each.id: each.routing_value for each in config.destinations}, environ)


def _limits(deployment: Deployment, file: Path) -> LakeLimits:
    return replace(limits_of(deployment.common, over_rest=True), folder=file.parent)


def _refusals(document: Document, limits: LakeLimits) -> Iterator[FieldError]:
    """What its topic and its lakes may not name; each destination's with the defaults that it inherits."""
    for path, said in topic_limits.refusals(_topic(document), limits):
        yield FieldError(f"source.{path}", said, NOT_ALLOWED)
    common = section_of(document, "defaults")
    defaults, told = section_of(common, "properties"), dict(limits.refusals(common))
    for path, lake in _lakes(document):
        own = section_of(lake, "properties")
        whole = filled(lake, "tenant") if path == "template" else lake
        if path not in ("source", "defaults"):
            whole = {**whole, "properties": inherit(section_of(whole, "properties"), defaults)}
        for key, said in limits.refusals(whole):
            if key.partition(".")[0] != "properties" or key.partition(".")[2] in own:
                yield FieldError(f"{path}.{key}", said, NOT_ALLOWED)
            elif (
                key == "properties.s3_endpoint" and key not in told
            ):  # of defaults, and with this one's bucket before it another host
                yield FieldError(f"{path}.data_path", said, NOT_ALLOWED)


def _misplaced(name: str, document: Document) -> Iterator[FieldError]:
    given = document.get("pipeline", name)
    if given != name:
        yield FieldError("pipeline", f"is {quoted(str(given))}, and the path names {name}; leave it out")
    yield from (FieldError(key, OF_THE_DEPLOYMENT) for key in NOT_ITS_OWN if key in document)


def _topic(document: Document) -> Section:
    """The source that is a topic; empty where it is a lake."""
    source = section_of(document, "source")
    return source if source.get("kind") == "kafka" else {}


def _lakes(document: Document) -> Iterator[tuple[str, Section]]:
    """What names lakes, or settings of lakes, and where it stands."""
    for key in ("source", "template", "defaults"):
        if isinstance(section := document.get(key), dict) and section is not _topic(document):
            yield key, section
    entries = document.get("destinations")
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, dict):
            yield join("destinations", number), entry


def _at(path: str, faults: Iterable[FieldError]) -> Iterator[FieldError]:
    return (FieldError(f"{path}.{fault.path}", fault.message, fault.kind) for fault in faults)


def _faults(mistakes: Mistakes) -> list[FieldError]:
    return [FieldError(path, text) for path, text in mistakes.items()]


def _fault(line: str) -> FieldError:
    path, _, said = line.partition(": ")
    return FieldError(path, said)
