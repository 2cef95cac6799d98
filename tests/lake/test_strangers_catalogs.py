"""A catalog is a stranger's: its schema's name, its tables' names and its rows are data, never text of a statement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.connection.query import Question
from shared.lake.connection.statements import OwnSqlite, Postgres, Statements
from shared.lake.sql import ident, path
from tests.lake.rig import EVERY_CATALOG, MakeLake
from tests.servers.postgres import Postgres as Server

HOSTILE = [
    "m:table",
    ":schema :at :name",
    "{} {0} {inlined} {unknown}",
    "% %s %(name)s %%",
    "$1 ?1 $$ ?",
    'it\'s "so" called',
    "x'; CREATE TABLE pwned (i INTEGER); --",
    "\\'; CREATE TABLE pwned (i INTEGER); --",
    "_%!_",
    "株式会社 🦆",
]
"""Names of schemas and tables, all of which DuckLake takes."""

STACKED = "t'; CREATE TABLE public.pwned (i INTEGER); COPY (SELECT 1) TO PROGRAM 'touch {}'; --"

SECOND_ORDER = [
    "ducklake_snapshot WHERE false; CREATE TABLE pwned (i INTEGER); SELECT 1 AS n, end_snapshot FROM ducklake_table",
    "(SELECT 1 AS end_snapshot) q",
    "ducklake_snapshot",
    "ducklake_inlined_data_1_0 ",
    'ducklake_inlined_data_1_0" --',
]
"""What a tenant may write as the name of a table of inlined rows."""

ASKS: tuple[Callable[[CatalogReader], object], ...] = (
    lambda catalog: catalog.live_rows("main", "t"),
    lambda catalog: catalog.inlined_into("main", "t"),
    lambda catalog: catalog.inlined_tables(),
)


@pytest.fixture
def lake(make_lake: MakeLake, tmp_path: Path) -> ResolvedLake:
    """A lake with a table, in which one row lies inlined."""
    made = make_lake("stranger", tmp_path / "data")
    fill(made, "CREATE TABLE l.main.t (i INTEGER)", "INSERT INTO l.main.t VALUES (1)")
    return made


def database_of(server: Server, name: str, schema: str | None, folder: Path) -> ResolvedLake:
    """The place for a lake in a database of its own."""
    server.create_database(name)
    return ResolvedLake(f"postgres:{server.dsn(name)}", schema, str(folder / "data"))


def fill(lake: ResolvedLake, *statements: str) -> None:
    with closing(connect()) as con:
        attach(con, "l", lake, read_only=False, create=True)
        for statement in statements:
            con.execute(statement).fetchall()


def write(lake: ResolvedLake, sql: str, *values: Any) -> None:
    """Write to the catalog's own tables, as its owner can; ``{}`` stands for the metadata schema."""
    if lake.sqlite_file is None:
        with psycopg.connect(lake.conninfo, autocommit=True) as con:
            con.execute(sql.format(f"{ident(lake.schema)}.").replace("?", "%s").encode(), values)
        return
    with closing(connect()) as con:
        con.execute(f"ATTACH '{lake.sqlite_file}' AS c (TYPE sqlite)")
        con.execute(sql.format("c."), list(values))


def tables_of(lake: ResolvedLake) -> set[str]:
    """Every table of the catalog's database, whoever made it."""
    if lake.sqlite_file is None:
        with psycopg.connect(lake.conninfo) as con:
            return {row[0] for row in con.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()}
    with closing(connect()) as con:
        con.execute(f"ATTACH '{lake.sqlite_file}' AS c (TYPE sqlite, READ_ONLY)")
        return {
            row[0]
            for row in con.execute("SELECT name FROM sqlite_query('c', 'SELECT name FROM sqlite_master')").fetchall()
        }


@EVERY_CATALOG
@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_and_a_table_may_be_called_anything_and_are_found(lake: ResolvedLake, name: str) -> None:
    fill(lake, f"CREATE SCHEMA {path('l', name)}", f"CREATE TABLE {path('l', name, name)} (i INTEGER)",
         f"INSERT INTO {path('l', name, name)} VALUES (1), (2)")  # fmt: skip
    before = tables_of(lake)
    with closing(CatalogReader(lake)) as catalog:
        found = catalog.table(name, name, catalog.head().snapshot)
        assert found is not None
        assert (found.schema, found.name) == (name, name)
        assert catalog.has_table(name, name)
        assert catalog.live_rows(name, name) == 2
        assert not catalog.has_table("main", name)
        assert catalog.find_stamp(name) is None
    assert tables_of(lake) == before


@pytest.mark.parametrize("schema", [name for name in HOSTILE if len(name.encode()) < 64])
def test_a_metadata_schema_may_be_called_anything(postgres: Server, tmp_path: Path, schema: str) -> None:
    lake = database_of(postgres, f"named_{abs(hash(schema)) % 10**10}", schema, tmp_path)
    with psycopg.connect(lake.conninfo, autocommit=True) as con:
        con.execute(f"CREATE SCHEMA {ident(schema)}".encode())
        con.execute(
            f"CREATE TABLE {ident(schema)}.ducklake_snapshot (snapshot_id BIGINT, snapshot_time TIMESTAMPTZ)".encode()
        )
        con.execute(f"INSERT INTO {ident(schema)}.ducklake_snapshot VALUES (7, now())".encode())
    with closing(CatalogReader(lake)) as catalog:
        assert catalog.is_there()
        assert catalog.head().snapshot == 7
        assert catalog.exists(7)


