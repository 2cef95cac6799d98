"""Whether what an attached lake remembers of its catalog still holds.

DuckLake remembers tables of inlined rows as it first saw them (H12). Schemas, and which tables have no inlined deletes,
it remembers by numbers of schemas and snapshots, and a lake that is restored from a backup gives the same numbers to
something else (H20): rows that were deleted are shown, and columns that are no more. A process that has
a SQLite file open does not see at all that the file was replaced.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from shared.config.catalogs import ResolvedLake
from shared.lake.catalog.reader import CatalogReader

NOTHING = -1


class AttachedState:
    """Of one lake, from when it was attached. Any thread may ask."""

    def __init__(self, lake: ResolvedLake, catalog: CatalogReader) -> None:
        """To be made right after the attach. Raises what reading the catalog raises."""
        self._file = lake.sqlite_file
        self._identity = _identity(self._file)
        now = catalog.present(NOTHING)
        self.inlined = now.inlined
        """The catalog's own tables of inlined rows."""
        self._newest = now.head, now.times[now.head]

    def holds(self, catalog: CatalogReader) -> bool:
        """Whether the lake may be used as it is attached. One statement.

        Nothing holds where the newest snapshot that was seen is gone: by an expiry, perhaps, but nothing tells.
        """
        if not self.is_same_file:
            return False
        snapshot, at = self._newest
        now = catalog.present(snapshot)
        self.saw(now.head, now.times[now.head])
        return now.inlined == self.inlined and now.times.get(snapshot) == at

    @property
    def is_same_file(self) -> bool:
        """Whether a SQLite catalog is still the file that was attached. Nothing is asked."""
        return _identity(self._file) == self._identity

    def saw(self, snapshot: int, at: datetime | None) -> None:
        """Something was read at ``snapshot``, which was committed ``at``; None where it is no longer retained."""
        if at is not None and snapshot > self._newest[0]:
            self._newest = snapshot, at


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Of a catalog's file, whatever its name; None where there is none."""
    if file is None or not file.exists():
        return None
    found = file.stat()
    return found.st_dev, found.st_ino
