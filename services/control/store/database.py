"""The registry's database: how it is reached, and transactions on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from services.control.store.migration import migrate
from shared.config.catalogs import PATIENCE
from shared.config.model import Config
from shared.config.secrets import shown_variable, told
from shared.contracts.errors import ConfigError, DependencyError
from shared.lake.connection.bounded import BoundedConnection

FILE = "registry.sqlite"
BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3
LIMITS = "-c statement_timeout=15000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=30000"
"""A control that is frozen must not block the others."""

SILENT_FOR_S, PING_WITHIN_S = 20.0, 3.0
"""Longer than ``LIMITS``; ``viaduck`` waits 30 s for an answer of control."""

FREE_WITHIN_S = 5.0
"""How long a thread waits for a connection while all of them are in use."""

SCHEMA_LOCK = 7_641_904_331
"""An advisory lock: two controls that start at once must not both create the tables."""

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""What we bring, by the URL's scheme. SQLAlchemy's own choice for Postgres is another driver."""

HOW_TO_WRITE = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"
HINT = "check registry.url or registry.url_env, that the database runs, and the rights of its role"


class RegistryConnection(BoundedConnection):
    """Outside of transactions SQLAlchemy asks only whether the server is still there."""

    silent_for_s = SILENT_FOR_S

    @property
    def patience_s(self) -> float:
        return PING_WITHIN_S if self.autocommit else self.silent_for_s


class Database:
    """May be used from several threads. Raises ``DependencyError`` while it can't be used: then nothing happened."""

    def __init__(self, url: URL, busy_timeout_s: float = BUSY_TIMEOUT_S, silent_for_s: float = SILENT_FOR_S) -> None:
        """``silent_for_s``: a transaction that has waited so long for an answer of Postgres fails."""
        self._engine = _engine(url, busy_timeout_s, silent_for_s)

    @classmethod
    def open(cls, config: Config, environ: Mapping[str, str] = os.environ) -> Database:
        """Connect, and make what is missing. Raises ``ConfigError`` for a URL that is none."""
        database = cls(registry_url(config, environ))
        database.prepare()
        return database

    def prepare(self) -> None:
        """Make what is missing."""
        with self.transaction() as con:
            if con.dialect.name == "postgresql":
                con.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
            migrate(con)

    def problem(self) -> str | None:
        """None if the database answers now, else what is wrong."""
        try:
            with self.transaction() as con:
                con.execute(text("SELECT 1 FROM pipelines LIMIT 1"))
        except DependencyError as error:
            return error.message
        return None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as con:
                yield con
        except SQLAlchemyError as error:
            said = str(error.__cause__ or error).splitlines()[0]
            raise DependencyError("registry", told(said), HINT) from None

    def close(self) -> None:
        self._engine.dispose()


def registry_url(config: Config, environ: Mapping[str, str] = os.environ) -> URL:
    """Where the registry is. Raises ``ConfigError`` without showing what may hold a password."""
    given = config.registry
    where = "url" if given.url_env is None else "url_env"
    if given.url_env is not None and not environ.get(given.url_env):
        raise ConfigError(
            [f"registry.url_env: the environment variable {shown_variable(given.url_env)} is not set; set it"]
        )
    written = environ[given.url_env] if given.url_env is not None else given.url
    if written is None:
        return URL.create("sqlite", database=str(config.state_dir / FILE))
    try:
        url = make_url(written)
        return url.set(drivername=DRIVERS[url.drivername.partition("+")[0]])
    except (ArgumentError, KeyError, ValueError):
        raise ConfigError([f"registry.{where}: not a database that can be used; {HOW_TO_WRITE}"]) from None


def _engine(url: URL, busy_timeout_s: float, silent_for_s: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        return _postgres(url, silent_for_s)
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _postgres(url: URL, silent_for_s: float) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=FREE_WITHIN_S, connect_args=_bounds(url))
    if url.get_driver_name() == "psycopg":
        event.listen(engine, "do_connect", partial(_connect, silent_for_s))
    return engine


def _connect(silent_for_s: float, _: object, __: object, given: list[Any], words: dict[str, Any]) -> RegistryConnection:
    connection = RegistryConnection.connect(*given, **words)
    connection.silent_for_s = silent_for_s
    return connection


def _bounds(url: URL) -> dict[str, Any]:
    if url.get_driver_name() != "psycopg":
        return {}
    patience = {name: value for name, value in PATIENCE.items() if name not in url.query}
    return {**patience, "connect_timeout": CONNECT_TIMEOUT_S, "options": LIMITS}


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # else the driver begins transactions by itself, too late and too weak
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_immediate(con: Connection) -> None:
    """Take the write lock first: a transaction that reads and then writes could not be waited for."""
    con.exec_driver_sql("BEGIN IMMEDIATE")
