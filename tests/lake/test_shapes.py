"""Every shape of table that DuckLake can keep arrives as it is: keys, names, routing values, types and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from shared.config.model import Routing
from shared.contracts.messages import Outcome
from shared.lake.catalog.reader import CatalogReader
from shared.lake.checks.source import column_mistakes
from tests.lake.conftest import MakeRig
from tests.lake.test_identity import parked_for
from tests.world.duck import name, quote
from tests.world.lake import opened
from tests.world.replay import SOAK
from tests.world.service_view import resolved
from tests.world.shape import Shape
from tests.world.tables import Table, shape_of

MakeTable = Callable[[Shape, bool], Table]

IN_FILES = pytest.mark.parametrize("in_files", [False, True], ids=["inlined", "in files"])


@pytest.fixture
def make_table(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[MakeTable]:
    made: list[Table] = []

    def make(shape: Shape, in_files: bool = False) -> Table:
        made.append(Table(world, tmp_path / str(len(made)), shape, in_files))
        return made[-1]

    yield make
    for table in made:
        table.close()


def live(table: Table, *statements: str) -> None:
    """Seed after the first two statements (the table and its first rows), follow the others, and be exact."""
    table.sql(*statements[:2])
    assert [answer.outcome for answer in table.seed()] == [Outcome.APPLIED] * len(table.receivers)
    table.follow(*statements[2:])
    assert table.wrong() == []


# -- keys -------------------------------------------------------------------------------------------------------------


@IN_FILES
def test_each_part_of_a_key_counts_and_null_is_no_empty_string(make_table: MakeTable, in_files: bool) -> None:
    live(
        make_table(shape_of("tenant", ["a", "b", "c"], ["x", "y"]), in_files),
        "CREATE TABLE {t} (tenant VARCHAR, a INTEGER, b VARCHAR, c DATE, v VARCHAR)",
        "INSERT INTO {t} SELECT tenant, a, b, c, 'old' FROM (VALUES ('x'), ('y')) t(tenant),"
        " (VALUES (0), (1), (NULL)) a(a), (VALUES (''), ('x'), ('NULL'), (NULL)) b(b),"
        " (VALUES (DATE '2024-02-29'), (NULL)) c(c)",
        "UPDATE {t} SET v = 'new' WHERE a = 1 AND b = '' AND c IS NULL",
        "UPDATE {t} SET v = 'newer' WHERE a IS NULL AND b IS NULL AND c IS NULL AND tenant = 'x'",
        "DELETE FROM {t} WHERE b IS NULL AND a IS NOT NULL",
        "UPDATE {t} SET b = NULL WHERE b = '' AND a IS NOT NULL",
        "UPDATE {t} SET tenant = 'y', b = 'moved' WHERE a IS NULL AND b IS NULL AND tenant = 'x'",
        "DELETE FROM {t} WHERE a IS NULL AND b IS NULL",
    )


@IN_FILES
def test_keys_may_be_of_any_type(make_table: MakeTable, in_files: bool) -> None:
    keys = {
        "d": "DATE", "u": "UUID", "n": "DECIMAL(38,10)", "b": "BOOLEAN", "z": "TIMESTAMP WITH TIME ZONE", "x": "BLOB",
        "m": "TIMESTAMP_NS", "i": "UBIGINT", "f": "DOUBLE",
    }  # fmt: skip
    row = (
        "DATE '1969-12-31', '00000000-0000-0000-0000-00000000000{k}', {k}.0000000001, {k} = 1,"
        " TIMESTAMPTZ '2024-03-31 01:59:59.999999+00', '\\x0{k}\\xFF'::BLOB, '2024-01-01 00:00:00.00000000{k}',"
        " 1844674407370955161{k}, 'nan'"
    )
    columns = ", ".join(f"{column} {declared}" for column, declared in keys.items())
    live(
        make_table(shape_of("tenant", list(keys), ["x"]), in_files),
        f"CREATE TABLE {{t}} (tenant VARCHAR, {columns}, v INTEGER)",
        "INSERT INTO {t} VALUES " + ", ".join(f"('x', {row.format(k=k)}, {k})" for k in range(5)),
        "UPDATE {t} SET v = 10 WHERE i = 18446744073709551611",
        "DELETE FROM {t} WHERE u = '00000000-0000-0000-0000-000000000003'",
        "UPDATE {t} SET m = '2024-01-01 00:00:00.000000009' WHERE v = 4",
        "UPDATE {t} SET x = NULL, z = NULL WHERE v = 2",
    )


def test_two_tenants_may_use_the_same_key(make_table: MakeTable) -> None:
    live(
        make_table(shape_of("tenant", ["k"], ["x", "y"]), False),
        "CREATE TABLE {t} (tenant VARCHAR, k INTEGER, v VARCHAR)",
        "INSERT INTO {t} VALUES ('x', 1, 'mine'), ('y', 1, 'yours')",
        "UPDATE {t} SET v = 'new' WHERE tenant = 'x'",
        "DELETE FROM {t} WHERE tenant = 'y'",
    )


# -- names ------------------------------------------------------------------------------------------------------------

NAMES = [
    ("plain", "t", "tenant", "k"),
    ("two words", "a table", "the tenant", "the key"),
    ("UPPER", "EVENTS", "TENANT", "Key"),
    ('with "quotes"', "it's", 'the "tenant"', "k'ey"),
    ("Größe", "表", "клиент", "🔑"),
    ("select", "order", "group", "table"),
    ("dots.and;semicolons", "t--comment", "a.b", "c:d"),
    ("main", "t", "d", "k0"),
    ("main", "rows_1", "_viaduck_d", "_viaduck_was_there"),
    ("main", "targets", "r", "number"),
]


@pytest.mark.parametrize(("schema", "table", "routing", "key"), NAMES, ids=[f"{n[0]}.{n[1]}" for n in NAMES])
def test_names_are_taken_literally(make_table: MakeTable, schema: str, table: str, routing: str, key: str) -> None:
    r, k = name(routing), name(key)
    live(
        make_table(shape_of(routing, [key], ["x", "y"], schema=schema, table=table), False),
        f"CREATE TABLE {{t}} ({r} VARCHAR, {k} INTEGER, \"the 'value'\" VARCHAR)",
        "INSERT INTO {t} VALUES ('x', 1, 'one'), ('x', 2, 'two'), ('y', 1, 'three')",
        "INSERT INTO {t} VALUES ('y', 7, 'four')",
        f"UPDATE {{t}} SET \"the 'value'\" = 'new' WHERE {k} = 1",
        f"UPDATE {{t}} SET {r} = 'y' WHERE {k} = 2",
        f"DELETE FROM {{t}} WHERE {k} = 1",
    )


# -- routing ----------------------------------------------------------------------------------------------------------

ROUTING = {
    "VARCHAR": ("it's", "", "'y'"),
    "TINYINT": ("-128", "127", "0"),
    "SMALLINT": ("-32768", "0", "1"),
    "INTEGER": ("2147483647", "-1", "1"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "1"),
    "UTINYINT": ("255", "0", "1"),
    "USMALLINT": ("65535", "0", "1"),
    "UINTEGER": ("4294967295", "0", "1"),
    "UBIGINT": ("18446744073709551615", "9223372036854775808", "1"),
    "BOOLEAN": ("true", "false", "NULL"),
    "DATE": ("2024-02-29", "0044-03-15 (BC)", "'2024-03-01'"),
    "UUID": ("5f2c1a30-0000-4000-8000-0123456789ab", "00000000-0000-0000-0000-000000000000", "uuid()"),
    "DECIMAL(38,10)": ("1234567890123456789012345678.0000000001", "-0.5000000000", "1"),
    "TIMESTAMP": ("2024-01-01 00:00:00.000001", "1969-12-31 23:59:59", "'2000-01-01'"),
}


@IN_FILES
@pytest.mark.parametrize("declared", ROUTING)
def test_rows_are_routed_by_any_type(make_table: MakeTable, declared: str, in_files: bool) -> None:
    first, second, stray = ROUTING[declared]
    one, two = (f"CAST({quote(value)} AS {declared})" for value in (first, second))
    live(
        make_table(shape_of("r", ["k"], [first, second]), in_files),
        f"CREATE TABLE {{t}} (k INTEGER, r {declared}, v VARCHAR)",
        f"INSERT INTO {{t}} VALUES (1, {one}, 'a'), (2, {one}, 'b'), (3, {two}, 'c'), (4, {stray}, 'd'), (5, NULL, '')",
        f"INSERT INTO {{t}} VALUES (6, {two}, 'f'), (7, {stray}, 'g')",
        f"UPDATE {{t}} SET r = {two} WHERE k IN (2, 4, 5)",
        "UPDATE {t} SET r = NULL WHERE k = 3",
        f"DELETE FROM {{t}} WHERE r = {one}",
    )


@IN_FILES
def test_both_zeros_are_one_routing_value(make_rig: MakeRig, in_files: bool) -> None:
    """They are equal, so a key that goes from one to the other stays with its destination, once."""
    rig = make_rig(routing=Routing(field="r", key_columns=("k",)))
    rig.sql("CREATE TABLE src.main.t (k INTEGER, r DOUBLE)")
    if in_files:
        rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
    rig.sql("INSERT INTO src.main.t VALUES (1, 0.0), (2, '-0.0'), (3, 1.5)")
    rig.add("zero", "0.0")
    rig.add("other", "1.5")
    rig.seed()
    position = rig.head
    rig.sql(
        "UPDATE src.main.t SET r = '-0.0' WHERE k = 1",
        "INSERT INTO src.main.t VALUES (4, '-0.0'), (5, 1.5)",
        "UPDATE src.main.t SET r = '-0.0' WHERE k = 3",
    )
    rig.changes(position)
    assert [k for (k, *_) in rig.look("zero", "SELECT k FROM dst.main.t ORDER BY k")] == [1, 2, 3, 4]
    assert [k for (k, *_) in rig.look("other", "SELECT k FROM dst.main.t ORDER BY k")] == [5]


@pytest.mark.parametrize("declared", ["INTERVAL", "TIMETZ", "DOUBLE[]"])
def test_a_routing_column_whose_values_have_several_spellings_is_refused_by_its_name(
    make_rig: MakeRig, declared: str
) -> None:
    rig = make_rig(routing=Routing(field="r", key_columns=("k",)))
    rig.sql(f"CREATE TABLE src.main.t (k INTEGER, r {declared})")
    rig.add("a", "[1.0]" if declared == "DOUBLE[]" else "10:00:00")
    (answer,) = rig.seed()
    assert "routing column r is" in parked_for(answer, "schema_change")


@pytest.mark.parametrize(
    ("declared", "spelled", "canonical"),
    [
        ("DECIMAL(10,4)", "1.5", "1.5000"),
        ("INTEGER", "007", "7"),
        ("BOOLEAN", "TRUE", "true"),
        ("DATE", "2024-1-2", "2024-01-02"),
    ],
)
def test_a_routing_value_is_compared_by_its_type(
    make_table: MakeTable, declared: str, spelled: str, canonical: str
) -> None:
    table = make_table(shape_of("r", ["k"], [canonical]), False)
    table.sql(f"CREATE TABLE {{t}} (k INTEGER, r {declared})", f"INSERT INTO {{t}} VALUES (1, {quote(canonical)})")
    table.seed(spelled)
    table.follow(f"INSERT INTO {{t}} VALUES (2, {quote(canonical)}), (3, NULL)")
    assert table.wrong() == []


# -- types ------------------------------------------------------------------------------------------------------------

TYPES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615"],
    "FLOAT": ["nan", "inf", "-inf", "1e-45", "3.4028235e+38"],
    "DOUBLE": ["nan", "inf", "-inf", "5e-324", "1.7976931348623157e+308", "0.1"],
    "DECIMAL(4,1)": ["-999.9", "0.1"],
    "DECIMAL(18,3)": ["999999999999999.999", "-0.001"],
    "DECIMAL(38,10)": ["9999999999999999999999999999.9999999999", "-0.0000000001"],
    "DATE": ["0001-01-01", "9999-12-31", "1969-12-31", "infinity", "-infinity"],
    "TIME": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "TIMETZ": ["00:00:00+00", "23:59:59.999999+00"],
    "TIMESTAMP": ["1969-12-31 23:59:59.999999", "2024-02-29 12:00:00", "infinity"],
    "TIMESTAMP_S": ["1969-12-31 23:59:59", "2024-02-29 12:00:00"],
    "TIMESTAMP_MS": ["1969-12-31 23:59:59.999", "2024-02-29 12:00:00.001"],
    "TIMESTAMP_NS": ["1969-12-31 23:59:59.999999999", "2024-02-29 12:00:00.000000001"],
    "TIMESTAMPTZ": ["1969-12-31 23:59:59.999999+00", "2024-03-31 02:30:00+02", "-infinity"],
    "INTERVAL": ["1 year 2 months 3 days 04:05:06.789", "13 months", "00:00:00"],
    "UUID": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "VARCHAR": ["", "NULL", " blank ", "two\nlines", "nul\x00inside", "日本語 👩‍👩‍👧", "a\\b'c\"d", "é"],
    "BLOB": ["\\x00\\xFF\\x27\\x22\\x5C", ""],
    "JSON": ['{"b": 1, "a": [null, 1.50, "ä"]}', "null", '""', "[]"],
}
"""Values of each type that DuckLake keeps, as text."""

NESTED = {
    "INTEGER[]": ["[1, NULL, 3]", "[]", "[NULL]"],
    "VARCHAR[]": ["['', NULL, 'NULL', 'a,b', '[x]', 'it''s']", "['']"],
    "INTEGER[][]": ["[[1], [], NULL, [NULL, 2]]"],
    'STRUCT(a INTEGER, "B c" VARCHAR)': ["{'a': NULL, 'B c': ''}", "{'a': 1, 'B c': NULL}"],
    "STRUCT(a STRUCT(b STRUCT(c UBIGINT[])))": ["{'a': {'b': {'c': [18446744073709551615, NULL]}}}", "{'a': NULL}"],
    "STRUCT(x DATE, y UUID)[]": ["[{'x': DATE '2024-02-29', 'y': '00000000-0000-0000-0000-000000000001'}, NULL]"],
    "MAP(VARCHAR, INTEGER)": ["MAP {'': NULL, 'k': 1}", "MAP {}"],
    "MAP(INTEGER, STRUCT(l VARCHAR[]))": ["MAP {7: {'l': ['a', NULL]}, 8: NULL}"],
    "TIMESTAMP_NS[]": ["[TIMESTAMP_NS '2024-01-01 00:00:00.000000001']"],
    "BLOB[]": ["['\\x00\\xFF'::BLOB, NULL]"],
    "DECIMAL(38,10)[]": ["[0.0000000001, NULL]"],
}
"""Nested values as expressions."""


def expressions() -> dict[str, list[str]]:
    """Values of each type as SQL."""
    plain = {declared: [f"CAST({quote(text)} AS {declared})" for text in texts] for declared, texts in TYPES.items()}
    nested = {declared: [f"CAST({text} AS {declared})" for text in texts] for declared, texts in NESTED.items()}
    return plain | nested


FAMILIES = {
    "integers": ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    "unsigned integers": ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    "fractions": ("FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(18,3)", "DECIMAL(38,10)"),
    "dates and times": ("DATE", "TIME", "TIMETZ", "INTERVAL"),
    "timestamps": ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"),
    "texts": ("UUID", "VARCHAR", "BLOB", "JSON"),
    "lists": tuple(declared for declared in NESTED if declared.endswith("[]")),
    "structs and maps": tuple(declared for declared in NESTED if not declared.endswith("[]")),
}


def test_no_type_is_left_out() -> None:
    assert sorted(declared for family in FAMILIES.values() for declared in family) == sorted(expressions())


@IN_FILES
@pytest.mark.parametrize("family", FAMILIES)
def test_every_type_arrives_as_it_is(make_table: MakeTable, family: str, in_files: bool) -> None:
    """Two columns of each type, which swap their values."""
    types = FAMILIES[family]
    values = [[*expressions()[declared], "NULL"] for declared in types]
    columns = ", ".join(f"v{n} {declared}, w{n} {declared}" for n, declared in enumerate(types))
    rows = [", ".join(f"{each[k % len(each)]}, NULL" for each in values) for k in range(max(map(len, values)))]
    swapped = ", ".join(f"w{n}, v{n}" for n in range(len(types)))
    live(
        make_table(shape_of("tenant", ["k"], ["x"]), in_files),
        f"CREATE TABLE {{t}} (tenant VARCHAR, k INTEGER, {columns})",
        "INSERT INTO {t} VALUES " + ", ".join(f"('x', {k}, {row})" for k, row in enumerate(rows)),
        f"INSERT INTO {{t}} SELECT tenant, k + 100, {swapped} FROM {{t}}",
        "UPDATE {t} SET " + ", ".join(f"v{n} = w{n}, w{n} = v{n}" for n in range(len(types))) + " WHERE k % 2 = 0",
        "UPDATE {t} SET " + ", ".join(f"v{n} = {each[0]}" for n, each in enumerate(values)) + " WHERE k > 100",
        "DELETE FROM {t} WHERE k IN (0, 101)",
    )


@IN_FILES
def test_nulls_may_be_everywhere(make_table: MakeTable, in_files: bool) -> None:
    declared = {f"c{number}": each for number, each in enumerate(expressions())}
    columns = ", ".join(f"{column} {each}" for column, each in declared.items())
    nulls = ", ".join("NULL" for _ in declared)
    first = ", ".join(values[0] for values in expressions().values())
    live(
        make_table(shape_of("tenant", ["k"], ["x"]), in_files),
        f"CREATE TABLE {{t}} (tenant VARCHAR, k INTEGER, {columns})",
        f"INSERT INTO {{t}} VALUES ('x', 1, {nulls}), ('x', NULL, {nulls}), (NULL, NULL, {nulls}), ('x', 2, {first})",
        f"INSERT INTO {{t}} VALUES ('x', 3, {nulls}), ('x', 4, {first})",
        "UPDATE {t} SET " + ", ".join(f"{column} = NULL" for column in declared) + " WHERE k = 2",
        "UPDATE {t} SET k = 5 WHERE k IS NULL",
    )


REFUSED = {
    "HUGEINT": "v HUGEINT",
    "UHUGEINT": "v UHUGEINT",
    "a list of HUGEINT": "v HUGEINT[]",
    "a HUGEINT deep inside": "v STRUCT(a MAP(VARCHAR, STRUCT(b HUGEINT)))",
    "a list of TIMETZ": "v TIMETZ[]",
    "a TIMETZ deep inside": "v STRUCT(a STRUCT(b TIMETZ)[])",
    "snapshot_id": "snapshot_id BIGINT",
    "rowid": "RowId BIGINT",
    "change_type": "change_type VARCHAR",
}


@pytest.mark.parametrize("column", REFUSED)
def test_what_ducklake_cannot_keep_is_refused_by_the_columns_name(make_table: MakeTable, column: str) -> None:
    table = make_table(shape_of("tenant", ["k"], ["x"]), False)
    table.sql(f"CREATE TABLE {{t}} (tenant VARCHAR, k INTEGER, {REFUSED[column]})")
    with closing(CatalogReader(resolved(table.lake))) as catalog:
        found = catalog.table("main", "t", table.truth.head)
    assert found is not None
    [mistake] = column_mistakes(found)
    assert f"column {REFUSED[column].split()[0]} " in mistake


# -- widths and sizes -------------------------------------------------------------------------------------------------


def test_a_table_may_have_a_thousand_columns(make_table: MakeTable) -> None:
    kinds = [("INTEGER", "1"), ("VARCHAR", "'x'"), ("DOUBLE", "1.5"), ("DATE", "'2024-01-01'"), ("DECIMAL(9,2)", "2.5")]
    each = [(f"column_{number}", *kinds[number % len(kinds)]) for number in range(998)]
    columns = ", ".join(f"{column} {declared}" for column, declared, _ in each)
    filled = ", ".join(value for _, _, value in each)
    table = make_table(shape_of("tenant", ["k"], ["x"]), True)
    table.sql(
        f"CREATE TABLE {{t}} (k INTEGER, {columns}, tenant VARCHAR)",
        f"INSERT INTO {{t}} VALUES (1, {filled}, 'x'), (2, {filled}, 'y'), (3, {filled}, 'x')",
    )
    assert [answer.outcome for answer in table.seed()] == [Outcome.APPLIED]
    table.sql(
        "INSERT INTO {t} (k, column_995, tenant) VALUES (4, 7, 'x')", "UPDATE {t} SET column_501 = 'new' WHERE k = 1"
    )
    table.follow("DELETE FROM {t} WHERE k = 3")
    assert table.wrong() == []


@pytest.mark.parametrize("declared", ["VARCHAR", "BLOB"] if SOAK else ["VARCHAR"])
def test_a_value_of_64_megabytes_is_carried_whole(
    make_table: MakeTable, world: duckdb.DuckDBPyConnection, declared: str
) -> None:
    table = make_table(shape_of("tenant", ["k"], ["x"]), True)
    text = "repeat('0123456789abcdef', 4194304)"
    big = text if declared == "VARCHAR" else f"encode({text})"
    table.sql(f"CREATE TABLE {{t}} (tenant VARCHAR, k INTEGER, v {declared})")
    table.sql(f"INSERT INTO {{t}} VALUES ('x', 1, {big})")
    [seeded] = table.seed()
    assert seeded.outcome is Outcome.APPLIED, seeded
    table.follow(f"INSERT INTO {{t}} VALUES ('x', 2, {big})", "UPDATE {t} SET v = 'small' WHERE k = 1")
    [one] = table.receivers
    with opened(world, one.promised.lake) as alias:
        found = world.execute(f"SELECT k, v = {big} FROM {name(alias)}.main.t ORDER BY k").fetchall()
    assert found == [(1, False), (2, True)]
