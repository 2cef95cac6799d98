"""A Postgres that is gone without a word is given up within half a minute, where the kernel would wait far longer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy import make_url, text

from services.control.store.database import Database
from shared.config.catalogs import ResolvedLake, parse_catalog
from shared.contracts.errors import DependencyError
from shared.lake.connection import postgres as postgres_connections
from shared.lake.connection.attach import attach
from shared.lake.connection.bounded import BoundedConnection
from shared.lake.connection.engine import connect
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.connection.query import Question
from shared.lake.connection.statements import Postgres as OwnStatements
from shared.lake.connection.statements import SharedPostgres
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

DATABASE = "half_open"
NOTICED_WITHIN_S = 30
NOTICED_SILENT_WITHIN_S = 10


@pytest.fixture
def lake(postgres: Postgres, tmp_path: Path) -> Iterator[ResolvedLake]:
    postgres.create_database(DATABASE)
    yield ResolvedLake(parse_catalog(postgres.uri(DATABASE), tmp_path), data_path=str(tmp_path))
    postgres.drop_database(DATABASE)


@pytest.fixture(autouse=True)
def others(postgres: Postgres) -> set[int]:
    """Connections that are there already: an instance that an earlier test has lost is never closed (H12)."""
    return ports_of(postgres.port)


def ports_of(port: int) -> set[int]:
    """Our own ends of the connections of this process to a port."""
    return {each.laddr.port for each in _connections(port)}


def _connections(port: int) -> list[Any]:
    return [each for each in psutil.Process().net_connections("tcp") if each.raddr and each.raddr.port == port]


def noticed_within_s(port: int, others: set[int]) -> list[float]:
    """After how long each connection of ours to a port ends whose other end is gone, said the last to it or not."""
    return [_patience_s(each.fd) for each in _connections(port) if each.laddr.port not in others]


def _patience_s(fd: int) -> float:
    with socket.socket(fileno=os.dup(fd)) as own:
        idle, interval, count = (
            own.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        unheard_s = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
    return max(idle + interval * count, unheard_s or float("inf"))


def test_by_a_lake_that_is_attached(lake: ResolvedLake, postgres: Postgres, others: set[int]) -> None:
    with closing(connect()) as con:
        attach(con, "lake", lake, read_only=False, create=True)
        found = noticed_within_s(postgres.port, others)
    assert found
    assert max(found) <= NOTICED_WITHIN_S


def test_by_our_own_looks_at_a_catalog(lake: ResolvedLake, postgres: Postgres, others: set[int]) -> None:
    with closing(OwnStatements(lake.conninfo)) as own:
        own.rows(Question("SELECT 1"))
        found = noticed_within_s(postgres.port, others)
    assert len(found) == 1
    assert max(found) <= NOTICED_WITHIN_S


def test_by_control_that_asks_its_registry(lake: ResolvedLake, postgres: Postgres, others: set[int]) -> None:
    with closing(Database(make_url(postgres.uri(DATABASE)).set(drivername="postgresql+psycopg"))) as registry:
        registry.prepare()
        found = noticed_within_s(postgres.port, others)
    assert len(found) == 1
    assert max(found) <= NOTICED_WITHIN_S


def test_a_registry_that_falls_silent_is_given_up_while_its_connections_stay_open(
    lake: ResolvedLake, postgres: Postgres
) -> None:
    """Its machine, or a proxy before it, confirms what is sent, so the kernel waits on."""
    with Proxy(postgres.port) as proxy, closing(_registry(postgres.uri(DATABASE, port=proxy.port))) as registry:
        registry.prepare()
        with pytest.raises(DependencyError, match="no answer within 1 s"):
            _asked_in_silence(registry, proxy)
        proxy.heal()
        assert registry.problem() is None


def test_a_registry_that_is_silent_already_is_given_up_within_seconds(lake: ResolvedLake, postgres: Postgres) -> None:
    with Proxy(postgres.port) as proxy, closing(_registry(postgres.uri(DATABASE, port=proxy.port), 60.0)) as registry:
        registry.prepare()
        proxy.silence()
        began = time.monotonic()
        assert registry.problem() is not None
        assert time.monotonic() - began < NOTICED_SILENT_WITHIN_S
        proxy.heal()
        assert registry.problem() is None


def test_a_catalog_that_falls_silent_is_given_up_while_its_connection_stays_open(
    lake: ResolvedLake, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader waited for its source without end, and looked at it again only after a restart."""
    monkeypatch.setattr(BoundedConnection, "silent_for_s", 1.0)
    with Proxy(postgres.port) as proxy:
        behind = parse_catalog(postgres.uri(DATABASE, port=proxy.port), tmp_path)
        with closing(OwnStatements(ResolvedLake(behind).conninfo)) as own:
            own.rows(Question("SELECT 1"))
            proxy.silence()
            with pytest.raises(psycopg.OperationalError, match="no answer within 1 s"):
                own.rows(Question("SELECT 1"))
            proxy.heal()
            assert len(own.rows(Question("SELECT 1"))) == 1


def test_so_is_a_silent_catalog_that_is_committed_to(
    lake: ResolvedLake, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits longer than a question: as long as its statements may take at the server."""
    assert postgres_connections.Connection.silent_for_s > postgres_connections.BATCH_S
    assert postgres_connections.BATCH_S > postgres_connections.COMMIT_STATEMENT_S
    monkeypatch.setattr(postgres_connections.Connection, "silent_for_s", 1.0)
    with Proxy(postgres.port) as proxy, closing(PostgresConnections(1)) as connections:
        behind = ResolvedLake(parse_catalog(postgres.uri(DATABASE, port=proxy.port), tmp_path))
        shared = SharedPostgres(connections, behind.conninfo)
        shared.rows(Question("SELECT 1"))
        proxy.silence()
        with pytest.raises(psycopg.OperationalError, match="no answer within 1 s"):
            shared.rows(Question("SELECT 1"))
        proxy.heal()
        assert len(shared.rows(Question("SELECT 1"))) == 1


def test_a_connection_that_the_server_has_ended_is_known_for_it_unless_another_thread_uses_it(
    lake: ResolvedLake,
) -> None:
    """What that thread waits for is an answer."""
    with closing(OwnStatements(lake.conninfo)) as own, psycopg.connect(lake.conninfo, autocommit=True) as con:
        ((pid,),) = (row.values() for row in own.rows(Question("SELECT pg_backend_pid()")))
        found = [own.is_cut_off]
        con.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        found.append(own.is_cut_off)
        with own._asking:
            found.append(own.is_cut_off)
        with pytest.raises(psycopg.OperationalError):
            own.rows(Question("SELECT 1"))
        assert [*found, own.is_cut_off] == [False, True, False, False]


def _asked_in_silence(registry: Database, proxy: Proxy) -> None:
    with registry.transaction() as con:
        proxy.silence()
        con.execute(text("SELECT 1"))


def _registry(uri: str, silent_for_s: float = 1.0) -> Database:
    return Database(make_url(uri).set(drivername="postgresql+psycopg"), silent_for_s=silent_for_s)


def test_but_a_user_may_have_more_patience(lake: ResolvedLake, postgres: Postgres, others: set[int]) -> None:
    with closing(
        OwnStatements(f"{lake.conninfo} keepalives_idle=50 keepalives_interval=50 tcp_user_timeout=200000")
    ) as own:
        own.rows(Question("SELECT 1"))
        assert noticed_within_s(postgres.port, others) == [200]
