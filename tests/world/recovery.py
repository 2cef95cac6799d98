"""What becomes of a source by its operator's hand: kept as a backup, put back to it, or replaced by another lake."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.world.lake import Lake
from tests.world.truth import Truth


class Recovery(StrEnum):
    """A step of a history. Data files stay where they are."""

    BACK_UP = "back_up"
    RESTORE = "restore"
    REPLACE = "replace"


@dataclass(frozen=True)
class Past:
    """A history of the source that is no more.

    ``truth`` is what it was, ``kept`` its last snapshot that is one of the new history too (-1: none is), ``ended``
    the newest snapshot of each destination's lake when it ended.
    """

    truth: Truth
    kept: int
    ended: Mapping[Lake, int]


class CatalogFile:
    """The SQLite catalog of a lake that nobody has attached."""

    def __init__(self, lake: Lake) -> None:
        self._file = Path(lake.catalog.removeprefix("sqlite:"))
        self._backup = Path(f"{self._file}.backup")

    def keep(self) -> None:
        shutil.copyfile(self._file, self._backup)

    def put_back(self) -> None:
        self.remove()
        shutil.copyfile(self._backup, self._file)

    def remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._file}{ending}").unlink(missing_ok=True)
