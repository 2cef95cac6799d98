"""Where a lake's files are, and that they are below its data path: a catalog may name any file."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CLIMBS = re.compile(r"(^|/)\.\.(/|$)")


def table_folder(data_path: str, parts: Sequence[str]) -> str | None:
    """The folder of a table's files, with a slash at its end; None where it is not below the data path."""
    return resolved(root(data_path), "/".join(part.rstrip("/") for part in parts) + "/", root(data_path))


def root(data_path: str) -> str:
    """A data path with a slash at its end: ``s3://b/tenant-1`` is the beginning of ``s3://b/tenant-10/file``."""
    return data_path.rstrip("/") + "/"


def resolved(folder: str, path: str, data_path: str) -> str | None:
    """A path that the catalog names, relative to ``folder`` or absolute; None where it is not below ``data_path``."""
    whole = path if path.startswith("/") or "://" in path else folder + path
    if not whole.startswith(data_path) or _CLIMBS.search(whole) or "\x00" in whole:
        return None
    if "://" in whole and re.search("[?#]", whole):
        return None
    return whole
