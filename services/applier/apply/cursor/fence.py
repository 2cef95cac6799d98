"""The cursor in a destination lake, and the compare-and-set that lets one writer through.

The cursor commits with the data, so neither a lost message nor a second applier can make a range count twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from services.applier.apply.cursor.decide import Cursor
from shared.contracts.errors import DestinationError, Error
from shared.contracts.messages import ADOPTABLE, MOST, CommitPath, Destination, WorkItem
from shared.contracts.positions import UNSPELLED, is_spelling_of
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.reader import CatalogReader, TableInfo
from shared.lake.cursor import SCHEMA, cursor_name, kept, origin, require_intact, told
from shared.lake.direct.state import CURSOR_TYPES
from shared.lake.sql import ident, path
from shared.lake.stamp import read_stamp, short_list
from shared.lake.table import require_table
from shared.lake.types import duckdb_type

DECLARED = {name: duckdb_type(kind) for name, kind in CURSOR_TYPES.items()}
COLUMNS = ", ".join(f"{ident(name)} {declared}" for name, declared in DECLARED.items())

SPELLING = "source_position VARCHAR"
"""The column of a cursor whose source spells its positions."""


WHERE = {"seed": "at {through}", "maintenance": "at {through}", "advance": "to {through}"}
"""In words, for kinds that read no range: an advance has ``after`` and ``through`` alike."""


UNUSABLE = (
    duckdb.CatalogException, duckdb.BinderException, duckdb.OutOfRangeException, duckdb.ConversionException,
)  # fmt: skip


class CursorMoved(Error):
    """The compare-and-set found another cursor than the item expects: roll back, read it, decide."""


@dataclass(frozen=True)
class Move:
    """Where a destination's cursor is to go: to ``through`` of ``source``, ``rows`` rows having been applied.

    ``source`` is the table as of ``through``; ``expected_at`` tells when the snapshot was committed from which the
    cursor is to move, None where the source no longer retains it.
    """

    destination: Destination
    item: WorkItem
    through: int
    source: TableInfo
    rows: int
    expected_at: datetime | None = None
    through_at: str = UNSPELLED
    """The source's own spelling of ``through``."""


@dataclass(frozen=True)
class Stamp:
    """What a destination's snapshot says of itself in ``commit_extra_info`` (docs/reference/stamps.md)."""

    item: WorkItem
    kind: str
    after: int
    through: int
    token: str
    deleted: int
    inserted: int
    commit: CommitPath = CommitPath.EXTENSION
    through_at: str = UNSPELLED
    rejected: int = 0
    columns: Sequence[str] = ()
    """What became of the table's columns, in words."""

    def extra_info(self) -> str:
        of_log: dict[str, Any] = {}
        if self.through_at:
            of_log = {"through_at": self.through_at, "rejected": self.rejected}
        if self.item.skipped is not None:
            of_log["skipped"] = {str(partition): list(span) for partition, span in self.item.skipped.offsets.items()}
        if self.item.keeps:
            of_log["rewound"] = True
        said = {"columns": short_list(self.columns)} if self.columns else {}
        return json.dumps(
            {
                "viaduck": 1,
                "pipeline": self.item.pipeline,
                "destination": self.item.destination,
                "kind": self.kind,
                "generation": self.item.generation,
                "after": self.after,
                "through": self.through,
                "item": self.item.item,
                "token": self.token,
                "deleted": self.deleted,
                "inserted": self.inserted,
                "commit": self.commit.value,
                **of_log,
                **said,
            }
        )

    def message(self) -> str:
        what = WHERE.get(self.kind, "({after}, {through}]").format(after=self.after, through=self.through)
        return f"{self.kind} {what} of {self.item.pipeline}: {self.deleted} rows out, {self.inserted} rows in"


def cursor_table(alias: str, destination: Destination) -> str:
    """The quoted path of a destination's own cursor table.

    One for each destination: DuckLake finds conflicts by table, so tenants that share a lake must not share a cursor.
    """
    return path(alias, SCHEMA, cursor_name(destination.pipeline, destination.destination))


