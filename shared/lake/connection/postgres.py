"""Connections to the databases of Postgres catalogs, which stay open between uses: each costs the server a process."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from shared.config.catalogs import patient
from shared.lake.connection.bounded import SILENT_FOR_S, BoundedConnection, has_ended
from shared.lake.connection.distance import Distance

SPELLINGS = "SET search_path = pg_catalog; SET bytea_output = 'hex';"
"""What names mean and how bytes are spelled, whatever the owner of a server, a database or a role has set for all
connections: a database may have functions of its own under the names of Postgres's."""

OWN_SETTINGS = f"{SPELLINGS} SET statement_timeout = '30s'".encode()
"""Run once on each connection that only reads: another client's lock must not block Viaduck."""

BATCH_S = 30
"""How long the server lets a batch last. A process that freezes within it has claimed the number of a snapshot, and its
server waits for the rest: that is neither idle in transaction nor a statement that takes too long, and only
``transaction_timeout`` (Postgres 17) ends it."""

COMMIT_STATEMENT_S = 25
"""Shorter, so that a batch that waits for a rival is refused and not cut off."""


class Connection(BoundedConnection):
    """One whose server answers later than any batch may take has lost its server."""

    silent_for_s = BATCH_S + SILENT_FOR_S


@dataclass
class _Idle:
    conninfo: str
    con: psycopg.Connection[Any]


class PostgresConnections:
    """Connections to Postgres databases that no thread uses now, at most ``limit``; the oldest are closed first.

    ``distance`` is that of the servers, as direct commits find it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.distance = Distance()
        self._idle: OrderedDict[int, _Idle] = OrderedDict()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._idle)

    @contextlib.contextmanager
    def use(self, conninfo: str, *harmless: type[Exception]) -> Iterator[psycopg.Connection[Any]]:
        """A connection for the caller alone. After any error it is closed, but for those ``harmless`` to it."""
        con = self._take(conninfo) or _connected(conninfo)
        try:
            yield con
        except harmless:
            self._give_back(_Idle(conninfo, con))
            raise
        except BaseException:
            con.close()
            raise
        self._give_back(_Idle(conninfo, con))

    def close_idle(self, conninfo: str) -> None:
        """Close those to one database that are not in use: a server's connections are few where tenants are many."""
        while (con := self._newest(conninfo)) is not None:
            con.close()

    def _take(self, conninfo: str) -> psycopg.Connection[Any] | None:
        while (con := self._newest(conninfo)) is not None and has_ended(con):
            con.close()
        return con

    def _newest(self, conninfo: str) -> psycopg.Connection[Any] | None:
        with self._lock:
            number = next((n for n in reversed(self._idle) if self._idle[n].conninfo == conninfo), None)
            return None if number is None else self._idle.pop(number).con

    def _give_back(self, idle: _Idle) -> None:
        if idle.con.closed:
            return
        with self._lock:
            self._idle[next(self._numbers)] = idle
            surplus = [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - self._limit)]
        for each in surplus:
            each.con.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for each in idle:
            each.con.close()


def _connected(conninfo: str) -> psycopg.Connection[Any]:
    con = Connection.connect(patient(conninfo), autocommit=True)
    con.execute(_shared_settings())
    return con


def _shared_settings() -> bytes:
    """The same as ``OWN_SETTINGS`` for a connection that also commits, where each statement of a batch sees what is
    committed by then."""
    return (
        f"{SPELLINGS} SET statement_timeout = '{COMMIT_STATEMENT_S:d}s';"
        " SET default_transaction_isolation = 'read committed';"
        f" SELECT set_config(name, '{BATCH_S:d}s', false) FROM pg_settings WHERE name = 'transaction_timeout'"
    ).encode()
