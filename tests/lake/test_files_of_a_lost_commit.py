"""H7: what DuckLake deletes when nobody acknowledges its COMMIT on Postgres, and what keeps it from doing so.

``test_kept_files.py`` holds that Viaduck uses the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect, release
from tests.lake.rig import lake_on
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

MERGE = ("CALL ducklake_merge_adjacent_files('l', 't')",)
FLUSH = ("CALL ducklake_flush_inlined_data('l', table_name => 't')",)
MOVE = (
    "INSERT INTO l.t SELECT * FROM l.t WHERE i % 3 = 0 AND i >= 0",
    "DELETE FROM l.t WHERE rowid < 400 AND i % 3 = 0 AND i >= 0",
)
WIDEN = ("ALTER TABLE l.t ADD COLUMN s STRUCT(a INTEGER)", "INSERT INTO l.t SELECT 1, {'a': 1} FROM range(100)")
SUMS = "SELECT count(*), sum(i) FROM l.t"
NO_FILES = {"disk": "LocalFileSystem", "s3": "S3FileSystem"}

Rows = list[tuple[object, ...]]


@dataclass
class Stage:
    """A lake of four files of a hundred rows and twenty inlined rows, and a way to its catalog through ``proxy``."""

    lake: ResolvedLake
    behind: ResolvedLake
    proxy: Proxy
    file_system: str

    def query(self, sql: str) -> Rows:
        with opened(self.lake) as con:
            return con.execute(sql).fetchall()

    def commit(self, work: tuple[str, ...], *, keeps_files: bool, before: Callable[[], object]) -> str:
        """Do ``work`` in one transaction, and ``before`` right before its COMMIT; what that says."""
        with opened(self.behind) as con:
            con.execute("BEGIN")
            for statement in work:
                con.execute(statement).fetchall()
            before()
            if keeps_files:
                con.execute(f"SET disabled_filesystems = '{self.file_system}'")
            with pytest.raises(duckdb.TransactionException) as caught:
                con.execute("COMMIT")
        return str(caught.value)


@contextmanager
def opened(lake: ResolvedLake) -> Iterator[duckdb.DuckDBPyConnection]:
    con = connect()
    try:
        attach(con, "l", lake, read_only=False, create=True)
        yield con
    finally:
        release(con)


@pytest.fixture(params=["disk", "s3"])
def stage(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Iterator[Stage]:
    database = postgres.lend_database()
    s3 = request.getfixturevalue("s3") if request.param == "s3" else None
    lake = lake_on(f"postgres:{postgres.dsn(database)}", s3, tmp_path)
    with opened(lake) as con:
        con.execute("CREATE TABLE l.t (i BIGINT)")
        con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
        for number in range(4):
            con.execute("INSERT INTO l.t SELECT i + ? FROM range(100) r(i)", [number * 100])
        con.execute("CALL l.set_option('data_inlining_row_limit', 50)")
        con.execute("INSERT INTO l.t SELECT -i - 1 FROM range(20) r(i)")
    with Proxy(postgres.port, postgres.host) as proxy:
        behind = replace(lake, catalog=f"postgres:{postgres.dsn(database, port=proxy.port)}")
        yield Stage(lake, behind, proxy, NO_FILES[request.param])
    postgres.take_back(database)


@pytest.mark.parametrize("work", [FLUSH, MOVE, WIDEN], ids=["flush", "move", "widen"])
def test_the_files_of_a_commit_that_nobody_acknowledged_are_deleted(stage: Stage, work: tuple[str, ...]) -> None:
    assert "server closed the connection" in stage.commit(work, keeps_files=False, before=stage.proxy.lose_commits)
    assert stage.proxy.commits_lost == 1
    with pytest.raises((duckdb.IOException, duckdb.HTTPException)):
        stage.query(SUMS)


def test_merged_files_stay_whatever_became_of_their_commit(stage: Stage) -> None:
    before = stage.query(SUMS)
    stage.commit(MERGE, keeps_files=False, before=stage.proxy.lose_commits)
    assert stage.proxy.commits_lost == 1
    assert stage.query(SUMS) == before
    assert stage.query("SELECT count(*) FROM ducklake_list_files('l', 't')") == [(1,)]


@pytest.mark.parametrize("work", [FLUSH, MOVE, WIDEN], ids=["flush", "move", "widen"])
def test_an_instance_without_its_file_system_deletes_none(stage: Stage, work: tuple[str, ...]) -> None:
    more = 100 if work is WIDEN else 0
    [(count, total)] = stage.query("SELECT count(*)::INTEGER, sum(i)::INTEGER FROM l.t")
    said = stage.commit(work, keeps_files=True, before=stage.proxy.lose_commits)
    assert f"File system {stage.file_system} has been disabled" in said
    assert stage.proxy.commits_lost == 1
    assert stage.query(f"SELECT count(*) - {more}, sum(i) - {more} FROM l.t") == [(count, total)]


def test_it_says_the_same_of_a_commit_that_was_refused(stage: Stage) -> None:
    """Which is why a token has to tell the outcome, and another try the reason, also where it is a plain conflict."""

    def conflict() -> None:
        stage.query("DELETE FROM l.t WHERE i IN (3, 103, 203, 303)")

    said = stage.commit(MOVE, keeps_files=True, before=conflict)
    assert f"File system {stage.file_system} has been disabled" in said
    assert "conflict" not in said
    assert stage.query("SELECT count(*) FROM l.t") == [(416,)]