def read_cursor(
    con: duckdb.DuckDBPyConnection, alias: str, destination: Destination, *, spelled: bool = False
) -> Cursor | None:
    """The stored cursor; None where there is none yet. In a transaction, in which its table is still one when it is
    read. Raises ``cursor_damaged`` unless it is exactly one row.

    ``spelled``: with the source's own spelling of the position, which is empty where another kind of source was read.
    """
    table = cursor_table(alias, destination)
    require_table(con, table)
    try:
        rows = _read_row(con, table, spelled=spelled)
    except duckdb.CatalogException:
        return None
    except duckdb.BinderException:
        raise _damaged(destination, "has other columns than Viaduck gives it") from None
    if len(rows) != 1:
        raise _damaged(destination, f"has {len(rows)} rows instead of one")
    return intact(Cursor(*rows[0]), destination)


def _read_row(con: duckdb.DuckDBPyConnection, table: str, *, spelled: bool) -> list[tuple[Any, ...]]:
    own = "SELECT generation, position, source_lake, source_table_id, source_table_uuid, routing_value, item,"
    if spelled:
        with contextlib.suppress(duckdb.BinderException):
            more = "rows_applied, snapshot_id, coalesce(source_position, '')"
            return con.execute(f"{own} {more} FROM {table}").fetchall()
    return con.execute(f"{own} rows_applied, snapshot_id FROM {table}").fetchall()


def intact(cursor: Cursor, destination: Destination) -> Cursor:
    """A cursor as its row holds it → what it says. Raises ``cursor_damaged`` for values that Viaduck never writes."""
    most = max(ADOPTABLE, destination.generation)
    counts = ((cursor.generation, 1, most), (cursor.position, NOT_SEEDED, MOST), (cursor.rows_applied, 0, MOST))
    texts = (cursor.table_uuid, cursor.routing_value, cursor.item, cursor.source_lake, cursor.source_position)
    require_intact(destination.key, counts, texts, cursor.source_lake)
    if cursor.source_position != UNSPELLED and not is_spelling_of(cursor.source_position, cursor.position):
        raise _damaged(destination, "holds a position that its spelling contradicts")
    return replace(cursor, routing_value=told(cursor.routing_value))


def _damaged(destination: Destination, how: str) -> DestinationError:
    return DestinationError(
        "cursor_damaged",
        f"the cursor of {destination.key} {how}",
        "another program wrote to the schema _viaduck; reseed the destination",
    )


def dropped_generation_in(catalog: CatalogReader, destination: Destination) -> int:
    """The generation in which the destination's data was dropped last, as the stamps of the snapshots tell that took
    its cursor's table away; 0 if it never was.

    Expiry forgets tables that no retained snapshot shows, and upkeep keeps the stamps of drops: in a lake of which
    snapshots were expired these are looked through.
    """
    ended = catalog.dropped_at(SCHEMA, cursor_name(destination.pipeline, destination.destination))
    names = destination.pipeline, destination.destination
    texts = [catalog.stamp_at(each) for each in ended]
    if not catalog.is_whole():
        texts += catalog.stamps(f'"destination": "{destination.destination}", "kind": "drop"')
    ours = (each for each in map(read_stamp, texts) if each is not None and each.kind == "drop")
    found = (each.generation for each in ours if each.speaks_of(*names))
    return max((each for each in found if each <= ADOPTABLE), default=0)


def create_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move) -> None:
    """Bring a cursor into being, only ever with its table: two first inserts would not conflict, two CREATEs do."""
    table = cursor_table(alias, move.destination)
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {path(alias, SCHEMA)}")
    row = row_of(move, 0, datetime.now(UTC))
    con.execute(f"CREATE TABLE {table} ({', '.join([COLUMNS, SPELLING] if move.through_at else [COLUMNS])})")
    con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", list(row.values())).fetchall()


