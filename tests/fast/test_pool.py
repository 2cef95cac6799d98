"""Whose keys DuckDB takes for which files, where one instance holds the lakes of many tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.errors import ViaduckError
from shared.lake.engine import connect
from shared.lake.pool import LakePool


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect()) as made:
        yield made


@pytest.fixture
def pool(con: duckdb.DuckDBPyConnection) -> Iterator[LakePool]:
    with closing(LakePool(con, 100)) as made:
        yield made


def lake(folder: Path, name: str, key: str | None, data_path: str | None = "") -> ResolvedLake:
    """One whose files nobody looks at; with ``data_path`` None, as somebody says who leaves it to the catalog."""
    properties = {} if key is None else {"s3_access_key_id": key, "s3_secret_access_key": "secret"}
    path = f"s3://bucket/{name}" if data_path == "" else data_path
    return ResolvedLake(f"sqlite:{folder}/{name}.sqlite", data_path=path, properties=properties)


def use(pool: LakePool, *lakes: ResolvedLake) -> None:
    with ExitStack() as stack:
        for each in lakes:
            stack.enter_context(pool.use(each, read_only=False, create=True))


def key_for(con: duckdb.DuckDBPyConnection, path: str) -> str | None:
    found = con.execute(
        "SELECT regexp_extract(secret_string, 'key_id=([^;]*)', 1) FROM duckdb_secrets()"
        " WHERE name = (SELECT name FROM which_secret(?, 's3'))",
        [path],
    ).fetchone()
    return None if found is None else str(found[0])


def test_keys_open_the_files_below_their_own_data_path_and_no_others(
    con: duckdb.DuckDBPyConnection, pool: LakePool, tmp_path: Path
) -> None:
    use(pool, lake(tmp_path, "tenant-1", "one"), lake(tmp_path, "tenant-10", None))
    assert key_for(con, "s3://bucket/tenant-1/main/t/file.parquet") == "one"
    assert key_for(con, "s3://bucket/tenant-10/main/t/file.parquet") == ""


def test_keys_without_a_data_path_open_what_the_catalog_says(
    con: duckdb.DuckDBPyConnection, pool: LakePool, tmp_path: Path
) -> None:
    use(pool, lake(tmp_path, "tenant-1", "one"))
    pool.close()
    use(pool, lake(tmp_path, "tenant-1", "one", data_path=None))
    assert key_for(con, "s3://bucket/tenant-1/file.parquet") == "one"
    assert key_for(con, "s3://bucket/tenant-2/file.parquet") is None


@pytest.mark.parametrize("others", [2, 9])
def test_new_keys_take_the_place_of_the_old_whatever_else_is_open(
    con: duckdb.DuckDBPyConnection, pool: LakePool, tmp_path: Path, others: int
) -> None:
    """Of two for one path DuckDB takes the first by name, so it depends on how many lakes were opened before."""
    use(pool, lake(tmp_path, "tenant-1", "old"), *(lake(tmp_path, f"other-{n}", "other") for n in range(others)))
    use(pool, lake(tmp_path, "tenant-1", "new"))
    assert key_for(con, "s3://bucket/tenant-1/file.parquet") == "new"
    assert len(pool) == others + 1


def test_new_keys_serve_whoever_still_holds_the_lake_with_the_old(
    con: duckdb.DuckDBPyConnection, pool: LakePool, tmp_path: Path
) -> None:
    with pool.use(lake(tmp_path, "tenant-1", "old"), read_only=False, create=True) as held:
        use(pool, lake(tmp_path, "tenant-1", "new"))
        assert key_for(con, "s3://bucket/tenant-1/file.parquet") == "new"
        assert con.execute(f"SELECT count(*) FROM {held.alias}.snapshots()").fetchall() == [(1,)]
    assert key_for(con, "s3://bucket/tenant-1/file.parquet") == "new"
    assert len(pool) == 1


def test_keys_that_can_not_be_used_leave_nothing_attached(
    con: duckdb.DuckDBPyConnection, pool: LakePool, tmp_path: Path
) -> None:
    made = lake(tmp_path, "tenant-1", "one")
    broken = ResolvedLake(made.catalog, data_path=made.data_path, properties={**made.properties, "s3_use_ssl": "maybe"})
    with pytest.raises(ViaduckError):
        use(pool, broken)
    assert (
        con.execute("SELECT database_name FROM duckdb_databases() WHERE database_name LIKE 'lake_%'").fetchall() == []
    )
    assert len(pool) == 0
