"""What a catalog says of a table that is to be changed: how its files are laid out, and who has altered its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.lake.catalog.table_names import CALLED
from shared.lake.columns.history import ColumnVersion
from shared.lake.columns.owners import LOOKS, NEWEST_LOOK, Altered, altered_since
from shared.lake.connection.statements import CatalogConnection, Row
from shared.lake.pruning import FileLayout, layout_of

_PARTITIONS = (
    " FROM {}ducklake_partition_info p"
    " JOIN {}ducklake_partition_column c ON c.table_id = p.table_id AND c.partition_id = p.partition_id"
    " JOIN {}ducklake_column k ON k.table_id = p.table_id AND k.column_id = c.column_id"
    f" WHERE p.table_id IN (SELECT t.table_id{CALLED})"
    " AND p.begin_snapshot <= :at AND (p.end_snapshot IS NULL OR p.end_snapshot > :at)"
    " AND k.begin_snapshot <= :at AND (k.end_snapshot IS NULL OR k.end_snapshot > :at)"
)
_OTHERS = (
    "(SELECT count(*) FROM {}ducklake_data_file f"
    "  WHERE f.table_id = p.table_id AND (f.partition_id IS NULL OR f.partition_id <> p.partition_id)"
    "  AND f.begin_snapshot <= :at AND (f.end_snapshot IS NULL OR f.end_snapshot > :at))"
)
LAYOUT = f"SELECT c.transform, k.column_name, {_OTHERS} AS others{_PARTITIONS}"

VERSION, PARTITION, NEWEST = "version", "partition", "newest"

LOOK = (
    f"SELECT '{VERSION}' AS about, k.column_id AS number, k.column_name AS name, k.column_type AS kind,"
    " k.parent_column AS parent, k.initial_default AS shown, k.begin_snapshot AS begun, k.end_snapshot AS ended,"
    " k.column_order AS place"
    f" FROM {{}}ducklake_column k WHERE k.table_id IN (SELECT t.table_id{CALLED})"
    f" UNION ALL SELECT '{PARTITION}', {_OTHERS}, k.column_name, c.transform, NULL, NULL, NULL, NULL, NULL{_PARTITIONS}"
    f" UNION ALL SELECT '{NEWEST}', ({NEWEST_LOOK}), NULL, NULL, NULL, NULL, NULL, NULL, NULL"
)
"""Both in one statement."""


@dataclass(frozen=True)
class TableLook:
    layout: FileLayout
    altered: Altered | None = None
    """What the lake's owner has made of the columns since we last committed to them, if anything."""


class CatalogLooks(CatalogConnection):
    """Asks for a table by its name at a snapshot."""

    def look(self, schema: str, table: str, at: int, stamped: str) -> TableLook:
        """How the table's files of snapshot ``at`` are partitioned, as far as it decides what a scan may leave out, and
        what its owner did to the columns. ``stamped``: a pattern of the stamps of our commits to it
        (``stamps.stamped_for``)."""
        rows = self._all(LOOK, schema=schema, table=table, at=at, stamped=stamped, **LOOKS)
        parts = [row for row in rows if row["about"] == PARTITION]
        columns = sorted((row for row in rows if row["about"] == VERSION), key=lambda row: int(row["place"]))
        looked = next(row["number"] for row in rows if row["about"] == NEWEST)
        return TableLook(
            layout_of((str(row["kind"]), str(row["name"]).lower(), int(row["number"])) for row in parts),
            altered_since([_version(row) for row in columns], None if looked is None else int(looked), at),
        )


def layout_in(rows: Sequence[Row]) -> FileLayout:
    """By the rows of ``LAYOUT``."""
    return layout_of((str(r["transform"]), str(r["column_name"]).lower(), int(r["others"])) for r in rows)


def _version(row: Row) -> ColumnVersion:
    parent, ended = row["parent"], row["ended"]
    return ColumnVersion(
        int(row["number"]),
        None if parent is None else int(parent),
        row["name"],
        row["kind"],
        row["shown"],
        int(row["begun"]),
        None if ended is None else int(ended),
    )
