"""Where the records of a routing value are in a topic, told as a task would tell them: for proofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa
from confluent_kafka import Message

from services.applier.model.topic import form_of
from services.applier.records.key_owners import find_owners, keys_of, listed
from services.applier.records.record_batch import batch_of
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
        column = column_that_routes(config.routing.field)
        if column is None:
            raise ConfigError(["routing.field: is missing"])
        self._column = column
        self._form = form_of(config, topic)
        self._schemas = schemas
        self._con = connect(memory_limit=config.applier.memory_limit, catalogs=())

    def close(self) -> None:
        release(self._con)

    def places(self, messages: Sequence[Message], value: str) -> list[tuple[int, int]]:
        """Partition and offset of the records of that routing value, as its column's type spells it."""
        batch = batch_of(messages)
        routed = route(self._con, batch, self._form, self._column, self._schemas)
        mine = routed.of(value)
        return [] if mine is None else list(zip(mine.partitions.to_pylist(), mine.offsets.to_pylist(), strict=True))

    def keyed(self, messages: Sequence[Message]) -> pa.Table:
        """Of all records that are not bad, where rows have keys: partition ``p``, offset ``o``, the text ``k`` of the
        key, and the text ``v`` of the routing value, null where there is none."""
        with told(self._con, batch_of(messages), self._form, self._column, self._schemas) as found:
            keys = keys_of(found.targets, self._form.key_columns)
            find_owners(self._con, found.memory, keys, found.owner_text)
            return listed(self._con, found.memory, keys)


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
