"""Every lake has an instance of its own: whose keys it has, which files it reaches, and what it costs to lose one."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.connection.postgres import PostgresConnections
from tests.fast.waiting import eventually


@pytest.fixture
def pool() -> Iterator[LakePool]:
    with closing(LakePool(100)) as made:
        yield made


def lake(folder: Path, name: str, key: str | None, data_path: str | None = "") -> ResolvedLake:
    """One whose files nobody looks at; with ``data_path`` None, as somebody says who leaves it to the catalog."""
    properties = {} if key is None else {"s3_access_key_id": key, "s3_secret_access_key": "secret"}
    path = f"s3://bucket/{name}" if data_path == "" else data_path
    return ResolvedLake(f"sqlite:{folder}/{name}.sqlite", data_path=path, properties=properties)


def use(pool: LakePool, *lakes: ResolvedLake) -> list[OpenLake]:
    with ExitStack() as stack:
        return [stack.enter_context(pool.use(each, read_only=False, create=True)) for each in lakes]


def key_for(lake: OpenLake, path: str) -> str | None:
    found = lake.con.execute(
        "SELECT regexp_extract(secret_string, 'key_id=([^;]*)', 1) FROM duckdb_secrets()"
        " WHERE name = (SELECT name FROM which_secret(?, 's3'))",
        [path],
    ).fetchone()
    return None if found is None else str(found[0])


def test_a_lake_s_keys_open_the_files_below_its_own_data_path_and_nobody_else_has_them(
    pool: LakePool, tmp_path: Path
) -> None:
    one, ten = use(pool, lake(tmp_path, "tenant-1", "one"), lake(tmp_path, "tenant-10", None))
    assert key_for(one, "s3://bucket/tenant-1/main/t/file.parquet") == "one"
    assert key_for(one, "s3://bucket/tenant-10/main/t/file.parquet") is None
    assert key_for(ten, "s3://bucket/tenant-1/main/t/file.parquet") is None
    assert key_for(ten, "s3://bucket/tenant-10/main/t/file.parquet") == ""


def test_keys_without_a_data_path_open_what_the_catalog_says(pool: LakePool, tmp_path: Path) -> None:
    use(pool, lake(tmp_path, "tenant-1", "one"))
    pool.close()
    (one,) = use(pool, lake(tmp_path, "tenant-1", "one", data_path=None))
    assert key_for(one, "s3://bucket/tenant-1/file.parquet") == "one"
    assert key_for(one, "s3://bucket/tenant-2/file.parquet") is None


def test_new_keys_are_another_lake_s_and_serve_whoever_comes_with_them(pool: LakePool, tmp_path: Path) -> None:
    with pool.use(lake(tmp_path, "tenant-1", "old"), read_only=False, create=True) as held:
        (new,) = use(pool, lake(tmp_path, "tenant-1", "new"))
        assert key_for(new, "s3://bucket/tenant-1/file.parquet") == "new"
        assert key_for(held, "s3://bucket/tenant-1/file.parquet") == "old"
        assert held.con.execute(f"SELECT count(*) FROM {held.alias}.snapshots()").fetchall() == [(1,)]


def test_an_instance_reaches_its_own_lake_and_nothing_else_for_as_long_as_it_lives(
    pool: LakePool, tmp_path: Path
) -> None:
    file, data = tmp_path / "theirs.csv", tmp_path / "data"
    file.write_text("secret\n1\n")
    (held,) = use(pool, lake(tmp_path, "tenant-1", None, data_path=str(data)))
    held.con.execute(f"COPY (SELECT 1) TO '{data}/own.csv'")
    for reaching in (
        f"FROM read_csv('{file}')",
        f"FROM read_csv('{data}/../theirs.csv')",
        f"COPY (SELECT 1) TO '{tmp_path}/more.csv'",
        f"ATTACH '{tmp_path}/more.duckdb'",
        "FROM read_text('/etc/passwd')",
        "FROM read_csv('http://127.0.0.1:1/file.csv')",
        "ATTACH 'postgres:host=127.0.0.1 port=1' AS other",
    ):
        with pytest.raises(duckdb.PermissionException, match="disabled"):
            held.con.execute(reaching)
    for loosening in ("SET enable_external_access = true", f"SET allowed_directories = ['{tmp_path}/']"):
        with pytest.raises(duckdb.InvalidInputException):
            held.con.execute(loosening)


def test_keys_that_can_not_be_used_leave_nothing_attached(pool: LakePool, tmp_path: Path) -> None:
    made = lake(tmp_path, "tenant-1", "one")
    broken = ResolvedLake(made.catalog, data_path=made.data_path, properties={**made.properties, "s3_use_ssl": "maybe"})
    with pytest.raises(ViaduckError):
        use(pool, broken)
    assert len(pool) == 0


def test_a_lake_whose_instance_is_lost_is_opened_anew_and_no_other(pool: LakePool, tmp_path: Path) -> None:
    first, second = lake(tmp_path, "tenant-1", None), lake(tmp_path, "tenant-2", None)
    lost, kept = use(pool, first, second)
    lost.con = Lost(lost.con)  # type: ignore[assignment]
    with pytest.raises(RuntimeError), pool.use(first, read_only=False):
        raise RuntimeError("as whatever it may come out")
    assert use(pool, second) == [kept]
    (anew,) = use(pool, first)
    assert anew is not lost
    assert anew.con.execute("SELECT 1").fetchall() == [(1,)]


class Lost:
    """What is left of an instance that was invalidated."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def cursor(self) -> Lost:
        return self

    def execute(self, sql: str) -> None:
        raise duckdb.FatalException("database has been invalidated")

    def close(self) -> None: ...


class Slow:
    """A connection whose every statement takes until ``go`` is set; ``said`` are those that have begun."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.go = threading.Event()

    def execute(self, statement: str) -> None:
        self.said.append(statement.split()[0])
        assert self.go.wait(10)


def test_one_thread_at_a_time_loads_a_lake_s_schema(tmp_path: Path) -> None:
    """Two would each free what the other has got (H21), which shows by chance alone."""
    open_lake, first, second = OpenLake(lake(tmp_path, "shared", None), PostgresConnections(1)), Slow(), Slow()
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(open_lake.begin, first)  # type: ignore[arg-type]
        eventually(lambda: first.said)
        other = threads.submit(open_lake.begin, second)  # type: ignore[arg-type]
        time.sleep(0.1)
        assert second.said == []
        first.go.set()
        second.go.set()
        one.result(10)
        other.result(10)
    assert (first.said, second.said) == (["BEGIN", "EXPLAIN"], ["BEGIN", "EXPLAIN"])


def test_a_transaction_begins_with_the_schema_loaded_and_makes_nothing(pool: LakePool, tmp_path: Path) -> None:
    (held,) = use(pool, lake(tmp_path, "shared", None))
    with closing(held.cursor()) as con:
        held.begin(con)
        con.execute("COMMIT")
        held.load(con)
    assert held.con.execute(f"SELECT count(*) FROM {held.alias}.snapshots()").fetchall() == [(1,)]


def test_a_catalog_file_that_was_replaced_is_attached_anew(pool: LakePool, tmp_path: Path) -> None:
    place = lake(tmp_path, "replaced", None)
    (before,) = use(pool, place)
    file = tmp_path / "replaced.sqlite"
    shutil.copyfile(file, tmp_path / "copy")
    (tmp_path / "copy").replace(file)
    (after,) = use(pool, place)
    assert after is not before
    assert use(pool, place) == [after]
