"""Sets the layout of a table that a seed fills, in the seed's transaction and before its first row.

What is written is parsed to columns and transforms; names are quoted. Before the first row, because DuckLake does not
rewrite files that are there, and finds rows beside files of another partitioning only by chance (H17).
"""

from __future__ import annotations

import duckdb

from shared.config.table_layout import COLUMN, TRANSFORMS, LayoutRefused, PartitionField, SortKey, sort_keys
from shared.contracts.errors import DestinationError
from shared.contracts.layout import TableLayout
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.checks.layout_keys import Keys
from shared.lake.sql import ident

ORDERS = {
    (False, False): "ASC NULLS LAST",
    (False, True): "ASC NULLS FIRST",
    (True, False): "DESC NULLS LAST",
    (True, True): "DESC NULLS FIRST",
}
"""By whether a column descends, and whether its NULLs come first."""


def lay_out(con: duckdb.DuckDBPyConnection, table: str, keys: Keys) -> None:
    """Set the layout of an empty table."""
    by, order = keys
    if by:
        con.execute(f"ALTER TABLE {table} SET PARTITIONED BY ({', '.join(map(_partition_sql, by))})")
    if order:
        con.execute(f"ALTER TABLE {table} SET SORTED BY ({', '.join(map(_sort_sql, order))})")


def kept(layout: TableLayout, keys: Keys, there: Arrangement) -> TableLayout:
    """What a table has that is laid out already: ``layout`` itself where its ``keys`` are those that are ``there``."""
    parts = tuple((each.transform, each.column.lower()) for each in keys[0])
    order = tuple((ident(each.column).lower(), *_directions(each)) for each in keys[1])
    same = parts == tuple((transform, column.lower()) for transform, column in there.partitions)
    if same and order == tuple((_quoted(name).lower(), *rest) for name, *rest in there.sort_keys):
        return layout
    by = ", ".join(ident(column) if how == COLUMN else f"{how}({ident(column)})" for how, column in there.partitions)
    sorted_by = ", ".join(" ".join(each).replace("NULLS_", "NULLS ") for each in there.sort_keys)
    return layout.model_copy(update={"partitioned_by": by, "sorted_by": sorted_by})


def require_encrypted(layout: TableLayout | None, *, encrypted: bool) -> None:
    """Raises ``invalid_destination`` where files would not be encrypted that are to be: a lake is, or is not, from its
    creation on."""
    if layout is not None and layout.encrypted and not encrypted:
        raise DestinationError(
            "invalid_destination",
            "layout.encrypted: the lake was created without encryption, which can't be changed",
            "name a catalog that holds no lake yet, or set layout.encrypted: false",
        )


def _partition_sql(part: PartitionField) -> str:
    name = ident(part.column)
    return name if part.transform == COLUMN else f"{TRANSFORMS[TRANSFORMS.index(part.transform)]}({name})"


def _sort_sql(key: SortKey) -> str:
    return f"{ident(key.column)} {ORDERS[key.descending, key.nulls_first]}"


def _directions(key: SortKey) -> tuple[str, str]:
    return "DESC" if key.descending else "ASC", "NULLS_FIRST" if key.nulls_first else "NULLS_LAST"


def _quoted(expression: str) -> str:
    """A column as ``ident`` writes it; another expression as it is."""
    try:
        (key,) = sort_keys(expression)
    except (LayoutRefused, ValueError):
        return expression
    return ident(key.column)
