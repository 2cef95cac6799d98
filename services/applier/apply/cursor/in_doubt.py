"""Commits with an unknown outcome: found by their token, checked for files that DuckLake may have deleted."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.attached.pool import OpenLake
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import misses_file
from shared.lake.sql import path
from shared.lake.table import require_table


def committed_snapshot(lake: OpenLake, token: str) -> int | None:
    """The snapshot that carries ``token``; None if no commit with it is found, or so many came after it that
    only the cursor can tell.

    Asked of the catalog itself on a fresh connection: the connection that lost the acknowledgement knows nothing.
    TLA: ``ResolveUnknown``.
    """
    return lake.catalog.find_stamp(token)


def committed_files(
    con: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination, snapshot: int | None
) -> list[str]:
    """Paths of the files that ``snapshot`` added to the destination's table and its cursor's; None: all that they have.

    To be asked in one transaction, in which what is a table stays one.
    """
    names = None if snapshot is None else lake.catalog.files_of(snapshot)
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
        require_table(con, path(lake.alias, schema, table))
        listed = con.execute(
            "SELECT data_file, delete_file FROM ducklake_list_files(?, ?, schema => ?)", [lake.alias, table, schema]
        ).fetchall()
        paths.update(file for row in listed for file in row if file)
    return sorted(file for file in paths if names is None or file.rsplit("/", 1)[-1] in names)


def require_files(con: duckdb.DuckDBPyConnection, destination: Destination, files: Iterable[str]) -> None:
    """Open every one of the ``files`` of the destination's table, outside of a transaction: a missing file ends it.

    Raises ``destination_damaged`` if one is missing (H7): if a Postgres catalog's COMMIT goes through and its
    acknowledgement gets lost, DuckLake believes that it failed and deletes the files that it has just committed; every
    reader of the table fails from then on. A missing bucket raises its own error. TLA: ``Whole``,
    ``TellDamage``.
    """
    for file in files:
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
