"""Counts rows by routing value in the source lake: DuckDB, one column, one pass for all destinations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.contracts.ranges import Range
from shared.lake.attached.state import AttachedState
from shared.lake.catalog.reader import CatalogReader, Column, TableInfo
from shared.lake.changes.changed_rows import Relation, RowsByFiles, by_functions
from shared.lake.connection.attach import attach, scanners
from shared.lake.connection.engine import UNCHECKED, connect, read_whole, release
from shared.lake.failure import classify, loses_attachment
from shared.lake.routing_value import spelled
from shared.lake.sql import ident, path

ALIAS = "source"
MEMORY_LIMIT = "1GB"

OLD_FILE_WITHIN_S = 5
"""How long a store may be silent where the whole table is read, files of long ago included. DuckDB waits for 30 s and
tries three times more, and changes that arrive meanwhile would have to wait, too."""

PATIENT = "SET http_timeout = 30", "SET http_retries = 3"
IMPATIENT = f"SET http_timeout = {OLD_FILE_WITHIN_S}", "SET http_retries = 0"

MOST_UNROUTED, OVERHEAD = 5_000_000, 100
"""Characters of values without a destination of which the rows are kept one by one, each with so much besides. Their
number and length are untrusted: a commit with a million of a thousand characters took 1.5 GB."""

FETCHED_AT_ONCE = 2_048

T = TypeVar("T")

Relations = Callable[[], Iterable[tuple[Column, Relation]]]
"""What is counted, each by a column of it; made again for each connection."""


@dataclass(frozen=True)
class RowCounts:
    """Rows by canonical routing value; None is NULL. ``others``: rows of values that were too many to keep."""

    rows: Mapping[str | None, int]
    others: int = 0

    @property
    def total(self) -> int:
        return sum(self.rows.values()) + self.others


@dataclass(frozen=True)
class Images:
    """What the feed shows of some ranges; an update has an image in both."""

    inserted: RowCounts
    deleted: RowCounts

    def by_value(self) -> dict[str, int]:
        """All images: never fewer than the net change has rows."""
        values = (self.inserted.rows.keys() | self.deleted.rows.keys()) - {None}
        return {value: self._both(value) for value in values if value is not None}

    @property
    def total(self) -> int:
        return self.inserted.total + self.deleted.total

    @property
    def is_partial(self) -> bool:
        """Whether ``by_value`` lacks values without a destination."""
        return self.inserted.others + self.deleted.others > 0

    def unrouted(self, routed: Set[str]) -> int:
        """Changed rows of NULL and of values without a destination; an update counts once, if its value was kept."""
        inserted, deleted = self.inserted.rows, self.deleted.rows
        values = (inserted.keys() | deleted.keys()) - routed
        kept = sum(max(inserted.get(value, 0), deleted.get(value, 0)) for value in values)
        return kept + max(self.inserted.others, self.deleted.others)

    def _both(self, value: str) -> int:
        return self.inserted.rows.get(value, 0) + self.deleted.rows.get(value, 0)


@dataclass(frozen=True)
class UnroutedValue:
    """A routing value without a destination: its beginning, whether that is all of it, its SHA-256, its rows."""

    value: str
    whole: bool
    sha256: str
    rows: int


class Counter:
    """One connection, kept open. After an error it is opened again, since an instance may be lost for good (H4)."""

    def __init__(
        self, lake: ResolvedLake, catalog: CatalogReader, called: Callable[[int | None], tuple[str, str]]
    ) -> None:
        """``called``: schema and name of the table at a snapshot, None for the newest."""
        self._lake = lake
        self._catalog = catalog
        self._called = called
        self._con: duckdb.DuckDBPyConnection | None = None
        self._remembered: AttachedState | None = None
        self._changes: RowsByFiles | None = None
        self._unlike = set[str]()
        self._scanned: TableInfo | None = None
        """The table whose files are being scanned."""

    def changes(
        self,
        table: TableInfo,
        routing: Callable[[int], Column],
        ranges: Sequence[Range],
        routed: Set[str],
        *,
        deletes: bool,
    ) -> Images:
        """What these ranges of the table inserted and, with ``deletes``, deleted, by routing value: all of the
        ``routed`` ones. ``routing`` tells which column it is at a snapshot.

        By the table's files where these tell it, else by DuckLake's functions: no filter, no virtual column, ranges by
        their arguments alone (H4). Raises a ``ViaduckError``.
        """

        def relations() -> Iterator[tuple[Column, Relation]]:
            for each in ranges:
                column = routing(each.through)
                yield from ((column, relation) for relation in self._changed(table, column, each)[: 1 + deletes])

        counted = self._counted(relations, routed)
        every = 1 + deletes
        return Images(_summed(counted[::every]), _summed(counted[1::every] if deletes else []))

    def state(self, routing: Column) -> RowCounts:
        """The table's present rows by routing value. Raises a ``ViaduckError``."""
        everything = Relation(path(ALIAS, *self._called(None)))
        return _summed(self._counted(lambda: [(routing, everything)], frozenset(), IMPATIENT))

    def unknown(self, routing: Column, routed: Collection[str], most: int, longest: int) -> list[UnroutedValue]:
        """Present values that are not ``routed``, up to ``most``, those with most rows first.

        Grouped, cut to ``longest`` characters and limited by DuckDB, which can spill: the number and the length of
        these values are untrusted. Raises a ``ViaduckError``.
        """
        column, source = spelled(ident(routing.name), routing.type), path(ALIAS, *self._called(None))
        grouped = f"SELECT {column} AS value, count(*) AS rows FROM {source} GROUP BY 1"
        statement = (
            f"SELECT left(value, $1), length(value) <= $1, sha256(value), rows FROM ({grouped})"
            " WHERE value IS NOT NULL AND value NOT IN (SELECT unnest($2::VARCHAR[]))"
            " ORDER BY rows DESC, value LIMIT $3"
        )
        rows = self._trying(lambda: self._queried(statement, longest, list(routed), most))
        return [UnroutedValue(value, whole, digest, count) for value, whole, digest, count in rows]

    def close(self) -> None:
        if self._con is not None:
            release(self._con)
            self._con = self._remembered = self._changes = None

    def _changed(self, table: TableInfo, routing: Column, snapshots: Range) -> tuple[Relation, Relation]:
        """The rows that a range inserted, and those that it deleted. An instance is there."""
        assert self._changes is not None  # noqa: S101
        found = self._changes.changed(table, [routing.name], snapshots)
        self._scanned = None if found is None else table
        if found is None:
            found = by_functions(ALIAS, self._called(snapshots.through), *snapshots.inclusive())
        return found.inserted, found.deleted

    def _counted(self, relations: Relations, routed: Set[str], patience: Sequence[str] = PATIENT) -> list[RowCounts]:
        """Rows of each relation by its column's values. Retried once on a new connection."""
        return self._trying(lambda: self._run(relations, routed, patience))

    def _trying(self, run: Callable[[], T]) -> T:
        kept_open = self._con is not None
        try:
            return run()
        except duckdb.Error as error:
            again = self._is_unlike(error) or (kept_open and loses_attachment(error))
            self._drop()
            if not again:
                raise self._classified(error) from None
        try:
            return run()
        except duckdb.Error as error:
            self._drop()
            raise self._classified(error) from None

    def _is_unlike(self, error: duckdb.Error) -> bool:
        """Whether files that were scanned have to be left to DuckLake."""
        table, changes = self._scanned, self._changes
        return table is not None and changes is not None and changes.is_unlike(table, error)

    def _queried(self, statement: str, *parameters: object) -> list[Any]:
        return self._fresh(IMPATIENT).execute(statement, list(parameters)).fetchall()

    def _run(self, relations: Relations, routed: Set[str], patience: Sequence[str]) -> list[RowCounts]:
        """All in one transaction, which looks the snapshot up once; every result is read to its end."""
        con = self._fresh(patience)
        self._scanned = None
        counted = list[RowCounts]()
        with _transaction(con):
            for column, relation in relations():
                value = spelled(ident(column.name), column.type)
                found = con.execute(f"SELECT {value}, count(*) FROM {relation.scan} GROUP BY 1", list(relation.values))
                counted.append(_kept(found, routed))
        return counted

    def _fresh(self, patience: Sequence[str]) -> duckdb.DuckDBPyConnection:
        if self._remembered is not None and not self._remembered.holds(self._catalog):
            self._drop()  # H12, H20
        con = self._opened()
        for setting in patience:
            con.execute(setting)
        return con

    def _classified(self, error: duckdb.Error) -> ViaduckError:
        return classify(error, f"counting rows of {'.'.join(self._called(None))}")

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._con is None:
            con = connect(memory_limit=MEMORY_LIMIT, catalogs=scanners(self._lake))
            read_whole(con)
            try:
                if self._lake.sqlite_file is None:
                    con.execute(UNCHECKED)  # see _trying
                attach(con, ALIAS, self._lake, read_only=True)
                self._remembered = AttachedState(self._lake, self._catalog)
                self._changes = RowsByFiles(self._catalog, self._lake.data_path, self._remembered.inlined, self._unlike)
            except BaseException:
                release(con)
                raise
            self._con = con
        return self._con

    def _drop(self) -> None:
        """Throw it away because it misbehaved."""
        with contextlib.suppress(duckdb.Error):
            self.close()
        self._con = self._remembered = self._changes = None


@contextlib.contextmanager
def _transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What is asked beside DuckDB may fail meanwhile, too, and must not leave it open."""
    con.execute("BEGIN")
    try:
        yield
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # its connection has ended
            con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def _kept(result: duckdb.DuckDBPyConnection, routed: Set[str]) -> RowCounts:
    """What is kept of a result, which itself is read in parts."""
    kept: dict[str | None, int] = {}
    room, others = MOST_UNROUTED, 0
    while part := result.fetchmany(FETCHED_AT_ONCE):
        for value, rows in part:
            if value is not None and value not in routed:
                room -= len(value) + OVERHEAD
                if room < 0:
                    others += rows
                    continue
            kept[value] = rows
    return RowCounts(kept, others)


def _summed(counted: Sequence[RowCounts]) -> RowCounts:
    total: dict[str | None, int] = {}
    for counts in counted:
        for value, rows in counts.rows.items():
            total[value] = total.get(value, 0) + rows
    return RowCounts(total, sum(counts.others for counts in counted))
