"""What a destination's table should hold at its position, as queries on the source.

The head of a lake was right in every history ever tried, time travel behind a compaction was not always (H1, H13).
So whatever did not change after the position is proven at the head, and only the rest by looking back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from shared.config.model import Routing
from shared.contracts.errors import DestinationError, SourceError
from shared.contracts.messages import SeedMode
from shared.contracts.ranges import Range
from shared.lake.catalog import MAINTENANCE, CatalogReader, Column, TableInfo
from shared.lake.column_history import broken
from shared.lake.runs import insertion_runs
from shared.lake.sql import columns as column_list
from shared.lake.sql import ident, literal, path

FEEDS = ("ducklake_table_insertions", "ducklake_table_deletions")


@dataclass(frozen=True)
class Expected:
    """``rows`` selects ``columns`` of every row that may be there, ``required`` of those that must.

    ``proven_at`` is the source snapshot that was looked at; ``note`` says what could not be proven, if anything.
    """

    columns: tuple[Column, ...]
    rows: str | None
    """None if the history is gone that could tell a surplus row from a row deleted at the source."""
    required: str
    proven_at: int
    note: str = ""


@dataclass(frozen=True)
class SourceSlice:
    """The rows of one routing value in a source table that is attached as ``alias``; ``head`` is pinned.

    ``value`` is the routing value as text in the spelling of the routing column's type.
    """

    con: duckdb.DuckDBPyConnection
    alias: str
    catalog: CatalogReader
    table: TableInfo
    routing: Routing
    value: str
    head: int

    def expected(self, position: int, seed_mode: SeedMode, seeded_at: int | None) -> Expected:
        """What a destination at ``position`` holds. ``seeded_at`` is None where its seed's stamp is gone.

        Raises ``history_expired`` where the source no longer keeps what a proof would need.
        """
        if self.routing.append_only:
            return self._ever_inserted(position, seed_mode, seeded_at)
        whole = self._slice(position)
        return whole if seed_mode is not SeedMode.LATEST else self._touched_part(whole, position, seeded_at)

    # -- a pipeline with keys: the slice

    def _slice(self, position: int) -> Expected:
        since, followed = Range(position, self.head), broken(self.table.versions, position, self.head) is None
        if followed and not self._changed_in(since):
            now = self.columns_at(self.head)
            rows = self._rows(now, self.head)
            return Expected(now, rows, rows, self.head)
        if not self.catalog.exists(position):
            raise _expired(since)
        self.catalog.require_shown_right(self.table.table_id, position)
        then = self.columns_at(position)
        mixable = self.routing.key_columns and followed
        rows = self._mixed(then, position) if mixable else self._rows(then, position)
        return Expected(then, rows, rows, position, self._doubt(since))

    def _doubt(self, since: Range) -> str:
        """What a proof by looking back leaves open: maintenance since may have changed what old snapshots show."""
        touches = self.catalog.touching(self.table.table_id, since)
        if self.catalog.contiguous(since) and not any(touch.marks & MAINTENANCE for touch in touches):
            return ""
        return (
            f"the source was read as of snapshot {since.after}, behind maintenance of it, which DuckLake does not"
            " always show right (docs/explanation/hazards.md): let the destination catch up, then verify again"
        )

    def _changed_in(self, since: Range) -> bool:
        """Whether rows of the slice may have changed; if so their keys are in ``moved``."""
        if since.is_empty:
            return False
        self._require_history(since)
        if all(touch.is_maintenance for touch in self.catalog.touching(self.table.table_id, since)):
            return False
        return self._load_touched("moved", since)

    def _mixed(self, columns: Sequence[Column], position: int) -> str:
        """Rows whose key was not touched since from the head, the others by time travel."""
        now, then = self._rows(columns, self.head), self._rows(columns, position)
        moved = f"EXISTS (SELECT 1 FROM {_memory('moved')} m WHERE {self._same_keys('m', 's')})"
        return f"SELECT * FROM ({now}) s WHERE NOT {moved} UNION ALL SELECT * FROM ({then}) s WHERE {moved}"

    def _touched_part(self, whole: Expected, position: int, seeded_at: int | None) -> Expected:
        """``latest``: each row that is there equals the source's, and those touched since the seed are there."""
        nothing = f"SELECT * FROM ({whole.required}) s WHERE false"
        if seeded_at is None or not self.catalog.contiguous(Range(seeded_at, position)):
            note = "history since the seed has expired: present rows were compared, missing rows were not"
            return replace(whole, required=nothing, note="; ".join(filter(None, (whole.note, note))))
        if seeded_at == position or not self._load_touched("since_seed", Range(seeded_at, position)):
            return replace(whole, required=nothing)
        touched = f"EXISTS (SELECT 1 FROM {_memory('since_seed')} m WHERE {self._same_keys('m', 's')})"
        return replace(whole, required=f"SELECT * FROM ({whole.required}) s WHERE {touched}")

    # -- append-only: whatever was ever inserted

    def _ever_inserted(self, position: int, seed_mode: SeedMode, seeded_at: int | None) -> Expected:
        columns = self.columns_at(position)
        if not self._history_reaches(seeded_at, position):
            note = (
                "history since the seed has expired: rows of the source were searched for, other rows were not judged"
            )
            must = self._rows(columns, position)
            if seed_mode is SeedMode.LATEST:
                must = f"SELECT * FROM ({must}) s WHERE false"
            return Expected(columns, None, must, position, note)
        assert seeded_at is not None  # noqa: S101 - as history reaches back to it
        parts = [] if seed_mode is SeedMode.LATEST else [self._rows_as_of(columns, seeded_at)]
        since = Range(seeded_at, position)
        if not since.is_empty:
            runs = insertion_runs(since, self.catalog.touching(self.table.table_id, since))
            parts += [self._inserted(columns, run) for run in runs]
        rows = " UNION ALL ".join(parts) or f"SELECT * FROM ({self._rows(columns, position)}) s WHERE false"
        return Expected(columns, rows, rows, position)

    def _history_reaches(self, seeded_at: int | None, position: int) -> bool:
        if seeded_at is None or not self.catalog.exists(seeded_at):
            return False
        return self.catalog.contiguous(Range(seeded_at, position))

    def _inserted(self, columns: Sequence[Column], run: Range) -> str:
        """The inserted rows of a run. The feed is read whole before it is filtered (H4)."""
        feed = self._feed("ducklake_table_insertions", run)
        known = self._known_at(columns, run.through)
        routing = ident(self.routing.field)
        return (
            f"SELECT {known} FROM (WITH fed AS MATERIALIZED (SELECT * FROM {feed})"
            f" SELECT * FROM fed WHERE {routing} = {self._typed_value(run.through)})"
        )

    def _rows_as_of(self, columns: Sequence[Column], snapshot: int) -> str:
        known = self._known_at(columns, snapshot)
        return f"SELECT {known} FROM ({self._rows(self.columns_at(snapshot), snapshot)})"

    def _known_at(self, columns: Sequence[Column], snapshot: int) -> str:
        """Columns as of an older snapshot; a column that was added later has its default in every row."""
        known = {column.name.lower() for column in self.columns_at(snapshot)}
        return ", ".join(ident(c.name) if c.name.lower() in known else default_of(c) for c in columns)

    # -- reading

    def columns_at(self, snapshot: int) -> tuple[Column, ...]:
        """The table's columns as DuckDB declares them, in order, with what older rows show in them."""
        described = self.con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {self._path} AT (VERSION => {snapshot:d}))"
        ).fetchall()
        there = self.table.as_of(snapshot)
        return tuple(Column(name, declared, _default(there, name)) for name, declared in described)

    @property
    def _path(self) -> str:
        return path(self.alias, self.table.schema, self.table.name)

    def _rows(self, columns: Sequence[Column], snapshot: int) -> str:
        names = column_list(tuple(column.name for column in columns))
        at = "" if snapshot == self.head else f" AT (VERSION => {snapshot:d})"
        return f"SELECT {names} FROM {self._path}{at} WHERE {ident(self.routing.field)} = {self._typed_value(snapshot)}"

    def _typed_value(self, snapshot: int) -> str:
        column = self.table.as_of(snapshot).column(self.routing.field)
        if column is None:
            hint = "correct routing.field, or bring the column back"
            raise SourceError("schema_change", f"the source has no column {self.routing.field!r}", hint)
        return f"CAST({literal(self.value)} AS {column.type})"

    def _load_touched(self, name: str, snapshots: Range) -> bool:
        """The keys of the slice that the range touches into a table in memory; whether there are any."""
        keys = "".join(f", {ident(key)} AS k{number}" for number, key in enumerate(self.routing.key_columns))
        images = " UNION ALL ".join(
            f"SELECT {ident(self.routing.field)} AS r{keys} FROM {self._feed(f, snapshots)}" for f in FEEDS
        )
        wanted = "".join(f", k{number}" for number, _ in enumerate(self.routing.key_columns))
        self.con.execute(
            f"CREATE OR REPLACE TABLE {_memory(name)} AS WITH fed AS MATERIALIZED ({images})"
            f" SELECT DISTINCT r{wanted} FROM fed WHERE r = {self._typed_value(snapshots.through)}"
        )
        return bool(self.con.execute(f"SELECT 1 FROM {_memory(name)} LIMIT 1").fetchall())

    def _feed(self, function: str, snapshots: Range) -> str:
        first, last = snapshots.inclusive()
        where = ", ".join(map(literal, (self.alias, self.table.schema, self.table.name)))
        return f"{function}({where}, {first:d}, {last:d})"

    def _same_keys(self, touched: str, row: str) -> str:
        return " AND ".join(
            f"{touched}.k{number} IS NOT DISTINCT FROM {row}.{ident(key)}"
            for number, key in enumerate(self.routing.key_columns)
        )

    def _require_history(self, since: Range) -> None:
        if not self.catalog.contiguous(since):
            raise _expired(since)


def _expired(since: Range) -> DestinationError:
    return DestinationError(
        "history_expired",
        f"the source no longer keeps every snapshot of {since}, so nothing can be proven at {since.after}",
        "let the destination catch up, or reseed it, then verify again",
    )


def _default(table: TableInfo, name: str) -> str | None:
    column = table.column(name)
    return None if column is None else column.default


def default_of(column: Column) -> str:
    """What rows show that are older than the column, as an expression of that name."""
    value = "NULL" if column.default is None else literal(column.default)
    return f"CAST({value} AS {column.type}) AS {ident(column.name)}"


def _memory(name: str) -> str:
    return path("memory", "main", name)
