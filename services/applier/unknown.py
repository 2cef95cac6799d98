"""Commits whose outcome nobody heard: found by their token, checked for files that DuckLake may have deleted."""

from __future__ import annotations

import duckdb

from shared.errors import DestinationError
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import misses_file
from shared.lake.pool import OpenLake
from shared.messages import Destination


def committed_snapshot(lake: OpenLake, token: str) -> int | None:
    """The snapshot that carries ``token``; None where no commit with it can be found, or so many came after it that
    only the cursor can tell.

    Asked of the catalog itself on a fresh connection: the one that lost the acknowledgement knows nothing.
    TLA: ``ResolveUnknown``.
    """
    return lake.catalog.find_stamp(token)


def require_files(
    con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination, snapshot: int | None
) -> None:
    """Open every file that ``snapshot`` added to the destination's table; None: every file that it has now.

    Raises ``destination_damaged`` where one is gone (H7): when a Postgres catalog's COMMIT goes through and its
    acknowledgement gets lost, DuckLake believes that it failed and deletes the files that it has just committed; every
    reader of the table fails from then on. A bucket that is gone raises as what it is. TLA: ``Whole``.
    """
    for file in _files(con, lake, destination, None if snapshot is None else lake.catalog.files_of(snapshot)):
        if not _is_there(con, file):
            _require_bucket(con, file)
            raise DestinationError(
                "destination_damaged",
                f"the file {file.rsplit('/', 1)[-1]} of the table of {destination.key} is committed and gone (H7)",
                "it is reseeded as a new generation by itself; deny DeleteObject to appliers to prevent it",
            )


def _is_there(con: duckdb.DuckDBPyConnection, file: str) -> bool:
    """Whether a file can be opened. It is not read, since it may be encrypted; a missing local one is just not listed.

    Raises ``duckdb.Error`` for any other answer than yes or no.
    """
    try:
        return bool(con.execute("SELECT size FROM read_blob(?)", [file]).fetchall())
    except duckdb.Error as error:
        if not misses_file(error):
            raise
        return False


def _require_bucket(con: duckdb.DuckDBPyConnection, file: str) -> None:
    """Raises ``duckdb.Error`` where not only ``file`` is missing but its bucket: nothing of the table is lost then."""
    if "://" in file:
        con.execute("SELECT count(*) FROM glob(?)", [file + "*"]).fetchall()


def _files(
    con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination, names: frozenset[str] | None
) -> list[str]:
    """Paths of the files of the destination's table, and of its cursor's, that have one of ``names``."""
    if names is not None and not names:
        return []
    own = (
        (destination.schema_name, destination.table),
        (SCHEMA, cursor_name(destination.pipeline, destination.destination)),
    )
    paths: set[str] = set()
    for schema, table in own:
        if not lake.catalog.has_table(schema, table):
            continue
        listed = con.execute(
            "SELECT data_file, delete_file FROM ducklake_list_files(?, ?, schema => ?)", [lake.alias, table, schema]
        ).fetchall()
        paths.update(file for row in listed for file in row if file)
    return sorted(file for file in paths if names is None or file.rsplit("/", 1)[-1] in names)
