"""A destination's lake as the extension's path uses it: open, free of SQL of its catalog, and with typed errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import duckdb

from services.applier.apply.destination.table_options import tables_of
from services.applier.model.task import Target
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.connection.engine import release
from shared.lake.failure import classify

T = TypeVar("T")


class DestinationLakes:
    """Attached lakes of destinations, from a pool; used by many threads at once."""

    def __init__(self, pool: LakePool) -> None:
        self.pool = pool

    @contextlib.contextmanager
    def use(self, target: Target, *, create: bool = False, sure: bool = True) -> Iterator[OpenLake]:
        """The target's lake, open, once its catalog was found to hold no SQL that the target's tables would run."""
        with self.pool.use(target.lake, read_only=False, create=create, sure=sure) as lake:
            lake.inspect(*tables_of(target.destination))
            yield lake

    @contextlib.contextmanager
    def for_one_commit(self, target: Target, *, create: bool = False) -> Iterator[OpenLake]:
        """The same in an instance that ends with the block, for one COMMIT of which no file may be lost (H7)."""
        with self.pool.for_one_commit(target.lake, create=create) as lake:
            lake.inspect(*tables_of(target.destination))
            yield lake

    def read(self, lake: OpenLake, doing: str, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Reads in one transaction, in which what is a table stays one."""

        def in_one(con: duckdb.DuckDBPyConnection) -> T:
            lake.begin(con)
            try:
                return work(con)
            finally:
                roll_back(con)

        return self.guarded(lake, doing, in_one)

    def guarded(self, lake: OpenLake, doing: str, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run ``work`` on a cursor of its own; an error evicts the lake and comes out typed."""
        con = lake.cursor()
        try:
            return work(con)
        except duckdb.Error as error:
            self.pool.evict(lake)
            raise classify(error, f"{doing} in the lake at {lake.lake}") from None
        finally:
            release(con)


def roll_back(con: duckdb.DuckDBPyConnection) -> None:
    # DuckLake ends a transaction whose COMMIT fails, and closing the cursor ends any other.
    with contextlib.suppress(duckdb.Error):
        con.execute("ROLLBACK")
