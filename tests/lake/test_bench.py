"""The benchmarks measure work that is done right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from bench import lookup
from bench.lakes import SqliteLakes
from bench.single_process import SingleProcess, SourceTable
from bench.stand import open_lake
from bench.workload import KEY_COLUMN, ROUTING_FIELD, SCHEMA, TABLE, SourceWriter, Workload, committed, tenant_names
from shared.lake.connection.engine import connect

TINY = Workload("tiny", tenants=4, seeded=400, commits=2, inserts=60, updates=30, deletes=10, touched_tenants=3)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect()) as con:
        yield con


@pytest.fixture
def lakes(tmp_path: Path) -> SqliteLakes:
    return SqliteLakes(tmp_path)


def test_the_single_process_is_exact_and_touches_only_who_changed(
    con: duckdb.DuckDBPyConnection, lakes: SqliteLakes
) -> None:
    open_lake(con, "source", lakes.new("source"))
    for tenant in tenant_names(TINY):
        open_lake(con, tenant, lakes.new(tenant))
    writer = SourceWriter(con, "source", TINY)
    table = SourceTable("source", SCHEMA, TABLE, ROUTING_FIELD, KEY_COLUMN)
    alone = SingleProcess(con, table, {tenant: tenant for tenant in tenant_names(TINY)})

    writer.seed()
    alone.seed(committed(con, "source"))
    assert alone.unequal() == []

    quiet = committed(con, "tenant003")
    for _ in range(2):
        writer.run()
        assert alone.apply_changes(committed(con, "source")) == TINY.changes
    assert alone.unequal() == []
    assert committed(con, "tenant003") == quiet


def test_it_notices_a_wrong_destination(con: duckdb.DuckDBPyConnection, lakes: SqliteLakes) -> None:
    open_lake(con, "source", lakes.new("source"))
    open_lake(con, "tenant000", lakes.new("tenant000"))
    SourceWriter(con, "source", TINY).seed()
    table = SourceTable("source", SCHEMA, TABLE, ROUTING_FIELD, KEY_COLUMN)
    alone = SingleProcess(con, table, {"tenant000": "tenant000"})
    alone.seed(committed(con, "source"))
    con.execute(f"UPDATE tenant000.{SCHEMA}.{TABLE} SET amount = -1 WHERE id = 0")
    assert alone.unequal() == ["tenant000"]


def test_a_run_makes_as_many_commits_as_its_case_says(con: duckdb.DuckDBPyConnection, lakes: SqliteLakes) -> None:
    lake = lakes.new("source")
    open_lake(con, "source", lake)
    writer = SourceWriter(con, "source", TINY)
    writer.seed()
    before, at = committed(con, "source"), lakes.last_commit(lake)
    writer.run()
    assert committed(con, "source") - before == TINY.commits
    assert lakes.last_commit(lake) > at


@pytest.mark.parametrize("bloom", [False, True])
def test_lookups_are_measured_where_all_keys_are_found(tmp_path: Path, *, bloom: bool) -> None:
    found = lookup.measure(tmp_path, lookup.Layout(files=3, rows=40, type="VARCHAR", keys=4, bloom=bloom), lookups=2)
    assert found.first_ms > 0
    filters = duckdb.sql(f"SELECT bloom_filter_offset FROM parquet_metadata('{tmp_path}/*.parquet')").fetchall()
    assert all((offset is not None) is bloom for (offset,) in filters)