def row_of(move: Move, rows_before: int, now: datetime) -> dict[str, Any]:
    """The cursor's row once it has moved, by column."""
    target, source = move.destination, move.source
    return {
        "pipeline": target.pipeline,
        "destination": target.destination,
        "generation": move.item.generation,
        "position": move.through,
        "source_lake": origin(source.lake_uuid, source.at),
        "source_table_id": source.table_id,
        "source_table_uuid": source.table_uuid,
        "routing_value": kept(target.routing_value),
        "item": move.item.item,
        "rows_applied": rows_before + move.rows,
        "updated_at": now,
        **({"source_position": move.through_at} if move.through_at else {}),
    }


def move_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move) -> None:
    """Compare and set, from what the item expects to ``through``. Raises ``CursorMoved`` unless one row changed, also
    where the cursor's table is gone, which the look that follows finds.

    The identity of source table and routing value is compared too: a position says nothing about another table, nor
    about another history of the same. A cursor from before that was kept has no time, and gets one by this.
    TLA: ``MoveCursor``, ``Passes``.
    """
    item = move.item
    expected = fingerprint(item.generation, item.expected, move.source.table_uuid, move.destination.routing_value)
    _set_cursor(con, alias, move, "rows_applied", expected, item.begin.spelled, move.expected_at)


def replace_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move, seen: Cursor) -> None:
    """Compare and set for a seed that begins a new generation on top of the cursor that was ``seen``.

    TLA: ``MoveCursor``.
    """
    if move.through_at and not seen.source_position:
        con.execute(f"ALTER TABLE {cursor_table(alias, move.destination)} ADD COLUMN IF NOT EXISTS {SPELLING}")
    expected = fingerprint(seen.generation, seen.position, seen.table_uuid, seen.routing_value)
    _set_cursor(con, alias, move, "0", expected, seen.source_position)


def fingerprint(generation: int, position: int, table_uuid: str, routing_value: str) -> str:
    return f"{generation}/{position}/{table_uuid}/{kept(routing_value)}"


def _set_cursor(
    con: duckdb.DuckDBPyConnection,
    alias: str,
    move: Move,
    rows_before: str,
    expected: str,
    spelled: str,
    expected_at: datetime | None = None,
) -> None:
    target = move.destination
    stored, bound = "generation || '/' || position || '/' || source_table_uuid || '/' || routing_value", [expected]
    if expected_at is not None:
        at = expected_at.astimezone(UTC).isoformat()  # as ``origin`` spells it
        known = "CASE WHEN contains(source_lake, '@') THEN split_part(source_lake, '@', 2) ELSE ? END"
        stored, bound = f"{known} || '/' || {stored}", [at, f"{at}/{expected}"]
    spelling = ""
    if move.through_at:  # both are compared: two vectors may have one sum
        stored, bound[-1] = f"coalesce(source_position, '') || '/' || {stored}", f"{spelled}/{bound[-1]}"
        spelling = ", source_position = ?"
    new = list(row_of(move, 0, datetime.now(UTC)).values())[2:]
    # One opaque expression: plain predicates make DuckLake fetch file statistics, four statements more.
    try:
        changed = con.execute(
            f"UPDATE {cursor_table(alias, target)} SET generation = ?, position = ?, source_lake = ?,"
            " source_table_id = ?, source_table_uuid = ?, routing_value = ?, item = ?,"
            f" rows_applied = {rows_before} + ?, updated_at = ?{spelling} WHERE {stored} = ?",
            [*new, *bound],
        ).fetchall()[0][0]
    except UNUSABLE:  # gone with its table, of other columns, or full of what can't be added to: a look at it tells
        raise CursorMoved from None
    if changed != 1:
        raise CursorMoved


def stamp(con: duckdb.DuckDBPyConnection, alias: str, stamp: Stamp) -> None:
    con.execute(
        f"CALL {path(alias)}.set_commit_message('viaduck', ?, extra_info => ?)", [stamp.message(), stamp.extra_info()]
    ).fetchall()
