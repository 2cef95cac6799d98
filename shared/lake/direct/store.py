"""Files that a commit wrote and that no snapshot will ever name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from pyarrow import fs

from shared.config.catalogs import ResolvedLake
from shared.lake.attach import keys_of


def remove(lake: ResolvedLake, folder: str, names: Iterable[str]) -> None:
    """Take files away whose commit is known to have failed for good. TLA: ``RemoveFiles``.

    What can't be removed (appliers need no right to delete) is an orphan, which ``ducklake_delete_orphaned_files``
    finds; so is every file of a process that was killed before its commit.
    """
    remove_one = _remover(lake, folder)
    for name in names:
        with contextlib.suppress(OSError):
            remove_one(folder + name)


def _remover(lake: ResolvedLake, folder: str) -> Callable[[str], None]:
    if "://" not in folder:
        return lambda path: Path(path).unlink(missing_ok=True)
    keys = keys_of(lake)
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
