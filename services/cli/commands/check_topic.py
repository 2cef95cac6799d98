"""The part of ``viaduck check`` that is about a topic: can it be read, and what table would come of its records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from services.cli.output.findings import CheckFinding
from shared.config.model import Config, TopicSource
from shared.config.topic_rules import column_that_routes
from shared.contracts.errors import DestinationError, SourceError
from shared.kafka.source_look import look

if TYPE_CHECKING:
    from services.applier.worker.topic_sample import TopicSample


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
        yield _sampled(config, topic, frozenset(seen.routing_values.values()))
    except (SourceError, DestinationError) as error:  # such as an event of a row without a key
        yield CheckFinding(name, False, error.message, error.hint)


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
