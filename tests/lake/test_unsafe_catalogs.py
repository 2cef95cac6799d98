"""What a tenant's own catalog would have us run: views in a table's place, sort and default expressions, macros.

DuckDB's sandbox keeps an instance away from files, but not from what an extension opens by itself: ``sqlite_scan`` any
SQLite file of the machine, ``postgres_query`` the catalog's server as our role, ``postgres_scan`` any host.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from services.applier.apply.destination.lake_state import held_rows
from services.cli.verify.comparison import ComparedSource, ComparisonResult, compare_all
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.contracts.messages import CommitPath, ItemKind, Outcome
from shared.lake.attached.pool import LakePool
from shared.lake.connection.attach import attach, confine
from shared.lake.connection.engine import connect
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.table import require_table
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, owners_connection
from tests.lake.test_foreign_files import subject

SQLITE = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2], sys.argv[3:]); c.commit()"
HONEST = ("a", "c")
LEAKED = "LEAKED:"
LEAKED_TABLE = f"CREATE TABLE s AS SELECT CAST('{LEAKED}' AS TEXT) AS v"

Attack = Callable[[ApplyRig, str], None]


def tamper(lake: ResolvedLake, statement: str, *values: str) -> None:
    """As the tenant, in his own catalog; ``?`` for each value."""
    if lake.sqlite_file is None:
        with owners_connection(lake) as con:
            con.execute(statement.replace("?", "%s"), values)
    else:
        subprocess.run([sys.executable, "-c", SQLITE, str(lake.sqlite_file), statement, *values], check=True)


@pytest.fixture
def played(make_rig: MakeRig) -> ApplyRig:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b', 'c'][1 + i % 3], 'v' || i FROM range(60) r(i)",
    )
    for name in ("a", "b", "c"):
        rig.add(name)
    assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED] * 3
    return rig


def stolen(rig: ApplyRig) -> str:
    """A query that the sandbox does not stop: of another tenant's catalog, or of the server under our own role."""
    victim = rig.lake("a").sqlite_file
    if victim is not None:
        return f"SELECT upper('{LEAKED.lower()}') || max(value) FROM sqlite_scan('{victim}', 'ducklake_metadata')"
    return "SELECT v FROM postgres_query('__ducklake_metadata_lake', 'SELECT upper(''leaked:'' || current_user) AS v')"


def view(rig: ApplyRig, name: str, schema: str, query: str) -> None:
    """One under a name that a table has already, which only a tampered catalog can hold; DuckLake takes the view."""
    rig.write("b", f"CREATE VIEW dst.{schema}.mine AS SELECT 1 AS x")
    tamper(rig.lake("b"), "UPDATE ducklake_view SET view_name = ?, sql = ? WHERE view_name = 'mine'", name, query)


def view_in_the_tables_place(rig: ApplyRig, query: str) -> None:
    view(rig, "t", "main", f"SELECT error(({query})) AS id, 'b' AS tenant, 'x' AS v")


def view_in_the_cursors_place(rig: ApplyRig, query: str) -> None:
    names = "generation, position, source_lake, source_table_id, source_table_uuid, routing_value, item, rows_applied,"
    columns = ", ".join(f"error(({query})) AS {name.strip(',')}" for name in f"{names} snapshot_id".split())
    view(rig, cursor_name("p", "b"), SCHEMA, f"SELECT {columns}")


def sort_expression(rig: ApplyRig, query: str) -> None:
    rig.write("b", "ALTER TABLE dst.main.t SET SORTED BY (id ASC)")
    tamper(rig.lake("b"), "UPDATE ducklake_sort_expression SET expression = ?", f"error(({query}))")


def default_expression(rig: ApplyRig, query: str) -> None:
    tamper(
        rig.lake("b"),
        "UPDATE ducklake_column SET default_value = ?, default_value_type = 'expression',"
        " default_value_dialect = 'duckdb' WHERE column_name = 'v'",
        f"error(({query}))",
    )


