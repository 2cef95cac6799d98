"""A catalog that Viaduck creates is exactly the one that DuckLake's extension creates."""

from __future__ import annotations

import threading
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.attached.pool import LakePool
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.connection.new_catalog import create_catalog
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.sql import ident
from tests.servers.postgres import Postgres

TABLES = """
    SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, 0)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE n.nspname = %s AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, 2"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s ORDER BY 1"
ROWS = {
    "ducklake_metadata": "key, value, scope, scope_id",
    "ducklake_snapshot": "snapshot_id, schema_version, next_catalog_id, next_file_id",
    "ducklake_snapshot_changes": "*",
    "ducklake_schema": "schema_id, begin_snapshot, end_snapshot, schema_name, path, path_is_relative",
}


def lake_in(postgres: Postgres, schema: str | None, data_path: str) -> ResolvedLake:
    name = f"new_{uuid.uuid4().hex}"
    postgres.create_database(name)
    return ResolvedLake(f"postgres:{postgres.dsn(name)}", schema, data_path)


def seen(lake: ResolvedLake) -> dict[str, list[tuple[Any, ...]]]:
    """All that a catalog holds but for times and random identities."""
    with psycopg.connect(lake.conninfo) as con:
        con.execute("SELECT set_config('search_path', %s, false)", [f"{ident(lake.schema)}, pg_catalog"])
        counts = con.execute(
            "SELECT count(snapshot_time), max(snapshot_time) <= now(), (SELECT count(schema_uuid) FROM ducklake_schema)"
            " FROM ducklake_snapshot"
        ).fetchall()
        return {
            "tables": con.execute(TABLES, [lake.schema]).fetchall(),
            "indexes": con.execute(INDEXES, [lake.schema]).fetchall(),
            "counts": counts,
            **{name: con.execute(f"SELECT {columns} FROM {name}").fetchall() for name, columns in ROWS.items()},
        }


@pytest.mark.parametrize("schema", [None, 'my "own" {lake}'])
@pytest.mark.parametrize(
    "data_path", ["{}/data", "{}/data//", "s3://bucket/it's :here/{{}}", "s3://bucket/prefix//", "{}/../x//data/./"]
)
def test_it_is_exactly_the_extension_s(postgres: Postgres, tmp_path: Path, schema: str | None, data_path: str) -> None:
    theirs, ours = (lake_in(postgres, schema, data_path.format(tmp_path)) for _ in range(2))
    with closing(connect()) as con:
        attach(con, "theirs", theirs, read_only=False, create=True)
        with closing(PostgresConnections(1)) as connections:
            create_catalog(connections, ours)
        assert seen(ours) == seen(theirs)
        attach(con, "ours", ours, read_only=False, create=True)


def test_of_many_that_create_one_all_get_it(postgres: Postgres, tmp_path: Path) -> None:
    lake = lake_in(postgres, None, str(tmp_path / "data"))
    failed: list[BaseException] = []

    def opened(pool: LakePool, together: threading.Barrier) -> None:
        try:
            together.wait()
            with pool.use(lake, read_only=False, create=True) as held:
                held.con.execute("SELECT * FROM lake.snapshots()")
        except BaseException as error:
            failed.append(error)

    together = threading.Barrier(3)
    pools = [LakePool(1) for _ in range(3)]
    threads = [threading.Thread(target=opened, args=(pool, together)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pool in pools:
        pool.close()
    assert failed == []
    assert seen(lake)["ducklake_snapshot"] == [(0, 0, 1, 0)]


def test_a_lake_that_is_there_stays_as_it_is(postgres: Postgres, tmp_path: Path) -> None:
    lake = lake_in(postgres, None, str(tmp_path / "data"))
    with closing(connect()) as con:
        attach(con, "lake", lake, read_only=False, create=True)
        con.execute("CREATE TABLE lake.main.t (i INTEGER)")
        before = seen(lake)
        with closing(PostgresConnections(1)) as connections:
            create_catalog(connections, lake)
            assert seen(lake) == before


def test_where_it_may_not_be_created_the_extension_says_why(postgres: Postgres, tmp_path: Path) -> None:
    lake = lake_in(postgres, None, str(tmp_path / "data"))
    with psycopg.connect(lake.conninfo, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS reader_only")
        owner.execute("CREATE ROLE reader_only LOGIN PASSWORD 'p'")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    theirs = ResolvedLake(f"{lake.catalog} user=reader_only password=p", None, lake.data_path)
    with (
        closing(LakePool(1)) as pool,
        pytest.raises(ViaduckError, match="permission denied") as refused,
        pool.use(theirs, read_only=False, create=True),
    ):
        pass
    assert refused.value.type == "access_denied"
