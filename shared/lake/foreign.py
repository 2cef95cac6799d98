"""Files of others that a stranger's catalog claims as its own: told by name before anything is read.

Whoever can write to a catalog can have it name any file. The instance that has the lake open reaches no other folder
(``confine``), so nothing of such a file is read; this look says so clearly, of whatever the catalog holds.
"""

from __future__ import annotations

from shared.config.catalogs import ResolvedLake
from shared.errors import DestinationError
from shared.lake.catalog import CatalogReader

HINT = "the lake's owner takes these entries out of its catalog, or makes the lake anew; then resume"


def require_own_files(catalog: CatalogReader, lake: ResolvedLake) -> None:
    """Raises ``foreign_files`` where a file, table or schema of the lake lies elsewhere than below its data path."""
    found = catalog.path_elsewhere()
    if found is not None:
        kind, path = found
        shown = path if len(path) <= 200 else path[:199] + "…"
        raise DestinationError(
            "foreign_files", f"the catalog of {lake} names a {kind} outside its data path: {shown!r}", HINT
        )