def default_by_a_macro(rig: ApplyRig, query: str) -> None:
    rig.write("b", "CREATE MACRO dst.main.f() AS 1")
    tamper(rig.lake("b"), "UPDATE ducklake_macro_impl SET sql = ?", f"error(({query}))")
    default_expression(rig, "SELECT 1")
    tamper(rig.lake("b"), "UPDATE ducklake_column SET default_value = 'f()' WHERE column_name = 'v'")


ATTACKS: tuple[Attack, ...] = (
    view_in_the_tables_place,
    view_in_the_cursors_place,
    sort_expression,
    default_expression,
    default_by_a_macro,
)


BY_EXTENSION = pytest.mark.parametrize("commit", ["extension"])
"""Which binds a catalog's SQL. A direct commit has nothing to refuse: it binds none, and writes the table itself."""


@BY_EXTENSION
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_what_a_catalog_would_have_run_is_refused_before_it_is(played: ApplyRig, attack: Attack) -> None:
    rig, before = played, played.head
    rig.forget()
    attack(rig, stolen(rig))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    answers = dict(zip("abc", rig.changes(before), strict=True))
    for name in HONEST:
        assert answers[name].outcome is Outcome.APPLIED
        assert rig.rows(name) == rig.expected(name)
    refused = answers["b"]
    assert LEAKED not in str(refused)
    assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "unsafe_catalog")
    for item in (ItemKind.PROBE, ItemKind.UPKEEP, ItemKind.SEED, ItemKind.DROP):
        (said,) = rig.run(item, "b", expected=before, after=before, through=before)
        assert LEAKED not in str(said)
        assert (said.outcome, said.error and said.error.type) == (Outcome.PARKED, "unsafe_catalog"), item
    verdict = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject(rig, "b"), subject(rig, "a")])
    assert LEAKED not in str(verdict)
    assert [each.finding for each in verdict] == [ComparisonResult.FAILED, ComparisonResult.EQUAL], verdict
    assert verdict[0].problem is not None
    assert verdict[0].problem.type == "unsafe_catalog"


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_direct_commit_runs_nothing_of_a_catalog(played: ApplyRig, attack: Attack, *, is_known: bool) -> None:
    """Rows go into the table that the tenant hides, or its extension refuses; all else parks it as ever."""
    rig, before = played, played.head
    if not is_known:
        rig.forget()
    attack(rig, stolen(rig))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    answers = dict(zip("abc", rig.changes(before), strict=True))
    assert LEAKED not in str(answers)
    for name in HONEST:
        assert answers[name].outcome is Outcome.APPLIED
        assert rig.rows(name) == rig.expected(name)
    said = answers["b"]
    assert said.outcome is not Outcome.APPLIED or said.commit is CommitPath.DIRECT, said
    rig.forget()
    for item in (ItemKind.PROBE, ItemKind.UPKEEP):
        (answer,) = rig.run(item, "b", expected=before, after=before, through=before)
        assert LEAKED not in str(answer)
        assert (answer.outcome, answer.error and answer.error.type) == (Outcome.PARKED, "unsafe_catalog"), answer


@BY_EXTENSION
@pytest.mark.parametrize("attack", ATTACKS[:2], ids=lambda attack: attack.__name__)
def test_a_view_that_comes_while_the_lake_is_open_is_never_read(played: ApplyRig, attack: Attack) -> None:
    """Nobody can look and then read in one step, but for DuckLake itself: what it will read must be a table to it."""
    rig, before = played, played.head
    attack(rig, stolen(rig))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    for item in (ItemKind.PROBE, ItemKind.CHANGES, ItemKind.SEED, ItemKind.DROP):
        (said,) = rig.run(item, "b", expected=before, after=before)
        assert LEAKED not in str(said), item
        assert said.outcome is not Outcome.APPLIED, item
    (probed,) = rig.run(ItemKind.PROBE, "a", expected=before, after=before)
    assert probed.outcome is Outcome.ALREADY_APPLIED


