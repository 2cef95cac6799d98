"""That a name is a table's: what stands in a table's place is never read."""

from __future__ import annotations

import duckdb

from shared.contracts.errors import DestinationError

MISSING = "does not exist"

HINT = (
    "the lake's owner takes it out of its catalog: Viaduck's tables have no view of their name, defaults that are plain"
    " values, and are sorted by plain columns; then resume"
)


def require_table(con: duckdb.DuckDBPyConnection, table: str) -> None:
    """Raises ``unsafe_catalog`` where the quoted path ``table`` is not a table's; nothing where nothing has that name.

    To be asked in the transaction that reads: only what DuckLake itself goes by then can't have changed in between. To
    insert is what no view can take, and is refused by the name alone, before anything of the view is bound.
    """
    try:
        con.execute(f"EXPLAIN INSERT INTO {table} DEFAULT VALUES")
    except duckdb.CatalogException as error:
        if MISSING not in str(error):
            raise DestinationError("unsafe_catalog", f"what the catalog calls {table} is no table", HINT) from None


def is_table(con: duckdb.DuckDBPyConnection, alias: str, schema: str, name: str) -> bool:
    """Whether there is such a table in a lake that is only read, where nothing can be inserted. To be asked as above;
    each table of the lake costs a look."""
    listed = con.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND lower(schema_name) = lower(?)"
        " AND lower(table_name) = lower(?)",
        [alias, schema, name],
    ).fetchall()
    return bool(listed[0][0])
