"""What a worker remembers of files that never change: key columns of data files, and rows that delete files take away.

A lake never writes a file twice. A local file that another program put in place of one is told by its size, number and
time; a file that is gone is unknown, so it is read again, and that fails.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shared.config.catalogs import ResolvedLake

REMEMBERED_BYTES = 64_000_000
ENTRY_BYTES = 1_000
"""Of an entry beside its arrays, about."""

Positions = npt.NDArray[np.int64]
"""Numbers of rows in a file, from 0."""

NO_POSITIONS: Positions = np.empty(0, dtype=np.int64)

KeyColumns = tuple[pa.Array, ...]
"""Values of key columns, in the order of a file's rows."""


@dataclass(frozen=True)
class Dead:
    """Rows of a data file that are deleted: places in ascending order, and the snapshot that took each away."""

    positions: Positions
    snapshots: Positions


NOBODY = Dead(NO_POSITIONS, NO_POSITIONS)


class FileMemory:
    """Entries of any kind up to a number of bytes; those that were used least recently go first. Thread-safe."""

    def __init__(self, limit_bytes: int = REMEMBERED_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """``size`` in bytes. What alone would fill a tenth is not kept."""
        size += ENTRY_BYTES
        if size > self._limit // 10:
            return
        with self._lock:
            self._drop(key)
            self._entries[key] = value, size
            self._bytes += size
            while self._bytes > self._limit:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._bytes -= size


@dataclass(frozen=True)
class LakeMemory:
    """What is remembered of one lake's files; another lake may call other files the same."""

    memory: FileMemory
    lake: ResolvedLake

    def keys(self, path: str, fields: tuple[int, ...]) -> KeyColumns | None:
        """The columns with these field ids."""
        found: KeyColumns | None = self._get(path, fields)
        return found

    def keep_keys(self, path: str, fields: tuple[int, ...], columns: KeyColumns) -> None:
        self._put(path, fields, columns, sum(column.nbytes for column in columns))

    def dead(self, path: str, begin: int) -> Dead | None:
        """What a delete file takes away; ``begin`` is its first snapshot."""
        found: Dead | None = self._get(path, begin)
        return found

    def keep_dead(self, path: str, begin: int, dead: Dead) -> None:
        self._put(path, begin, dead, dead.positions.nbytes + dead.snapshots.nbytes)

    def _get(self, path: str, what: Hashable) -> Any | None:
        seen = _seen(path)
        return None if seen is None else self.memory.get((self.lake, path, seen, what))

    def _put(self, path: str, what: Hashable, value: Any, size: int) -> None:
        if (seen := _seen(path)) is not None:
            self.memory.put((self.lake, path, seen, what), value, size)


def _seen(path: str) -> tuple[int, ...] | None:
    """What tells a local file from another in its place; None where it is gone."""
    if "://" in path:
        return ()
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path would take longer to make than the file to look at
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
