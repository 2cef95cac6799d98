"""Columns that come, and where values go."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import pytest

from services.applier.records.parse import WIDE, parse
from services.applier.records.record_format import DeclaredColumn, Infer, Metadata, RecordFormat, ValueFormat
from shared.contracts.errors import DestinationError
from shared.lake.catalog.reader import Column
from tests.fast.applier.records.records import BARE, NOW, OFFSET, Table, batch_from

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_a_batch_gives_columns_to_the_fields_that_it_has_values_of_in_their_order(table: Table) -> None:
    table.take([{"n": None, "b": True, "i": 1}, {"d": 1.5, "t": "x", "o": {"a": [1, 2]}, "l": [], "n": None}])
    assert list(table.types.items()) == [
        ("b", "BOOLEAN"),
        ("i", "BIGINT"),
        ("d", "DOUBLE"),
        ("t", "VARCHAR"),
        ("o", "JSON"),
        ("l", "JSON"),
    ]
    assert [column.name for column in table.last.new_columns] == [OFFSET, "b", "i", "d", "t", "o", "l"]
    assert table.rows == [{"b": True, "i": 1}, {"d": 1.5, "t": "x", "o": '{"a":[1,2]}', "l": "[]"}]


@pytest.mark.parametrize(
    "names", [("a\x00b", "a\x00c"), ('"', "\\"), ("é", "🦆"), ("null", "NULL "), ("", " ")], ids=ascii
)
def test_a_field_s_place_in_a_record_tells_its_value_in_no_other_record(table: Table, names: tuple[str, str]) -> None:
    """The names of the first record's fields are compared with those of each record (``Staging.parameters``)."""
    one, other = names
    records = [{one: 1, other: 2}, {other: 3, one: 4}, {one: 5}, {one: 6, other: 7}]
    found = table.take(records)
    assert [{**json.loads(row.pop("_rescued", "{}")), **row} for row in found] == records


@pytest.mark.parametrize(
    ("values", "kind", "rescued"),
    [
        (["1", "1.5"], "DOUBLE", 0),
        (["9007199254740993", "1.5"], "DOUBLE", 1),
        (["true", "1"], "BIGINT", 1),
        (['"x"', "1", "null"], "VARCHAR", 1),
        (['"x"', "[1]", "2", "true", "null"], "JSON", 0),
    ],
)
def test_a_column_is_of_the_greatest_kind_of_its_first_values(
    table: Table, values: list[str], kind: str, rescued: int
) -> None:
    table.take([f'{{"a": {value}}}' for value in values])
    assert table.types["a"] == kind
    assert table.last.rescued == ({"a": rescued} if rescued else {})


def test_a_column_that_is_there_keeps_its_type(table: Table) -> None:
    table.take([{"id": "x"}])
    assert table.take([{"id": 1}, {"id": "y"}]) == [{"_rescued": '{"id":1}'}, {"id": "y"}]
    assert [column.name for column in table.last.new_columns] == ["_rescued"]
    assert table.take([{"id": 2}]) == [{"_rescued": '{"id":2}'}]
    assert table.last.new_columns == ()


def test_a_field_that_is_only_null_gets_no_column_and_is_not_rescued(table: Table) -> None:
    assert table.take([{"a": 1, "b": None}]) == [{"a": 1}]
    assert table.types == {"a": "BIGINT"}


@pytest.mark.parametrize(
    ("present", "value", "wider"),
    [("INTEGER", "2147483648", "BIGINT"), ("TINYINT", "-129", "BIGINT"), ("UINTEGER", "4294967296", "UBIGINT"),
     ("FLOAT", "0.1", "DOUBLE")],
)  # fmt: skip
def test_a_column_widens_where_ducklake_promotes_it_without_loss(
    con: duckdb.DuckDBPyConnection, present: str, value: str, wider: str
) -> None:
    table = Table(con, columns=(Column("a", present),))
    table.take(['{"a": 1}', f'{{"a": {value}}}'])
    assert table.last.promotions == (Column("a", wider),)
    assert "_rescued" not in table.types


@pytest.mark.parametrize("value", ['"x"', "1.5", "true"])
def test_no_column_widens_for_a_value_that_the_wider_type_does_not_take(
    con: duckdb.DuckDBPyConnection, value: str
) -> None:
    table = Table(con, columns=(Column("a", "INTEGER"),))
    assert table.take([f'{{"a": {value}}}']) == [{"_rescued": f'{{"a":{value}}}'}]
    assert table.last.promotions == ()


def test_a_declared_column_never_widens(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, columns=(DeclaredColumn("a", "$.a", "INTEGER"),)))
    assert table.take([b'{"a": 2147483648}']) == [{"_rescued": '{"a":2147483648}'}]
    assert table.types["a"] == "INTEGER"


def test_declared_columns_are_there_before_they_have_a_value(con: duckdb.DuckDBPyConnection) -> None:
    form = RecordFormat(
        metadata=BARE.metadata,
        columns=(
            DeclaredColumn("event_id", "$.id", "BIGINT"),
            DeclaredColumn("os", '$.device."os.name"', "VARCHAR"),
        ),
    )
    table = Table(con, form)
    table.take([b"{}"])
    assert table.types == {"event_id": "BIGINT", "os": "VARCHAR"}
    assert table.take([{"id": 1, "device": {"os.name": "linux"}, "event_id": 2}]) == [
        {"event_id": 1, "os": "linux", "device": '{"os.name":"linux"}', "_rescued": '{"event_id":2}'}
    ]


