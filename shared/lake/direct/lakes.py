"""What a worker keeps for direct commits: one DuckDB instance for files, connections, and what lakes were made of."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import duckdb

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import Error
from shared.lake.connection.engine import SQLITE, connect, is_lost, release
from shared.lake.connection.new_catalog import create_catalog
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.connection.store_secrets import RENEW_AFTER_S, expire, forget_keys, store_extensions, use_keys
from shared.lake.direct.catalogs import Catalog, PostgresCatalog, SqliteCatalog
from shared.lake.direct.default_texts import KeptTexts
from shared.lake.direct.file_memory import FileMemory, LakeMemory
from shared.lake.direct.structure import Structure
from shared.lake.sql import ident, literal

K = TypeVar("K")

REMEMBERED_STRUCTURES = 20_000
"""Some kilobytes each."""

IDLE_CURSORS = 32
"""Of an instance; about as many threads apply at once."""

TableKey = tuple[ResolvedLake, tuple[str, str], tuple[str, str]]
"""A lake, its table and its cursor's table, each (schema, name)."""


@dataclass(eq=False)
class _Attached:
    """A SQLite catalog that the instance has attached, or a store's keys that it holds, under a name of its own."""

    name: str
    users: int = 0
    since: float = 0.0


class KeysInUse(Error):
    """Other keys for the same files are in use: an instance could not tell which of them a lake means."""


class DirectInstance:
    """A DuckDB instance that reads and writes files of many lakes, each with its own keys, and SQLite catalogs.

    It attaches no lake, so no view, macro, default or sort expression of a catalog is ever bound in it.
    """

    def __init__(self, memory_limit: str | None, limit: int, stores: frozenset[str] = frozenset()) -> None:
        """``stores``: the extensions that those lakes' stores need."""
        self.con = connect(memory_limit=memory_limit, catalogs=(SQLITE, *stores))
        self._limit = limit
        self.texts = KeptTexts()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._idle: list[duckdb.DuckDBPyConnection] = []
        self._catalogs: OrderedDict[str, _Attached] = OrderedDict()
        self._keys: OrderedDict[tuple[ResolvedLake, str], _Attached] = OrderedDict()

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the caller alone, who leaves no table and no transaction in it; after any error it is closed."""
        with self._lock:
            con = self._idle.pop() if self._idle else self.con.cursor()
        try:
            yield con
        except BaseException:
            release(con)
            raise
        with self._lock:
            if len(self._idle) < IDLE_CURSORS:
                self._idle.append(con)
                return
        release(con)

    def close(self) -> None:
        """Close what no thread uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for con in (*idle, self.con):
            release(con)

    @contextlib.contextmanager
    def catalog(self, lake: ResolvedLake) -> Iterator[str]:
        """The name under which the file of a SQLite catalog is attached, for as long as the block lasts.

        Raises ``FileNotFoundError`` where there is no such file: SQLite would leave an empty one behind.
        """
        file = lake.sqlite_file
        if file is None or not file.exists():
            raise FileNotFoundError(f"there is no catalog file {file}")

        def attach(name: str) -> None:
            self.con.execute(f"ATTACH {literal(str(file))} AS {ident(name)} (TYPE sqlite)")

        def detach(name: str) -> None:
            self.con.execute(f"DETACH {ident(name)}")

        with self._held(self._catalogs, str(file), attach, detach) as name:
            yield name

    @contextlib.contextmanager
    def keys(self, lake: ResolvedLake, data_path: str) -> Iterator[None]:
        """Let the instance use the lake's keys for the files below its data path, for as long as the block lasts.

        Raises ``KeysInUse`` where another lake's, or former ones, are used for any of these files. Credentials that
        expire are fetched again in time, and the driver's error is raised where none can be had.
        """
        if "://" not in data_path:
            yield
            return

        def rules_out(held: tuple[ResolvedLake, str]) -> bool:
            return held[1].startswith(data_path) or data_path.startswith(held[1])

        with self._held(
            self._keys,
            (lake, data_path),
            lambda name: use_keys(self.con, name, lake, data_path),
            lambda name: forget_keys(self.con, name),
            rules_out,
        ) as name:
            if expire(lake, data_path):
                self._renew(name, lake, data_path)
            yield

    def _renew(self, name: str, lake: ResolvedLake, data_path: str) -> None:
        with self._lock:
            held = self._keys[lake, data_path]
            if monotonic() - held.since >= RENEW_AFTER_S:
                use_keys(self.con, name, lake, data_path)
                held.since = monotonic()

    @contextlib.contextmanager
    def _held(
        self,
        held: OrderedDict[K, _Attached],
        key: K,
        begin: Callable[[str], None],
        end: Callable[[str], None],
        rules_out: Callable[[K], bool] = lambda _: False,
    ) -> Iterator[str]:
        """``rules_out``: whether what is held under a key can't be there beside the new one."""
        with self._lock:
            found = held.get(key)
            if found is None:
                for other in [known for known in held if rules_out(known)]:
                    if held[other].users:
                        raise KeysInUse
                    end(held.pop(other).name)
                found = _Attached(f"held_{next(self._numbers)}", since=monotonic())
                begin(found.name)
                held[key] = found
            held.move_to_end(key)
            found.users += 1
        try:
            yield found.name
        finally:
            with self._lock:
                found.users -= 1
                idle = [known for known, each in held.items() if each.users == 0]
                for known in idle[: max(0, len(held) - self._limit)]:
                    end(held.pop(known).name)


