"""The audit trail: who did what to which destination, or to the pipeline itself, the newest first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, insert, select

from services.control.store.database import Database
from services.control.store.tables import audit, pipelines

WHOLE = "the pipeline"
"""Stands for a destination in the trail. It holds a space, which no destination's name does."""

SERVER = "the server"
"""Stands for a pipeline: what concerns none of them. It holds a space, too."""

REBUILT = "rebuilt"


class Change(BaseModel):
    """An entry of the audit trail. ``changes``: what it was and what it is, by name."""

    model_config = ConfigDict(frozen=True)

    id: int
    destination: str
    deed: str
    version: int
    generation: int
    at: datetime
    author: str | None
    changes: dict[str, Any]


class RegistryRebuilt(BaseModel):
    """The registry was lost, and put together again from the topics. The audit trail holds this, too."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    destinations: int
    """How many are back."""
    unreadable: list[str]
    """Those of which the topic's last word could not be read: put them again, or look at them at least."""
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


def note_rebuilt(con: Connection, pipeline: str, rebuilt: RegistryRebuilt, author: str | None) -> None:
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

    def note_once(
        self, deed: str, author: str | None, at: datetime, told: Mapping[str, Any], destination: str, *, mark: str
    ) -> bool:
        """The same unless the trail has it: an entry of this deed that holds ``mark`` among what it tells. Whether it
        was news. Of several controls one writes it."""
        mine = (audit.c.pipeline == self._pipeline, audit.c.destination == destination, audit.c.deed == deed)
        there = select(audit.c.id).where(*mine, audit.c.changes.contains(json.dumps(mark), autoescape=True)).limit(1)
        with self._database.transaction() as con:
            con.execute(select(pipelines.c.version).where(pipelines.c.name == self._pipeline).with_for_update())
            if con.execute(there).first() is not None:
                return False
            note(con, self._pipeline, deed, author, at, told, destination)
            return True

    def rebuilt(self) -> RegistryRebuilt | None:
        """The last time that the pipeline's registry was; None where it never was lost."""
        mine = (audit.c.pipeline == self._pipeline, audit.c.destination == WHOLE, audit.c.deed == REBUILT)
        with self._database.transaction() as con:
            row = con.execute(select(audit).where(*mine).order_by(audit.c.id.desc()).limit(1)).mappings().first()
        if row is None:
            return None
        told = {name: now for name, (_, now) in json.loads(row["changes"]).items()}
        return RegistryRebuilt(at=row["at"], **told)

    def entries(self, limit: int, before: int | None = None, destination: str | None = None) -> list[Change]:
        """Up to ``limit`` entries older than ``before``, of all destinations or of one."""
        found = select(audit).where(audit.c.pipeline == self._pipeline).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            found = found.where(audit.c.id < before)
        if destination is not None:
            found = found.where(audit.c.destination == destination)
        with self._database.transaction() as con:
            rows = con.execute(found).mappings().all()
        return [Change(**{**row, "changes": json.loads(row["changes"])}) for row in rows]