def test_a_misfit_within_a_field_rescues_the_whole_field(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, columns=(DeclaredColumn("os", "$.device.os", "VARCHAR"),)))
    table.take([{"device": {"os": "linux"}}])
    assert table.take([{"device": {"os": 5}}, {"device": {"os": None}}, {"device": 3}, {}]) == [
        {"device": '{"os":5}', "_rescued": '{"device":{"os":5}}'},
        {"device": '{"os":null}'},
        {"device": "3"},
        {},
    ]


def test_frozen_columns_stay_as_they_are(con: duckdb.DuckDBPyConnection) -> None:
    form = replace(BARE, columns=(DeclaredColumn("a", "$.a", "BIGINT"),), infer=Infer.FREEZE)
    table = Table(con, form, [Column("small", "INTEGER")])
    assert table.take([{"a": 1, "b": 2, "c": [3]}, {"a": 4}, b'{"small": 2147483648}']) == [
        {"a": 1, "_rescued": '{"b":2,"c":[3]}'},
        {"a": 4},
        {"_rescued": '{"small":2147483648}'},
    ]
    assert list(table.types) == ["small", "a", "_rescued"]


@pytest.mark.parametrize("present", ["VARCHAR", "HUGEINT", "DOUBLE"])
def test_a_column_of_another_type_than_declared_is_no_promotion(con: duckdb.DuckDBPyConnection, present: str) -> None:
    table = Table(con, replace(BARE, columns=(DeclaredColumn("a", "$.a", "BIGINT"),)), [Column("a", present)])
    with pytest.raises(DestinationError, match=f"is {present}, and is declared to be BIGINT") as refused:
        table.take([{"a": 1}])
    assert refused.value.type == "schema_change"


def test_a_column_is_promoted_to_the_wider_type_that_is_declared(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, columns=(DeclaredColumn("a", "$.a", "BIGINT"),)), [Column("a", "INTEGER")])
    table.take([{"a": 1}])
    assert table.last.promotions == (Column("a", "BIGINT"),)


def test_no_field_passes_for_what_kafka_knows_of_a_record(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BARE, [Column("_kafka_partition", "INTEGER")])
    assert table.take([{"_kafka_partition": 1}]) == [{"_rescued": '{"_kafka_partition":1}'}]


@pytest.mark.parametrize("spelled", ["decimal ( 6, 2 )", "DECIMAL(6,2)"])
def test_rows_are_of_the_types_that_are_told(con: duckdb.DuckDBPyConnection, spelled: str) -> None:
    form = RecordFormat(metadata=tuple(Metadata), columns=(DeclaredColumn("a", "$.a", spelled),))
    batch = batch_from([{"a": "1.5", "b": True, "c": 1, "d": 1.5, "e": "x", "f": [], "g": 1e300, "B": 1}])
    parsed = parse(con, batch, form, (), NOW)
    shown = con.execute(f"SELECT column_name, column_type FROM (DESCRIBE {parsed.rows})").fetchall()
    parsed.drop()
    assert shown == [(column.name, column.type) for column in parsed.columns]
    assert ("_rescued", "JSON") in shown


def test_columns_of_types_that_no_field_has_take_nothing(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, columns=[Column("s", 'STRUCT("a" BIGINT)')])
    assert table.take([{"s": {"a": 1}}]) == [{"_rescued": '{"s":{"a":1}}'}]


def test_a_wide_table_takes_records_of_any_of_its_fields(con: duckdb.DuckDBPyConnection) -> None:
    within = DeclaredColumn("within", "$.o.x", "BIGINT", required=False)
    table = Table(con, replace(BARE, columns=(within, DeclaredColumn("d", "$.d", "DOUBLE"))))
    table.take([{f"f{number}": number for number in range(WIDE)}])
    rows = [{"f3": 5}, {"f29": 1, "o": {"x": 2}}, {"f1": "x", "d": 1.5}, {}]
    expected = [{"f3": 5}, {"f29": 1, "o": '{"x":2}', "within": 2}, {"d": 1.5, "_rescued": '{"f1":"x"}'}, {}]
    assert table.take([*rows, b"no JSON", b'{"a": 1']) == expected
    assert [row for each in rows for row in table.take([each])] == expected


def test_rows_say_where_they_come_from(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, RecordFormat(metadata=tuple(Metadata)))
    (row,) = table.take([{"a": 1}], keys=[b"\xff"], partitions=[3], first_offset=5)
    assert row == {
        "_kafka_partition": 3,
        "_kafka_offset": 5,
        "_kafka_timestamp": EPOCH,
        "_kafka_key": b"\xff",
        "_kafka_inserted_at": NOW,
        "a": 1,
    }
    assert table.types["_kafka_headers"] == 'STRUCT("key" VARCHAR, "value" BLOB)[]'


@pytest.mark.parametrize("value", [ValueFormat.TEXT, ValueFormat.BYTES])
def test_values_that_are_not_json_are_one_column(con: duckdb.DuckDBPyConnection, value: ValueFormat) -> None:
    table = Table(con, replace(BARE, value=value))
    rows = table.take([b'{"a": 1}', b"", None, b"\xff"])
    if value is ValueFormat.TEXT:
        assert rows == [{"value": '{"a": 1}'}, {"value": ""}, {}]
        assert table.reasons == {3: "invalid_utf8"}
    else:
        assert rows == [{"value": b'{"a": 1}'}, {"value": b""}, {}, {"value": b"\xff"}]


def test_a_record_without_a_value_is_a_row_of_nulls_where_all_records_are_appended(table: Table) -> None:
    assert table.take([None, {"a": 1}]) == [{}, {"a": 1}]
    assert (table.last.landed, table.last.tombstones) == (2, 0)


def test_what_a_view_is_made_of_is_dropped_where_a_statement_fails(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, columns=[Column("nul\x00", "BIGINT")])
    with pytest.raises(ValueError, match="NUL"):
        table.take_batch(batch_from([{"a": 1}]))
