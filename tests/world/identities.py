"""Which column is which: of a table by the lake's field ids, and of a destination by those of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb

from tests.world.lake import Lake, metadata
from tests.world.model import ColumnId
from tests.world.rows import Cell


@dataclass(frozen=True)
class Numbered:
    """A column as a lake numbers it: the field id, the name that it had first, and what older rows show in it."""

    number: int
    origin: str
    default: Cell


@dataclass
class Identities:
    """Which column of a destination each of the source's is, in one life of the destination."""

    known: dict[ColumnId, int] = field(default_factory=dict)

    def take(self, theirs: Sequence[ColumnId], own: Sequence[int]) -> list[str]:
        """Columns of one snapshot, in order; returns what is not as it was in the snapshots before.

        A column of the source is one column of the destination for as long as it is there, and no other one ever is.
        """
        wrong = []
        for source, mine in zip(theirs, own, strict=True):
            before = {one: number for one, number in self.known.items() if one == source or number == mine}
            if before not in ({}, {source: mine}):
                wrong.append(f"the source's column {source} is column {mine} here; before: {before}")
            self.known[source] = mine
        return wrong


def numbered_columns(
    con: duckdb.DuckDBPyConnection, alias: str, lake: Lake, schema: str, table: str, snapshot: int
) -> list[Numbered]:
    """The columns of a table at a snapshot, in order."""
    columns, tables, schemas = (
        metadata(con, alias, f"ducklake_{kind}", lake) for kind in ("column", "table", "schema")
    )
    first = f"SELECT arg_min(f.column_name, f.begin_snapshot) FROM {columns} f"
    found = con.execute(
        f"SELECT c.column_id, ({first} WHERE f.table_id = c.table_id AND f.column_id = c.column_id), c.initial_default"
        f" FROM {columns} c JOIN {tables} t ON t.table_id = c.table_id JOIN {schemas} s ON s.schema_id = t.schema_id"
        f" WHERE s.schema_name = ? AND t.table_name = ? AND c.parent_column IS NULL AND {_alive('c')} AND {_alive('t')}"
        " ORDER BY c.column_order",
        [schema, table, *[snapshot] * 4],
    ).fetchall()
    return [Numbered(int(number), str(origin), default) for number, origin, default in found]


def _alive(alias: str) -> str:
    return f"{alias}.begin_snapshot <= ? AND coalesce({alias}.end_snapshot > ?, true)"
