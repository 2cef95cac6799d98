"""Plain statements on a catalog's own database, past DuckLake. The questions are in ``catalog`` and what it imports.

A SQLite catalog is only ever opened through DuckDB's own SQLite library (H11): a second copy of the library in the same
process breaks the first one's file locks, up to a malformed database. A Postgres catalog is asked by psycopg, on a
connection that no other user of the lake shares.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import duckdb
import psycopg
from psycopg.rows import dict_row

from shared.config.catalogs import ResolvedLake, patient
from shared.lake.connection.attach import metadata_of
from shared.lake.connection.bounded import BoundedConnection, has_ended
from shared.lake.connection.engine import SQLITE, connect
from shared.lake.connection.postgres import OWN_SETTINGS, PostgresConnections
from shared.lake.connection.query import Question, Value
from shared.lake.failure import classify
from shared.lake.sql import ident, literal

Row = Mapping[str, Any]
T = TypeVar("T")


class Statements(Protocol):
    """One catalog's database."""

    def rows(self, question: Question) -> Sequence[Row]:
        """Ask outside any transaction. Raises the driver's error."""

    def several(self, questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
        """The same for questions that don't wait for each other's answers: far away they take as long as one."""

    @property
    def is_cut_off(self) -> bool:
        """Whether the server has ended a connection since it was used last. Nothing is asked."""

    def close(self) -> None: ...


class AttachedSqlite:
    """A SQLite database that a DuckDB instance has attached as ``name``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        self._con = con
        self._name = name

    def rows(self, question: Question) -> Sequence[Row]:
        text, values = question.rendered("?")
        # SQLite takes of numbers only the largest type
        places = ", ".join("CAST(? AS VARCHAR)" if isinstance(value, str) else "CAST(? AS BIGINT)" for value in values)
        bound = f", params => row({places})" if values else ""
        with contextlib.closing(self._con.cursor()) as cursor:
            found = cursor.execute(f"SELECT * FROM sqlite_query(?, ?{bound})", [self._name, text, *values])
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def several(self, questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
        return [self.rows(question) for question in questions]

    @property
    def is_cut_off(self) -> bool:
        return False

    def close(self) -> None:
        """The instance's owner detaches."""


class OwnSqlite(AttachedSqlite):
    """A SQLite database that is attached, read-only and as ``name``, when it is first asked."""

    def __init__(self, con: duckdb.DuckDBPyConnection, file: Path, name: str = "catalog") -> None:
        super().__init__(con, name)
        self._file = file
        self._attached = False

    def rows(self, question: Question) -> Sequence[Row]:
        if not self._attached:
            if not self._file.exists():
                raise FileNotFoundError(f"there is no catalog file {self._file}")
            self._con.execute(f"ATTACH {literal(str(self._file))} AS {ident(self._name)} (TYPE sqlite, READ_ONLY)")
            self._attached = True
        return super().rows(question)

    def close(self) -> None:
        self._con.close()


class VisitedSqlite(OwnSqlite):
    """One of many databases that an instance of the caller's looks at: ``close`` leaves it, and the instance stays."""

    def close(self) -> None:
        if self._attached:
            self._con.execute(f"DETACH {ident(self._name)}")
            self._attached = False


class Postgres:
    """A Postgres database on one connection, opened at first use and again after an error."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = patient(conninfo)
        self._con: psycopg.Connection[Any] | None = None
        self._asking = threading.Lock()

    def rows(self, question: Question) -> Sequence[Row]:
        return self._asked(lambda con: ask(con, question))

    def several(self, questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
        return self._asked(lambda con: ask_several(con, questions))

    def _asked(self, ask: Callable[[psycopg.Connection[Any]], T]) -> T:
        """One thread at a time: a pipeline takes in what anyone asks meanwhile."""
        with self._asking:
            try:
                return ask(self._open())
            except psycopg.Error:
                self.close()
                raise

    @property
    def is_cut_off(self) -> bool:
        if not self._asking.acquire(blocking=False):
            return False  # another thread has asked something, and reads what comes
        try:
            con = self._con
            return con is not None and not con.closed and has_ended(con)
        finally:
            self._asking.release()

    def _open(self) -> psycopg.Connection[Any]:
        """The connection, which several users of a lake share: a second one would have no owner to close it."""
        if self._con is None or self._con.closed:
            self._con = self._connected()
        return self._con

    def _connected(self) -> psycopg.Connection[Any]:
        con = BoundedConnection.connect(self._conninfo, autocommit=True)
        con.execute(OWN_SETTINGS)
        return con

    def close(self) -> None:
        if self._con is not None:
            self._con.close()
            self._con = None


class SharedPostgres:
    """A Postgres database on connections that others use in between."""

    def __init__(self, connections: PostgresConnections, conninfo: str) -> None:
        self._connections = connections
        self._conninfo = conninfo

    def rows(self, question: Question) -> Sequence[Row]:
        with self._connections.use(self._conninfo) as con:
            return ask(con, question)

    def several(self, questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
        with self._connections.use(self._conninfo) as con:
            return ask_several(con, questions)

    @property
    def is_cut_off(self) -> bool:
        """Their owner replaces those that are."""
        return False

    def close(self) -> None:
        """The connections' owner closes them."""


def ask(con: psycopg.Connection[Any], question: Question) -> Sequence[Row]:
    """The rows of one statement. Raises ``psycopg.Error``."""
    with psycopg.RawCursor(con, row_factory=dict_row) as cursor:
        _say(cursor, question)
        return cursor.fetchall()


def tell(con: duckdb.DuckDBPyConnection, question: Question) -> None:
    """Run a statement that is DuckDB's own on a catalog that ``con`` has attached."""
    text, values = question.rendered("$")
    con.execute(text, values)


def ask_several(con: psycopg.Connection[Any], questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
    """The rows of each of several statements, in one round trip. Raises ``psycopg.Error``; then the connection is of no
    more use: statements that a failed pipeline has prepared are not there, and the client believes that they are."""
    with contextlib.ExitStack() as closing:
        cursors = [closing.enter_context(psycopg.RawCursor(con, row_factory=dict_row)) for _ in questions]
        with con.pipeline():
            for cursor, question in zip(cursors, questions, strict=True):
                _say(cursor, question)
        return [cursor.fetchall() for cursor in cursors]


def _say(cursor: psycopg.RawCursor[Any], question: Question) -> None:
    """Results in binary mean the extended protocol, with values or without: one statement, never several."""
    text, values = question.rendered("$")
    cursor.execute(text.encode(), values, binary=True)


class CatalogConnection:
    """Asks one lake's catalog. Every call is a statement or two of its own, so nothing stays open or locked.

    Raises a ``ViaduckError`` (``destination_unreachable``, ``access_denied``, …) when the catalog does not answer; the
    next call tries again on a fresh connection.
    """

    def __init__(self, lake: ResolvedLake, statements: Statements | None = None) -> None:
        self._lake = lake
        self._given = statements
        self._statements = statements
        self._prefix = f"{ident(lake.schema)}."

    @classmethod
    def attached(
        cls,
        lake: ResolvedLake,
        con: duckdb.DuckDBPyConnection,
        alias: str,
        connections: PostgresConnections | None = None,
    ) -> Self:
        """A reader of a lake that ``con`` has attached as ``alias``.

        It opens nothing of its own on SQLite, nor on Postgres where it is given ``connections`` to share.
        """
        if lake.sqlite_file is None:
            return cls(lake, None if connections is None else SharedPostgres(connections, lake.conninfo))
        return cls(lake, AttachedSqlite(con, metadata_of(alias)))

    def close(self) -> None:
        if self._statements is not None:
            self._statements.close()
        self._statements = self._given

    @property
    def is_cut_off(self) -> bool:
        """Whether the server has ended the connection since it was used last, as a restart does. Nothing is asked."""
        return self._statements is not None and self._statements.is_cut_off

    def is_there(self) -> bool:
        """Whether a Postgres database holds a lake. Cheaper than an ATTACH that finds none."""
        found = self._one("SELECT to_regclass(:name) IS NOT NULL AS there", name=f"{self._prefix}ducklake_snapshot")
        return bool(found["there"])

    @property
    def is_on_sqlite(self) -> bool:
        return self._lake.sqlite_file is not None

    def named(self, table: str) -> str:
        """A table of the catalog's own, as a value that ``to_regclass`` takes on Postgres."""
        return self._prefix + table

    def select(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Sequence[Row]:
        """The rows of a query of the caller's own; ``{}``, ``{key}`` and ``:key`` in it as in this class's."""
        return self._all(sql, names, **values)

    def _one(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Row:
        rows = self._all(sql, names, **values)
        if not rows:
            raise LookupError("the catalog has no snapshot")
        return rows[0]

    def _all(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Sequence[Row]:
        """Ask: ``{}`` in ``sql`` is the lake's own schema, ``{key}`` an identifier of ``names``, ``:key`` a value."""
        question = Question(sql, {"": self._prefix, **(names or {})}, values)
        return self._asking(lambda statements: statements.rows(question))

    def asked_at_once(self, texts: Sequence[str], /, **values: Value) -> Sequence[Sequence[Row]]:
        """The same for several queries that don't wait for each other's answers; each takes of ``values`` what it
        names."""
        questions = [Question(text, {"": self._prefix}, values) for text in texts]
        return self._asking(lambda statements: statements.several(questions))

    def _asking(self, ask: Callable[[Statements], T]) -> T:
        if self._statements is None:
            self._statements = _own_statements(self._lake)
        try:
            return ask(self._statements)
        except (duckdb.Error, psycopg.Error, OSError) as error:
            self.close()
            raise classify(error, f"reading the catalog of {self._lake}") from None


def _own_statements(lake: ResolvedLake) -> Statements:
    file = lake.sqlite_file
    return Postgres(lake.conninfo) if file is None else OwnSqlite(connect(catalogs=(SQLITE,)), file)


def catalog_time(value: datetime | str) -> datetime:
    """A catalog's time, in UTC: a TIMESTAMPTZ on Postgres, which comes in the server's time zone, text on SQLite."""
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