@dataclass(frozen=True)
class DirectLake:
    """A lake as a direct commit reaches it, for one thread and one apply."""

    lake: ResolvedLake
    catalog: Catalog
    con: duckdb.DuckDBPyConnection
    instance: DirectInstance
    known: LakeMemory


class DirectLakes:
    """Thread-safe. Lakes whose stores need an extension share an instance with their like alone.

    ``limit`` bounds attached SQLite catalogs and held keys, each; ``connections`` are the caller's.
    """

    def __init__(self, connections: PostgresConnections, limit: int, memory_limit: str | None = None) -> None:
        self._connections = connections
        self._limit = limit
        self._memory_limit = memory_limit
        self._instances: dict[frozenset[str], DirectInstance] = {}
        self._lock = threading.Lock()
        self._structures: OrderedDict[TableKey, Structure] = OrderedDict()
        self._files = FileMemory()

    @contextlib.contextmanager
    def use(self, lake: ResolvedLake) -> Iterator[DirectLake]:
        """Lend what it takes to commit to a lake. Raises the driver's errors; a lost instance is replaced."""
        instance = self._present(store_extensions(lake))
        try:
            with instance.cursor() as con, self._catalog(lake, instance, con) as catalog:
                yield DirectLake(lake, catalog, con, instance, LakeMemory(self._files, lake))
        except duckdb.Error:
            if is_lost(instance.con):
                self._give_up(instance)
            raise

    def create(self, lake: ResolvedLake) -> bool:
        """Create the lake's catalog where its database holds none; whether it is there then."""
        return create_catalog(self._connections, lake)

    @contextlib.contextmanager
    def _catalog(
        self, lake: ResolvedLake, instance: DirectInstance, con: duckdb.DuckDBPyConnection
    ) -> Iterator[Catalog]:
        if lake.sqlite_file is None:
            with self._connections.use(lake.conninfo, Error) as connection:  # an error of ours is none of the server's
                yield PostgresCatalog(connection, lake.schema, self._connections.distance)
        else:
            with instance.catalog(lake) as name:
                yield SqliteCatalog(con, name)

    def structure(self, key: TableKey) -> Structure | None:
        with self._lock:
            return self._structures.get(key)

    def remember(self, key: TableKey, structure: Structure) -> None:
        with self._lock:
            self._structures[key] = structure
            self._structures.move_to_end(key)
            while len(self._structures) > REMEMBERED_STRUCTURES:
                self._structures.popitem(last=False)

    def forget(self, key: TableKey) -> None:
        with self._lock:
            self._structures.pop(key, None)

    def _present(self, stores: frozenset[str]) -> DirectInstance:
        with self._lock:
            if stores not in self._instances:
                self._instances[stores] = DirectInstance(self._memory_limit, self._limit, stores)
            return self._instances[stores]

    def _give_up(self, instance: DirectInstance) -> None:
        with self._lock:
            self._instances = {stores: each for stores, each in self._instances.items() if each is not instance}
        instance.close()

    def close(self) -> None:
        with self._lock:
            instances, self._instances = self._instances, {}
        for instance in instances.values():
            instance.close()
