"""What a task asks of its source, whatever its kind: the source's identity now, and readings of its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import duckdb

from services.applier.apply.source.feed import Feed
from services.applier.apply.source.reading import Reading
from services.applier.model.task import SourceTable
from services.applier.worker.in_flight import Numbered
from services.applier.worker.wide_rows import Wide
from shared.contracts.messages import ItemKind
from shared.contracts.reports import UnroutedRecords
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.catalog.reader import TableInfo
from shared.lake.changes.changed_rows import UnlikeFiles
from shared.lake.connection.engine import release
from shared.lake.failure import loses_attachment


@dataclass(frozen=True)
class Shared:
    """What was read for several targets. ``unrouted``: what of it none of the pipeline's destinations takes."""

    records: int = 0
    unrouted: UnroutedRecords | None = None


class TaskSource(Protocol):
    """The source of one task. Methods raise a ``ViaduckError``, or what ``worker.explanation`` makes one of."""

    def table(self) -> TableInfo | None:
        """The source as it is now; None where there is none."""

    def time_of(self, snapshot: int) -> datetime | None:
        """When a snapshot was committed; None where it is not retained, or the source has no such times."""

    def parts(self, group: Sequence[Numbered]) -> Sequence[Sequence[Numbered]] | None:
        """The group in readings that fit into memory; None where one reading of it does."""

    def share(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Shared | None:
        """Read what the targets, which agree on range and kind, have in common, where each of them is then to be read
        by itself, on a thread of its own; None where they are read together."""

    def read(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        """Read what the targets, which agree on range and kind, need (``Reading``). ``sparing``: with less memory.

        Raises ``duckdb.OutOfMemoryException`` where the range does not fit.
        """

    def forget(self, reading: Reading) -> None:
        """Release what a reading holds."""


class LakeReader:
    """A table of a lake, through the worker's pool of attached lakes."""

    def __init__(self, pool: LakePool, wide: Wide, source: SourceTable) -> None:
        self._pool = pool
        self._wide = wide
        self._source = source

    def table(self) -> TableInfo | None:
        source = self._source
        with self._pool.use(source.lake, read_only=True) as lake:
            return lake.catalog.source_table(source.schema, source.table, lake.catalog.head().snapshot)

    def time_of(self, snapshot: int) -> datetime | None:
        with self._pool.use(self._source.lake, read_only=True) as lake:
            return lake.catalog.time_of(snapshot)

    def parts(self, group: Sequence[Numbered]) -> Sequence[Sequence[Numbered]] | None:
        return self._wide.parts(self._source, group)

    def share(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Shared | None:  # noqa: ARG002
        return None

    def read(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        """Tried once more on a lake that is attached again, where a connection has ended since it was last used, or
        files have to be left to DuckLake."""
        try:
            return self._read_once(kind, group, sparing=sparing)
        except UnlikeFiles:
            pass
        except duckdb.Error as error:
            if not loses_attachment(error):
                raise
        return self._read_once(kind, group, sparing=sparing)

    def _read_once(self, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        with self._pool.use(self._source.lake, read_only=True) as lake:
            return self._read_from(lake, kind, group, sparing=sparing)

    def forget(self, reading: Reading) -> None:
        try:
            reading.drop()
        except duckdb.Error:
            self._pool.evict_of(self._source.lake, read_only=True)

    def _read_from(self, lake: OpenLake, kind: ItemKind, group: Sequence[Numbered], *, sparing: bool) -> Reading:
        con = lake.cursor()
        try:
            reading = Feed(con, lake, self._source).read(kind, group, sparing=sparing)
            if kind is not ItemKind.ADVANCE:
                self._wide.weigh(self._source, reading)
            return reading
        except BaseException as error:
            release(con)
            if isinstance(error, (duckdb.Error, UnlikeFiles)):
                self._pool.evict(lake)
            raise
