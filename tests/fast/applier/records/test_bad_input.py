"""Whatever is in a record: it lands, or it is rejected byte for byte; its neighbours land."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.records.examination import INITIALS
from services.applier.records.record_format import DeclaredColumn, RecordFormat
from services.applier.records.rejection import RejectionReason
from shared.config.substituted_words import SUBSTITUTED
from tests.fast.applier.records.records import BARE, Table, batch_from

DEEP = 1_000

REJECTED: list[tuple[str, Any, RejectionReason]] = [
    ("nothing", b"", RejectionReason.NOT_JSON),
    ("spaces", b"  ", RejectionReason.NOT_JSON),
    ("a word", b"nope", RejectionReason.NOT_JSON),
    ("half an object", b'{"a": 1', RejectionReason.NOT_JSON),
    ("two objects", b'{"a": 1}{"a": 2}', RejectionReason.NOT_JSON),
    ("a byte order mark", b'\xef\xbb\xbf{"a": 1}', RejectionReason.NOT_JSON),
    ("UTF-16", '{"a": 1}'.encode("utf-16"), RejectionReason.INVALID_UTF8),
    ("a NUL", b'{"a": "\x00"}', RejectionReason.NOT_JSON),
    ("invalid UTF-8", b'{"a": "\xff"}', RejectionReason.INVALID_UTF8),
    ("half a surrogate pair", b'{"a": "\\ud800"}', RejectionReason.NOT_JSON),
    ("NaN", b'{"a": NaN}', RejectionReason.NOT_JSON),
    ("nan within", b'{"new": [{"b": nan}]}', RejectionReason.NOT_JSON),
    ("-Infinity", b'{"a": -Infinity}', RejectionReason.NOT_JSON),
    ("inf in a JSON column", b'{"list": [1, inf]}', RejectionReason.NOT_JSON),
    ("one name twice", b'{"a": 1, "b": 3, "a": 2}', RejectionReason.DUPLICATE_FIELD),
    ("one name twice, escaped", b'{"a": 1, "\\u0061": 2}', RejectionReason.DUPLICATE_FIELD),
    ("an array", b'[{"a": 1}]', RejectionReason.NOT_OBJECT),
    ("a text", b'"a"', RejectionReason.NOT_OBJECT),
    ("a number", b"1", RejectionReason.NOT_OBJECT),
    ("the word null", b"null", RejectionReason.NOT_OBJECT),
]


@pytest.mark.parametrize(("value", "reason"), [each[1:] for each in REJECTED], ids=[each[0] for each in REJECTED])
def test_a_record_that_is_no_object_is_rejected_as_it_is(table: Table, value: bytes, reason: RejectionReason) -> None:
    table.take([{"a": 0, "list": [0]}])
    rows = table.take([{"a": 1}, value, {"a": 2}], keys=[b"k0", b"\xffk1", b"k2"], first_offset=7)
    assert [row["a"] for row in rows] == [1, 2]
    (only,) = table.last.rejected
    assert (only.partition, only.offset, only.key, only.value, only.reason) == (0, 8, b"\xffk1", value, reason)
    assert table.last.landed == 2


def test_all_kinds_of_bad_records_in_one_batch_leave_the_good_ones(table: Table) -> None:
    values = [each for _, bad, _ in REJECTED for each in (bad, {"a": 1})]
    rows = table.take(values)
    assert rows == [{"a": 1}] * len(REJECTED)
    assert [each.reason for each in table.last.rejected] == [reason for _, _, reason in REJECTED]
    assert set(table.types) == {"a"}, "fields of rejected records become no columns"


HUGE = "123456789012345678901234567890"

RESCUED: list[tuple[str, str]] = [
    ("BIGINT", "9223372036854775808"),
    ("BIGINT", "-9223372036854775809"),
    ("BIGINT", HUGE),
    ("BIGINT", "1.5"),
    ("BIGINT", "1.0"),
    ("BIGINT", "100.0"),
    ("BIGINT", "1e22"),
    ("BIGINT", "1E400"),
    ("BIGINT", '"12"'),
    ("BIGINT", "true"),
    ("BIGINT", "{}"),
    ("DOUBLE", "1e400"),
    ("DOUBLE", "-1E400"),
    ("DOUBLE", "9007199254740993"),
    ("DOUBLE", "-9007199254740993"),
    ("DOUBLE", HUGE),
    ("DOUBLE", "1" * 400),
    ("DOUBLE", '"1.5"'),
    ("DOUBLE", "false"),
    ("DOUBLE", "[1.5]"),
    ("BOOLEAN", "1"),
    ("BOOLEAN", "0"),
    ("BOOLEAN", '"true"'),
    ("VARCHAR", "12"),
    ("VARCHAR", "true"),
    ("VARCHAR", '{"a":"b"}'),
    ("VARCHAR", "[]"),
    ("INTEGER", "2147483648"),
    ("UBIGINT", "-1"),
    ("DECIMAL(6,2)", "1.005"),
    ("DECIMAL(6,2)", '"1.005"'),
    ("DECIMAL(6,2)", "12345.0"),
    ("DECIMAL(6,2)", '"abc"'),
    ("DATE", '"2026-11-26 01:00:00"'),
    ("DATE", '"2026-02-30"'),
    ("DATE", "20261126"),
    ("TIME", '"25:00:00"'),
    ("TIMESTAMP", '"epoch"'),
    ("TIMESTAMP", '"2026-11-26T01:02:03.1234567"'),
    ("TIMESTAMPTZ", '"2026-13-26T01:02:03Z"'),
    ("TIMESTAMPTZ", "1764118800000"),
    ("UUID", '"{6fa459ea-ee8a-3ca4-894e-db77e160355e}"'),
]

FITS: list[tuple[str, str, str]] = [
    ("BIGINT", "9223372036854775807", "9223372036854775807"),
    ("BIGINT", "-9223372036854775808", "-9223372036854775808"),
    ("UBIGINT", "18446744073709551615", "18446744073709551615"),
    ("DOUBLE", "9007199254740992", "9007199254740992.0"),
    ("DOUBLE", "1152921504606846976", "1.152921504606847e+18"),
    ("DOUBLE", "1", "1.0"),
    ("DOUBLE", "-0.0", "-0.0"),
    ("DOUBLE", "1.7976931348623157e308", "1.7976931348623157e+308"),
    ("DOUBLE", "5e-324", "5e-324"),
    ("FLOAT", "0.1", "0.1"),
    ("BOOLEAN", "false", "false"),
    ("VARCHAR", '""', ""),
    ("VARCHAR", '"NaN, inf"', "NaN, inf"),
    ("VARCHAR", '"\\"\\\\\\/\\u00e9\\ud83e\\udd86"', '"\\/é🦆'),
    ("JSON", '"x"', '"x"'),
    ("JSON", HUGE, HUGE),
    ("JSON", '{"nan":["a,inf", "\\"nan"]}', '{"nan":["a,inf","\\"nan"]}'),
    ("DECIMAL(6,2)", "12.5", "12.50"),
    ("DECIMAL(6,2)", '"-12.5000"', "-12.50"),
    ("DECIMAL(38,4)", '"1234567890123456789012345678901234.5678"', "1234567890123456789012345678901234.5678"),
    ("DATE", '"2026-11-26"', "2026-11-26"),
    ("TIME", '"12:34:56.789"', "12:34:56.789"),
    ("TIMESTAMP", '"2026-11-26T01:02:03.1234560"', "2026-11-26 01:02:03.123456"),
    ("TIMESTAMPTZ", '"2026-11-26T01:02:03+02:00"', "2026-11-25 23:02:03+00"),
    ("UUID", '"6FA459EA-ee8a-3ca4-894e-db77e160355e"', "6fa459ea-ee8a-3ca4-894e-db77e160355e"),
]


def declaring(kind: str, *, required: bool = False) -> RecordFormat:
    return RecordFormat(columns=(DeclaredColumn("c", "$.field", kind, required),), metadata=BARE.metadata)


@pytest.mark.parametrize(("kind", "raw"), RESCUED)
def test_a_value_that_does_not_fit_goes_with_its_name_to_where_nothing_is_lost(
    con: duckdb.DuckDBPyConnection, kind: str, raw: str
) -> None:
    table = Table(con, declaring(kind))
    rows = table.take([f'{{"field": {raw}, "other": "x"}}', {"other": "y"}])
    assert rows == [{"_rescued": f'{{"field":{raw}}}', "other": "x"}, {"other": "y"}]
    assert table.last.rescued == {"c": 1}


@pytest.mark.parametrize(("kind", "raw"), RESCUED)
def test_a_required_value_that_does_not_fit_rejects_its_record(
    con: duckdb.DuckDBPyConnection, kind: str, raw: str
) -> None:
    table = Table(con, declaring(kind, required=True))
    assert table.take([f'{{"field": {raw}}}', b"{}", b'{"field": null}']) == []
    assert list(table.reasons.values()) == ["type_mismatch", "required_missing", "required_missing"]
    assert [each.text.rpartition(": ")[2] for each in table.last.rejected] == ["c"] * 3


@pytest.mark.parametrize(("kind", "raw", "shown"), FITS)
def test_a_value_that_fits_is_kept_exactly(con: duckdb.DuckDBPyConnection, kind: str, raw: str, shown: str) -> None:
    table = Table(con, declaring(kind, required=True))
    (row,) = table.take([f'{{"field": {raw}}}'])
    cast = f"SELECT CAST(CAST(? AS {table.types['c']}) AS VARCHAR)"
    assert con.execute(cast, [row["c"]]).fetchall() == [(shown,)]
    assert table.last.rescued == {}


def test_numbers_that_no_type_holds_make_no_column(table: Table) -> None:
    assert table.take([f'{{"a": {HUGE}}}', b'{"a": 1e400}']) == [
        {"_rescued": f'{{"a":{HUGE}}}'},
        {"_rescued": '{"a":1e400}'},
    ]
    assert table.types == {"_rescued": "JSON"}


@pytest.mark.parametrize(
    "name",
    ["", "n" * 300, "é" * 128, "rowid", "SNAPSHOT_ID", "change_type", "row_id", "_ducklake_x", "_kafka_offset",
     "_rescued", "_Rescued", "_viaduck_d", "nul\x00"],
)  # fmt: skip
def test_fields_whose_names_no_column_may_have_are_rescued(table: Table, name: str) -> None:
    (row,) = table.take([{name: 1, "a": 2}])
    assert json.loads(row.pop("_rescued")) == {name: 1}
    assert row == {"a": 2}
    assert table.last.rescued == {"": 1}


@pytest.mark.parametrize("name", ["n" * 255, "a.b", "$.a", 'q"uote', "'", "a b", "ключ", "select", "{x}", "\n", "0"])
def test_any_other_name_is_a_column_s(table: Table, name: str) -> None:
    assert table.take([{name: 1}]) == [{name: 1}]
    assert table.take([{name: 2}]) == [{name: 2}]
    assert table.last.new_columns == ()


def test_names_that_differ_by_case_alone_are_one_column_s_and_rescued(table: Table) -> None:
    assert table.take([{"Id": 1}, {"id": 2}, {"ID": 3, "Id": 4}]) == [
        {"Id": 1},
        {"_rescued": '{"id":2}'},
        {"Id": 4, "_rescued": '{"ID":3}'},
    ]


def test_ten_thousand_fields_make_as_many_columns_as_there_may_be(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, max_columns=20))
    rows = table.take([{f"f{number}": number} for number in range(10_000)])
    assert list(table.types) == [*(f"f{number}" for number in range(19)), "_rescued"]
    assert rows[18] == {"f18": 18}
    assert rows[19] == {"_rescued": '{"f19":19}'}
    assert table.last.rescued == {"": 9_981}


def test_one_record_of_ten_thousand_fields_lands_whole(con: duckdb.DuckDBPyConnection) -> None:
    table = Table(con, replace(BARE, max_columns=20))
    record = {f"f{number}": number for number in range(10_000)}
    (row,) = table.take([record])
    assert {**json.loads(row.pop("_rescued")), **row} == record


def test_a_value_a_thousand_levels_deep_lands_whole(table: Table) -> None:
    deep = "[" * DEEP + "]" * DEEP
    assert table.take([f'{{"a": {deep}}}', f'{{"a": {"{"}"x": {deep}}}}}', f'{{"b": 1, "A": {deep}}}']) == [
        {"a": deep},
        {"a": f'{{"x":{deep}}}'},
        {"b": 1, "_rescued": f'{{"A":{deep}}}'},
    ]


@pytest.mark.parametrize("extra", [0, 1])
def test_a_record_is_as_large_as_it_may_be(con: duckdb.DuckDBPyConnection, extra: int) -> None:
    most = 10 * 1024 * 1024
    table = Table(con, replace(BARE, max_record_bytes=most))
    text = "x" * (most - len('{"a": ""}') - 3 + extra)
    rows = table.take([{"a": "y"}, f'{{"a": "{text}"}}'], keys=[None, b"key"])
    assert rows == [{"a": "y"}, *([{"a": text}] if not extra else [])]
    assert table.reasons == ({1: "too_large"} if extra else {})


def test_a_batch_of_nothing_is_nothing(table: Table) -> None:
    assert table.take_batch(batch_from([])) == []
    assert table.types == {}
    assert table.last.landed == 0


@pytest.mark.parametrize("word", SUBSTITUTED)
@pytest.mark.parametrize("end", "|}")
def test_a_word_that_ducklake_replaces_is_rejected_wherever_it_is(table: Table, word: str, end: str) -> None:
    text = "x{" + word + end
    table.take([{"t": "x", "j": {}, "n": 1}])
    values: list[Any] = [
        {"t": text},
        {"j": {"a": text}},
        {"j": {text: 1}},
        {"n": text},
        {"new": text},
        {"new": [text]},
        {text: 1},
        f'{{"t": "\\u007b{word}{end}"}}',
    ]
    good = [{"t": "{" + word, "n": 2}, {"t": word + end, "new": 1}]
    assert table.take([*values, *good]) == good
    assert set(table.reasons.values()) == {"not_carried"}
    assert len(table.reasons) == len(values)


def test_every_word_begins_with_a_letter_that_is_looked_for() -> None:
    assert {word[0] for word in SUBSTITUTED} == set(INITIALS)
