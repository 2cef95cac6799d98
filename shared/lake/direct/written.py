"""The files of a commit, as they were written: what the catalog is to say of them."""

from __future__ import annotations

from dataclasses import dataclass

from shared.lake.direct.statistics import FileColumn


@dataclass(frozen=True)
class NewDataFile:
    """A data file that was written; ``name`` is relative to the table's folder."""

    name: str
    records: int
    bytes: int
    footer_bytes: int
    columns: tuple[FileColumn, ...]


@dataclass(frozen=True)
class NewDeleteFile:
    """A file of positions that was written for a data file.

    Where one was there already, the new one takes its place for all the snapshots since its ``begin``, and says of
    each position when it went, up to ``through``: as the extension writes them, which takes a file that does not tell
    for one of a single snapshot. ``replaces`` is what it replaces, with its path below the data path.
    """

    name: str
    data_file_id: int
    count: int
    bytes: int
    footer_bytes: int
    begin: int
    through: int | None = None
    replaces: tuple[int, str] | None = None


@dataclass(frozen=True)
class Written:
    """What an apply leaves in the store before it commits. ``ended``: data files that have lost all their rows."""

    data: NewDataFile | None = None
    deletes: tuple[NewDeleteFile, ...] = ()
    ended: tuple[int, ...] = ()
    deleted_rows: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (*(() if self.data is None else (self.data.name,)), *(each.name for each in self.deletes))
