"""The newest records of a topic, parsed as a task would parse them: what table would come of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb
from confluent_kafka import Message

from services.applier.model.topic import form_of
from services.applier.records.parse import parse
from services.applier.records.parsed_records import ParsedRecords
from services.applier.records.record_batch import batch_of
from services.applier.records.routing import Routed, route
from shared.config.model import Config, TopicSource
from shared.config.topic_rules import column_that_routes
from shared.contracts.errors import Error
from shared.contracts.positions import Vector
from shared.kafka.schema_registry import SchemaRegistry
from shared.kafka.source_settings import registry_settings, topic_settings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topic_records import Bounds, TopicRecords
from shared.lake.connection.engine import connect, release
from shared.lake.failure import classify

CLIENT_ID = "viaduck-sample"
MOST = 100
MOST_BYTES = 8_000_000
WITHIN_S = 10.0
"""How long records are read; a broker that is silent for as long does not answer."""


class TimeIsUp(Error):
    """No more records are waited for; those that came are the sample."""


@dataclass(frozen=True)
class TopicSample:
    """``rejected`` by reason, ``rescued`` by column (values of fields that have none under "")."""

    records: int
    rows: int
    tombstones: int
    columns: tuple[tuple[str, str], ...]
    """Name and type of each."""
    rejected: Mapping[str, int]
    first_rejected: str
    """Where the first of them is, and why; empty where there is none."""
    rescued: Mapping[str, int]
    routed: Mapping[str, int] = field(default_factory=dict)
    """Records by routing value; empty where nothing routes them."""
    unrouted: int = 0
    """Records without one, or of which none can be told; with keys those without one."""


def sample(config: Config, topic: TopicSource) -> TopicSample:
    """Of about an equal part of each partition, parsed in the memory that an applier has.

    Raises ``ConfigError``, ``SourceError`` where it can't be read, ``DestinationError`` where it does not fit.
    """
    messages = _newest(config, topic)
    con = connect(memory_limit=config.applier.memory_limit, catalogs=())
    try:
        with _schemas(topic) as schemas:
            batch, form, column = batch_of(messages), form_of(config, topic), column_that_routes(config.routing.field)
            parsed = parse(con, batch, form, (), datetime.now(UTC), schemas=schemas)
            routed = None if column is None else route(con, batch, form, column, schemas)
        try:
            return _sample(len(messages), parsed, routed)
        finally:
            parsed.drop()
    except duckdb.OutOfMemoryException as error:
        raise classify(error, f"parsing the newest records of {topic.topic}") from None
    finally:
        release(con)


@contextmanager
def _schemas(topic: TopicSource) -> Iterator[SchemaRegistry | None]:
    """The topic's registry; None where it has none."""
    settings = registry_settings(topic)
    if settings is None:
        yield None
        return
    with closing(SchemaRegistry(settings)) as registry:
        yield registry


def _sample(records: int, parsed: ParsedRecords, routed: Routed | None) -> TopicSample:
    first = parsed.rejected[0] if parsed.rejected else None
    return TopicSample(
        records,
        parsed.landed - parsed.tombstones,
        parsed.tombstones,
        tuple((column.name, column.type) for column in parsed.columns),
        Counter(each.reason.value for each in parsed.rejected),
        "" if first is None else f"offset {first.offset} of partition {first.partition}: {first.text}",
        parsed.rescued,
        {} if routed is None else {value: len(places) for value, places in routed.places.items()},
        0 if routed is None else routed.nowhere + (0 if parsed.is_keyed else len(routed.unreadable)),
    )


def _newest(config: Config, topic: TopicSource) -> list[Message]:
    settings, found = topic_settings(config), list[Message]()
    log = TopicLog(settings, topic.topic, CLIENT_ID)
    partitions = log.identity().partitions
    begin, end = span(log.oldest(partitions), log.newest(partitions))
    until_s = time.monotonic() + WITHIN_S

    def take(messages: Sequence[Message]) -> None:
        found.extend(messages)
        if time.monotonic() > until_s:
            raise TimeIsUp

    with closing(TopicRecords(settings, topic.topic, CLIENT_ID)) as records:
        try:
            records.read(begin, end, Bounds(MOST, MOST_BYTES), WITHIN_S, take)
        except TimeIsUp:
            return found
    return found


def span(oldest: Vector, newest: Vector) -> tuple[Vector, Vector]:
    """From where to where to read at most ``MOST`` records, of all partitions or, where there are more, of some."""
    first, last = oldest.by_partition, newest.by_partition
    there = [each for each, end in sorted(last.items()) if end > first.get(each, 0)][:MOST]
    share = MOST // len(there) if there else 0
    begin = {each: max(first.get(each, 0), last[each] - share) for each in there}
    return Vector.of(begin), Vector.of({each: last[each] for each in there})
