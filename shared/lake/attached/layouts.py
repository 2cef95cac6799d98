"""Caches what was seen of an attached lake's tables until another client commits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from shared.lake.catalog.looks import TableLook

REMEMBERED = 1_000
"""Snapshots of our own, and tables."""


class Layouts:
    """For one attached lake; thread-safe. Viaduck's own commits do not change partitioning, and no owner's work comes
    with them. What an owner has altered is looked at until a commit of ours has judged it."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[int, TableLook]] = OrderedDict()
        self._own: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, snapshot: int, table: tuple[str, str], ask: Callable[[], TableLook]) -> TableLook:
        """The look of a table, (schema, table), at a snapshot that is pinned: as it is known, or as ``ask`` tells."""
        with self._lock:
            seen, look = self._known.get(table, (None, None))
            if seen is not None and look is not None and look.altered is None and self._is_quiet(seen, snapshot):
                self._keep(table, snapshot, look)
                return look
        look = ask()
        with self._lock:
            self._keep(table, snapshot, look)
        return look

    def committed(self, snapshot: int) -> None:
        """Remember the snapshot of our own commit: the one after the snapshot that its transaction began with.

        If another commit came between, ours is a later one, which is not remembered. Call it only while no other
        thread uses the lake: the next user pins a snapshot that is not older than ours.
        """
        with self._lock:
            self._own[snapshot] = None
            while len(self._own) > REMEMBERED:
                self._own.popitem(last=False)

    def _is_quiet(self, seen: int, snapshot: int) -> bool:
        return seen <= snapshot <= seen + REMEMBERED and all(n in self._own for n in range(seen + 1, snapshot + 1))

    def _keep(self, table: tuple[str, str], snapshot: int, look: TableLook) -> None:
        self._known[table] = snapshot, look
        self._known.move_to_end(table)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
