"""A COMMIT that nobody acknowledges, on a real Postgres: the server did it, does it later, or never; who sent it can't
know."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.fast.waiting import eventually
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

DATABASE = "lost_commits"


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    postgres.create_database(DATABASE)
    with postgres.connect(DATABASE) as con:
        con.execute("CREATE TABLE t (i int)")
    with Proxy(postgres.port, postgres.host) as proxy:
        yield proxy
    postgres.drop_database(DATABASE)


def rows(postgres: Postgres) -> list[int]:
    with postgres.connect(DATABASE) as con:
        return [row[0] for row in con.execute("SELECT i FROM t ORDER BY i").fetchall()]


def write(postgres: Postgres, proxy: Proxy, number: int) -> None:
    with psycopg.connect(postgres.dsn(DATABASE, port=proxy.port)) as con:
        con.execute("INSERT INTO t VALUES (%s)", [number])


def test_the_server_commits_and_the_client_hears_nothing(postgres: Postgres, proxy: Proxy) -> None:
    proxy.lose_commits(2)
    for number in (1, 2):
        with pytest.raises(psycopg.OperationalError):
            write(postgres, proxy, number)
    write(postgres, proxy, 3)
    assert rows(postgres) == [1, 2, 3]
    assert proxy.commits_lost == 2


def test_only_transactions_that_hold_a_text_are_lost(postgres: Postgres, proxy: Proxy) -> None:
    proxy.lose_commits(1, holds=b"UPDATE t")
    write(postgres, proxy, 1)
    with pytest.raises(psycopg.OperationalError), psycopg.connect(postgres.dsn(DATABASE, port=proxy.port)) as con:
        con.execute("UPDATE t SET i = 5")
    assert rows(postgres) == [5]


@pytest.mark.parametrize("late_s", [0.0, 0.5])
def test_a_client_that_was_cut_off_after_its_commit_is_committed_by_and_by(
    postgres: Postgres, proxy: Proxy, late_s: float
) -> None:
    proxy.cut_commits(1, late_s)
    began = time.monotonic()
    with pytest.raises(psycopg.OperationalError):
        write(postgres, proxy, 1)
    if late_s:
        assert rows(postgres) == []
    eventually(lambda: proxy.commits_arrived == 1, 5.0)
    assert time.monotonic() - began >= late_s
    assert rows(postgres) == [1]
    write(postgres, proxy, 2)
    assert rows(postgres) == [1, 2]
    assert (proxy.commits_cut, proxy.commits_lost) == (1, 0)


def test_a_client_that_was_cut_off_together_with_its_commit_has_done_nothing(postgres: Postgres, proxy: Proxy) -> None:
    proxy.cut_commits(1, None, holds=b"INSERT INTO t")
    with pytest.raises(psycopg.OperationalError):
        write(postgres, proxy, 1)
    write(postgres, proxy, 2)
    assert rows(postgres) == [2]
    assert (proxy.commits_cut, proxy.commits_arrived, proxy.commits_lost) == (1, 0, 0)


def test_a_commit_that_never_reaches_the_server_is_none(postgres: Postgres, proxy: Proxy) -> None:
    with psycopg.connect(postgres.dsn(DATABASE, port=proxy.port)) as con:
        con.execute("INSERT INTO t VALUES (1)")
        proxy.cut_after(0, "server")
        with pytest.raises(psycopg.OperationalError):
            con.commit()
    assert rows(postgres) == []
