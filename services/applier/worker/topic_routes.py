"""Which records of a topic are a destination's and whose keys they have, told as a task would tell it: for proofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from confluent_kafka import Message

from services.applier.model.topic import form_of
from services.applier.records.key_owners import find_owners, keys_of, listed
from services.applier.records.parse import RecordParser
from services.applier.records.record_batch import RecordBatch, batch_of
from services.applier.records.record_format import Infer
from services.applier.records.routing import route, told
from shared.config.model import Config, TopicSource
from shared.config.topic_rules import column_that_routes
from shared.contracts.errors import ConfigError
from shared.kafka.schema_registry import SchemaRegistry
from shared.kafka.source_settings import registry_settings
from shared.lake.connection.engine import connect, release


class TopicRoutes:
    """One topic's; ``open_routes`` makes it. For one thread."""

    def __init__(self, config: Config, topic: TopicSource, schemas: SchemaRegistry | None) -> None:
        self._column = column_that_routes(config.routing.field)
        self._form = form_of(config, topic)
        self._schemas = schemas
        self._con = connect(memory_limit=config.applier.memory_limit, catalogs=())

    def close(self) -> None:
        release(self._con)

    def places(self, messages: Sequence[Message], value: str) -> list[tuple[int, int]]:
        """Partition and offset of the records of that routing value, as its column's type spells it."""
        if self._column is None:
            raise ConfigError(["routing.field: is missing"])
        batch = batch_of(messages)
        routed = route(self._con, batch, self._form, self._column, self._schemas)
        mine = routed.of(value)
        return [] if mine is None else list(zip(mine.partitions.to_pylist(), mine.offsets.to_pylist(), strict=True))

    def keyed(self, messages: Sequence[Message]) -> pa.Table:
        """Of all records that are not bad, where rows have keys: partition ``p``, offset ``o``, the text ``k`` of the
        key, and the text ``v`` of the routing value, null where there is none; of a topic that is not routed, null of
        what deletes its key, and else empty."""
        batch = batch_of(messages)
        if self._column is None:
            return self._unrouted(batch)
        with told(self._con, batch, self._form, self._column, self._schemas) as found:
            keys = keys_of(found.targets, self._form.key_columns)
            find_owners(self._con, found.memory, keys, found.owner_text)
            return listed(self._con, found.memory, keys)

    def _unrouted(self, batch: RecordBatch) -> pa.Table:
        """Columns that are not declared have no part in it."""
        form = replace(self._form, infer=Infer.FREEZE)
        parser = RecordParser(self._con, form, (), datetime.now(UTC), self._schemas)
        try:
            parser.add(batch)
            parser.finish()
            keys = keys_of(parser.targets, form.key_columns)
            find_owners(self._con, parser.memory, keys, "CASE WHEN NOT nothing THEN '' END")
            return listed(self._con, parser.memory, keys)
        finally:
            parser.drop()


@contextmanager
def open_routes(config: Config, topic: TopicSource) -> Iterator[TopicRoutes]:
    """Raises ``ConfigError``, and ``source_unreachable`` where a schema is needed and can't be had."""
    settings = registry_settings(topic)
    schemas = None if settings is None else SchemaRegistry(settings)
    try:
        with closing(TopicRoutes(config, topic, schemas)) as routes:
            yield routes
    finally:
        if schemas is not None:
            schemas.close()
