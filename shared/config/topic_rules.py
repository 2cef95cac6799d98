"""A file whose source is a Kafka topic: how its sections become those of a pipeline, and what they must fulfil."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from shared.config.coercion import fit_section
from shared.config.config_errors import Mistakes, join, quoted
from shared.config.document import Tree
from shared.config.field_types import duckdb_spelling
from shared.config.lake_rules import ConfigContext, check_variable, check_variables, section_of, text_of
from shared.config.model import TopicSource
from shared.contracts.messages import SeedMode

KINDS = ("lake", "kafka")

EVERY_RECORD = "*"
"""Stands for the routing column of a topic whose one destination takes every record."""

ROUTABLE = (
    r"BOOLEAN|BOOL|TINYINT|SMALLINT|INTEGER|INT|BIGINT|LONG|UTINYINT|USMALLINT|UINTEGER|UBIGINT|VARCHAR|STRING|TEXT"
    r"|DATE|UUID"
)
"""Types of which equal values have one text, whatever the time zone."""

SIZE = r"\d+(\.\d+)?\s*([KMG](i?B)?)?"
OFFSET = r"0|[1-9]\d{0,17}"

OURS = frozenset(
    {"auto.offset.reset", "bootstrap.servers", "check.crcs", "client.id", "enable.auto.commit"}
    | {"enable.auto.offset.store", "enable.partition.eof", "group.id", "isolation.level", "plugin.library.paths"}
)
"""Properties that decide what is read, or load code."""

REGISTRY_PROPERTIES = frozenset(
    {"basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"}
)

METADATA_TYPES = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
    "inserted_at": "TIMESTAMP WITH TIME ZONE",
}
KEYS_WITH_FIELDS = ("json", "json_schema", "avro", "protobuf")
KEY_TYPES = {"none": "BLOB", "text": "VARCHAR", "bytes": "BLOB", **dict.fromkeys(KEYS_WITH_FIELDS, "JSON")}
VALUE_TYPES = {"text": "VARCHAR", "bytes": "BLOB"}

TYPES = frozenset(
    {"BOOLEAN", "BOOL", "TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "LONG", "UTINYINT", "USMALLINT", "UINTEGER"}
    | {"UBIGINT", "FLOAT", "REAL", "DOUBLE", "VARCHAR", "STRING", "TEXT", "JSON", "DATE", "TIME", "TIMESTAMP", "UUID"}
    | {"BLOB", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"}
)
"""Of declared columns, beside DECIMAL(p, s)."""

DECIMAL = r"DECIMAL\(\d{1,2}, ?\d{1,2}\)"
PATH = r'\$(\.([^."\[\]$*]+|"[^"]+"))+'

OF_ROUTED = ("appear", "template")
NAMED = "source.columns"
OF_LAKES_ROUTING = ("seed_mode", "on_delete", "on_update", "on_gap")


def split_topic(tree: dict[str, Tree], mistakes: Mistakes) -> tuple[dict[str, Tree], dict[str, Any] | None]:
    """The tree without its topic, and the fitted section of that; None where the source is a lake."""
    source = tree.get("source")
    kind = source.get("kind") if isinstance(source, dict) else None
    if isinstance(kind, str) and kind not in KINDS:
        mistakes.note("source.kind", f"is {quoted(kind)}; write one of: {', '.join(KINDS)}")
    if kind != "kafka":
        return tree, None
    rest = {name: each for name, each in tree.items() if name != "source"}
    fitted = fit_section(source or {}, TopicSource, "source", mistakes)
    return rest, fitted if isinstance(fitted, dict) else {}


def with_topic(sections: dict[str, Any], topic: dict[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """The sections of a pipeline that lands a topic. What only lakes have is noted as a mistake."""
    routing = section_of(sections, "routing")
    for name in OF_ROUTED:
        if name in sections and "field" not in routing:
            mistakes.note(name, "makes destinations of routing values; write routing.field, or remove it")
    if "seed_mode" in section_of(sections, "template"):
        mistakes.note("template.seed_mode", _not_here("seed_mode"))
    for name in OF_LAKES_ROUTING:
        if name in routing:
            mistakes.note(join("routing", name), _not_here(name))
    field = routing.get("field", EVERY_RECORD)
    if field == EVERY_RECORD and "field" in routing:
        mistakes.note("routing.field", f"is no column; remove it, or write one of {NAMED}")
    fixed = {"field": field, "seed_mode": SeedMode.REPLAY.value}
    if (on_gap := text_of(topic, "on_gap")) is not None:
        fixed["on_gap"] = "park" if on_gap == "skip" else on_gap  # the reader skips; control has nothing to answer
    return {
        **sections,
        "topic": topic,
        "source": {"table": text_of(topic, "topic") or ""},
        "routing": {"key_columns": routing.get("key_columns", ()), **fixed},
        "destinations": _destinations(sections.get("destinations"), mistakes, is_routed="field" in routing),
    }


def column_that_routes(field: str) -> str | None:
    """The column by which a topic's records go to destinations; None where one takes them all."""
    return None if field == EVERY_RECORD else field


