"""Records that name schemas of a real registry, in each format that has one, from ``check`` to ``verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.topic_pipelines import WITHIN_S, TopicPipelines
from tests.e2e.topics import Topic, read_all
from tests.fast.applier.records.test_avro import encoded, record, wire
from tests.fast.applier.records.test_protobuf import FIRST, address, described, in_base64, message
from tests.servers.kafka import Kafka
from tests.servers.schema_registry import RealRegistry

UNKNOWN, HEADER = 4_711, 5
FORMATS = ("avro", "json_schema", "protobuf")


@pytest.fixture
def registry() -> Iterator[RealRegistry]:
    with RealRegistry() as running:
        yield running


def in_avro(registry: RealRegistry) -> list[bytes]:
    """Two records, the second of a later schema of their subject, which has a field more."""
    fields: tuple[tuple[str, Any], ...] = (("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    more = record(*fields, ("name", ["null", "string"]))
    rows = [(record(*fields), {"id": 1, "at": 0}), (more, {"id": 2, "at": 1, "name": "é"})]
    return [
        wire(registry.register("avro-value", json.dumps(schema), "AVRO"), encoded(schema, row)) for schema, row in rows
    ]


def in_json(registry: RealRegistry) -> list[bytes]:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    number = registry.register("json-value", json.dumps(schema), "JSON")
    return [wire(number, json.dumps(row).encode()) for row in ({"id": 1}, {"id": 2, "name": "é"})]


def in_protobuf(registry: RealRegistry) -> list[bytes]:
    """Registered as descriptors: what is registered as text, this registry hands out as text."""
    registry.register("address.proto", in_base64(address()), "PROTOBUF")
    number = registry.register("protobuf-value", in_base64(described()), "PROTOBUF", "address.proto")
    rows = [message("Whole") for _ in range(2)]
    for each, row in enumerate(rows, 1):
        row.big, row.text, row.at.seconds, row.home.street = each, "é", each, "Long Street"
    return [wire(number, FIRST + row.SerializeToString()) for row in rows]


@pytest.mark.timeout(600)
def test_records_in_each_format_land_by_the_schemas_of_a_real_registry(
    kafka: Kafka, registry: RealRegistry, tmp_path: Path
) -> None:
    sent = {"avro": in_avro(registry), "json_schema": in_json(registry), "protobuf": in_protobuf(registry)}
    topics = {name: Topic(kafka, 1) for name in FORMATS}
    text = registry.register("text-value", 'syntax = "proto3"; message Whole { int64 big = 3; }', "PROTOBUF")
    unusable = {
        "avro": sent["json_schema"][0][:HEADER],
        "json_schema": sent["avro"][0][:HEADER],
        "protobuf": wire(text, b""),
    }
    bad = {
        name: [wire(UNKNOWN, records[0][HEADER:]), b"no header", unusable[name] + records[0][HEADER:]]
        for name, records in sent.items()
    }
    for name, topic in topics.items():
        topic.send(*sent[name], *bad[name])
    pipelines = TopicPipelines(tmp_path, kafka, {
        name: {"source": {"topic": topic.name, "format": {"value": name, "registry": {"url": registry.url}}}}
        for name, topic in topics.items()
    })  # fmt: skip
    checked = pipelines.viaduck("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    said = " ".join(checked.stdout.split())
    told = "2 would be rows, 3 would be rejected (schema_unknown: 1, schema_unusable: 1, wire_format: 1)"
    assert said.count(told) == len(FORMATS), said
    with pipelines.run() as viaduck:
        viaduck.wait_until("all records", lambda: pipelines.are_at(5), WITHIN_S)
        shown = {name: [each["reason"] for each in pipelines.rejected(name)] for name in FORMATS}
    assert shown == {name: ["schema_unknown", "wire_format", "schema_unusable"] for name in FORMATS}
    for name in FORMATS:
        assert {value for _, value, _ in read_all(kafka, f"{pipelines.prefix}.rejected.{name}")} == set(bad[name])
    assert pipelines.rows("avro", 'SELECT id, epoch("at"), name FROM dst.main.t') == [(1, 0.0, None), (2, 0.001, "é")]
    assert pipelines.rows("json_schema", "SELECT id, name FROM dst.main.t") == [(1, None), (2, "é")]
    protobuf = 'SELECT big, text, epoch("at"), CAST(home AS VARCHAR) FROM dst.main.t'
    assert pipelines.rows("protobuf", protobuf) == [(each, "é", each, '{"street":"Long Street"}') for each in (1, 2)]
    assert pipelines.types("avro")["at"] == pipelines.types("protobuf")["at"] == "TIMESTAMP WITH TIME ZONE"
    proofs = pipelines.proofs()
    assert {name: (each["result"], each["rows"]) for name, each in proofs.items()} == dict.fromkeys(
        FORMATS, ("equal", 2)
    )
