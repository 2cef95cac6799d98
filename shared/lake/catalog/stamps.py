"""What Viaduck's own commits say of themselves in a lake's catalog."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

from shared.lake.connection.statements import CatalogConnection, catalog_time

LOOKED_BACK = 10_000
"""Snapshots in which a commit of a moment ago is looked for: a lake that many share may have millions."""


@dataclass(frozen=True)
class StampedCommit:
    """A commit of Viaduck's, with what it says of itself."""

    snapshot: int
    time: datetime
    message: str
    extra_info: str


class CommitStamps(CatalogConnection):
    """Finds commits by their stamps (``shared.lake.stamp``)."""

    def find_stamp(self, part: str) -> int | None:
        """The newest snapshot whose ``commit_extra_info`` holds ``part`` (a token), of the newest ``LOOKED_BACK``."""
        sql = (
            "SELECT max(snapshot_id) AS found FROM (SELECT snapshot_id, commit_extra_info"
            " FROM {}ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT :newest) AS looked"
            " WHERE commit_extra_info LIKE :part ESCAPE '!'"
        )
        found = self._one(sql, newest=LOOKED_BACK, part=_holding(part))["found"]
        return None if found is None else int(found)

    def stamp_at(self, snapshot: int) -> str | None:
        """What the commit of ``snapshot`` carries in ``commit_extra_info`` if it is Viaduck's, and is retained."""
        sql = (
            "SELECT commit_extra_info FROM {}ducklake_snapshot_changes"
            " WHERE snapshot_id = :snapshot AND author = 'viaduck'"
        )
        rows = self._all(sql, snapshot=snapshot)
        return str(rows[0]["commit_extra_info"]) if rows else None

    def stamps(self, part: str = "") -> tuple[str, ...]:
        """What Viaduck's own commits carry in ``commit_extra_info``, oldest first, where it holds ``part``."""
        rows = self._all(
            "SELECT commit_extra_info FROM {}ducklake_snapshot_changes WHERE author = 'viaduck'"
            " AND commit_extra_info LIKE :part ESCAPE '!' ORDER BY snapshot_id",
            part=_holding(part),
        )
        return tuple(str(row["commit_extra_info"]) for row in rows)

    def history(self, part: str, limit: int, before: int | None = None) -> list[StampedCommit]:
        """Viaduck's own commits whose ``commit_extra_info`` holds ``part``, the newest first.

        Names the snapshots' table first: by that a database without a lake is told (``failure.ABSENT``).
        """
        rows = self._all(
            "SELECT c.snapshot_id, s.snapshot_time, c.commit_message, c.commit_extra_info"
            " FROM {}ducklake_snapshot s JOIN {}ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id"
            " WHERE c.author = 'viaduck' AND c.commit_extra_info LIKE :part ESCAPE '!' AND c.snapshot_id < :before"
            " ORDER BY c.snapshot_id DESC LIMIT :most",
            part=_holding(part),
            before=2**62 if before is None else before,
            most=limit,
        )
        return [
            StampedCommit(
                int(r["snapshot_id"]), catalog_time(r["snapshot_time"]), r["commit_message"], r["commit_extra_info"]
            )
            for r in rows
        ]


def stamped_for(pipeline: str, destination: str) -> str:
    """A pattern of LIKE for the stamps of a destination's commits (``services.applier.apply.cursor.fence.Stamp``)."""
    return _holding(f'"pipeline": {json.dumps(pipeline)}, "destination": {json.dumps(destination)}, "kind": ')


def _holding(part: str) -> str:
    """A pattern of LIKE for texts that hold exactly ``part``: names may have a ``_`` or a ``%``."""
    return "%" + re.sub("[!%_]", r"!\g<0>", part) + "%"
