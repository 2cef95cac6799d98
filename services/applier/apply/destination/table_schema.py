"""A destination's table has exactly the source's columns, types and order; who makes it so, and when it can't be."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from shared.config.substituted_words import SUBSTITUTED_WORD, refusal
from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.catalog.reader import Column
from shared.lake.checks.table_mismatch import differs, table_gone
from shared.lake.sql import ident, path


def columns_of(con: duckdb.DuckDBPyConnection, table: str) -> tuple[Column, ...] | None:
    """The columns of a table as DuckDB declares them; None where there is no such table."""
    try:
        rows = con.execute(f'SELECT column_name, column_type, "null" FROM (DESCRIBE {table})').fetchall()
    except duckdb.CatalogException:
        return None
    return tuple(Column(name, declared, not_null=null == "NO") for name, declared, null in rows)


def columns_there(con: duckdb.DuckDBPyConnection, alias: str, destination: Destination) -> tuple[Column, ...]:
    """The columns of a destination's table. Raises ``table_mismatch`` where it is gone."""
    have = columns_of(con, table_path(alias, destination))
    if have is None:
        raise table_gone(destination)
    return have


def missing_columns(have: Sequence[Column], wanted: Sequence[Column]) -> tuple[Column, ...] | None:
    """The wanted columns that are still to be added at the end; None where adding does not make the two equal."""
    if [_shape(column) for column in have] != [_shape(column) for column in wanted[: len(have)]]:
        return None
    return tuple(wanted[len(have) :])


def _shape(column: Column) -> tuple[str, str]:
    return column.name, column.type


def table_path(alias: str, destination: Destination) -> str:
    return path(alias, destination.schema_name, destination.table)


def create_table(
    con: duckdb.DuckDBPyConnection, alias: str, destination: Destination, columns: Sequence[Column]
) -> None:
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {path(alias, destination.schema_name)}")
    declared = ", ".join(
        f"{ident(column.name)} {column.type}{' NOT NULL' if column.not_null else ''}" for column in columns
    )
    con.execute(f"CREATE TABLE {table_path(alias, destination)} ({declared})")


def prepare_seed(
    con: duckdb.DuckDBPyConnection,
    alias: str,
    destination: Destination,
    wanted: Sequence[Column],
    held: int | None,
    *,
    ours: bool,
) -> bool:
    """Make the table that a seed fills: new (``held`` is None), or emptied of the ``held`` rows; whether it is new.

    ``ours`` says that a cursor vouches for the rows that are there. Raises ``table_not_empty`` and ``table_mismatch``
    rather than replace what Viaduck did not write, unless a reseed was asked for, and ``invalid_destination``.
    """
    require_names(destination)
    table = table_path(alias, destination)
    have = None if held is None else columns_of(con, table)
    if have is None:
        create_table(con, alias, destination, wanted)
        return True
    if held and not ours and not destination.replace:
        raise DestinationError(
            "table_not_empty",
            f"the table {destination.schema_name}.{destination.table} holds {held} rows that Viaduck did not write",
            "empty or rename it, choose another table, or ask for a reseed to replace its rows",
        )
    alike = missing_columns(have, wanted) == ()
    if not alike and not ours and not destination.replace:
        raise differs("table_mismatch", destination, have, wanted)
    if not alike or destination.replace:
        # Emptying a table reads its files, and those of a damaged one are gone (H7): a reseed begins with a new table.
        con.execute(f"DROP TABLE {table}")
        create_table(con, alias, destination, wanted)
        return True
    if held:
        con.execute(f"DELETE FROM {table}").fetchall()
    return False


def require_names(destination: Destination) -> None:
    """Raises ``invalid_destination`` for names that DuckLake would replace as it creates the table (H16)."""
    for key, name in (("schema", destination.schema_name), ("table", destination.table)):
        if found := SUBSTITUTED_WORD.search(name):
            raise DestinationError("invalid_destination", f"{key} {refusal(found)}", "correct the destination")
