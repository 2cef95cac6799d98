"""A routed topic with keys: each key's row is where its newest record goes, wherever the records are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.applier.records.decoding import Schemas
from services.applier.records.parse import parse
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat
from services.applier.records.routing import Routed, route
from shared.lake.catalog.reader import Column
from shared.lake.connection.engine import connect
from tests.fast.applier.records.records import NOW, batch_from

TENANT, ID = DeclaredColumn("tenant", "$.tenant", "VARCHAR"), DeclaredColumn("id", "$.id", "BIGINT")
OF_VALUE = RecordFormat(columns=(TENANT, ID), key_columns=("id",), metadata=(Metadata.OFFSET,))
FORMS = {
    "of the value": OF_VALUE,
    "of the value or a key in JSON": replace(OF_VALUE, key=KeyFormat.JSON),
    "a text": replace(OF_VALUE, key=KeyFormat.TEXT),
    "the record's own": replace(
        OF_VALUE, key=KeyFormat.TEXT, key_columns=("_kafka_key",), metadata=(Metadata.OFFSET, Metadata.KEY)
    ),
}
TENANTS = ("a", "b")
WORD = '{"tenant": "a", "id": 1, "x": "\\u007bAUTHOR}"}'


class World:
    """Tables of two tenants, as the records of routed batches make them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, form: RecordFormat, schemas: Schemas | None = None) -> None:
        self.con, self.form, self.schemas = con, form, schemas
        self.columns: dict[str, tuple[Column, ...]] = dict.fromkeys(TENANTS, ())
        self.rows: dict[str, dict[Any, dict[str, Any]]] = {each: {} for each in TENANTS}
        self.rejected: list[int] = []

    def take(self, batch: RecordBatch) -> None:
        routed = route(self.con, batch, self.form, "tenant", self.schemas)
        assert routed.keys is not None
        self.rejected += [each.offset for each in routed.unreadable]
        ends = [(tuple(each[f"k{n}"] for n in range(len(self.form.key_columns))), each["owner"])
                for each in routed.keys.rows.to_pylist()]  # fmt: skip
        assert len({key for key, _ in ends}) == len(ends)
        for tenant, rows in self.rows.items():
            for key, owner in ends:
                if owner != tenant:
                    rows.pop(key, None)
            if (mine := routed.of(tenant)) is not None:
                self._land(tenant, mine)

    def _land(self, tenant: str, batch: RecordBatch) -> None:
        parsed = parse(self.con, batch, self.form, self.columns[tenant], NOW, schemas=self.schemas)
        try:
            assert parsed.rejected == ()
            found = self.con.execute(f"SELECT * FROM {parsed.rows}").to_arrow_table().to_pylist()
        finally:
            parsed.drop()
        self.columns[tenant] = parsed.columns
        for row in found:
            key = tuple(row[name] for name in self.form.key_columns)
            self.rows[tenant][key] = {name: value for name, value in row.items() if value is not None}


VALUES = st.one_of(
    st.builds(
        lambda tenant, key, more: {"tenant": tenant, "id": key, **more},
        st.sampled_from((*TENANTS, "strange", None, 7)),
        st.sampled_from((1, 2, 3, None)),
        st.sampled_from(({}, {"n": 1}, {"n": "text"}, {"y": [1]})),
    ),
    st.sampled_from((None, "no JSON", "[1]", WORD, '{"tenant": "a", "id": 1, "x": {"y": NaN}}')),
)
RECORDS = st.lists(st.tuples(st.sampled_from((1, 2, 3)), VALUES), max_size=30)


def key_of(form: RecordFormat, number: int) -> str:
    return f'{{"id": {number}}}' if form.key is KeyFormat.JSON else str(number)


def model(form: RecordFormat, records: list[tuple[int, Any]]) -> tuple[dict[str, dict[Any, int]], list[int]]:
    """By tenant and key the offset of the record that is its row; and the records that are bad."""
    newest: dict[Any, tuple[int, Any]] = {}
    bad = []
    for offset, (number, value) in enumerate(records):
        key: Any = value.get("id") if isinstance(value, dict) else number
        if form.key_columns == ("_kafka_key",):
            key = str(number)
        elif value is None and form.key is KeyFormat.NONE:
            key = None
        if isinstance(value, str) or key is None or (isinstance(value, dict) and value["tenant"] == 7):
            bad.append(offset)
        else:
            newest[(key,)] = offset, None if value is None else value["tenant"]
    rows = {each: {key: at for key, (at, owner) in newest.items() if owner == each} for each in TENANTS}
    return rows, bad


@pytest.fixture(scope="module")
def own() -> Any:
    con = connect(catalogs=())
    yield con
    con.close()


@settings(max_examples=24, deadline=None)
@given(name=st.sampled_from(sorted(FORMS)), records=RECORDS, cut=st.integers(0, 30))
def test_each_key_is_where_its_newest_record_goes_wherever_the_records_are_cut(
    own: duckdb.DuckDBPyConnection, name: str, records: list[tuple[int, Any]], cut: int
) -> None:
    form = FORMS[name]
    keys, values = [key_of(form, number) for number, _ in records], [value for _, value in records]
    whole, parts = World(own, form), World(own, form)
    whole.take(batch_from(values, keys=keys))
    parts.take(batch_from(values[:cut], keys=keys[:cut]))
    parts.take(batch_from(values[cut:], keys=keys[cut:], first_offset=min(cut, len(values))))
    expected, bad = model(form, records)
    for world in (whole, parts):
        found = {each: {key: row["_kafka_offset"] for key, row in rows.items()} for each, rows in world.rows.items()}
        assert (found, sorted(world.rejected)) == (expected, bad)


