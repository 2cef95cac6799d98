"""Keeps the files of a COMMIT that a Postgres catalog has done and whose acknowledgement was lost (H7).

DuckLake takes such a COMMIT for a failed one and deletes what it has written. An instance that has no file system left
deletes nothing; COMMIT itself needs none (docs/explanation/hazards.md, "H7, measured").
"""

from __future__ import annotations

import duckdb

from shared.lake.connection import spill

LOCAL, STORES = "LocalFileSystem", "S3FileSystem,AzureBlobStorageFileSystem,AzureDfsStorageFileSystem"
"""DuckDB's names of what opens files on a local disk, and on the stores that a data path may name."""


def keep_files(con: duckdb.DuckDBPyConnection, data_path: str) -> bool:
    """Take from the instance, for good, what it opens files below ``data_path`` with; whether that was done.

    To be called within the transaction, right before COMMIT. An instance that has spilled to the local disk keeps that:
    it takes its folder away at its end, and the process is aborted if it can't.
    """
    is_local = "://" not in data_path
    if is_local and spill.has_folder(con):
        return False
    con.execute(f"SET disabled_filesystems = '{LOCAL if is_local else STORES}'")
    return True
