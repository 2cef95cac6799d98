"""What control remembers: a SQL database that nobody else opens. SQLite by default, Postgres in production."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    BindParameter,
    Connection,
    Engine,
    Executable,
    RowMapping,
    bindparam,
    create_engine,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from services.control.lifecycle import Declared, Registered, Revision
from services.control.tables import destinations, metadata, pipelines
from shared.config.model import Config
from shared.config.secrets import scrub, shown_variable
from shared.errors import ConfigError, DependencyError
from shared.messages import DesiredState

FILE = "registry.sqlite"
BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3
SCHEMA_LOCK = 7_641_904_331
"""An advisory lock: two controls that start at once must not both create the tables."""

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""What we bring, by the URL's scheme. SQLAlchemy's own choice for Postgres is another driver."""

HOW_TO_WRITE = "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"
HINT = "check registry.url or registry.url_env, that the database runs, and the rights of its role"

Held = Mapping[str, Registered]
Decide = Callable[[Held], Iterable[Registered]]

_DECLARED = TypeAdapter(Declared)

CHANGING = ("spec", "routing_value", "generation", "desired", "replace", "managed_by", "author", "revision", "removed")
KEY: Mapping[str, BindParameter[Any]] = {"pipeline": bindparam("of_pipeline"), "id": bindparam("of_id")}
VALUES: Mapping[str, BindParameter[Any]] = {
    **{name: bindparam(name) for name in CHANGING},
    "updated_at": bindparam("at"),
}
INSERT = insert(destinations).values(**KEY, **VALUES, created_at=bindparam("at"))
UPDATE = update(destinations).where(*(destinations.c[name] == given for name, given in KEY.items())).values(**VALUES)


class Registry:
    """The destinations of one pipeline. May be used from several threads; every call is a transaction of its own.

    Raises ``DependencyError`` while the database can't be used, then nothing of the call has happened.
    """

    def __init__(self, url: URL, pipeline: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._engine = _engine(url, busy_timeout_s)
        self._pipeline = pipeline

    @classmethod
    def open(cls, config: Config, environ: Mapping[str, str] = os.environ) -> Registry:
        """Connect, and make what is missing. Raises ``ConfigError`` for a URL that is none."""
        registry = cls(registry_url(config, environ), config.pipeline)
        registry.prepare()
        return registry

    def prepare(self) -> None:
        with self._transaction() as con:
            if con.dialect.name == "postgresql":
                con.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SCHEMA_LOCK})
            metadata.create_all(con)

    def destinations(self) -> dict[str, Registered]:
        """All of them by id, removed ones too."""
        with self._transaction() as con:
            return self._held(con)

    def change(self, decide: Decide, revision: Revision) -> dict[str, Registered]:
        """Write what ``decide`` makes of what is held, and return all that is held then.

        ``decide`` sees the truth: nobody else changes it before the write. What it raises undoes the transaction.
        """
        with self._transaction() as con:
            self._lock(con, revision)
            held = self._held(con)
            changed = {each.id: each for each in decide(held)}
            self._write(con, [each for each in changed.values() if each.id in held], UPDATE)
            self._write(con, [each for each in changed.values() if each.id not in held], INSERT)
            return {**held, **changed}

    def problem(self) -> str | None:
        """None if the database answers now, else what is wrong."""
        try:
            with self._transaction() as con:
                con.execute(select(pipelines.c.name).limit(1))
        except DependencyError as error:
            return error.message
        return None

    def close(self) -> None:
        self._engine.dispose()

    def _lock(self, con: Connection, revision: Revision) -> None:
        """One writer for each pipeline; SQLite has one for the whole file, since BEGIN."""
        row = select(pipelines.c.name).where(pipelines.c.name == self._pipeline).with_for_update()
        if con.execute(row).first() is None:
            con.execute(insert(pipelines).values(name=self._pipeline, created_at=revision.at))

    def _held(self, con: Connection) -> dict[str, Registered]:
        mine = select(destinations).where(destinations.c.pipeline == self._pipeline).order_by(destinations.c.id)
        return {row["id"]: _registered(row) for row in con.execute(mine).mappings()}

    def _write(self, con: Connection, each: list[Registered], statement: Executable) -> None:
        if each:
            con.execute(statement, [_row(self._pipeline, one) for one in each])

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as con:
                yield con
        except SQLAlchemyError as error:
            said = str(error.__cause__ or error).splitlines()[0]
            raise DependencyError("registry", scrub(said), HINT) from None


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


def _engine(url: URL, busy_timeout_s: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        timeout = {"connect_timeout": CONNECT_TIMEOUT_S} if url.get_driver_name() == "psycopg" else {}
        return create_engine(url, pool_pre_ping=True, connect_args=timeout)
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # else the driver begins transactions by itself, too late and too weak
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_immediate(con: Connection) -> None:
    """Take the write lock first: a transaction that reads and then writes could not be waited for."""
    con.exec_driver_sql("BEGIN IMMEDIATE")


def _row(pipeline: str, held: Registered) -> dict[str, Any]:
    """Parameters of ``UPDATE`` and ``INSERT``; a destination that is written first is created at its revision."""
    return {
        "of_pipeline": pipeline,
        "of_id": held.id,
        "spec": _DECLARED.dump_json(held.declared, exclude={"id", "routing_value"}).decode(),
        "routing_value": held.declared.routing_value,
        "generation": held.generation,
        "desired": held.desired.value,
        "replace": held.replace,
        "managed_by": held.managed_by,
        "author": held.author,
        "revision": held.revision.id,
        "removed": held.removed,
        "at": held.revision.at,
    }


def _registered(row: RowMapping) -> Registered:
    return Registered(
        declared=_declared(row),
        generation=row["generation"],
        revision=Revision(row["revision"], row["updated_at"]),
        managed_by=row["managed_by"],
        desired=DesiredState(row["desired"]),
        replace=row["replace"],
        removed=row["removed"],
        author=row["author"],
    )


def _declared(row: RowMapping) -> Declared:
    spec = json.loads(row["spec"])
    return _DECLARED.validate_python(spec | {"id": row["id"], "routing_value": row["routing_value"]})
