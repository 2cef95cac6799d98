"""The part of ``viaduck check`` that is about a topic: can it be read, and what table would come of its records."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from services.cli.output.findings import CheckFinding
from shared.config.model import Config, TopicSource
from shared.config.table_layout import partitions, sort_keys
from shared.config.topic_rules import column_that_routes, first_columns
from shared.contracts.errors import ConfigError, DestinationError, SourceError
from shared.contracts.layout import SAME, TableLayout
from shared.contracts.positions import Vector
from shared.kafka.schema_registry import SchemaRegistry
from shared.kafka.source_look import look
from shared.kafka.source_settings import registry_settings, topic_settings
from shared.kafka.topic_log import TopicLog

if TYPE_CHECKING:
    from services.applier.worker.topic_sample import TopicSample

CLIENT_ID = "viaduck-check"


def findings(config: Config, topic: TopicSource) -> Iterator[CheckFinding]:
    """Raises ``ConfigError`` for what the file must say otherwise."""
    name = f"source topic {topic.topic}"
    try:
        seen = look(config)
        keys = ", ".join(config.routing.key_columns) or "none, append-only"
        by = column_that_routes(config.routing.field)
        routed = "" if by is None else f"; routed by {by} {seen.routing.type}"
        if by is not None and config.routing.key_columns:
            keys += ", each at the destination of its newest record only"
        said = f"{seen.partitions} partitions up to record {seen.head.snapshot}{routed}; keys: {keys}"
        yield CheckFinding(name, True, said)
        _require_start(config, topic)
        yield from layouts_that_wait(config, topic)
        registry = registry_answer(topic)
        if registry is not None:
            yield registry
        yield _sampled(config, topic, frozenset(seen.routing_values.values()))
    except (SourceError, DestinationError) as error:  # such as an event of a row without a key
        yield CheckFinding(name, False, error.message, error.hint)


def _require_start(config: Config, topic: TopicSource) -> None:
    if not topic.start.offsets:
        return
    log = TopicLog(topic_settings(config, os.environ), topic.topic, CLIENT_ID)
    partitions = log.identity().partitions
    if mistakes := faults_of_start(topic, partitions, log.newest(partitions)):
        raise ConfigError(mistakes)


def faults_of_start(topic: TopicSource, partitions: int, newest: Vector) -> list[str]:
    """A life that begins where no record can be parks, and does so again after a reseed."""
    ends, found = newest.by_partition, list[str]()
    for partition, offset in topic.start.offsets.items():
        place, end = f"source.start.offsets.{partition}", ends.get(int(partition), 0)
        if int(partition) >= partitions:
            found.append(
                f"{place}: is no partition of the topic, which has {partitions}: 0 to {partitions - 1}; remove it"
            )
        elif int(offset) > end:
            found.append(f"{place}: is {offset}, and the partition ends at offset {end}; write at most that")
    return found


def registry_answer(topic: TopicSource) -> CheckFinding | None:
    """Of the schema registry, if there is one. The sample asks it only for records that name a schema."""
    settings = registry_settings(topic)
    if settings is None:
        return None
    name = f"schema registry {settings.place}"
    try:
        with closing(SchemaRegistry(settings)) as registry:
            registry.ping()
    except SourceError as error:
        return CheckFinding(name, False, error.message, error.hint)
    return CheckFinding(name, True, "answers")


def layouts_that_wait(config: Config, topic: TopicSource) -> Iterator[CheckFinding]:
    """Layouts by columns that a table does not have when a life begins, also if records bring them later."""
    there = {name.lower() for name, _ in first_columns(topic)}
    common = config.table_layout
    layouts = {each.id: each.layout.over(common) for each in config.destinations}
    if config.template.is_given:
        layouts["the template"] = config.template.layout.over(common)
    for name, layout in layouts.items():
        absent = sorted({each for each in _columns_of(layout) if each.lower() not in there})
        if absent:
            said = f"is by columns that a table does not have before its first record: {', '.join(absent)}"
            hint = "declare them among source.columns; until then a seed parks as invalid_destination"
            yield CheckFinding(f"layout of {name}", False, said, hint)


def _columns_of(layout: TableLayout) -> Iterator[str]:
    """``SAME`` names none: a topic has no layout."""
    if layout.partitioned_by != SAME:
        yield from (each.column for each in partitions(layout.partitioned_by))
    if layout.sorted_by != SAME:
        yield from (each.column for each in sort_keys(layout.sorted_by))


def _sampled(config: Config, topic: TopicSource, values: Collection[str]) -> CheckFinding:
    from services.applier.worker.topic_sample import sample

    found = sample(config, topic)
    routed = "" if column_that_routes(config.routing.field) is None else routed_of(found, values)
    return CheckFinding(f"sample of {topic.topic}", True, said_of(found) + routed, columns=found.columns)


def routed_of(found: TopicSample, values: Collection[str]) -> str:
    """How much of a ``TopicSample`` goes to destinations of these routing values. Values of records are not shown."""
    mine = sum(count for value, count in found.routed.items() if value in values)
    strange = {value: count for value, count in found.routed.items() if value not in values}
    return (
        f"; {mine} go to the file's destinations, {sum(strange.values())} are of {len(strange)} values that none of"
        f" them has, {found.unrouted} have none"
    )


def said_of(found: TopicSample) -> str:
    """Of a ``TopicSample``."""
    if not found.records:
        return "no record yet; these columns come first"
    parts = [f"of the newest {found.records} records {found.rows} would be rows"]
    if found.tombstones:
        parts.append(f"{found.tombstones} would delete their key")
    if found.rejected:
        parts.append(f"{sum(found.rejected.values())} would be rejected ({_counted(found.rejected)})")
    if found.rescued:
        named = {name or "fields without a column": count for name, count in found.rescued.items()}
        parts.append(f"{sum(named.values())} values would go to _rescued ({_counted(named)})")
    first = f"; first rejected: {found.first_rejected}" if found.first_rejected else ""
    return ", ".join(parts) + first


def _counted(numbers: Mapping[str, int]) -> str:
    """The most frequent ones first."""
    ordered = sorted(numbers.items(), key=lambda each: (-each[1], each[0]))
    more = ", …" if len(ordered) > 5 else ""
    return ", ".join(f"{name}: {count}" for name, count in ordered[:5]) + more
