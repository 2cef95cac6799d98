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
from shared.lake.catalog.reader import CatalogReader, Column, TableInfo
from shared.lake.catalog.runs import insertion_runs
from shared.lake.catalog.touches import MAINTENANCE
from shared.lake.columns.history import fields_at, grew_only
from shared.lake.columns.mapping import columns_as_of
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
    keys: tuple[str, ...] = ()
    """The key columns by the names that they have among ``columns``."""
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
        since, followed = Range(position, self.head), grew_only(self.table.versions, position, self.head)
        if followed and not self._changed_in(since):
            now = self.columns_at(self.head)
            rows = self._rows(now, self.head)
            return Expected(now, rows, rows, self.head, self._keys_at(self.head))
        if not self.catalog.exists(position):
            raise _expired(since)
        self.catalog.require_shown_right(self.table.table_id, position)
        then = self.columns_at(position)
        mixable = self.routing.key_columns and followed
        rows = self._mixed(then, position) if mixable else self._rows(then, position)
        return Expected(then, rows, rows, position, self._keys_at(position), self._doubt(since))

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
        moved = f"EXISTS (SELECT 1 FROM {_memory('moved')} m WHERE {self._same_keys('m', 's', position)})"
        return f"SELECT * FROM ({now}) s WHERE NOT {moved} UNION ALL SELECT * FROM ({then}) s WHERE {moved}"

    def _touched_part(self, whole: Expected, position: int, seeded_at: int | None) -> Expected:
        """``latest``: each row that is there equals the source's, and those touched since the seed are there."""
        nothing = f"SELECT * FROM ({whole.required}) s WHERE false"
        if seeded_at is None or not self.catalog.contiguous(Range(seeded_at, position)):
            note = "history since the seed has expired: present rows were compared, missing rows were not"
            return replace(whole, required=nothing, note="; ".join(filter(None, (whole.note, note))))
        if seeded_at == position or not self._load_touched("since_seed", Range(seeded_at, position)):
            return replace(whole, required=nothing)
        touched = f"EXISTS (SELECT 1 FROM {_memory('since_seed')} m WHERE {self._same_keys('m', 's', position)})"
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
            return Expected(columns, None, must, position, note=note)
        assert seeded_at is not None  # noqa: S101 - as history reaches back to it
        parts = [] if seed_mode is SeedMode.LATEST else [self._rows_as_of(position, seeded_at)]
        since = Range(seeded_at, position)
        if not since.is_empty:
            runs = insertion_runs(since, self.catalog.touching(self.table.table_id, since))
            parts += [self._inserted(position, run) for run in runs]
        rows = " UNION ALL ".join(parts) or f"SELECT * FROM ({self._rows(columns, position)}) s WHERE false"
        return Expected(columns, rows, rows, position)

    def _history_reaches(self, seeded_at: int | None, position: int) -> bool:
        if seeded_at is None or not self.catalog.exists(seeded_at):
            return False
        return self.catalog.contiguous(Range(seeded_at, position))

    def _inserted(self, position: int, run: Range) -> str:
        """The inserted rows of a run. The feed is read whole before it is filtered (H4)."""
        feed = self._feed("ducklake_table_insertions", run)
        known = self._mapped(run.through, position)
        routing = ident(self._named(self.routing.field, run.through).name)
        return (
            f"SELECT {known} FROM (WITH fed AS MATERIALIZED (SELECT * FROM {feed})"
            f" SELECT * FROM fed WHERE {routing} = {self._typed_value(run.through)})"
        )

    def _rows_as_of(self, position: int, snapshot: int) -> str:
        known = self._mapped(snapshot, position)
        return f"SELECT {known} FROM ({self._rows(self.columns_at(snapshot), snapshot)})"

    def _mapped(self, snapshot: int, position: int) -> str:
        """Rows in the columns of a snapshot as they are at a later one."""
        versions = self.table.versions
        return columns_as_of(fields_at(versions, snapshot), fields_at(versions, position))

    # -- reading

    def columns_at(self, snapshot: int) -> tuple[Column, ...]:
        """The table's columns as DuckDB declares them, in order, with what older rows show in them."""
        described = self.con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {self._path(snapshot)}"
            f" AT (VERSION => {snapshot:d}))"
        ).fetchall()
        there = self.table.as_of(snapshot)
        return tuple(Column(name, declared, _default(there, name)) for name, declared in described)

    def _path(self, snapshot: int) -> str:
        return path(self.alias, *self.table.called(snapshot))

    def _rows(self, columns: Sequence[Column], snapshot: int) -> str:
        names = column_list(tuple(column.name for column in columns))
        at = "" if snapshot == self.head else f" AT (VERSION => {snapshot:d})"
        routing = ident(self._named(self.routing.field, snapshot).name)
        return f"SELECT {names} FROM {self._path(snapshot)}{at} WHERE {routing} = {self._typed_value(snapshot)}"

    def _typed_value(self, snapshot: int) -> str:
        column = self._named(self.routing.field, snapshot)
        return f"CAST({literal(self.value)} AS {column.type})"

    def _named(self, configured: str, snapshot: int) -> Column:
        """The column that the configuration names, as it is at a snapshot: it may have been renamed."""
        if (column := self.table.identified_at(configured, snapshot)) is not None:
            return column
        hint = "correct routing.field and routing.key_columns, or bring the column back"
        raise SourceError("schema_change", f"the source has no column {configured!r} at snapshot {snapshot}", hint)

    def _keys_at(self, snapshot: int) -> tuple[str, ...]:
        return tuple(self._named(key, snapshot).name for key in self.routing.key_columns)

    def _load_touched(self, name: str, snapshots: Range) -> bool:
        """The keys of the slice that the range touches into a table in memory; whether there are any."""
        routing, end = self._named(self.routing.field, snapshots.through).name, snapshots.through
        keys = "".join(f", {ident(key)} AS k{number}" for number, key in enumerate(self._keys_at(end)))
        images = " UNION ALL ".join(
            f"SELECT {ident(routing)} AS r{keys} FROM {self._feed(f, snapshots)}" for f in FEEDS
        )
        wanted = "".join(f", k{number}" for number, _ in enumerate(self.routing.key_columns))
        self.con.execute(
            f"CREATE OR REPLACE TABLE {_memory(name)} AS WITH fed AS MATERIALIZED ({images})"
            f" SELECT DISTINCT r{wanted} FROM fed WHERE r = {self._typed_value(snapshots.through)}"
        )
        return bool(self.con.execute(f"SELECT 1 FROM {_memory(name)} LIMIT 1").fetchall())

    def _feed(self, function: str, snapshots: Range) -> str:
        first, last = snapshots.inclusive()
        where = ", ".join(map(literal, (self.alias, *self.table.called(last))))
        return f"{function}({where}, {first:d}, {last:d})"

    def _same_keys(self, touched: str, row: str, snapshot: int) -> str:
        """``snapshot``: of the columns of ``row``."""
        return " AND ".join(
            f"{touched}.k{number} IS NOT DISTINCT FROM {row}.{ident(key)}"
            for number, key in enumerate(self._keys_at(snapshot))
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
