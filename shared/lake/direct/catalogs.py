"""Where looks are asked and batches are brought about: a Postgres database, or a SQLite file."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import duckdb
import psycopg
from psycopg.types.numeric import Int8

from shared.contracts.errors import Error
from shared.lake.connection.dialect import POSTGRES, SQLITE, Dialect
from shared.lake.connection.distance import Distance
from shared.lake.connection.query import Question, Value
from shared.lake.direct.batch import CommitBatch
from shared.lake.sql import ident


class NotCommitted(Error):
    """A batch that brought nothing about and never will; its ``__cause__`` says why."""


class RivalCommitted(NotCommitted):
    """The condition did not hold, or a rival was quicker: what was looked at is no longer so."""


RIVALS = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DivisionByZero,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,  # a flush drops the catalog's tables of inlined rows
)

LEAVES_OPEN = ("57P", "08")
"""SQLSTATE classes of a server that ends, and of a connection that breaks: the statement may have been carried out.
Any other error that a server tells has undone it."""

ALONE_S = 10
"""How long other writers may be kept out. A process that freezes meanwhile is idle in its transaction, which the server
ends after that time."""

ALONE_WAIT_S = 3
"""How long is waited for it. Longer than Postgres's ``deadlock_timeout``, after which autovacuum gives way."""


AGAIN_AFTER_S = 0.005


class Catalog(Protocol):
    """One lake's catalog. Methods raise the driver's error; an error of ``commit`` other than ``NotCommitted`` leaves
    open whether it was brought about."""

    dialect: Dialect
    prefix: str

    def ask(self, question: Question) -> str:
        """The one value of the one row of a statement."""

    def commit(self, commit: CommitBatch) -> None:
        """Bring all of a batch about, or nothing. Raises ``NotCommitted`` where it is nothing for good."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other writers from committing while the block lasts, in which one batch may be committed.

        It is no part of what makes a commit right: where it can't be had, the block goes on without it.
        """


class _KeepsOthersOut(ABC):
    """How long a catalog has kept other writers out."""

    _alone_since: float | None = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        if not self._keep_others_out():
            yield
            return
        self._alone_since = time.monotonic()
        try:
            yield
        finally:
            self._alone_since = None
            self._let_others_in()

    @property
    def _is_alone(self) -> bool:
        """Raises ``RivalCommitted`` where that has lasted for too long."""
        if self._alone_since is not None and time.monotonic() - self._alone_since > ALONE_S:
            raise RivalCommitted("other writers were kept out for too long")
        return self._alone_since is not None

    @abstractmethod
    def _keep_others_out(self) -> bool:
        """Open a transaction that keeps other writers out. Whether that was granted in time."""

    @abstractmethod
    def _let_others_in(self) -> None:
        """Undo what is left of it: nothing, after a batch."""


class PostgresCatalog(_KeepsOthersOut):
    """A schema of a Postgres database; one round trip for a look, and one for a batch."""

    dialect = POSTGRES

    def __init__(self, con: psycopg.Connection[Any], schema: str, distance: Distance | None = None) -> None:
        """``distance`` is told how long looks take."""
        self._con = con
        self._distance = distance or Distance()
        self.prefix = f"{ident(schema)}."

    def ask(self, question: Question) -> str:
        text, values = question.rendered("$")
        undone = contextlib.nullcontext() if self._alone_since is None else self._con.transaction()  # a savepoint
        with undone, psycopg.RawCursor(self._con) as cursor, self._distance.asked():
            found = cursor.execute(f"SELECT found::text FROM ({text}) AS asked".encode(), _typed(values)).fetchone()
        return str(found[0]) if found is not None else ""

    def commit(self, commit: CommitBatch) -> None:
        """One transaction of two statements, and those that make tables, in one round trip; an error undoes all of
        them. TLA: ``CommitDirect``."""
        is_alone = self._is_alone
        claim, taken = commit.claim.rendered("$")
        text, values = _conditional(commit)
        try:
            with self._con.pipeline(), psycopg.RawCursor(self._con) as cursor:  # autocommit: its end is the COMMIT
                _say(cursor, claim, taken)
                _say(cursor, text, values)
                for question in commit.made:
                    _say(cursor, *question.rendered("$"))
                if is_alone:
                    cursor.execute(b"COMMIT", prepare=False)
        except RIVALS as error:
            raise RivalCommitted(type(error).__name__) from error
        except psycopg.Error as error:
            if self._con.closed or error.sqlstate is None or error.sqlstate.startswith(LEAVES_OPEN):
                raise
            raise NotCommitted(type(error).__name__) from error

    def _keep_others_out(self) -> bool:
        """Each writer adds a row to ``ducklake_snapshot`` before it writes anything else, and none can meanwhile: who
        waits there holds nothing that a batch needs. The role need not have the privilege to lock it."""
        begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            f" SET LOCAL idle_in_transaction_session_timeout = '{ALONE_S:d}s';"
            f" SET LOCAL lock_timeout = '{ALONE_WAIT_S:d}s';"
            f" LOCK TABLE {self.prefix}ducklake_snapshot IN SHARE ROW EXCLUSIVE MODE"
        )
        try:
            self._con.execute(begin.encode())
        except psycopg.Error:
            if self._con.closed:
                raise
            self._con.rollback()
            return False
        return True

    def _let_others_in(self) -> None:
        if not self._con.closed:
            self._con.rollback()