def _not_here(name: str) -> str:
    if name == "on_gap":
        return "belongs to the source of a topic; write source.on_gap"
    return "has no meaning for a topic; remove it"


def _destinations(given: Any, mistakes: Mistakes, *, is_routed: bool) -> Any:
    if not isinstance(given, list):
        return () if given is None else given
    if len(given) > 1 and not is_routed:
        said = "is one too many: every record goes to one destination; write routing.field to route by a column"
        mistakes.note("destinations[1]", said)
    unused = {"seed_mode": "has no meaning for a topic; remove it"}
    if not is_routed:
        unused["routing_value"] = "has no meaning for a topic without routing.field; remove it"
    for number, entry in enumerate(given):
        for name, said in unused.items():
            if isinstance(entry, dict) and name in entry:
                mistakes.note(join(join("destinations", number), name), said)
    if is_routed:
        return given
    return [{**entry, "routing_value": ""} if isinstance(entry, dict) else entry for entry in given]


def check_topic(sections: Mapping[str, Any], world: ConfigContext, mistakes: Mistakes) -> None:
    """Note every mistake of a topic that a look at one value alone does not show."""
    topic, kafka = section_of(sections, "topic"), {**world.kafka, **section_of(sections, "kafka")}
    properties = section_of(topic, "properties")
    check_variables(properties, "source.properties", world, mistakes)
    for name in properties:
        if name.removesuffix("_env") in OURS:
            mistakes.note(join("source.properties", name), "is Viaduck's own choice; remove it")
    if "bootstrap_servers" not in topic and "bootstrap_servers" not in kafka:
        said = "is missing, and there is no kafka.bootstrap_servers: an embedded broker holds no topic of yours"
        mistakes.note("source.bootstrap_servers", said)
    _check_own_topic(topic, kafka, mistakes)
    _check_start(section_of(topic, "start"), mistakes)
    _check_shown(topic, mistakes)
    keys = section_of(sections, "routing").get("key_columns")
    _check_columns(topic, keys, mistakes)
    _check_routing(topic, section_of(sections, "routing"), mistakes)
    _check_events(section_of(topic, "format"), keys, mistakes)
    _check_registry(section_of(topic, "format"), world, mistakes)


def check_flush(sections: Mapping[str, Any], mistakes: Mistakes) -> None:
    if "flush" in sections and "topic" not in sections:
        mistakes.note("flush", "is for topics, and the source is a lake; remove it, or write poll.interval_seconds")
    size = text_of(section_of(sections, "flush"), "bytes")
    if size is not None and re.fullmatch(SIZE, size.strip(), re.IGNORECASE) is None:
        mistakes.note("flush.bytes", "must be a size; write it like 100MB")


def _check_own_topic(topic: Mapping[str, Any], kafka: Mapping[str, Any], mistakes: Mistakes) -> None:
    prefix = text_of(kafka, "topic_prefix") or "viaduck"
    own, named = (text_of(section, "bootstrap_servers") for section in (kafka, topic))
    is_ours = named is None or bool(_servers(named) & _servers(own or ""))
    if is_ours and (text_of(topic, "topic") or "").startswith(f"{prefix}."):
        mistakes.note("source.topic", f"begins with {prefix}., as Viaduck's own topics do; name a topic of yours")


def _servers(listed: str) -> set[str]:
    return {each.strip().rpartition("://")[2].lower() for each in listed.split(",")} - {""}


def _check_start(start: Mapping[str, Any], mistakes: Mistakes) -> None:
    if len(start) > 1:
        mistakes.note("source.start", "names more than one place; keep one of earliest, latest, timestamp and offsets")
    time = text_of(start, "timestamp")
    if time is not None and _instant(time) is None:
        said = "must be a time with its zone; write it like 2026-11-01T00:00:00Z"
        mistakes.note("source.start.timestamp", said)
    for partition, offset in section_of(start, "offsets").items():
        if not isinstance(offset, str) or not re.fullmatch(OFFSET, partition) or not re.fullmatch(OFFSET, offset):
            place = join("source.start.offsets", partition)
            mistakes.note(place, 'must be a partition and an offset in it; write them like "0": 12')


def _check_shown(topic: Mapping[str, Any], mistakes: Mistakes) -> None:
    form = section_of(topic, "format")
    if topic.get("metadata") == [] and not topic.get("columns") and text_of(form, "value") not in VALUE_TYPES:
        mistakes.note("source.metadata", "is empty, and no column is declared: a table needs one to begin with")


