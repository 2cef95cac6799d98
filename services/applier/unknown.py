"""Commits whose outcome nobody heard: found by their token, checked for files that DuckLake may have deleted."""

from __future__ import annotations

import duckdb

from shared.errors import DestinationError
from shared.lake.pool import OpenLake
from shared.lake.sql import literal


def committed_snapshot(lake: OpenLake, token: str) -> int | None:
    """The snapshot that carries ``token``; None where no commit with it can be found.

    Asked of the catalog itself on a fresh connection: the one that lost the acknowledgement knows nothing.
    """
    return lake.catalog.find_stamp(token)


def require_files(con: duckdb.DuckDBPyConnection, lake: OpenLake, snapshot: int) -> None:
    """Open every file that ``snapshot`` added. Raises ``destination_damaged`` where one is gone (H7).

    When a Postgres catalog's COMMIT goes through and its acknowledgement gets lost, DuckLake believes that it failed
    and deletes the files that it has just committed; every reader of the table fails from then on.
    """
    names = lake.catalog.files_of(snapshot)
    for file in _paths(con, lake, names):
        try:
            con.execute(f"SELECT count(*) FROM parquet_file_metadata([{literal(file)}])").fetchall()
        except duckdb.Error as error:
            if not _missing(error):
                raise
            raise DestinationError(
                "destination_damaged",
                f"snapshot {snapshot} of the destination is committed and its file {file.rsplit('/', 1)[-1]} gone (H7)",
                "it is reseeded as a new generation by itself; deny DeleteObject to appliers to prevent it",
            ) from None


def _paths(con: duckdb.DuckDBPyConnection, lake: OpenLake, names: frozenset[str]) -> list[str]:
    if not names:
        return []
    paths: set[str] = set()
    for schema, table in lake.catalog.tables():
        listed = con.execute(
            "SELECT data_file, delete_file FROM ducklake_list_files("
            f"{literal(lake.alias)}, {literal(table)}, schema => {literal(schema)})"
        ).fetchall()
        paths.update(file for row in listed for file in row if file and file.rsplit("/", 1)[-1] in names)
    return sorted(paths)


def _missing(error: duckdb.Error) -> bool:
    said = str(error)
    return any(part in said for part in ("No files found", "No such file", "404", "NoSuchKey", "does not exist"))
