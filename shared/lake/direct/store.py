"""Files as bytes: those that are written whole, and those that no snapshot will ever name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
from pyarrow import fs

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.store_secrets import keys_of
from shared.lake.sql import literal

FOOTER_MARK_BYTES = 8
"""At the end of a Parquet file: the length of its footer, and the format's name."""


def write(con: duckdb.DuckDBPyConnection, path: str, content: bytes) -> tuple[int, int]:
    """Write a Parquet file that is there whole; its size and that of its footer, in bytes. ``con`` holds the keys."""
    if "://" in path:
        con.execute(f"COPY (SELECT CAST(? AS BLOB)) TO {literal(path)} (FORMAT blob)", [content]).fetchall()
    else:
        with open(path, "wb") as file:  # noqa: PTH123 - to make a Path takes as long as to write the file
            file.write(content)
    mark = content[-FOOTER_MARK_BYTES:]
    return len(content), int.from_bytes(mark[:4], "little")


def remove(lake: ResolvedLake, folder: str, names: Iterable[str]) -> None:
    """Take files away whose commit is known to have failed for good. TLA: ``RemoveFiles``.

    What can't be removed (appliers need no right to delete, and for a lake without keys of its own nothing is tried) is
    an orphan, which ``ducklake_delete_orphaned_files`` finds; so is every file of a process that was killed before its
    commit.
    """
    remove_one = _remover(lake, folder)
    for name in names:
        with contextlib.suppress(OSError):
            remove_one(folder + name)


def _remover(lake: ResolvedLake, folder: str) -> Callable[[str], None]:
    if "://" not in folder:
        return lambda path: Path(path).unlink(missing_ok=True)
    keys = keys_of(lake, folder)
    if keys is None:
        return lambda _: None
    store = fs.S3FileSystem(
        access_key=keys["KEY_ID"] or None,
        secret_key=keys["SECRET"] or None,
        session_token=keys["SESSION_TOKEN"] or None,
        anonymous=not keys["KEY_ID"],
        region=keys.get("REGION"),
        endpoint_override=keys.get("ENDPOINT"),
        scheme="http" if keys.get("USE_SSL", "true").lower() == "false" else "https",
    )
    return lambda path: store.delete_file(path.partition("://")[2])
