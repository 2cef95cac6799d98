"""Somebody holds a lock on a lake's catalog for good: what DuckDB asks of it ends, and says that nobody answers."""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.failure import classify
from tests.servers.postgres import Postgres

TABLES = ("ducklake_snapshot", "ducklake_data_file")


@pytest.fixture
def lake(postgres: Postgres, tmp_path: Path) -> ResolvedLake:
    database = f"locked_{secrets.token_hex(4)}"
    postgres.create_database(database)
    lake = ResolvedLake(f"postgres:{postgres.dsn(database)}", None, f"{tmp_path}/")
    with closing(connect()) as con:
        attach(con, "l", lake, read_only=False, create=True)
        con.execute("CREATE OR REPLACE TABLE l.t AS SELECT 1 AS i")
    return lake


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.lake.connection.attach.READ_STATEMENT_S", 0.5)
    monkeypatch.setattr("shared.lake.connection.attach.WRITE_STATEMENT_S", 0.5)


@contextmanager
def locked(lake: ResolvedLake, table: str, mode: str = "ACCESS EXCLUSIVE") -> Iterator[None]:
    with psycopg.connect(lake.conninfo) as owner:
        owner.execute(f"LOCK TABLE public.{table} IN {mode} MODE")
        yield
        owner.rollback()


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("table", TABLES)
def test_a_read_of_a_locked_catalog_ends_and_the_next_one_is_answered(lake: ResolvedLake, table: str) -> None:
    with closing(connect()) as con:
        attach(con, "l", lake, read_only=True)
        with locked(lake, table), pytest.raises(duckdb.Error, match="statement timeout") as refused:
            con.execute("FROM l.t").fetchall()
        told = classify(refused.value, "reading")
        assert isinstance(told, ViaduckError)
        assert told.type == "destination_unreachable"
        assert con.execute("FROM l.t").fetchall() == [(1,)]


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("hasty")
def test_a_commit_into_a_locked_catalog_ends_and_has_written_nothing(lake: ResolvedLake) -> None:
    with closing(connect()) as con:
        attach(con, "l", lake, read_only=False)
        con.execute("BEGIN")
        con.execute("INSERT INTO l.t VALUES (2)")
        with locked(lake, "ducklake_snapshot", "EXCLUSIVE"), pytest.raises(duckdb.Error, match="statement timeout"):
            con.execute("COMMIT")
        assert con.execute("FROM l.t").fetchall() == [(1,)]
        con.execute("INSERT INTO l.t VALUES (3)")
        assert con.execute("FROM l.t ORDER BY i").fetchall() == [(1,), (3,)]


def test_a_pooler_that_takes_no_options_is_asked_without_them(lake: ResolvedLake) -> None:
    words = conninfo_to_dict(lake.conninfo)
    with pooler(str(words["host"]), int(str(words["port"]))) as (port, asked):
        behind = ResolvedLake(f"postgres:{make_conninfo('', **{**words, 'port': str(port)})}", None, lake.data_path)
        with closing(connect()) as con:
            attach(con, "l", behind, read_only=True)
            assert con.execute("FROM l.t").fetchall() == [(1,)]
        assert True in asked, "with options first"
        assert False in asked


REFUSAL = "unsupported startup parameter in options: statement_timeout"


@contextmanager
def pooler(host: str, port: int) -> Iterator[tuple[int, list[bool]]]:
    """As PgBouncer does it. Yields its port, and of each connection whether it came with options."""
    asked: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, (host, port), asked), daemon=True).start()
        yield listening.getsockname()[1], asked


def _serve(listening: socket.socket, behind: tuple[str, int], asked: list[bool]) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_speak, args=(client, behind, asked), daemon=True).start()


def _speak(client: socket.socket, behind: tuple[str, int], asked: list[bool]) -> None:
    with client:
        while (hello := client.recv(4096))[4:8] in (struct.pack("!I", 80877103), struct.pack("!I", 80877104)):
            client.sendall(b"N")  # no TLS
        asked.append(b"statement_timeout" in hello)
        if asked[-1]:
            said = b"SFATAL\0C08P01\0M" + REFUSAL.encode() + b"\0\0"
            client.sendall(b"E" + struct.pack("!I", len(said) + 4) + said)
            return
        with socket.create_connection(behind) as server:
            server.sendall(hello)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join(5)


def _copy(from_: socket.socket, to: socket.socket) -> None:
    try:
        while data := from_.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        return