def routed_of(con: duckdb.DuckDBPyConnection, values: list[Any], form: RecordFormat = OF_VALUE, **more: Any) -> Routed:
    return route(con, batch_from(values, **more), form, "tenant")


def test_a_key_that_went_on_leaves_no_record_behind(con: duckdb.DuckDBPyConnection) -> None:
    routed = routed_of(con, [{"tenant": "a", "id": 1}, {"tenant": "b", "id": 1}, {"tenant": "a", "id": 2}])
    mine = routed.of("a")
    assert mine is not None
    assert (mine.offsets.to_pylist(), dict(routed.places)) == ([2], {"a": [0, 2], "b": [1]})
    assert routed.keys is not None
    assert sorted(map(tuple, (each.values() for each in routed.keys.rows.to_pylist()))) == [(1, "b"), (2, "a")]


def test_a_record_without_a_value_deletes_and_is_not_unrouted(con: duckdb.DuckDBPyConnection) -> None:
    routed = routed_of(con, [{"tenant": None, "id": 1}, None, {"id": 2}], FORMS["a text"], keys=[b"1", b"2", b"3"])
    assert (routed.nowhere, routed.unreadable, dict(routed.places)) == (2, (), {})
    assert routed.keys is not None
    assert {each["owner"] for each in routed.keys.rows.to_pylist()} == {None}


def test_a_tombstone_whose_key_tells_a_tenant_is_of_no_tenant(con: duckdb.DuckDBPyConnection) -> None:
    form = replace(OF_VALUE, key=KeyFormat.JSON, key_columns=("id", "tenant"))
    values, key = [{"tenant": "a", "id": 1}, None], b'{"id": 1, "tenant": "a"}'
    routed = routed_of(con, values, form, keys=[key, key])
    assert routed.keys is not None
    assert routed.keys.rows.to_pylist() == [{"k0": 1, "k1": "a", "owner": None}]
    assert (routed.of("a"), routed.nowhere, routed.keys.types) == (None, 0, ("BIGINT", "VARCHAR"))


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (WORD, b"1", "not_carried"),
        ('{"tenant": "b", "id": 1, "x": 1, "x": 2}', b"1", "duplicate_field"),
        ({"tenant": "b", "id": "one"}, b"1", "key_missing"),
        ({"tenant": "b", "id": 1, "x": "x" * 900}, b"1", "too_large"),
        ({"tenant": 7, "id": 1}, b"1", "type_mismatch"),
        ("[]", b"1", "not_object"),
        (None, b"\xff", "key_invalid"),
    ],
)
def test_a_bad_record_deletes_nothing_and_is_told_once(
    con: duckdb.DuckDBPyConnection, value: Any, key: bytes, reason: str
) -> None:
    form = replace(FORMS["a text"], max_record_bytes=800)
    routed = routed_of(con, [{"tenant": "a", "id": 1}, value], form, keys=[b"1", key])
    assert [(each.offset, each.reason.value) for each in routed.unreadable] == [(1, reason)]
    assert routed.keys is not None
    assert routed.keys.rows.to_pylist() == [{"k0": 1, "owner": "a"}]


STRANGE = (
    '{"tenant": "a", "id": 1, "x": NaN}', '{"tenant": "a", "id": 1, "t": "{AUTHOR}"}', WORD,
    '{"tenant": "a", "id": 1, "t": {"AUTHOR}": "{AUTHOR}"}}', '{"tenant": "a", "id": 1, "{AUTHOR}": 1}',
    '{"tenant": "a", "id": 1, "x": 1e400}', '{"tenant": "a", "id": 1, "x": "\\u007b\\u0041UTHOR}"}',
    '{"tenant": "a", "id": 1.0}', '{"tenant": "a", "id": 1, "id": 2}', '{"tenant": "a", "id": 1, "n": "x"}',
    '{"tenant": "a", "id": 1, "n": 9223372036854775808}',
)  # fmt: skip


@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize("columns", [(), (Column("x", "VARCHAR"), Column("t", "VARCHAR"), Column("n", "BIGINT"))])
def test_whatever_a_destination_could_refuse_is_refused_before(
    con: duckdb.DuckDBPyConnection, value: str, columns: tuple[Column, ...]
) -> None:
    batch = batch_from([value])
    mine = route(con, batch, OF_VALUE, "tenant").of("a")
    alone = parse(con, batch, OF_VALUE, (Column("tenant", "VARCHAR"), Column("id", "BIGINT"),
                                         Column("_kafka_offset", "BIGINT"), *columns), NOW)  # fmt: skip
    try:
        assert not (alone.rejected and mine is not None)
    finally:
        alone.drop()


def test_text_keys_that_a_query_would_change_are_told(con: duckdb.DuckDBPyConnection) -> None:
    by_key = FORMS["the record's own"]
    for key, harmless in (("plain", True), ("it's", False)):
        routed = routed_of(con, [{"tenant": "a"}], by_key, keys=[key])
        assert routed.keys is not None
        assert routed.keys.harmless == (harmless,)


def test_no_record_is_no_key(con: duckdb.DuckDBPyConnection) -> None:
    routed = routed_of(con, [])
    assert routed.keys is not None
    assert (routed.keys.rows.num_rows, routed.keys.harmless, pa.types.is_int64(routed.keys.rows.schema[0].type)) == (
        0, (True,), True
    )  # fmt: skip
