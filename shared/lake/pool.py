"""Attached lakes that stay open between jobs: an attach costs as much as an apply."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import duckdb

from shared.config.catalogs import ResolvedLake
from shared.lake.attach import attach, detach, drop_secret
from shared.lake.catalog import CatalogReader
from shared.lake.failure import LakeAbsent


@dataclass(frozen=True)
class _Key:
    lake: ResolvedLake
    read_only: bool


@dataclass(eq=False)
class OpenLake:
    """One attached lake: its alias in the instance, and a reader of its metadata.

    ``writing`` serialises our own transactions on a catalog that knows only one writer at a time (SQLite).
    ``settled`` tells whose options are known here: an attached lake never looks again for what others have set.
    """

    alias: str
    lake: ResolvedLake
    catalog: CatalogReader
    users: int = 0
    doomed: bool = False
    opening: threading.Lock = field(default_factory=threading.Lock)
    attached: bool = False
    settled: set[object] = field(default_factory=set)
    inlined_tables: frozenset[str] = frozenset()
    writing: threading.Lock = field(default_factory=threading.Lock)


class LakePool:
    """A thread-safe LRU of attached lakes in one DuckDB instance: of those that are written to, at most ``limit``.

    Those that are only read are few, a pipeline's source each, and wanted by every job: they stay.

    A lake that raised is evicted by its user (``evict``), so that the next use attaches it anew. A lake in use is never
    detached: it goes when its last user lets go.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, limit: int) -> None:
        self._con = con
        self._limit = limit
        self._lakes: OrderedDict[_Key, OpenLake] = OrderedDict()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
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

        One that nobody is ``sure`` of is looked for first: an ATTACH that finds no lake is dear.
        One that is only read belongs to somebody else, who may flush it: it is attached anew where that shows (H12).
        One that comes with new keys displaces the one with the old: DuckDB looks for keys by a file's path alone.
        """
        key = _Key(lake, read_only)
        if key not in self._lakes:
            self._evict_contradicting(lake)
        elif read_only:
            self._evict_outdated(key)
        entry = self._take(key)
        try:
            with entry.opening:
                if not entry.attached:
                    if not sure and lake.sqlite_file is None and not entry.catalog.is_there():
                        raise LakeAbsent(f"there is no lake yet at {lake}")
                    attach(self._con.cursor(), entry.alias, lake, read_only=read_only, create=create)
                    entry.attached = True
                    entry.inlined_tables = entry.catalog.inlined_tables() if read_only else frozenset()
            yield entry
        finally:
            self._give_back(key, entry)

    def evict(self, entry: OpenLake) -> None:
        """Forget a lake that misbehaved, or that its user wants attached anew."""
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
            if entry.catalog.inlined_tables() != entry.inlined_tables:
                self.evict(entry)
        finally:
            self._give_back(key, entry)

    def _evict_contradicting(self, lake: ResolvedLake) -> None:
        with self._lock:
            found = [(key, entry) for key, entry in self._lakes.items() if key.lake.contradicts(lake)]
            for _, entry in found:
                entry.users += 1
        for key, entry in found:
            self.evict(entry)
            drop_secret(self._con.cursor(), entry.alias)
            self._give_back(key, entry)

    def close(self) -> None:
        with self._lock:
            entries, self._lakes = list(self._lakes.values()), OrderedDict()
        for entry in entries:
            self._close(entry)

    def _take(self, key: _Key) -> OpenLake:
        with self._lock:
            entry = self._lakes.get(key)
            if entry is None:
                alias = f"lake_{next(self._numbers)}"
                entry = OpenLake(alias, key.lake, CatalogReader.attached(key.lake, self._con, alias))
                self._lakes[key] = entry
            self._lakes.move_to_end(key)
            entry.users += 1
            return entry

    def _give_back(self, key: _Key, entry: OpenLake) -> None:
        closing = []
        with self._lock:
            entry.users -= 1
            if not key.read_only and entry.users == 0:
                entry.catalog.close()  # asked rarely, and a server's connections are few where tenants are many
            if not entry.attached and self._lakes.get(key) is entry:
                del self._lakes[key]
                entry.doomed = True
            if entry.doomed and entry.users == 0:
                closing.append(entry)
            closing.extend(self._surplus())
        for gone in closing:
            self._close(gone)

    def _surplus(self) -> list[OpenLake]:
        written = [(key, entry) for key, entry in self._lakes.items() if not key.read_only]
        idle = [(key, entry) for key, entry in written if entry.users == 0]
        surplus = idle[: max(0, len(written) - self._limit)]
        for key, _ in surplus:
            del self._lakes[key]
            self.evictions += 1
        return [entry for _, entry in surplus]

    def _close(self, entry: OpenLake) -> None:
        entry.catalog.close()
        if entry.attached:
            with contextlib.suppress(duckdb.Error):  # what it was attached to may be gone, or the whole instance
                detach(self._con.cursor(), entry.alias)