def test_a_schema_that_looks_like_a_place_for_a_value_runs_no_program(postgres: Server, tmp_path: Path) -> None:
    """What was done: the value of ``:table`` was put into the schema's own name, outside of all quotes."""
    lake = database_of(postgres, "m_table", "m:table", tmp_path)
    fill(lake, "CREATE TABLE l.main.t (i INTEGER)")
    proof = tmp_path / "program-ran"
    with closing(CatalogReader(lake)) as catalog:
        for table in (STACKED.format(proof), '" ' + STACKED.format(proof), f'x" {STACKED.format(proof)}'):
            assert catalog.table("main", table, 1) is None
            assert not catalog.has_table(table, table)
    assert not proof.exists()
    assert "pwned" not in tables_of(lake)


@EVERY_CATALOG
def test_a_question_is_one_statement_with_values_or_without(lake: ResolvedLake) -> None:
    statements: Statements = (
        Postgres(lake.conninfo) if lake.sqlite_file is None else OwnSqlite(connect(), lake.sqlite_file)
    )
    with closing(statements):
        for values in ({}, {"v": 1}):
            text = f"SELECT {':v' if values else '1'} AS n; CREATE TABLE pwned (i INTEGER)"
            with contextlib.suppress(psycopg.errors.SyntaxError):  # SQLite leaves away what follows
                statements.rows(Question(text, values=values))
    assert "pwned" not in tables_of(lake)


@EVERY_CATALOG
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_a_made_up_table_of_inlined_rows_is_refused_by_name_and_not_asked(lake: ResolvedLake, name: str) -> None:
    write(lake, "UPDATE {}ducklake_inlined_data_tables SET table_name = ?", name)
    before = tables_of(lake)
    with closing(CatalogReader(lake)) as catalog:
        for ask in ASKS:
            with pytest.raises(ViaduckError) as refused:
                ask(catalog)
            assert refused.value.type == "lake_incompatible"
            assert repr(name[:80]) in refused.value.message
    assert tables_of(lake) == before


TYPES = ["integer) AS i, (SELECT 1", "varchar; DROP TABLE t", "decimal(1, 1) --", "enum('a')", ""]


@pytest.mark.parametrize("declared", TYPES)
def test_a_column_s_type_is_one_of_ducklake_s_or_refused(tmp_path: Path, declared: str) -> None:
    lake = ResolvedLake(f"sqlite:{tmp_path}/lake.sqlite", None, str(tmp_path / "data"))
    fill(lake, "CREATE TABLE l.main.t (i INTEGER, d DECIMAL(38, 9), l STRUCT(a MAP(VARCHAR, UUID[])))")
    with closing(CatalogReader(lake)) as catalog:
        found = catalog.table("main", "t", 1)
        assert found is not None
        assert [column.type for column in found.columns][1:] == ["DECIMAL(38,9)", 'STRUCT("a" MAP(VARCHAR, UUID[]))']
        write(lake, "UPDATE {}ducklake_column SET column_type = ? WHERE column_name = 'i'", declared)
        with pytest.raises(ViaduckError) as refused:
            catalog.table("main", "t", 1)
        assert refused.value.type == "lake_incompatible"


@EVERY_CATALOG
def test_what_no_catalog_can_hold_is_refused_and_not_looked_for(lake: ResolvedLake) -> None:
    with closing(CatalogReader(lake)) as catalog:
        for name in ("nul\x00", "half a \ud83e character"):
            with pytest.raises(ViaduckError) as refused:
                catalog.has_table("main", name)
            assert refused.value.type == "value_refused"
        assert catalog.has_table("main", "t"), "the next question is answered"


def test_functions_of_the_database_s_own_are_not_called(postgres: Server, tmp_path: Path) -> None:
    """A function that fits better than Postgres's own would be taken from the schema ``public``."""
    lake = database_of(postgres, "shadowed", None, tmp_path)
    fill(lake, "CREATE TABLE l.main.t (i INTEGER)")
    with psycopg.connect(lake.conninfo, autocommit=True) as con:
        con.execute("CREATE TABLE public.called (i INTEGER)")
        con.execute(
            "CREATE FUNCTION public.lower(character varying) RETURNS text LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO public.called VALUES (1); RETURN pg_catalog.lower($1::text); END'"
        )
        with closing(CatalogReader(lake)) as catalog:
            assert catalog.table("main", "t", 1) is not None
        assert con.execute("SELECT count(*) FROM public.called").fetchone() == (0,)


def test_a_catalog_that_is_locked_is_given_up_and_said_to_be_out_of_reach(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.lake.connection.statements.OWN_SETTINGS", b"SET statement_timeout = '200ms'")
    lake = database_of(postgres, "locked", None, tmp_path)
    fill(lake, "CREATE TABLE l.main.t (i INTEGER)")
    with psycopg.connect(lake.conninfo) as owner, closing(CatalogReader(lake)) as catalog:
        owner.execute("LOCK TABLE public.ducklake_snapshot")
        with pytest.raises(ViaduckError) as refused:
            catalog.head()
        assert refused.value.type == "destination_unreachable"
        owner.rollback()
        assert catalog.head().snapshot == 1
