"""Other writers of a catalog wait while one that lost too often looks and commits: for a bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.connection.query import Question
from shared.lake.direct import catalogs
from shared.lake.direct.batch import CommitBatch
from shared.lake.direct.catalogs import PostgresCatalog, RivalCommitted, SqliteCatalog
from tests.fast.waiting import eventually
from tests.servers.postgres import Postgres

ADD = "INSERT INTO public.ducklake_snapshot VALUES (DEFAULT)"
COUNT = Question("SELECT count(*) AS found FROM public.ducklake_snapshot")
ELSEWHERE = Question("SELECT count(*) AS found FROM public.gone")
OURS = Question("INSERT INTO meta.ducklake_metadata (key, value) VALUES ('ours', 'x')")
WRITING = CommitBatch(1, OURS, Question("SELECT 1 AS held"), ())
NOTHING = CommitBatch(1, Question("SELECT 1"), Question("SELECT 1 AS held"), (Question("SELECT 2"),))


@pytest.fixture
def rival(postgres: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """Another writer, who waits a tenth of a second for a lock."""
    database = postgres.lend_database()
    with psycopg.connect(postgres.dsn(database), autocommit=True) as con:
        con.execute("CREATE TABLE ducklake_snapshot (snapshot_id bigserial PRIMARY KEY)")
        con.execute("SET lock_timeout = '100ms'")
        yield con
    postgres.take_back(database)


@pytest.fixture
def catalog(rival: psycopg.Connection[Any]) -> Iterator[PostgresCatalog]:
    with another(rival) as con:
        yield PostgresCatalog(con, "public")


def another(rival: psycopg.Connection[Any]) -> closing[psycopg.Connection[Any]]:
    dsn = f"{rival.info.dsn} password={rival.info.password}"
    return closing(psycopg.connect(dsn, autocommit=True))


def is_kept_out(rival: psycopg.Connection[Any]) -> bool:
    try:
        rival.execute(ADD)
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def test_others_wait_until_the_batch_is_committed(rival: psycopg.Connection[Any], catalog: PostgresCatalog) -> None:
    assert not is_kept_out(rival)
    with catalog.alone():
        assert (catalog.ask(COUNT), is_kept_out(rival)) == ("1", True)
        with pytest.raises(psycopg.errors.UndefinedTable):
            catalog.ask(ELSEWHERE)
        assert (catalog.ask(COUNT), is_kept_out(rival)) == ("1", True), "a look that failed leaves the others out"
        catalog.commit(NOTHING)
        assert not is_kept_out(rival)
    assert catalog.ask(COUNT) == "2"
    with pytest.raises(KeyError), catalog.alone():
        raise KeyError
    assert not is_kept_out(rival)


def test_a_role_that_may_not_keep_others_out_goes_on_without_it(rival: psycopg.Connection[Any]) -> None:
    rival.execute(
        "CREATE ROLE only_inserts; GRANT USAGE ON SCHEMA public TO only_inserts;"
        " GRANT INSERT, SELECT ON ducklake_snapshot TO only_inserts"
    )
    try:
        with another(rival) as con:
            con.execute("SET ROLE only_inserts")
            limited = PostgresCatalog(con, "public")
            with limited.alone():
                assert not is_kept_out(rival)
                assert limited.ask(COUNT) == "1"
                limited.commit(NOTHING)
    finally:
        rival.execute("DROP OWNED BY only_inserts; DROP ROLE only_inserts")


def test_a_transaction_that_lasts_is_not_waited_for(
    rival: psycopg.Connection[Any], catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "ALONE_WAIT_S", 1)
    with rival.transaction():
        rival.execute(ADD)
        with catalog.alone():
            assert catalog.ask(COUNT) == "0"
            catalog.commit(NOTHING)


def test_others_are_not_kept_out_for_longer_than_is_allowed(
    rival: psycopg.Connection[Any], catalog: PostgresCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes too late gives up by itself; one that freezes is ended by the server."""
    with catalog.alone(), monkeypatch.context() as patched:
        patched.setattr(catalogs, "ALONE_S", 0)
        with pytest.raises(RivalCommitted):
            catalog.commit(NOTHING)
    assert not is_kept_out(rival)
    monkeypatch.setattr(catalogs, "ALONE_S", 1)
    with catalog.alone():
        assert is_kept_out(rival)
        eventually(lambda: not is_kept_out(rival))
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            catalog.ask(COUNT)


ROWS = Question("SELECT count(*) AS found FROM {}ducklake_metadata WHERE key <> :none", {}, {"none": ""})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "lake.sqlite"
    with closing(connect()) as con:
        attach(con, "l", ResolvedLake(f"sqlite:{file}", None, str(tmp_path / "data")), read_only=False, create=True)
    return file


def opened(file: Path) -> duckdb.DuckDBPyConnection:
    """As another process would; it waits a tenth of a second for the lock."""
    con = connect()
    con.execute(f"ATTACH '{file}' AS meta (TYPE sqlite, BUSY_TIMEOUT 100)")
    return con


def is_locked_out(rival: duckdb.DuckDBPyConnection) -> bool:
    try:
        rival.execute("INSERT INTO meta.ducklake_metadata (key, value) VALUES ('theirs', 'x')")
    except duckdb.Error as error:
        if "database is locked" not in str(error):
            raise
        return True
    return False


def test_others_of_a_file_wait_until_the_batch_is_committed(file: Path) -> None:
    with closing(opened(file)) as con, closing(opened(file)) as rival:
        catalog = SqliteCatalog(con, "meta")
        before = int(catalog.ask(ROWS))
        with catalog.alone():
            assert is_locked_out(rival)
            assert int(catalog.ask(ROWS)) == before
            catalog.commit(NOTHING)
            assert not is_locked_out(rival)
        assert int(catalog.ask(ROWS)) == before + 1
        with pytest.raises(KeyError), catalog.alone():
            raise KeyError
        assert not is_locked_out(rival)


def test_others_of_a_file_are_not_kept_out_by_one_that_comes_too_late(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(file)) as con, closing(opened(file)) as rival:
        catalog = SqliteCatalog(con, "meta")
        with catalog.alone(), monkeypatch.context() as patched:
            patched.setattr(catalogs, "ALONE_S", 0)
            with pytest.raises(RivalCommitted):
                catalog.commit(NOTHING)
        assert not is_locked_out(rival)


def test_a_lock_on_a_file_that_lasts_is_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "ALONE_WAIT_S", 0.2)
    with closing(opened(file)) as con, closing(opened(file)) as rival:
        catalog = SqliteCatalog(con, "meta")
        rival.execute("BEGIN")
        assert not is_locked_out(rival)
        with catalog.alone(), pytest.raises(RivalCommitted, match="another writer was quicker"):
            catalog.commit(WRITING)
        rival.execute("COMMIT")
        with catalog.alone():
            catalog.commit(WRITING)
