"""How one lake's catalog is asked by plain SQL. The questions are in ``catalog`` and the modules that it imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

import duckdb
import psycopg

from shared.config.catalogs import ResolvedLake
from shared.lake.catalog_query import Question, Value
from shared.lake.engine import SQLITE, connect
from shared.lake.failure import classify
from shared.lake.postgres_connections import PostgresConnections
from shared.lake.sql import ident
from shared.lake.statements import AttachedSqlite, OwnSqlite, Postgres, Row, SharedPostgres, Statements


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
        return cls(lake, AttachedSqlite(con, f"__ducklake_metadata_{alias}"))

    def close(self) -> None:
        if self._statements is not None:
            self._statements.close()
        self._statements = self._given

    def is_there(self) -> bool:
        """Whether a Postgres database holds a lake. Cheaper than an ATTACH that finds none."""
        found = self._one("SELECT to_regclass(:name) IS NOT NULL AS there", name=f"{self._prefix}ducklake_snapshot")
        return bool(found["there"])

    def select(self, sql: str, **values: Value) -> Sequence[Row]:
        """The rows of a query of the caller's own; ``{}`` and ``:key`` in it as in this class's."""
        return self._all(sql, **values)

    def _one(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Row:
        rows = self._all(sql, names, **values)
        if not rows:
            raise LookupError("the catalog has no snapshot")
        return rows[0]

    def _all(self, sql: str, names: Mapping[str, str] | None = None, /, **values: Value) -> Sequence[Row]:
        """Ask: ``{}`` in ``sql`` is the lake's own schema, ``{key}`` an identifier of ``names``, ``:key`` a value."""
        if self._statements is None:
            self._statements = _own_statements(self._lake)
        question = Question(sql, {"": self._prefix, **(names or {})}, values)
        try:
            return self._statements.rows(question)
        except (duckdb.Error, psycopg.Error, OSError) as error:
            self.close()
            raise classify(error, f"reading the catalog of {self._lake}") from None


def _own_statements(lake: ResolvedLake) -> Statements:
    file = lake.sqlite_file
    return Postgres(lake.conninfo) if file is None else OwnSqlite(connect(catalogs=(SQLITE,)), file)


def catalog_time(value: datetime | str) -> datetime:
    """A catalog's time: a TIMESTAMPTZ on Postgres, text on SQLite."""
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
