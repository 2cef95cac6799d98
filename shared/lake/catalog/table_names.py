"""What a table is called at each snapshot. A table is its id, which RENAME TABLE leaves as it is.

A name means the table that has it; where none has it, the table that had it last, or is the first to have it later, and
is there under another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.lake.connection.statements import CatalogConnection, Row

CALLED = (
    " FROM {}ducklake_schema s JOIN {}ducklake_table t ON t.schema_id = s.schema_id"
    " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
    " AND t.begin_snapshot <= :at AND (t.end_snapshot IS NULL OR t.end_snapshot > :at)"
    " AND s.begin_snapshot <= :at AND (s.end_snapshot IS NULL OR s.end_snapshot > :at)"
)
"""The table ``t`` that has a name at a snapshot, in its schema ``s``. Names compare as DuckDB compares them."""

_NAMES = (
    "SELECT s.schema_name, t.table_name, t.begin_snapshot, t.end_snapshot FROM {}ducklake_table t"
    " JOIN {}ducklake_schema s ON s.schema_id = t.schema_id WHERE t.table_id"
)
NAMES = f"{_NAMES} = :table ORDER BY t.begin_snapshot"
NAMES_OF_CALLED = f"{_NAMES} IN (SELECT t.table_id{CALLED}) ORDER BY t.begin_snapshot"
"""Of the table that is called so at a snapshot."""

OTHERWISE = (
    "SELECT t.table_id FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
    " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
    " AND EXISTS (SELECT 1 FROM {}ducklake_table n WHERE n.table_id = t.table_id AND n.begin_snapshot <= :at"
    "  AND (n.end_snapshot IS NULL OR n.end_snapshot > :at))"
    " ORDER BY CASE WHEN t.begin_snapshot <= :at THEN 0 ELSE 1 END,"
    " CASE WHEN t.begin_snapshot <= :at THEN -t.begin_snapshot ELSE t.begin_snapshot END LIMIT 1"
)


@dataclass(frozen=True)
class TableName:
    """A name from snapshot ``begin`` until before ``end``."""

    schema: str
    table: str
    begin: int
    end: int | None

    def is_there(self, at: int) -> bool:
        return self.begin <= at and (self.end is None or self.end > at)


def name_at(names: Sequence[TableName], at: int) -> TableName | None:
    """The name at a snapshot; None where the table is not there."""
    return next((name for name in names if name.is_there(at)), None)


def names_in(rows: Sequence[Row]) -> tuple[TableName, ...]:
    ends = (None if row["end_snapshot"] is None else int(row["end_snapshot"]) for row in rows)
    return tuple(
        TableName(row["schema_name"], row["table_name"], int(row["begin_snapshot"]), end)
        for row, end in zip(rows, ends, strict=True)
    )


class TableNames(CatalogConnection):
    """Asks for names; ``shared.lake.catalog`` asks for the rest."""

    def names_of(self, table_id: int) -> tuple[TableName, ...]:
        """Every name that the table ever had, oldest first."""
        return names_in(self._all(NAMES, table=table_id))

    def called_otherwise(self, schema: str, table: str, at: int) -> TableName | None:
        """Of a name that no table has at a snapshot: what the table that it means is called then, if there is one."""
        found = self._all(OTHERWISE, schema=schema, table=table, at=at)
        return name_at(self.names_of(int(found[0]["table_id"])), at) if found else None