def _say(cursor: psycopg.RawCursor[Any], text: str, values: list[Value]) -> None:
    """Nothing is prepared: what a batch that fails has prepared is not there, and the client believes that it is."""
    cursor.execute(text.encode(), _typed(values), prepare=False)


def _conditional(commit: CommitBatch) -> tuple[str, list[Value]]:
    """All of a batch but its claim as one statement of Postgres, which divides by zero where the condition fails."""
    (checked, seen), *rest = _numbered((commit.condition, *commit.rest))
    parts = ", ".join(f"part{number:d} AS ({text})" for number, (text, _) in enumerate(rest))
    values = [*seen, *(value for _, own in rest for value in own)]
    return f"WITH checked AS ({checked}), {parts} SELECT 1 / held FROM checked", values


def _numbered(questions: Iterable[Question]) -> Iterator[tuple[str, list[Value]]]:
    """Each question's text and values, whose places go on from those of the questions before."""
    after = 0
    for question in questions:
        text, values = question.rendered("$", after=after)
        after += len(values)
        yield text, values


def _typed(values: list[Any]) -> list[Any]:
    """Integers of one width: Postgres keeps a plan for each combination of types that it is asked with."""
    return [Int8(value) if isinstance(value, int) else value for value in values]


class SqliteCatalog(_KeepsOthersOut):
    """A SQLite file that a DuckDB instance has attached as ``name``, so by DuckDB's own SQLite library (H11)."""

    dialect = SQLITE

    def __init__(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        self._con = con
        self._name = name
        self.prefix = f"{ident(name)}.main."

    def ask(self, question: Question) -> str:
        native = Question(question.text, {**question.names, "": '"main".'}, question.values)
        text, values = native.rendered("?")
        places = ", ".join("CAST(? AS VARCHAR)" if isinstance(value, str) else "CAST(? AS BIGINT)" for value in values)
        rows = self._con.execute(
            f"SELECT found FROM sqlite_query(?, ?, params => row({places}))", [self._name, text, *values]
        ).fetchall()
        return str(rows[0][0])

    def commit(self, commit: CommitBatch) -> None:
        if not self._is_alone:
            self._con.execute("BEGIN")
        try:
            self._say(commit.claim)  # takes the file's write lock, or fails after any write in between
            if self._say(commit.condition) != [(1,)]:
                raise RivalCommitted("the newest snapshot or the cursor is another one")
            for question in (*commit.rest, *commit.made):
                self._say(question)
        except duckdb.Error as error:
            self._roll_back()
            raise _rival_of(error) or NotCommitted(type(error).__name__) from error
        except NotCommitted:
            self._roll_back()
            raise
        try:
            self._con.execute("COMMIT")
        except duckdb.Error as error:
            self._roll_back()
            rival = _rival_of(error)
            if rival is None:
                raise
            raise rival from error

    def _keep_others_out(self) -> bool:
        """By a row that it takes back: a file has one lock for all who write. The system takes it from a process that
        dies, and leaves it to a process that freezes, as in the middle of any batch.

        Where another writer came between the beginning and the row, it is tried again.
        """
        began_s = time.monotonic()
        while time.monotonic() - began_s < ALONE_WAIT_S:
            try:
                self._con.execute("BEGIN")
                self._con.execute(
                    f"INSERT INTO {self.prefix}ducklake_metadata (key, value) VALUES ('viaduck', 'waits')"
                )
                self._con.execute(f"DELETE FROM {self.prefix}ducklake_metadata WHERE key = 'viaduck'")
            except duckdb.Error as error:
                self._roll_back()
                if "database is locked" not in str(error):
                    raise
                time.sleep(AGAIN_AFTER_S)
            else:
                return True
        return False

    def _let_others_in(self) -> None:
        self._roll_back()

    def _say(self, question: Question) -> list[Any]:
        text, values = question.rendered("$")
        return self._con.execute(text, values).fetchall()

    def _roll_back(self) -> None:
        with contextlib.suppress(duckdb.Error):  # ended already by the error
            self._con.execute("ROLLBACK")


def _rival_of(error: duckdb.Error) -> RivalCommitted | None:
    """Whether another writer was quicker, which SQLite may say at COMMIT, too; nothing is done then."""
    was_quicker = "database is locked" in str(error) or "UNIQUE constraint" in str(error)
    return RivalCommitted("another writer was quicker") if was_quicker else None