@pytest.mark.parametrize("attack", ATTACKS[2:], ids=lambda attack: attack.__name__)
def test_an_expression_that_comes_while_the_lake_is_open_never_runs(played: ApplyRig, attack: Attack) -> None:
    """DuckLake takes it up with the next change of the table's columns, and refuses what asks for rows in it."""
    rig, before = played, played.head
    attack(rig, stolen(rig))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    for item in (ItemKind.CHANGES, ItemKind.UPKEEP, ItemKind.PROBE):
        (said,) = rig.run(item, "b", expected=before, after=before, through=before)
        assert LEAKED not in str(said), item
    seen = rig.head
    rig.sql("ALTER TABLE src.main.t ADD COLUMN w INTEGER", "UPDATE src.main.t SET w = 1 WHERE id < 9")
    for item in (ItemKind.CHANGES, ItemKind.SEED, ItemKind.UPKEEP):
        for name in HONEST:
            (applied,) = rig.run(item, name, expected=before, after=before, through=seen)
            assert applied.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED), applied
        (said,) = rig.run(item, "b", expected=seen, after=seen, through=seen)
        assert LEAKED not in str(said), item
        before = seen
    assert LEAKED not in str(rig.look("b", f"SELECT v FROM dst.table_insertions('t', 1, {rig.commits('b')})"))


@pytest.mark.parametrize("asked", ["sort", "default"])
def test_ducklake_itself_runs_no_query_of_an_expression(tmp_path: Path, asked: str) -> None:
    """What an expression could open past the sandbox it can't ask: neither in an instance that was open nor a new one.

    In plain DuckLake, without our look at the catalog, lest that be the only wall.
    """
    victim, lake = tmp_path / "victim.sqlite", ResolvedLake(f"sqlite:{tmp_path}/l.sqlite", None, f"{tmp_path}/files/")
    subprocess.run([sys.executable, "-c", SQLITE, str(victim), LEAKED_TABLE], check=True)
    query = f"(SELECT max(v) FROM sqlite_scan('{victim}', 's'))"
    said = []
    for instance in ("open before", "opened after"):
        with closing(connect()) as con:
            attach(con, "lake", lake, read_only=False, create=True)
            confine(con, "lake", writing=True)
            if instance == "open before":
                con.execute("CREATE TABLE lake.t (id INTEGER, v VARCHAR)")
                con.execute("ALTER TABLE lake.t SET SORTED BY (id ASC)")
                con.execute("INSERT INTO lake.t VALUES (1, 'x')")
                where = "UPDATE ducklake_sort_expression SET expression = ?"
                if asked != "sort":
                    where = (
                        "UPDATE ducklake_column SET default_value_type = 'expression',"
                        " default_value_dialect = 'duckdb', default_value = ? WHERE column_name = 'v'"
                    )
                tamper(lake, where, f"error({query})")
            for statement in (
                "INSERT INTO lake.t (id) VALUES (2)", "SELECT * FROM lake.t", "DELETE FROM lake.t WHERE id = 7",
                "CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')",
                f"ALTER TABLE lake.t ADD COLUMN {'w' if instance == 'open before' else 'z'} INTEGER",
                "INSERT INTO lake.t (id) VALUES (3)",
            ):  # fmt: skip
                try:
                    said += [str(con.execute(statement).fetchall())]
                except duckdb.Error as error:
                    said += [str(error)]
    assert LEAKED not in str(said)
    refused = "Cannot copy BoundSubqueryExpression" if asked == "sort" else "DEFAULT value cannot contain subqueries"
    assert refused in str(said), "the attack was taken up"


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_rows_are_not_counted_in_a_view(played: ApplyRig) -> None:
    pool = LakePool(2)
    with pool.use(played.lake("b"), read_only=False) as lake:
        assert held_rows(lake, played.destinations["b"]) == 20
        require_table(lake.con, '"lake"."main"."t"')
        view_in_the_tables_place(played, stolen(played))
        with pytest.raises(DestinationError, match="is no table") as refused:
            held_rows(lake, played.destinations["b"])
        assert refused.value.type == "unsafe_catalog"
    pool.close()


