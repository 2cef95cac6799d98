"""Reads the audit trail: who did what to which destination, the newest first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from services.control.database import Database
from services.control.tables import audit


@dataclass(frozen=True)
class Entry:
    """One change of one destination. ``changes``: what it was and what it is, by name."""

    id: int
    destination: str
    deed: str
    version: int
    generation: int
    at: datetime
    author: str | None
    changes: dict[str, Any]


class Trail:
    """The trail of one pipeline. Raises ``DependencyError`` while the registry can't be used."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database, self._pipeline = database, pipeline

    def entries(self, limit: int, before: int | None = None, destination: str | None = None) -> list[Entry]:
        """Up to ``limit`` entries older than ``before``, of all destinations or of one."""
        found = select(audit).where(audit.c.pipeline == self._pipeline).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            found = found.where(audit.c.id < before)
        if destination is not None:
            found = found.where(audit.c.destination == destination)
        with self._database.transaction() as con:
            rows = con.execute(found).mappings().all()
        return [
            Entry(
                id=row["id"],
                destination=row["destination"],
                deed=row["deed"],
                version=row["version"],
                generation=row["generation"],
                at=row["at"],
                author=row["author"],
                changes=json.loads(row["changes"]),
            )
            for row in rows
        ]
