"""Formats of records that need more than the record: the destination's own row, or a registry of schemas."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from services.applier.records.record_format import DeclaredColumn, KeyFormat, RecordFormat, ValueFormat
from shared.kafka.schema_registry import RegistrySettings
from tests.e2e.topics import Landing, Topic, read_all
from tests.fast.applier.records.encoded_events import ENCODINGS
from tests.fast.applier.records.test_avro import wire
from tests.fast.applier.records.test_protobuf import FIRST, INNER, address, described, in_base64, message
from tests.servers.registry import running_registry

Land = Callable[..., Landing]

EVENTS = RecordFormat(
    value=ValueFormat.DEBEZIUM, key=KeyFormat.JSON, columns=(DeclaredColumn("id", "$.id", "BIGINT"),),
    key_columns=("id",), max_columns=6,
)  # fmt: skip
LEFT_OUT = "__debezium_unavailable_value"
ROWS = "SELECT id, n, big, CAST(_rescued AS VARCHAR) FROM dst.main.clicks"


def event(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


def test_a_value_that_an_update_left_out_is_taken_from_the_row_that_is_there(topic: Topic, landing: Land) -> None:
    landed = landing(form=EVENTS)
    topic.send(
        event("r", {"id": 1, "n": 1, "big": "long", "beyond": {"x": 1}}),
        event("r", {"id": 2, "n": 1, "big": 5, "beyond": "y"}),
        event("r", {"id": 3, "n": 1, "big": "z", "beyond": "y"}),
    )
    assert landed.land(p0=3).inserted == 3
    topic.send(
        event("u", {"id": 1, "n": 2, "big": LEFT_OUT, "beyond": LEFT_OUT}),
        event("u", {"id": 2, "n": 2, "big": LEFT_OUT, "beyond": "now"}),
        event("u", {"id": 3, "n": 2, "big": "new", "beyond": LEFT_OUT}),
        event("d", None, {"id": 3}),
        event("u", {"id": 9, "n": 2, "big": LEFT_OUT}),
    )
    said = landed.land(p0=8)
    assert (said.outcome, said.error, said.inserted, said.deleted) == ("applied", None, 2, 3)
    assert landed.rows_of(ROWS) == [
        (1, 2, "long", '{"beyond":{"x":1}}'),
        (2, 2, None, '{"beyond":"now","big":5}'),
    ]
    ((_, value, headers),) = read_all(topic.kafka, landed.rejected)
    assert (headers["viaduck-reason"], headers["viaduck-offset"]) == ("left_out", "7")
    assert LEFT_OUT.encode() in value


@pytest.mark.parametrize("encoding", ["avro", "json_schema", "protobuf"])
def test_events_by_a_registry_update_and_delete_rows_and_take_from_them_what_an_update_left_out(
    topic: Topic, landing: Land, encoding: str
) -> None:
    how = ENCODINGS[encoding]
    with running_registry() as registry:
        for number, schema in how.schemas().by_id.items():
            registry.schemas[number] = {"schema": schema.text, "schemaType": schema.kind}
        form = replace(EVENTS, key=how.key, encoding=how.value)
        landed = landing(form=form, registry=RegistrySettings(registry.url))
        rows = [{"id": number, "n": 1, "big": f"long {number}"} for number in (1, 2, 3)]
        topic.send(*(how.write_value(event("r", row)) for row in rows))
        assert landed.land(p0=3).inserted == 3
        unknown = wire(99, b"\x02")
        topic.send(
            how.write_value(event("u", {"id": 1, "n": 2, "big": LEFT_OUT})),
            how.write_value(event("d", None, {"id": 2})),
            unknown,
        )
        topic.send(None, key=how.write_key({"id": 3}))
        said = landed.land(p0=7)
        assert (said.outcome, said.error, said.inserted, said.deleted) == ("applied", None, 1, 3)
        assert {path.partition("?")[0] for path, _ in registry.asked} == {f"/schemas/ids/{each}" for each in (1, 2, 99)}
        assert len(registry.asked) == len(set(registry.asked)), "each is asked for once"
    assert landed.rows_of("SELECT id, n, big FROM dst.main.clicks") == [(1, 2, "long 1")]
    ((_, value, headers),) = read_all(topic.kafka, landed.rejected)
    assert (value, headers["viaduck-reason"], headers["viaduck-offset"]) == (unknown, "schema_unknown", "5")


def test_a_row_that_lacks_the_value_or_the_column_refuses_the_record(topic: Topic, landing: Land) -> None:
    """A value of a TOAST column that is left out is never null, so a null there is not the value."""
    landed = landing(form=EVENTS)
    topic.send(event("r", {"id": 1, "n": 1}))
    landed.land(p0=1)
    topic.send(event("u", {"id": 1, "n": 2, "big": LEFT_OUT}), event("r", {"id": 2, "big": "makes the column"}))
    landed.land(p0=2)
    topic.send(event("u", {"id": 1, "n": 3, "big": LEFT_OUT}), event("u", {"id": 1, "n": 4}))
    landed.land(p0=4)
    assert landed.rows_of("SELECT id, n FROM dst.main.clicks") == [(1, 1), (2, None)]
    landed.land(p0=5)
    assert landed.rows_of("SELECT id, n FROM dst.main.clicks") == [(1, 4), (2, None)]
    assert [headers["viaduck-offset"] for _, _, headers in read_all(topic.kafka, landed.rejected)] == ["1", "3"]


def test_a_destination_parks_with_the_place_where_the_file_says_so(topic: Topic, landing: Land) -> None:
    landed = landing(form=EVENTS, parks_bad=True)
    topic.send(event("r", {"id": 1, "n": 1}), event("u", {"id": 2, "n": 2, "big": LEFT_OUT}))
    said = landed.land(p0=2)
    assert (said.outcome, said.error and said.error.type) == ("parked", "value_refused")
    assert said.error is not None
    assert "offset 1 of partition 0" in said.error.message
    assert landed.rows_of() == []


def test_records_in_avro_land_by_their_schemas_and_wait_for_a_registry_that_is_down(
    topic: Topic, landing: Land
) -> None:
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ]}  # fmt: skip
    stream = io.BytesIO(b"\x00\x00\x00\x00\x07")
    stream.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": 1, "day": 20_000})
    record = stream.getvalue()
    with running_registry() as registry:
        registry.add(7, schema)
        landed = landing(form=RecordFormat(value=ValueFormat.AVRO), registry=RegistrySettings(registry.url))
        topic.send(record, record[:-1], record.replace(b"\x07", b"\x08"))
        registry.status = 503
        said = landed.land(p0=3)
        assert (said.outcome, said.error and said.error.type) == ("failed", "source_unreachable")
        registry.status = 0
        assert landed.land(p0=3).outcome == "applied"
    assert landed.rows_of("SELECT id, CAST(day AS VARCHAR) FROM dst.main.clicks") == [(1, "2024-10-04")]
    assert landed.columns()["day"] == "DATE"
    rejected = [(value, headers["viaduck-reason"]) for _, value, headers in read_all(topic.kafka, landed.rejected)]
    assert rejected == [(record[:-1], "undecodable"), (record.replace(b"\x07", b"\x08"), "schema_unknown")]


def test_records_in_protobuf_land_by_descriptors_and_what_they_import(topic: Topic, landing: Land) -> None:
    whole, inner = message("Whole"), message("Other.Inner")
    whole.big, whole.text, whole.at.seconds, whole.home.street = 7, "é", 1, "Long Street"
    inner.id = 5
    record = wire(1, FIRST + whole.SerializeToString())
    bad = [record[:-1], wire(2, FIRST), b"\x00\x00", wire(3, FIRST)]
    with running_registry() as registry:
        imported = {"name": "address.proto", "subject": "address", "version": 1}
        registry.add(1, in_base64(described()), "PROTOBUF", imported)
        registry.subjects["address", 1] = {"schema": in_base64(address()), "schemaType": "PROTOBUF"}
        registry.add(3, "long")
        landed = landing(form=RecordFormat(value=ValueFormat.PROTOBUF), registry=RegistrySettings(registry.url))
        topic.send(record, wire(1, INNER + inner.SerializeToString()), *bad, None)
        registry.status = 503
        said = landed.land(p0=7)
        assert (said.outcome, said.error and said.error.type) == ("failed", "source_unreachable")
        registry.status = 0
        said = landed.land(p0=7)
        assert (said.outcome, said.error, said.inserted) == ("applied", None, 3)
    rows = landed.rows_of('SELECT id, big, text, epoch("at"), CAST(home AS VARCHAR) FROM dst.main.clicks')
    assert rows == [(5, None, None, None, None), (None, 7, "é", 1.0, '{"street":"Long Street"}'), (None,) * 5]
    columns = landed.columns()
    assert (columns["big"], columns["at"], columns["home"]) == ("BIGINT", "TIMESTAMP WITH TIME ZONE", "JSON")
    assert [(value, headers["viaduck-reason"]) for _, value, headers in read_all(topic.kafka, landed.rejected)] == [
        *zip(bad, ("undecodable", "schema_unknown", "wire_format", "schema_unusable"), strict=True)
    ]  # fmt: skip
