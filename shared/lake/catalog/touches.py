"""Which snapshots have touched a table, and what they say that they did to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.contracts.ranges import Range
from shared.lake.catalog.table_names import CALLED
from shared.lake.connection.statements import CatalogConnection, Row, catalog_time

MAINTENANCE = frozenset({"merge_adjacent", "rewrite_delete", "inline_flush"})
"""Marks of commits that move rows between files and change none."""

APPENDING = frozenset({"inserted_into_table", "inlined_insert", "merge_adjacent", "inline_flush"})

_TOUCHING = (
    "SELECT c.snapshot_id, s.snapshot_time, c.changes_made FROM {}ducklake_snapshot_changes c"
    " JOIN {}ducklake_snapshot s ON s.snapshot_id = c.snapshot_id"
    " WHERE c.snapshot_id > :after AND c.snapshot_id <= :through AND c.changes_made LIKE"
)
TOUCHING = f"{_TOUCHING} :mark ORDER BY c.snapshot_id"
TOUCHING_CALLED = f"{_TOUCHING} (SELECT '%:' || t.table_id || '%'{CALLED} LIMIT 1) ORDER BY c.snapshot_id"
"""Those that name the table which is called so at ``:at``, and perhaps others whose marks look alike."""

CONTIGUOUS = "SELECT count(*) AS n FROM {}ducklake_snapshot WHERE snapshot_id > :after AND snapshot_id <= :through"

ENDED_FILES = (
    "SELECT (SELECT count(*) FROM {}ducklake_delete_file WHERE table_id = :table"
    "  AND begin_snapshot > :after AND begin_snapshot <= :through)"
    " + (SELECT count(*) FROM {}ducklake_data_file WHERE table_id = :table"
    "  AND end_snapshot > :after AND end_snapshot <= :through) AS n"
)


@dataclass(frozen=True)
class Touch:
    """A snapshot that names the table, and what it says it did to it."""

    snapshot: int
    time: datetime
    marks: frozenset[str]

    @property
    def is_maintenance(self) -> bool:
        return bool(self.marks) and self.marks <= MAINTENANCE


class TableTouches(CatalogConnection):
    """Asks for touches by ranges of snapshots."""

    def contiguous(self, snapshots: Range) -> bool:
        """Whether every snapshot of the range is still retained."""
        found = self._one(CONTIGUOUS, after=snapshots.after, through=snapshots.through)
        return int(found["n"]) == snapshots.through - snapshots.after

    def touching(self, table_id: int, snapshots: Range) -> tuple[Touch, ...]:
        """The snapshots of the range that name the table, oldest first. Other tables' commits cost nothing."""
        named = {"after": snapshots.after, "through": snapshots.through}
        return touches_in(self._all(TOUCHING, **named, mark=mark_of(table_id)), table_id)

    def only_appended(self, table_id: int, snapshots: Range, touches: Iterable[Touch]) -> bool:
        """Whether metadata proves that the range, in which these are all ``touches`` of the table, did nothing but
        insert rows, so its insertions are exact.

        The marks alone do not prove it: they were wrong in 34 of 1049 ranges that were tried. Expiry deletes marks, so
        a range with a hole proves nothing.
        """
        if snapshots.is_empty:
            return True
        if not frozenset().union(*(touch.marks for touch in touches)) <= APPENDING:
            return False
        retained, ended = self.asked_at_once(
            (CONTIGUOUS, ENDED_FILES), table=table_id, after=snapshots.after, through=snapshots.through
        )
        is_whole = int(retained[0]["n"]) == snapshots.through - snapshots.after
        return is_whole and not int(ended[0]["n"])

    def taken_back(self, table_id: int, snapshots: Range) -> frozenset[int]:
        """The snapshots of the range that deleted rows which they had inserted themselves: their marks don't tell.

        A data file and its delete file that begin at once mean that, unless a flush wrote the file (it has a
        ``partial_max``), which dates both back.
        """
        rows = self._all(
            "SELECT DISTINCT d.begin_snapshot FROM {}ducklake_delete_file d JOIN {}ducklake_data_file f"
            " ON f.data_file_id = d.data_file_id AND f.begin_snapshot = d.begin_snapshot"
            " WHERE d.table_id = :table AND d.begin_snapshot > :after AND d.begin_snapshot <= :through"
            " AND f.partial_max IS NULL",
            table=table_id,
            after=snapshots.after,
            through=snapshots.through,
        )
        return frozenset(int(row["begin_snapshot"]) for row in rows)


def mark_of(table_id: int) -> str:
    return f"%:{table_id}%"


def touches_in(rows: Sequence[Row], table_id: int) -> tuple[Touch, ...]:
    touches = (
        Touch(int(r["snapshot_id"]), catalog_time(r["snapshot_time"]), marks(r["changes_made"], table_id)) for r in rows
    )
    return tuple(touch for touch in touches if touch.marks)


def marks(changes_made: str, table_id: int) -> frozenset[str]:
    """What a snapshot's ``changes_made`` says of one table. Quoted names may hold anything, so they go first."""
    bare = re.sub(r'"(?:[^"]|"")*"', "", changes_made)
    return frozenset(re.findall(rf"(?:^|,)([a-z_]+):{table_id}(?=,|$)", bare))
