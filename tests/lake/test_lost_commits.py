"""A COMMIT whose acknowledgement never comes back, on a real Postgres: the server did it, the client can't know."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

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


def test_a_commit_that_never_reaches_the_server_is_none(postgres: Postgres, proxy: Proxy) -> None:
    with psycopg.connect(postgres.dsn(DATABASE, port=proxy.port)) as con:
        con.execute("INSERT INTO t VALUES (1)")
        proxy.cut_after(0, "server")
        with pytest.raises(psycopg.OperationalError):
            con.commit()
    assert rows(postgres) == []
