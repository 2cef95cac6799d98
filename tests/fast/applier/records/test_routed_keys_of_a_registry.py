"""A routed topic whose keys, or keys and values, are named by schemas of a registry: keys move as those in JSON do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.applier.records.record_format import KeyFormat, ValueFormat
from services.applier.records.routing import route
from tests.fast.applier.records import test_protobuf
from tests.fast.applier.records.records import batch_from
from tests.fast.applier.records.test_avro import Schemas, encoded, record, wire
from tests.fast.applier.records.test_key_owners import OF_VALUE, TENANTS, World, model
from tests.fast.applier.records.test_protobuf import INNER, message

KEY = record(("id", "long"), name="key")
VALUE = record(("tenant", ["null", "string"]), ("id", ["null", "long"]), ("n", ["null", "long", "string"]))


@dataclass(frozen=True)
class Encoding:
    """How the records of a topic are written, and what a registry has of them."""

    schemas: Callable[[], Schemas]
    key: KeyFormat
    value: ValueFormat
    write_key: Callable[[int], bytes]
    write: Callable[[Any], Any]


def in_avro(value: Any) -> Any:
    return wire(2, encoded(VALUE, value)) if isinstance(value, dict) else value


def avro_key(number: int) -> bytes:
    return wire(1, encoded(KEY, {"id": number}))


def protobuf_key(number: int) -> bytes:
    inner = message("Other.Inner")
    inner.id = number
    return wire(1, INNER + inner.SerializeToString())


ENCODINGS = {
    "Avro": Encoding(lambda: Schemas(KEY, VALUE), KeyFormat.AVRO, ValueFormat.AVRO, avro_key, in_avro),
    "Avro of a plain number": Encoding(
        lambda: Schemas("long", VALUE),
        KeyFormat.AVRO,
        ValueFormat.AVRO,
        lambda number: wire(1, encoded("long", number)),
        in_avro,
    ),
    "keys in Protobuf": Encoding(
        test_protobuf.schemas, KeyFormat.PROTOBUF, ValueFormat.JSON, protobuf_key, lambda value: value
    ),
}

VALUES = st.one_of(
    st.builds(
        lambda tenant, key, n: {"tenant": tenant, "id": key, "n": n},
        st.sampled_from((*TENANTS, "strange", None)),
        st.sampled_from((1, 2, 3, None)),
        st.sampled_from((None, 1, "text")),
    ),
    st.sampled_from((None, "neither")),
)
RECORDS = st.lists(st.tuples(st.sampled_from((1, 2, 3)), VALUES), max_size=30)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
@settings(max_examples=8, deadline=None, database=None)
@given(records=RECORDS, cut=st.integers(0, 30))
def test_each_key_is_where_its_newest_record_goes(name: str, records: list[tuple[int, Any]], cut: int) -> None:
    encoding = ENCODINGS[name]
    form = replace(OF_VALUE, key=encoding.key, value=encoding.value)
    keys = [encoding.write_key(number) for number, _ in records]
    values = [encoding.write(value) for _, value in records]
    expected, bad = model(form, records)
    with duckdb.connect() as con:
        world = World(con, form, encoding.schemas())
        world.take(batch_from(values[:cut], keys=keys[:cut]))
        world.take(batch_from(values[cut:], keys=keys[cut:], first_offset=min(cut, len(values))))
        found = {each: {key: row["_kafka_offset"] for key, row in rows.items()} for each, rows in world.rows.items()}
    assert (found, sorted(world.rejected)) == (expected, bad)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"plain", "wire_format"),
        (wire(9, b"\x02"), "schema_unknown"),
        (wire(1, b""), "undecodable"),
        (None, "key_missing"),
    ],
)
def test_a_key_that_can_not_be_decoded_deletes_no_row(
    con: duckdb.DuckDBPyConnection, key: bytes | None, reason: str
) -> None:
    form = replace(OF_VALUE, key=KeyFormat.AVRO, value=ValueFormat.AVRO)
    batch = batch_from([in_avro({"tenant": "a", "id": 1, "n": None}), None], keys=[avro_key(1), key])
    routed = route(con, batch, form, "tenant", Schemas(KEY, VALUE))
    assert [(each.offset, each.reason.value) for each in routed.unreadable] == [(1, reason)]
    assert routed.keys is not None
    assert routed.keys.rows.to_pylist() == [{"k0": 1, "owner": "a"}]
