"""A DuckDB instance of a worker for rows that come from no lake."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa

from shared.lake.connection.engine import connect, is_lost, release

UNCOMPRESSED = "SET checkpoint_threshold = '1TB'"
"""Once so much was written to an instance in memory, by default 16 MB, DuckDB compresses all rows in it. Those of a
reading are dropped a moment later, and to compress them takes a fifth of its CPU and almost as much memory again."""


class WorkerMemory:
    """Made when it is first needed, and again where an error has cost it; thread-safe."""

    def __init__(self, memory_limit: str) -> None:
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._con: duckdb.DuckDBPyConnection | None = None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for its caller, who releases it."""
        with self._lock:
            if self._con is not None and is_lost(self._con):
                release(self._con)
                self._con = None
            if self._con is None:
                self._con = connect(memory_limit=self._memory_limit, catalogs=())
                self._con.execute(UNCOMPRESSED)
            return self._con.cursor()

    def give_back(self) -> None:
        """Return to the system what is free again, which costs some 20 ms. DuckDB does so where its limit is set, and
        otherwise keeps it: what another thread asks for next then comes on top of it."""
        con = self.cursor()
        try:
            con.execute("SET memory_limit = ?", [self._memory_limit])
        finally:
            release(con)
        pa.default_memory_pool().release_unused()

    def close(self) -> None:
        with self._lock:
            if self._con is not None:
                release(self._con)
                self._con = None
