"""The audit trail: who did what to which destination, or to the pipeline itself, the newest first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from services.control.store.database import Database
from services.control.store.tables import audit, pipelines

WHOLE = "the pipeline"
"""Stands for a destination in the trail. It holds a space, which no destination's name does."""

SERVER = "the server"
"""Stands for a pipeline: what concerns none of them. It holds a space, too."""

REBUILT = "rebuilt"


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


@dataclass(frozen=True)
class Rebuilt:
    """That a registry was lost and is put together again, and what could not be."""

    at: datetime
    destinations: int
    """How many are back."""
    unreadable: tuple[str, ...]
    """Those of which the topic's last word could not be read."""
    not_recovered: str
    """What no topic holds, of any of them."""


def note(
    con: Connection,
    pipeline: str,
    deed: str,
    author: str | None,
    at: datetime,
    told: Mapping[str, Any],
    destination: str = WHOLE,
) -> None:
    """Write down a deed that changed nothing which was there before: ``told`` says what it brought, by name."""
    version = con.execute(select(pipelines.c.version).where(pipelines.c.name == pipeline)).scalar() or 0
    con.execute(
        insert(audit).values(
            pipeline=pipeline,
            version=version,
            at=at,
            author=author,
            destination=destination,
            deed=deed,
            generation=0,
            changes=json.dumps({name: (None, value) for name, value in told.items()}),
        )
    )


def note_rebuilt(con: Connection, pipeline: str, rebuilt: Rebuilt, author: str | None) -> None:
    told = {name: value for name, value in vars(rebuilt).items() if name != "at"}
    note(con, pipeline, REBUILT, author, rebuilt.at, told)


class AuditLog:
    """The trail of one pipeline. Raises ``DependencyError`` while the registry can't be used."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline

    def note(
        self, deed: str, author: str | None, at: datetime, told: Mapping[str, Any], destination: str = WHOLE
    ) -> None:
        with self._database.transaction() as con:
            note(con, self._pipeline, deed, author, at, told, destination)

    def rebuilt(self) -> Rebuilt | None:
        """The last time that the pipeline's registry was; None where it never was lost."""
        mine = (audit.c.pipeline == self._pipeline, audit.c.destination == WHOLE, audit.c.deed == REBUILT)
        with self._database.transaction() as con:
            row = con.execute(select(audit).where(*mine).order_by(audit.c.id.desc()).limit(1)).mappings().first()
        if row is None:
            return None
        told = {name: now for name, (_, now) in json.loads(row["changes"]).items()}
        return Rebuilt(row["at"], told["destinations"], tuple(told["unreadable"]), told["not_recovered"])

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