MALFORMED = (
    "UPDATE {}ducklake_schema SET path = NULL WHERE schema_name = 'main'",
    "UPDATE {}ducklake_table SET path = NULL WHERE table_name = 't'",
    "UPDATE {}ducklake_data_file SET path = NULL",
    "UPDATE {}ducklake_column SET table_id = 77 WHERE column_name IN ('id', 'tenant', 'v')",
    "UPDATE {}ducklake_column SET column_type = 'struct' WHERE column_name = 'v'",
    "UPDATE {}ducklake_column SET parent_column = column_id WHERE column_name = 'v'",
    "INSERT INTO {}ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type,"
    " nulls_allowed, parent_column) SELECT column_id, begin_snapshot, table_id, column_order, column_name, 'struct',"
    " nulls_allowed, column_id FROM {}ducklake_column WHERE column_name = 'v'",
    "UPDATE {}ducklake_inlined_data_tables SET schema_version = NULL",
    "UPDATE {}ducklake_inlined_data_tables SET table_name = NULL",
)


@pytest.mark.parametrize("statement", MALFORMED, ids=range(len(MALFORMED)))
def test_a_catalog_that_ducklake_never_wrote_parks_its_own_tenant(played: ApplyRig, statement: str) -> None:
    rig, before = played, played.head
    rig.forget()
    tamper(rig.lake("b"), statement.replace("{}", ""))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    said = {answer.destination: answer for answer in rig.changes(before)}
    for name in HONEST:
        assert said[name].outcome is Outcome.APPLIED
        assert rig.rows(name) == rig.expected(name)
    error = said["b"].error
    if "data_file" in statement:
        assert error is None, "DuckLake overlooks a file without a path, which is its owner's loss"
        return
    assert error is not None
    assert said["b"].outcome is Outcome.PARKED, error
    assert error.type in ("lake_incompatible", "table_mismatch", "cursor_damaged", "destination_damaged"), error


def test_plain_columns_and_values_are_no_code(played: ApplyRig) -> None:
    """A table of the tenant's may be sorted by its columns, have defaults, and stand beside views."""
    rig, before = played, played.head
    rig.write(
        "b",
        'ALTER TABLE dst.main.t SET SORTED BY (id ASC, "v" DESC)',
        "ALTER TABLE dst.main.t ALTER COLUMN v SET DEFAULT 'none'",
        "CREATE VIEW dst.main.mine AS SELECT count(*) AS n FROM dst.main.t",
        "CREATE TABLE dst.main.other (x TIMESTAMP DEFAULT now())",
        "ALTER TABLE dst.main.other SET SORTED BY (year(x) ASC)",
    )
    rig.forget()
    rig.sql(
        "ALTER TABLE src.main.t ADD COLUMN d DATE DEFAULT '2020-01-02'",
        "ALTER TABLE src.main.t ADD COLUMN n DECIMAL(9, 2) DEFAULT 1.5",
        "UPDATE src.main.t SET v = v || '+' WHERE id < 9",
    )
    assert [answer.outcome for answer in rig.changes(before)] == [Outcome.APPLIED] * 3
    rig.forget()
    seen = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '*' WHERE id < 30")
    assert [answer.outcome for answer in rig.changes(seen)] == [Outcome.APPLIED] * 3
    assert rig.rows("b") == rig.expected("b")


def test_nested_columns_are_no_code_although_their_defaults_have_no_type(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, s STRUCT(x VARCHAR, l VARCHAR[]), m MAP(VARCHAR, INT))",
        "INSERT INTO src.main.t SELECT i, 'a', {x: 'x', l: ['l']}, MAP {'k': i::INTEGER} FROM range(5) r(i)",
    )
    rig.add("a")
    assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED]
    before = rig.head
    rig.sql("ALTER TABLE src.main.t ADD COLUMN n STRUCT(y INTEGER)", "UPDATE src.main.t SET n = {y: 1} WHERE id < 2")
    answers = rig.changes(before)
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED], answers[0].error
    found = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject(rig, "a")])
    assert [verdict.finding for verdict in found] == [ComparisonResult.EQUAL]


def test_an_instance_has_no_functions_of_the_other_kind_of_catalog(played: ApplyRig) -> None:
    pool = LakePool(2)
    with pool.use(played.lake("a"), read_only=False) as lake:
        other = "postgres" if lake.lake.sqlite_file is not None else "sqlite"
        with pytest.raises(duckdb.CatalogException, match=f"{other}_scan"):
            lake.con.execute(f"FROM {other}_scan('host=127.0.0.1 port=1', 'public', 't')")
    pool.close()
