"""What a file says of a topic → what a task is given of it."""

from __future__ import annotations

from services.applier.model.task import SourceTopic
from services.applier.records.record_format import DeclaredColumn, Infer, KeyFormat, Metadata, RecordFormat, ValueFormat
from shared.config.field_types import duckdb_spelling
from shared.config.model import Config, TopicSource
from shared.config.topic_rules import column_that_routes, size_in_bytes
from shared.contracts.errors import ConfigError
from shared.kafka.settings import KafkaSettings
from shared.kafka.source_settings import registry_settings, topic_settings
from shared.kafka.topics import Topics


def topic_of(config: Config, topic: TopicSource, own: KafkaSettings) -> SourceTopic:
    """``own``: the deployment's broker. Raises ``ConfigError``."""
    return SourceTopic(
        settings=topic_settings(config),
        table=topic.topic,
        form=form_of(config, topic),
        rows=config.flush.rows,
        bytes=size_in_bytes(config.flush.bytes),
        own=own,
        rejected=Topics(own.prefix).rejected(config.pipeline),
        parks_bad=topic.on_bad == "park",
        registry=registry_settings(topic),
        skips_gaps=topic.on_gap == "skip",
        routing=column_that_routes(config.routing.field),
        routed_by=config.routing.routed_by,
    )


def form_of(config: Config, topic: TopicSource) -> RecordFormat:
    """Raises ``ConfigError`` for columns that contradict each other."""
    try:
        return RecordFormat(
            value=ValueFormat(topic.format.value),
            key=KeyFormat(topic.format.key),
            columns=tuple(
                DeclaredColumn(each.name, each.path, duckdb_spelling(each.type), each.required)
                for each in topic.columns
            ),
            key_columns=config.routing.key_columns,
            infer=Infer(topic.infer),
            metadata=tuple(Metadata(each) for each in topic.metadata),
            max_columns=topic.max_columns,
            max_record_bytes=topic.max_record_bytes,
            encoding=ValueFormat(topic.format.encoding),
        )
    except ValueError as error:
        raise ConfigError([f"source: {error}"]) from None
