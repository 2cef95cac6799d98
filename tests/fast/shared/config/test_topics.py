"""Files whose source is a Kafka topic."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from services.applier.model.topic import form_of
from services.applier.records.conversions import is_supported
from services.applier.records.record_format import KEY_TYPES, METADATA_TYPES, KeyFormat, Metadata, ValueFormat
from shared.config import topic_rules
from shared.config.field_types import duckdb_spelling
from shared.config.model import TopicFormat, TopicSource
from shared.config.table_layout import PartitionField
from shared.config.topic_rules import first_columns, size_in_bytes
from shared.contracts.layout import TableLayout
from shared.contracts.messages import SeedMode
from shared.kafka.schema_registry import RegistrySettings
from shared.kafka.source_settings import registry_settings
from shared.lake.catalog.reader import Column
from shared.lake.checks.layout_keys import keys_of
from tests.fast.shared.config.conftest import Load, Mistaken

WHOLE = {
    "pipeline": "clicks",
    "source": {"kind": "kafka", "topic": "clicks"},
    "kafka": {"bootstrap_servers": "kafka:9092"},
    "destinations": [{"id": "clicks", "catalog": "sqlite:clicks.sqlite", "data_path": "clicks"}],
}


def text(source: dict[str, Any] | None = None, **sections: Any) -> str:
    whole = {**WHOLE, "source": {**WHOLE["source"], **(source or {})}, **sections}  # type: ignore[dict-item]
    return yaml.safe_dump({name: section for name, section in whole.items() if section is not None})


def test_ten_lines_make_a_pipeline(load_text: Load) -> None:
    config = load_text(text())
    assert config.topic is not None
    assert (config.topic.topic, config.topic.start.position, config.flush.seconds) == ("clicks", "earliest", 60.0)
    assert config.routing.append_only
    assert config.routing.seed_mode is SeedMode.REPLAY
    (destination,) = config.destinations
    assert (destination.table, destination.routing_value) == ("clicks", "")


def test_all_that_a_file_may_say_reaches_the_applier(load_text: Load) -> None:
    source = {
        "format": {"value": "json", "key": "text"},
        "columns": [{"name": "id", "path": "$.id", "type": "bigint", "required": True}],
        "infer": "freeze",
        "metadata": ["partition", "key"],
        "max_columns": 9,
        "max_record_bytes": 1000,
        "start": {"offsets": {"0": 12}},
        "on_gap": "reseed",
    }
    config = load_text(
        text(source, routing={"key_columns": ["id"]}, flush={"rows": 5, "bytes": "2MiB", "seconds": 0.5})
    )
    assert config.topic is not None
    form = form_of(config, config.topic)
    assert (form.columns[0].type, form.columns[0].required, form.key_columns) == ("BIGINT", True, ("id",))
    assert (form.infer, form.metadata, form.max_columns) == ("freeze", (Metadata.PARTITION, Metadata.KEY), 9)
    assert form.max_record_bytes == 1000
    assert config.topic.start.offsets == {"0": "12"}
    assert config.routing.on_gap == "reseed"
    assert (config.flush.rows, size_in_bytes(config.flush.bytes)) == (5, 2 * 1024 * 1024)


ROUTED = {
    "columns": [
        {"name": "tenant", "path": "$.tenant", "type": "VARCHAR"},
        {"name": "at", "path": "$.at", "type": "TIMESTAMPTZ"},
    ]
}


def test_a_topic_that_is_routed_has_a_destination_for_each_value(load_text: Load) -> None:
    entries = [{"id": each, "routing_value": each, "catalog": f"sqlite:{each}", "data_path": each} for each in "ab"]
    config = load_text(text(ROUTED, routing={"field": "tenant"}, destinations=entries))
    assert (config.routing.field, config.routing.append_only) == ("tenant", True)
    assert [each.routing_value for each in config.destinations] == ["a", "b"]
    assert topic_rules.column_that_routes(config.routing.field) == "tenant"
    assert topic_rules.column_that_routes(load_text(text()).routing.field) is None


def test_destinations_of_a_topic_that_is_routed_may_appear_by_themselves(load_text: Load) -> None:
    entry = {"id": "a", "routing_value": "a", "catalog": "sqlite:a", "data_path": "a"}
    template = {"catalog": "sqlite:t/{routing_value}.sqlite", "data_path": "t/{routing_value}"}
    routed = {"routing": {"field": "tenant"}, "destinations": [entry]}
    config = load_text(text(ROUTED, **routed, template=template, appear={"policy": "create"}))
    assert (config.appear.policy, config.template.is_given) == ("create", True)


def test_what_is_skipped_is_the_readers_business_and_control_answers_no_gap(load_text: Load) -> None:
    config = load_text(text({"on_gap": "skip"}))
    assert config.topic is not None
    assert (config.topic.on_gap, config.routing.on_gap) == ("skip", "park")


def test_a_topic_may_be_routed_and_have_keys(load_text: Load) -> None:
    entry = {"id": "a", "routing_value": "a", "catalog": "sqlite:a", "data_path": "a"}
    of_record = {"format": {"key": "text"}, "metadata": ["offset", "key"]}
    for source, keys in (({}, ["tenant"]), (of_record, ["_kafka_key"])):
        routing = {"field": "tenant", "key_columns": keys}
        config = load_text(text({**ROUTED, **source}, routing=routing, destinations=[entry]))
        assert (config.routing.field, list(config.routing.key_columns)) == ("tenant", keys)
        assert not config.routing.append_only


@pytest.mark.parametrize(
    ("source", "sections", "said"),
    [
        ({"kind": "pulsar"}, {}, "source.kind: is \"pulsar\"; write one of: lake, kafka"),
        ({"topic": None}, {}, "source.topic: is required and has no value"),
        ({"topic": "a/b"}, {}, "source.topic: "),
        ({"topic": "viaduck.work"}, {}, "source.topic: begins with viaduck., as Viaduck's own topics do"),
        ({"topic": "viaduck.work", "bootstrap_servers": "b:1,SSL://A:2"},
         {"kafka": {"bootstrap_servers": "a:2, c:3"}}, "source.topic: begins with viaduck., as Viaduck's own"),
        ({"registry": {"url": "x"}}, {}, "source.registry: is not a key"),
        ({"format": {"value": "xml"}}, {}, "source.format.value: must be one of"),
        ({"format": {"value": "avro"}}, {}, "source.format.registry.url_env: is missing"),
        ({"format": {"key": "avro"}}, {}, "source.format.registry.url_env: is missing"),
        ({"format": {"registry": {"url": "kafka:9092"}}}, {}, "source.format.registry.url: must be like https://"),
        ({"format": {"registry": {"url": "http://me:pw@host"}}}, {}, "source.format.registry.url: must be like https:"),
        ({"format": {"registry": {"url_env": "NOWHERE"}}}, {}, "source.format.registry.url_env: the environment"),
        ({"format": {"registry": {"properties": {"basic.auth.user.info_env": "NOWHERE"}}}}, {},
         "source.format.registry.properties.basic.auth.user.info_env: the environment"),
        ({"format": {"registry": {"properties": {"url": "x"}}}}, {},
         "source.format.registry.properties.url: is no property of a registry"),
        ({"isolation": "read_uncommitted"}, {}, "source.isolation: must be one of"),
        ({"start": "never"}, {}, "source.start.position: must be one of"),
        ({"start": {"timestamp": "2026-11-01"}}, {}, "source.start.timestamp: must be a time with its zone"),
        ({"start": {"offsets": {"x": 1}}}, {}, "source.start.offsets.x: must be a partition"),
        ({"start": {"position": "latest", "offsets": {"0": 1}}}, {}, "source.start: names more than one place"),
        ({"properties": {"auto.offset.reset": "latest"}}, {}, "source.properties.auto.offset.reset: is Viaduck's own"),
        ({"properties": {"plugin.library.paths": "/x.so"}}, {}, "source.properties.plugin.library.paths: is Viaduck's"),
        ({"properties": {"sasl.password_env": "NOWHERE"}}, {}, "source.properties.sasl.password_env: the environment"),
        ({"on_gap": "jump"}, {}, "source.on_gap: must be one of"),
        ({"metadata": []}, {}, "source.metadata: is empty, and no column is declared"),
        ({"metadata": ["place"]}, {}, "source.metadata[0]: must be one of"),
        ({"columns": [{"name": "a", "path": "id", "type": "BIGINT"}]}, {}, "source.columns[0].path: must lead to"),
        ({"columns": [{"name": "a", "path": "$.a", "type": "HUGEINT"}]}, {},
         "source.columns[0].type: \"HUGEINT\" is no type"),
        ({"columns": [{"name": n, "path": f"$.{n}", "type": "DATE"} for n in ("a", "A")]}, {},
         "source.columns[1].name: \"A\" is a column already"),
        ({"format": {"value": "text"}, "columns": [{"name": "a", "path": "$.a", "type": "DATE"}]}, {},
         "source.columns: are fields of values"),
        ({"format": {"value": "debezium", "key": "json"}}, {}, "routing.key_columns: are needed where"),
        ({"format": {"value": "debezium"}}, {}, "source.format.key: must be one of json, json_schema, avro, protobuf"),
        ({"format": {"value": "debezium", "key": "text"}}, {}, "source.format.key: must be one of json, json_schema"),
        ({"format": {"value": "debezium", "key": "json", "encoding": "avro"}}, {},
         "source.format.registry.url_env: is missing"),
        ({"format": {"value": "debezium", "encoding": "text"}}, {}, "source.format.encoding: must be one of"),
        ({"format": {"value": "avro", "encoding": "avro"}}, {}, "source.format.encoding: is of change events"),
        ({"format": {"encoding": "json"}}, {}, "source.format.encoding: is of change events"),
        ({"format": {"envelope": "avro"}}, {}, "source.format.envelope: is not a key"),
        ({}, {"routing": {"key_columns": ["id"]}}, "routing.key_columns[0]: is not declared among source.columns"),
        ({}, {"routing": {"field": "tenant"}}, "routing.field: \"tenant\" is not declared among source.columns"),
        ({}, {"routing": {"field": "*"}}, "routing.field: is no column"),
        (ROUTED, {"routing": {"field": "at"}}, "routing.field: \"at\" is TIMESTAMPTZ, of which equal values may"),
        (ROUTED, {"routing": {"field": "tenant", "key_columns": ["id"]}}, "routing.key_columns[0]: is not declared"),
        ({**ROUTED, "format": {"value": "debezium", "key": "json"}},
         {"routing": {"field": "tenant", "key_columns": ["tenant"]}},
         "routing.field: can't be given where values are events"),
        ({**ROUTED, "on_gap": "skip"}, {"routing": {"field": "tenant"}}, "source.on_gap: must be park or reseed"),
        (ROUTED, {"routing": {"field": "tenant"}}, "destinations[0].routing_value: is missing; write the value"),
        ({}, {"routing": {"on_gap": "park"}}, "routing.on_gap: belongs to the source of a topic"),
        ({}, {"kafka": None}, "source.bootstrap_servers: is missing"),
        ({}, {"appear": {"policy": "off"}}, "appear: makes destinations of routing values; write routing.field"),
        ({}, {"template": {}}, "template: makes destinations of routing values; write routing.field"),
        (ROUTED, {"routing": {"field": "tenant"}, "template": {"seed_mode": "scan"}},
         "template.seed_mode: has no meaning for a topic"),
        (ROUTED, {"routing": {"field": "tenant"}, "appear": {"policy": "propose"}},
         "appear.policy: needs the section template"),
        ({}, {"flush": {"bytes": "many"}}, "flush.bytes: must be a size"),
        ({}, {"flush": {"seconds": 0}}, "flush.seconds: must be greater than 0"),
        ({}, {"destinations": [{**WHOLE["destinations"][0], "routing_value": "a"}]},  # type: ignore[index]
         "destinations[0].routing_value: has no meaning for a topic without routing.field"),
        ({}, {"destinations": [*WHOLE["destinations"], {"id": "b", "catalog": "sqlite:b", "data_path": "b"}]},
         "destinations[1]: is one too many"),
    ],
)  # fmt: skip
def test_what_a_topic_can_not_have_is_refused_by_its_place(
    mistakes_of: Mistaken, source: dict[str, Any], sections: dict[str, Any], said: str
) -> None:
    assert any(line.startswith(said) for line in mistakes_of(text(source, **sections))), said


def test_a_lake_has_no_flush(mistakes_of: Mistaken) -> None:
    lake = {"source": {"kind": "lake", "catalog": "sqlite:s", "table": "t"}, "routing": {"field": "f"}}
    assert mistakes_of(yaml.safe_dump({**lake, "flush": {"rows": 5}}))[0].startswith("flush: is for topics")


def test_a_registry_reaches_the_applier_with_the_values_of_its_variables(load_text: Load) -> None:
    properties = {"basic.auth.user.info_env": "REGISTRY_AUTH"}
    source = {
        "format": {"value": "avro", "key": "avro", "registry": {"url_env": "REGISTRY_URL", "properties": properties}}
    }
    environ = {"REGISTRY_URL": "http://registry:8081", "REGISTRY_AUTH": "me:secret"}
    config = load_text(text(source), environ)
    assert config.topic is not None
    found = registry_settings(config.topic, environ)
    assert found == RegistrySettings("http://registry:8081", (("basic.auth.user.info", "me:secret"),))
    assert registry_settings(config.topic.model_copy(update={"format": TopicFormat()})) is None
    assert form_of(config, config.topic).is_decoded
    assert "secret" not in repr(found)


def test_how_change_events_are_encoded_reaches_the_applier(load_text: Load) -> None:
    form = {"value": "debezium", "encoding": "avro", "key": "avro", "registry": {"url": "http://registry:8081"}}
    columns = [{"name": "id", "path": "$.id", "type": "BIGINT"}]
    config = load_text(text({"format": form, "columns": columns}, routing={"key_columns": ["id"]}))
    assert config.topic is not None
    found = form_of(config, config.topic)
    assert (found.value, found.encoding, found.key) == (ValueFormat.DEBEZIUM, ValueFormat.AVRO, KeyFormat.AVRO)
    behind_a_header = {"value": "debezium", "encoding": "json_schema", "key": "json_schema"}
    config = load_text(text({"format": behind_a_header, "columns": columns}, routing={"key_columns": ["id"]}))
    assert config.topic is not None
    assert form_of(config, config.topic).is_decoded
    plain = {"value": "debezium", "key": "json"}
    config = load_text(text({"format": plain, "columns": columns}, routing={"key_columns": ["id"]}))
    assert config.topic is not None
    assert not form_of(config, config.topic).is_decoded


@pytest.mark.parametrize(
    ("size", "found"), [("100MB", 100_000_000), ("1.5 kb", 1_500), ("2GiB", 2 * 1024**3), ("77", 77), ("1K", 1_000)]
)
def test_sizes_are_read_as_they_are_written(size: str, found: int) -> None:
    assert size_in_bytes(size) == found


def test_the_file_knows_the_types_that_records_are_converted_to() -> None:
    """Control can't import what appliers convert with, so both have a list."""
    assert all(is_supported(duckdb_spelling(each)) for each in topic_rules.TYPES)
    assert is_supported(duckdb_spelling("decimal(10, 2)"))
    assert not is_supported("HUGEINT")
    known = {each.value: METADATA_TYPES[each] for each in METADATA_TYPES}
    assert {name: topic_rules.METADATA_TYPES[name] for name in known} == known
    assert {each.value: KEY_TYPES[each] for each in KeyFormat} == topic_rules.KEY_TYPES


def topic_at(written: str) -> TopicSource:
    """A topic with one column, declared of the type that is written."""
    column = {"name": "at", "path": "$.at", "type": written}
    return TopicSource.model_validate({"kind": "kafka", "topic": "clicks", "columns": [column], "metadata": []})


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("timestamptz", "TIMESTAMP WITH TIME ZONE"),
        ("int", "INTEGER"),
        ("text", "VARCHAR"),
        ("decimal(10, 2)", "DECIMAL(10,2)"),
    ],
)
def test_first_columns_have_the_types_that_the_table_will_tell(written: str, spelled: str) -> None:
    """A layout is held against them before a destination is taken over REST."""
    assert first_columns(topic_at(written)) == [("at", spelled)]


@pytest.mark.parametrize("written", ["TIMESTAMPTZ", "TIMESTAMP", "DATE"])
def test_a_table_may_be_partitioned_by_the_time_of_any_column_that_is_declared_as_a_moment(written: str) -> None:
    columns = [Column(name, declared) for name, declared in first_columns(topic_at(written))]
    assert keys_of(TableLayout(partitioned_by="year(at)"), columns, None)[0] == (PartitionField("year", "at"),)
