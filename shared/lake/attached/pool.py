"""Attached lakes that stay open between jobs: an attach costs as much as an apply."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import duckdb

from shared.config.catalogs import ResolvedLake
from shared.lake.attached.layouts import Layouts
from shared.lake.attached.state import AttachedState
from shared.lake.catalog.reader import CatalogReader
from shared.lake.changes.changed_rows import RowsByFiles
from shared.lake.checks.foreign_files import require_no_code, require_own_files
from shared.lake.connection.attach import attach, confine, renew_keys, scanners
from shared.lake.connection.engine import AWS, UNCHECKED, connect, is_lost, release
from shared.lake.connection.kept_files import keep_files
from shared.lake.connection.new_catalog import create_catalog
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.connection.statements import SharedPostgres
from shared.lake.connection.store_secrets import RENEW_AFTER_S, store_extensions
from shared.lake.failure import LakeAbsent, classify
from shared.lake.sql import path

ALIAS = "lake"
"""What a lake is called in its own instance."""


class _Key(NamedTuple):
    lake: ResolvedLake
    read_only: bool


@dataclass(eq=False)
class OpenLake:
    """One attached lake, in a DuckDB instance of its own, and a reader of its metadata.

    The instance reaches only this lake's files with only its keys: an untrusted catalog, or the loss of the instance,
    affects no other lake. ``cursor`` is for one thread each. ``connections`` are the pool's, for a Postgres catalog.
    ``writing`` serialises our own transactions on a catalog that knows only one writer at a time (SQLite).
    ``loading`` lets one thread at a time load a version of the lake's schema.
    ``for_one_commit``: the instance has no other user, and ends with that (``LakePool.for_one_commit``).
    ``settled`` tells whose options are known here: an attached lake never looks again for what others have set.
    ``unlike`` is the pool's: tables with files that only DuckLake can read (``RowsByFiles``).
    """

    lake: ResolvedLake
    connections: PostgresConnections
    alias: str = ALIAS
    for_one_commit: bool = False
    users: int = 0
    doomed: bool = False
    opening: threading.Lock = field(default_factory=threading.Lock)
    attached: bool = False
    settled: set[object] = field(default_factory=set)
    inspected: set[tuple[str, str]] = field(default_factory=set)
    writing: threading.Lock = field(default_factory=threading.Lock)
    loading: threading.Lock = field(default_factory=threading.Lock)
    layouts: Layouts = field(default_factory=Layouts)
    unlike: set[str] = field(default_factory=set)
    renew_at: float = math.inf
    con: duckdb.DuckDBPyConnection = field(init=False)
    catalog: CatalogReader = field(init=False)
    remembered: AttachedState = field(init=False)
    changes: RowsByFiles = field(init=False)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self.con.cursor()

    def begin(self, con: duckdb.DuckDBPyConnection) -> None:
        """Begin a transaction, and have the lake's schema loaded for it before any other thread can.

        Where two threads load one version of it at once, DuckLake frees what the first has got, and a table that its
        transaction makes lands in whatever schema lies there then (H21). Nothing is made by an EXPLAIN.
        """
        with self.loading:
            con.execute("BEGIN")
            try:
                con.execute(f"EXPLAIN CREATE TABLE {path(self.alias, 'main', '_viaduck')} (i INTEGER)")
            except duckdb.BinderException as error:  # what was loaded has no schema of that name
                if "not found" not in str(error):
                    raise

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """The same for a statement that is a transaction of its own."""
        self.begin(con)
        con.execute("ROLLBACK")

    def keep_files(self, con: duckdb.DuckDBPyConnection) -> bool:
        """Have files that this transaction's COMMIT makes part of the lake stay, also if its acknowledgement is lost;
        whether that is so. Then an error of the COMMIT says nothing of its outcome, nor of its cause."""
        return self.for_one_commit and keep_files(con, self.lake.data_path or self.catalog.data_path())

    def open(self, memory_limit: str | None, *, read_only: bool, create: bool) -> None:
        """Attach it. Raises what ``attach`` raises; then nothing stays open.

        Who only reads tries again where the instance's connection has ended meanwhile, which nothing looks for.
        """
        con = connect(memory_limit=memory_limit, catalogs=scanners(self.lake))
        # A lake that is only read is asked in each job: it keeps a connection of its own.
        catalog = CatalogReader.attached(self.lake, con, self.alias, None if read_only else self.connections)
        try:
            if read_only and self.lake.sqlite_file is None:
                con.execute(UNCHECKED)
            if create:
                create_catalog(self.connections, self.lake)
            attach(con, self.alias, self.lake, read_only=read_only, create=create)
            confine(con, self.alias, writing=not read_only)
            self.remembered = AttachedState(self.lake, catalog)  # refuses names that DuckLake would take for SQL
            if not read_only:
                require_own_files(catalog, self.lake)
        except BaseException as error:
            catalog.close()
            release(con)
            if isinstance(error, duckdb.Error):
                raise classify(error, f"opening the lake at {self.lake}") from None
            raise
        self.catalog = catalog
        self.changes = RowsByFiles(catalog, self.lake.data_path, self.remembered.inlined, self.unlike)
        self.con, self.attached = con, True
        if AWS in store_extensions(self.lake):
            self.renew_at = monotonic() + RENEW_AFTER_S

    def renew(self) -> None:
        """Have credentials that will last for the next use. Raises a ``ViaduckError`` where none can be had."""
        if monotonic() < self.renew_at:
            return
        with contextlib.closing(self.con.cursor()) as con:
            renewed = renew_keys(con, self.alias, self.lake)
        self.renew_at = monotonic() + RENEW_AFTER_S if renewed else math.inf

    def inspect(self, *tables: tuple[str, str], anew: bool = False) -> None:
        """Search the catalog for SQL that using those tables, each (schema, table), would run: once, or ``anew``.

        Raises ``unsafe_catalog``.
        """
        asked = tables if anew else tuple(table for table in tables if table not in self.inspected)
        require_no_code(self.catalog, self.lake, asked)
        self.inspected.update(asked)

    def close(self) -> None:
        """Let go of it. The instance ends with the last of its cursors."""
        if self.attached:
            self.catalog.close()
            release(self.con)


class LakePool:
    """A thread-safe LRU of attached lakes: of those that are written to, at most ``limit``.

    Those that are only read are few, a pipeline's source each, and wanted by every job: they stay.

    A lake that raised is evicted by its user (``evict``), so that the next use attaches it again. A lake in use is
    never closed: it is closed when its last user releases it.
    """

    def __init__(self, limit: int, memory_limit: str | None = None) -> None:
        """``memory_limit``: of each lake's instance, of which those at work take what they need."""
        self._limit = limit
        self._memory_limit = memory_limit
        self._lakes: OrderedDict[_Key, OpenLake] = OrderedDict()
        self._lock = threading.Lock()
        self.connections = PostgresConnections(limit)
        self._unlike = set[str]()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._lakes)

    def has_open(self, lake: ResolvedLake) -> bool:
        """Whether a lake is there to be written to without an attach."""
        return _Key(lake, read_only=False) in self._lakes

    @contextlib.contextmanager
    def use(
        self, lake: ResolvedLake, *, read_only: bool, create: bool = False, sure: bool = True
    ) -> Iterator[OpenLake]:
        """Lend an attached lake. Raises what ``attach`` raises; then nothing stays in the pool.

        A lake that may not exist (not ``sure``) is looked for first: an ATTACH that finds no lake is expensive.
        A lake that is only read belongs to another program, which may flush or restore it: it is attached again
        where that shows (H12, H20), and where the server has ended its connections, the instance's among them.
        A lake whose instance was lost meanwhile is evicted, however its user handled the error.
        """
        key = _Key(lake, read_only)
        self._evict_outdated(key)
        entry = self._take(key)
        try:
            with entry.opening:
                if not entry.attached:
                    if not sure:
                        _require_there(lake, self.connections)
                    entry.open(self._memory_limit, read_only=read_only, create=create)
                entry.renew()
            yield entry
        except BaseException:
            if entry.attached and is_lost(entry.con):
                self.evict(entry)
            raise
        finally:
            self._give_back(key, entry)

    @contextlib.contextmanager
    def for_one_commit(self, lake: ResolvedLake, *, create: bool = False) -> Iterator[OpenLake]:
        """Lend a lake that is attached for this block only, for one COMMIT of which no file may be lost
        (``OpenLake.keep_files``). Raises what ``attach`` raises."""
        entry = OpenLake(lake, self.connections, for_one_commit=True)
        entry.open(self._memory_limit, read_only=False, create=create)
        try:
            yield entry
        finally:
            entry.close()
            if lake.sqlite_file is None:
                self.connections.close_idle(lake.conninfo)

    def evict_of(self, lake: ResolvedLake, *, read_only: bool) -> None:
        """Forget a lake, also if it is in use."""
        entry = self._lakes.get(_Key(lake, read_only))
        if entry is not None:
            self.evict(entry)

    def evict(self, entry: OpenLake) -> None:
        """Forget a lake after an error, or to have it attached again."""
        with self._lock:
            for key, known in list(self._lakes.items()):
                if known is entry:
                    del self._lakes[key]
                    self.evictions += 1
            entry.doomed = True

    def _evict_outdated(self, key: _Key) -> None:
        with self._lock:
            entry = self._lakes.get(key)
            if entry is None or not entry.attached:
                return
            entry.users += 1
        try:
            if not (_still_holds(entry) if key.read_only else entry.remembered.is_same_file):
                self.evict(entry)
        finally:
            self._give_back(key, entry)

    def close(self) -> None:
        with self._lock:
            entries, self._lakes = list(self._lakes.values()), OrderedDict()
        for entry in entries:
            entry.close()
        self.connections.close()

    def _take(self, key: _Key) -> OpenLake:
        with self._lock:
            entry = self._lakes.get(key)
            if entry is None:
                entry = self._lakes[key] = OpenLake(key.lake, self.connections, unlike=self._unlike)
            self._lakes.move_to_end(key)
            entry.users += 1
            return entry

    def _give_back(self, key: _Key, entry: OpenLake) -> None:
        closing = []
        with self._lock:
            entry.users -= 1
            is_idle = entry.users == 0 and entry.attached and not key.read_only
            if not entry.attached and self._lakes.get(key) is entry:
                del self._lakes[key]
                entry.doomed = True
            if entry.doomed and entry.users == 0:
                closing.append(entry)
            closing.extend(self._surplus())
        if is_idle and key.lake.sqlite_file is None:
            self.connections.close_idle(key.lake.conninfo)  # its instance keeps one of its own
        for gone in closing:
            gone.close()

    def _surplus(self) -> list[OpenLake]:
        written = [(key, entry) for key, entry in self._lakes.items() if not key.read_only]
        idle = [(key, entry) for key, entry in written if entry.users == 0]
        surplus = idle[: max(0, len(written) - self._limit)]
        for key, _ in surplus:
            del self._lakes[key]
            self.evictions += 1
        return [entry for _, entry in surplus]


def _still_holds(entry: OpenLake) -> bool:
    return not entry.catalog.is_cut_off and entry.remembered.holds(entry.catalog)


def _require_there(lake: ResolvedLake, connections: PostgresConnections) -> None:
    """Raises ``LakeAbsent`` where a Postgres database holds no lake yet, or a SQLite file is not there."""
    if not _is_there(lake, connections):
        raise LakeAbsent(f"there is no lake yet at {lake}")


def _is_there(lake: ResolvedLake, connections: PostgresConnections) -> bool:
    file = lake.sqlite_file
    return CatalogReader(lake, SharedPostgres(connections, lake.conninfo)).is_there() if file is None else file.exists()
