"""The newest record of a key is its row, and one without a value deletes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.records.record_format import DeclaredColumn, KeyFormat, Metadata, RecordFormat, ValueFormat
from tests.fast.applier.records.records import BARE, Table, batch_from

ID = DeclaredColumn("id", "$.id", "BIGINT")
BY_ID = replace(BARE, columns=(ID,), key_columns=("id",))
BY_ITS_KEY = RecordFormat(
    value=ValueFormat.TEXT, key=KeyFormat.TEXT, metadata=(Metadata.KEY,), key_columns=("_kafka_key",)
)


def test_the_last_record_of_a_key_is_its_row(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BY_ID)
    rows = table.take([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 1, "v": "c"}, {"id": 1}])
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1}, {"id": 2, "v": "b"}]
    assert sorted(each["id"] for each in table.touched or ()) == [1, 2]
    assert table.last.landed == 4


def test_the_last_record_is_that_of_the_highest_offset_wherever_it_stands(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BY_ITS_KEY)
    values, keys, partitions = ["a0", "a1", "b2", "a3", "b4"], ["a", "a", "b", "a", "b"], [7, 7, 2, 7, 2]
    order = (3, 0, 4, 2, 1)
    rows = table.take_shuffled(order, values, keys=keys, partitions=partitions)
    assert sorted(row["value"] for row in rows) == ["a3", "b4"]


@pytest.mark.parametrize(
    ("key", "keys", "deleted"),
    [
        (KeyFormat.JSON, [b'{"id": 1}', b'{"id": 3, "more": "x"}'], {1, 3}),
        (KeyFormat.TEXT, [b"1", b"-3"], {1, -3}),
    ],
)
def test_a_record_without_a_value_deletes_the_row_that_its_key_names(
    con: duckdb.DuckDBPyConnection, key: KeyFormat, keys: list[bytes], deleted: set[int]
) -> None:
    table = Table(con, replace(BY_ID, key=key))
    rows = table.take([{"id": 1, "v": "a"}, None, {"id": 2}, None], keys=[None, keys[0], None, keys[1]])
    assert rows == [{"id": 2}]
    assert {each["id"] for each in table.touched or ()} == {2} | deleted
    assert (table.last.tombstones, table.last.landed) == (2, 4)


def test_a_key_may_be_called_required_too(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BY_ID, columns=(replace(ID, required=True),)))
    assert table.take_batch(batch_from([])) == []
    assert table.take([{"id": 1}, {}]) == [{"id": 1}]
    assert table.reasons == {1: "key_missing"}


def test_a_word_that_ducklake_replaces_is_no_key(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BY_ITS_KEY)
    assert table.take(["a", None], keys=["{AUTHOR}", "{DATA_PATH|"]) == []
    assert table.touched == []
    assert table.reasons == {0: "not_carried", 1: "not_carried"}


def test_a_row_comes_back_after_it_was_deleted(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BY_ITS_KEY)
    assert table.take(["a", None, "b"], keys=["k", "k", "k"]) == [{"_kafka_key": "k", "value": "b"}]


def test_what_deletes_a_row_needs_no_required_column(con: duckdb.DuckDBPyConnection) -> None:
    required = DeclaredColumn("v", "$.v", "VARCHAR", required=True)
    table = Table(con, replace(BY_ID, columns=(ID, required), key=KeyFormat.TEXT))
    assert table.take([None, {"id": 2}], keys=["1", "2"]) == []
    assert table.touched == [{"id": 1}]
    assert table.reasons == {1: "required_missing"}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "key_missing"),
        (b"x", None, "key_missing"),
        (b" 1", None, "key_missing"),
        (b"01", None, "key_missing"),
        (b"9223372036854775808", None, "key_missing"),
        (b"\xff", None, "key_invalid"),
        (b"1", {}, "key_missing"),
        (b"1", {"id": None}, "key_missing"),
        (b"1", {"id": "1"}, "key_missing"),
        (b"1", {"id": 1.5}, "key_missing"),
    ],
)
def test_a_record_that_no_key_can_be_found_of_is_rejected(
    con: duckdb.DuckDBPyConnection, key: bytes | None, value: Any, reason: str
) -> None:
    table = Table(con, replace(BY_ID, key=KeyFormat.TEXT))
    assert table.take([value, {"id": 5}], keys=[key, None]) == [{"id": 5}]
    assert table.reasons == {0: reason}
    assert table.touched == [{"id": 5}]


@pytest.mark.parametrize("key", [b"", b"x", b"[1]", b'{"id": "1"}', b'{"i": 1}', b'{"id": null}', b"1", b'{"id": NaN}'])
def test_a_key_in_json_names_the_key_columns_or_its_record_is_rejected(
    con: duckdb.DuckDBPyConnection, key: bytes
) -> None:
    table = Table(con, replace(BY_ID, key=KeyFormat.JSON))
    assert table.take([None, {"id": 5}], keys=[key, b"not JSON"]) == [{"id": 5}]
    assert table.reasons[0] in ("key_invalid", "key_missing")


def test_a_key_that_is_shown_as_json_is_json(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, RecordFormat(value=ValueFormat.BYTES, key=KeyFormat.JSON, metadata=(Metadata.KEY,)))
    keys = [b'{"a": "NaN"}', b"[1, NaN]", b"", b"x", None, b"\xff"]
    rows = table.take([b"v"] * len(keys), keys=keys)
    assert rows == [{"_kafka_key": '{"a": "NaN"}', "value": b"v"}, {"value": b"v"}]
    assert table.reasons == dict.fromkeys([1, 2, 3, 5], "key_invalid")


def test_without_a_format_of_keys_no_record_without_a_value_has_one(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, BY_ID)
    assert table.take([None], keys=[b"1"]) == []
    assert table.reasons == {0: "key_missing"}


def test_several_columns_are_one_key(con: duckdb.DuckDBPyConnection) -> None:
    name = DeclaredColumn("name", "$.who.name", "VARCHAR")
    table = Table(con, replace(BY_ID, columns=(ID, name), key_columns=("id", "name"), key=KeyFormat.JSON))
    rows = table.take(
        [
            {"id": 1, "who": {"name": "a"}},
            {"id": 1, "who": {"name": "b"}},
            {"id": 1, "who": {"name": "a"}, "x": 1},
            None,
        ],
        keys=[None, None, None, {"id": 1, "name": "b"}],
    )
    assert [(row["id"], row["name"], row.get("x")) for row in rows] == [(1, "a", 1)]
    assert sorted(each["name"] for each in table.touched or ()) == ["a", "b"]
