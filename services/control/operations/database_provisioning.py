"""Makes the Postgres database of a lake that does not exist yet, where a template asks for it."""

from __future__ import annotations

from contextlib import closing

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.config.catalogs import ResolvedLake, patient
from shared.contracts.errors import DestinationError
from shared.lake.failure import classify

MAINTENANCE = "postgres"
"""The database that one connects to in order to make another."""

LIMITS = "-c statement_timeout=30000 -c lock_timeout=10000"

WHO_MAY = "give the role of the catalog CREATEDB, or create the database yourself and accept the proposal"


def create_database(lake: ResolvedLake, mark: str, *, only_ours: bool) -> None:
    """Create the database of ``lake`` unless it exists, and leave ``mark`` as its comment.

    With ``only_ours`` an existing database must have that comment. Raises ``DestinationError``.
    """
    name = str(conninfo_to_dict(lake.conninfo).get("dbname") or "")
    if not name:
        raise DestinationError("invalid_destination", "the catalog names no database", "write dbname=… in it")
    try:
        with closing(_connect(lake.conninfo)) as con:
            if not _exists(con, name):
                _make(con, name, mark)
            elif only_ours and _mark_of(con, name) != mark:
                said = f"the database {name} exists, and was not created for this destination"
                raise DestinationError("invalid_destination", said, "accept the proposal if it may be used")
    except psycopg.errors.InsufficientPrivilege as error:
        raise DestinationError("access_denied", f"the database {name} can't be made: {error}", WHO_MAY) from None
    except psycopg.Error as error:
        raise classify(error, f"making the database {name}") from None


def _connect(conninfo: str) -> psycopg.Connection[tuple[str]]:
    words = make_conninfo(patient(conninfo), dbname=MAINTENANCE, options=LIMITS)
    return psycopg.connect(words, autocommit=True)


def _exists(con: psycopg.Connection[tuple[str]], name: str) -> bool:
    return con.execute("SELECT datname FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None


def _make(con: psycopg.Connection[tuple[str]], name: str, mark: str) -> None:
    """Another control may be quicker; it leaves the same mark."""
    database = sql.Identifier(name)
    try:
        con.execute(sql.SQL("CREATE DATABASE {}").format(database))
        con.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(database, sql.Literal(mark)))
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        return


def _mark_of(con: psycopg.Connection[tuple[str]], name: str) -> str | None:
    found = con.execute(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (name,)
    ).fetchone()
    return None if found is None else found[0]
