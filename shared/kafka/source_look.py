"""A look at a pipeline's source before work begins, whatever its kind: can it be read, and does the file fit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

from shared.config.model import Config, TopicSource
from shared.config.topic_rules import EVERY_RECORD, first_columns
from shared.contracts.errors import ConfigError, SourceError
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicIdentity, TopicLog
from shared.lake.catalog import Column, Head, TableInfo
from shared.lake.source import SourceLook, look_at_lake

CLIENT_ID = "viaduck-look"


def look(config: Config, environ: Mapping[str, str] = os.environ) -> SourceLook:
    """Read the source's metadata and hold the file against it.

    Raises ``ConfigError`` for what the file must say otherwise, ``SourceError`` where the source can't be read now.
    """
    if config.topic is None:
        return look_at_lake(config, environ)
    log = TopicLog(topic_settings(config, environ), config.topic.topic, CLIENT_ID)
    try:
        identity = log.identity()
        records = log.newest(identity.partitions).records
    except SourceError as error:
        if error.type == "source_gone":
            raise ConfigError([f"source.topic: {error.message}; {error.hint}"]) from None
        raise
    return _look(config, config.topic, identity, records)


def _look(config: Config, topic: TopicSource, identity: TopicIdentity, records: int) -> SourceLook:
    """Every record goes to the pipeline's one destination. Its columns are those that are there before any record."""
    now = datetime.now(UTC)
    columns = tuple(Column(name, declared) for name, declared in first_columns(topic))
    table = TableInfo("", topic.topic, 0, identity.topic_id, identity.cluster, 0, columns)
    keys = tuple(each for key in config.routing.key_columns if (each := table.column(key)) is not None)
    values = {each.id: each.routing_value for each in config.destinations}
    return SourceLook(
        None, Head(records, now, now), table, Column(EVERY_RECORD, "VARCHAR"), keys, values, identity.partitions
    )