def _check_registry(form: Mapping[str, Any], world: ConfigContext, mistakes: Mistakes) -> None:
    place, registry = "source.format.registry", section_of(form, "registry")
    url, variable = text_of(registry, "url"), text_of(registry, "url_env")
    properties = section_of(registry, "properties")
    if url is not None and variable is not None:
        mistakes.note(join(place, "url_env"), "is given beside url; keep one of them")
    formats = {text_of(form, name) for name in ("value", "encoding", "key")}
    if url is None and variable is None and formats & {"avro", "protobuf"}:
        mistakes.note(
            join(place, "url_env"), "is missing: the schemas of records in Avro or Protobuf are in a registry"
        )
    if variable is not None:
        check_variable(variable, join(place, "url_env"), world, mistakes)
        url = world.environ.get(variable)
    if url is not None and not _is_http(url):
        said = "must be like https://registry:8081, without a user: that belongs to basic.auth.user.info_env"
        mistakes.note(join(place, "url" if variable is None else "url_env"), said)
    check_variables(properties, join(place, "properties"), world, mistakes)
    for name in properties:
        if name.removesuffix("_env") not in REGISTRY_PROPERTIES:
            known = ", ".join(sorted(REGISTRY_PROPERTIES))
            mistakes.note(join(join(place, "properties"), name), f"is no property of a registry; there are {known}")


def _is_http(url: str) -> bool:
    try:
        found = urlsplit(url)
        return (
            found.scheme in ("http", "https") and bool(found.hostname) and "@" not in found.netloc and found.port != 0
        )
    except ValueError:
        return False


def _check_events(form: Mapping[str, Any], keys: Any, mistakes: Mistakes) -> None:
    """Change events of Debezium."""
    if text_of(form, "value") != "debezium":
        if "encoding" in form:
            said = 'is of change events; write value: "debezium" beside it, or remove it'
            mistakes.note("source.format.encoding", said)
        return
    if text_of(form, "key") not in KEYS_WITH_FIELDS:
        said = f"must be one of {', '.join(KEYS_WITH_FIELDS)} where values are events: a tombstone has only its key"
        mistakes.note("source.format.key", said)
    if not keys:
        mistakes.note("routing.key_columns", "are needed where values are events, which update and delete rows by key")


def size_in_bytes(text: str) -> int:
    """A size that ``check_flush`` has let pass."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMG])(i?)B?)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no size")
    base = 1024 if found[3] else 1000
    return max(1, int(float(found[1]) * base ** (" KMG".index((found[2] or " ").upper()))))


def first_columns(topic: TopicSource) -> list[tuple[str, str]]:
    """Name and type of each column that a table has before its first record."""
    key_type = KEY_TYPES[topic.format.key]
    columns = [(each.name, duckdb_spelling(each.type)) for each in topic.columns]
    columns += [(f"_kafka_{name}", METADATA_TYPES.get(name, key_type)) for name in topic.metadata]
    if topic.format.value in VALUE_TYPES:
        columns.append(("value", VALUE_TYPES[topic.format.value]))
    return columns


def _check_columns(topic: Mapping[str, Any], keys: Any, mistakes: Mistakes) -> None:
    columns = [each for each in topic.get("columns") or () if isinstance(each, dict)]
    if columns and text_of(section_of(topic, "format"), "value") in VALUE_TYPES:
        mistakes.note("source.columns", "are fields of values, and texts and bytes have none; remove them")
    seen: set[str] = set()
    for number, each in enumerate(columns):
        place, name = join("source.columns", number), text_of(each, "name") or ""
        declared, path = text_of(each, "type") or "", text_of(each, "path")
        if name.lower() in seen:
            mistakes.note(join(place, "name"), f"{quoted(name)} is a column already; name each column once")
        seen.add(name.lower())
        if path is not None and re.fullmatch(PATH, path) is None:
            mistakes.note(
                join(place, "path"), 'must lead to a field by names; write it like $.id or $.device."os.name"'
            )
        if declared and " ".join(declared.upper().split()) not in TYPES and not re.fullmatch(DECIMAL, declared.upper()):
            mistakes.note(join(place, "type"), f"{quoted(declared)} is no type that a field is converted to")
    known = {text_of(each, "name") for each in columns}
    for number, key in enumerate(keys if isinstance(keys, list) else ()):
        if key not in known and not (keys == ["_kafka_key"] and "key" in (topic.get("metadata") or ())):
            said = "is not declared among source.columns; declare it, with its path and type"
            mistakes.note(join("routing.key_columns", number), said)


def _check_routing(topic: Mapping[str, Any], routing: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Records are told apart by a declared column: what is inferred depends on which records came first."""
    place, field = "routing.field", text_of(routing, "field")
    if field is None or field == EVERY_RECORD:
        return
    columns = [each for each in topic.get("columns") or () if isinstance(each, dict)]
    declared = next((text_of(each, "type") or "" for each in columns if text_of(each, "name") == field), None)
    if declared is None:
        said = f"{quoted(field)} is not declared among {NAMED}; declare it, with its path and type"
        mistakes.note(place, said)
    elif not re.fullmatch(ROUTABLE, declared.strip().upper()):
        said = "of which equal values may have several texts; route by an integer, VARCHAR, BOOLEAN, DATE or UUID"
        mistakes.note(place, f"{quoted(field)} is {declared}, {said}")
    if text_of(section_of(topic, "format"), "value") == "debezium":
        said = "can't be given where values are events: what an update leaves out, only another destination may have"
        mistakes.note(place, f"{said}; land the topic in one table, and fan out from there")
    if text_of(topic, "on_gap") == "skip":
        said = "must be park or reseed beside routing.field: which destination skipped records were of is not known"
        mistakes.note("source.on_gap", said)


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
