"""A look at a pipeline's source before work begins, whatever its kind: can it be read, and does the file fit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

from shared.config.model import Config, TopicSource
from shared.config.topic_rules import EVERY_RECORD, column_that_routes, first_columns
from shared.contracts.errors import ConfigError, DependencyError, SourceError
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicIdentity, TopicLog
from shared.lake.catalog.reader import Column, Head, TableInfo
from shared.lake.checks.source import SourceLook, look_at_lake, values_by_id

CLIENT_ID = "viaduck-look"

BROKER_WITHIN_S = 5.0


def look(config: Config, environ: Mapping[str, str] = os.environ) -> SourceLook:
    """Read the source's metadata and hold the file against it.

    Raises ``ConfigError`` for what the file must say otherwise, ``SourceError`` where the source can't be read now.
    """
    if config.topic is None:
        return look_at_lake(config, environ)
    log = TopicLog(topic_settings(config, environ), config.topic.topic, CLIENT_ID)
    try:
        identity = log.identity()
        require_foreign(config, config.topic, identity.cluster, environ)
        records = log.newest(identity.partitions).records
    except SourceError as error:
        if error.type == "source_gone":
            raise ConfigError([f"source.topic: {error.message}; {error.hint}"]) from None
        raise
    return _look(config, config.topic, identity, records)


def require_foreign(config: Config, topic: TopicSource, cluster: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raises ``ConfigError`` for a topic that Viaduck writes itself, whatever address its cluster is named by."""
    prefix = config.kafka.topic_prefix
    if config.kafka.bootstrap_servers is None or not topic.topic.startswith(f"{prefix}."):
        return
    try:
        own = Broker(KafkaSettings.reaching(config, environ), CLIENT_ID).cluster_id(BROKER_WITHIN_S)
    except DependencyError:
        return  # who looks is told so elsewhere
    if own == cluster:
        said = f"begins with {prefix}., as Viaduck's own topics on this cluster do; name a topic of yours"
        raise ConfigError([f"source.topic: {said}"])


def _look(config: Config, topic: TopicSource, identity: TopicIdentity, records: int) -> SourceLook:
    """The columns are those that are there before any record."""
    now = datetime.now(UTC)
    columns = tuple(Column(name, declared) for name, declared in first_columns(topic))
    table = TableInfo("", topic.topic, 0, identity.topic_id, identity.cluster, 0, columns)
    keys = tuple(each for key in config.routing.key_columns if (each := table.column(key)) is not None)
    field = column_that_routes(config.routing.field)
    found = None if field is None else table.column(field)
    if found is None:
        routing = Column(EVERY_RECORD, "VARCHAR")
        values = {each.id: each.routing_value for each in config.destinations}
    else:
        routing = Column(found.name, found.type)
        values = values_by_id(config, routing)
    return SourceLook(None, Head(records, now, now), table, routing, keys, values, identity.partitions)
