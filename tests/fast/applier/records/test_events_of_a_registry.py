"""Change events by the schemas of a registry that answers over HTTP."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import duckdb

from services.applier.records.record_format import KeyFormat, ValueFormat
from shared.kafka.schema_registry import RegistrySettings, SchemaRegistry
from tests.fast.applier.records.encoded_events import ENCODINGS, EVENT, FIELDS, KEY, envelope, key_schema
from tests.fast.applier.records.records import Table
from tests.fast.applier.records.test_avro import wire
from tests.fast.applier.records.test_debezium import EVENTS, event, key_of
from tests.servers.registry import running_registry


def test_each_schema_is_fetched_once_and_its_row_may_be_a_reference(con: duckdb.DuckDBPyConnection) -> None:
    whole = envelope(FIELDS)
    before = whole["fields"][0]
    row = {**before["type"][1], "namespace": whole["namespace"]}
    referring = {**whole, "fields": [{**before, "type": ["null", "Value"]}, *whole["fields"][1:]]}
    how = ENCODINGS["avro"]
    with running_registry() as registry, closing(SchemaRegistry(RegistrySettings(registry.url))) as schemas:
        registry.add(KEY, key_schema(FIELDS))
        registry.add(EVENT, referring, None, {"name": "shop.public.orders.Value", "subject": "row", "version": 1})
        registry.subjects["row", 1] = {"schema": json.dumps(row)}
        table = Table(con, replace(EVENTS, encoding=ValueFormat.AVRO, key=KeyFormat.AVRO))
        for number in (1, 2):
            given = [how.write_value(event("c", {"id": number, "n": number})), None, wire(9, b"")]
            keys = [None, how.write_key(key_of(7)), None]
            rows = table.take(given, keys=keys, schemas=schemas)
            assert (rows, table.reasons) == ([{"id": number, "n": number}], {2: "schema_unknown"})
        paths = [path for path, _ in registry.asked]
    assert {path: paths.count(path) for path in paths} == {
        "/schemas/ids/1": 1, "/schemas/ids/2": 1, "/subjects/row/versions/1": 1, "/schemas/ids/9": 2,
    }  # fmt: skip
