"""The partitions and the sort order of a table as its catalog holds them."""

from __future__ import annotations

from dataclasses import dataclass

OF_TABLE = (
    " FROM {}ducklake_schema s JOIN {}ducklake_table t ON t.schema_id = s.schema_id"
    " JOIN {}ducklake_INFO p ON p.table_id = t.table_id"
)
AT = (
    " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
    " AND t.begin_snapshot <= :at AND (t.end_snapshot IS NULL OR t.end_snapshot > :at)"
    " AND s.begin_snapshot <= :at AND (s.end_snapshot IS NULL OR s.end_snapshot > :at)"
    " AND p.begin_snapshot <= :at AND (p.end_snapshot IS NULL OR p.end_snapshot > :at)"
)
PARTITIONS = (
    "SELECT c.transform, k.column_name"
    + OF_TABLE.replace("INFO", "partition_info")
    + " JOIN {}ducklake_partition_column c ON c.table_id = t.table_id AND c.partition_id = p.partition_id"
    " JOIN {}ducklake_column k ON k.table_id = t.table_id AND k.column_id = c.column_id"
    + AT
    + " AND k.begin_snapshot <= :at AND (k.end_snapshot IS NULL OR k.end_snapshot > :at)"
    " ORDER BY c.partition_key_index"
)
SORT_KEYS = (
    "SELECT e.expression, e.sort_direction, e.null_order"
    + OF_TABLE.replace("INFO", "sort_info")
    + " JOIN {}ducklake_sort_expression e ON e.table_id = t.table_id AND e.sort_id = p.sort_id"
    + AT
    + " ORDER BY e.sort_key_index"
)


@dataclass(frozen=True)
class Arrangement:
    """In order. ``partitions``: transform and column. ``sort_keys``: expression, direction and place of NULLs, each a
    text of some writer of the catalog, to be parsed before it is used."""

    partitions: tuple[tuple[str, str], ...] = ()
    sort_keys: tuple[tuple[str, str, str], ...] = ()


UNARRANGED = Arrangement()
