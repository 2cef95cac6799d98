"""The reader of a pipeline's source, by its kind."""

from __future__ import annotations

from collections.abc import Mapping

from services.reader.source.group_offsets import GroupOffsets
from services.reader.source.lake_source import LakeSource
from services.reader.source.source_reader import SourceReader
from services.reader.source.topic_source import KafkaSource
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import ConfigError, ViaduckError
from shared.kafka.source_settings import topic_settings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topics import group_of
from shared.runtime.metrics import Metrics


def open_source(config: Config, environ: Mapping[str, str], client_id: str, metrics: Metrics) -> SourceReader:
    """Raises ``ConfigError`` where a variable is missing."""
    if config.topic is None:
        return LakeSource(config, _source_lake(config, environ))
    log = TopicLog(topic_settings(config, environ), config.topic.topic, f"{client_id}-source")
    offsets = GroupOffsets(log, group_of(config.kafka.topic_prefix, config.pipeline))
    return KafkaSource(config, log, metrics=metrics, offsets=offsets)


def _source_lake(config: Config, environ: Mapping[str, str]) -> ResolvedLake:
    try:
        return Lakes(config, environ).source()
    except ViaduckError as error:
        raise ConfigError([f"source: {error.message}; {error.hint}"]) from None
