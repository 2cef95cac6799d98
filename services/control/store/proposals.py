"""What control remembers of routing values without a destination, until they have one; and what operators said."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from services.control.model.policy import PolicyDecision, Sighting
from services.control.store.database import Database
from services.control.store.tables import audit, pipelines, proposals

State = Literal["open", "dismissed"]

MOST_OPEN = 10_000
"""Per pipeline, because the number of values is untrusted. Values above the limit are offered again later."""


@dataclass(frozen=True)
class Proposal:
    sighting: Sighting
    decision: PolicyDecision
    state: State
    author: str | None
    """Who dismissed it."""
    created_at: datetime
    updated_at: datetime

    @property
    def id(self) -> str:
        return self.sighting.id


class Proposals:
    """Those of one pipeline. Raises ``DependencyError`` while the registry can't be used: then nothing happened."""

    def __init__(self, database: Database, pipeline: str, most_open: int = MOST_OPEN) -> None:
        self._database = database
        self._pipeline = pipeline
        self._most_open = most_open

    def all(self) -> dict[str, Proposal]:
        with self._database.transaction() as con:
            return self._all(con)

    def find(self, proposal_id: str) -> Proposal | None:
        with self._database.transaction() as con:
            return self._find(con, proposal_id)

    def keep(self, decided: Collection[tuple[Sighting, PolicyDecision]], gone: Collection[str], at: datetime) -> None:
        """Remember what was decided, as far as there is room, and forget those that have a destination by now."""
        with self._database.transaction() as con:
            self._lock(con)
            self._forget(con, gone)
            known = self._all(con)
            room = max(0, self._most_open - sum(each.state == "open" for each in known.values()))
            news = [self._row(*both, at) for both in decided if both[0].id not in known][:room]
            if news:
                con.execute(insert(proposals), news)
            for sighting, decision in decided:
                was = known.get(sighting.id)
                if was is not None and (was.sighting, was.decision) != (sighting, decision):
                    told = {**_told(sighting, decision), "updated_at": at}
                    con.execute(update(proposals).where(*self._at(sighting.id)).values(told))

    def forget(self, proposal_id: str) -> None:
        """It has a destination."""
        with self._database.transaction() as con:
            self._forget(con, [proposal_id])

    def dismiss(self, proposal_id: str, author: str | None, at: datetime) -> Proposal | None:
        """Remember that an operator does not want it; None where there is no such proposal. Written to the trail."""
        with self._database.transaction() as con:
            version = self._lock(con)
            found = self._find(con, proposal_id)
            if found is None or found.state == "dismissed":
                return found
            con.execute(
                update(proposals).where(*self._at(proposal_id)).values(state="dismissed", author=author, updated_at=at)
            )
            con.execute(insert(audit).values(**self._deed(found, version), author=author, at=at))
            return self._find(con, proposal_id)

    def _lock(self, con: Connection) -> int:
        """The pipeline's version. Two controls must not both write a proposal for the first time."""
        mine = select(pipelines.c.version).where(pipelines.c.name == self._pipeline).with_for_update()
        return con.execute(mine).scalar() or 0

    def _at(self, proposal_id: str) -> tuple[Any, ...]:
        return proposals.c.pipeline == self._pipeline, proposals.c.id == proposal_id

    def _all(self, con: Connection) -> dict[str, Proposal]:
        rows = con.execute(select(proposals).where(proposals.c.pipeline == self._pipeline)).mappings()
        return {row["id"]: _proposal(row) for row in rows}

    def _find(self, con: Connection, proposal_id: str) -> Proposal | None:
        row = con.execute(select(proposals).where(*self._at(proposal_id))).mappings().first()
        return None if row is None else _proposal(row)

    def _forget(self, con: Connection, ids: Iterable[str]) -> None:
        for each in ids:
            con.execute(delete(proposals).where(*self._at(each)))

    def _row(self, sighting: Sighting, decision: PolicyDecision, at: datetime) -> dict[str, Any]:
        return {
            "pipeline": self._pipeline,
            "id": sighting.id,
            "value": json.dumps(sighting.value),
            "whole": sighting.whole,
            "state": "open",
            "created_at": at,
            "updated_at": at,
            **_told(sighting, decision),
        }

    def _deed(self, found: Proposal, version: int) -> dict[str, Any]:
        """An entry of the trail. Its ``destination`` holds a space, which no destination's name does."""
        value = (None, found.sighting.value)
        return {
            "pipeline": self._pipeline,
            "version": version,
            "destination": f"proposal {found.id}",
            "deed": "dismissed",
            "generation": 0,
            "changes": json.dumps({"routing_value": value, "state": (found.state, "dismissed")}),
        }


def _told(sighting: Sighting, decision: PolicyDecision) -> dict[str, Any]:
    return {
        "rows": sighting.rows,
        "first_seen": sighting.first_seen,
        "reason": decision.reason,
        "message": decision.message,
    }


def _proposal(row: RowMapping) -> Proposal:
    return Proposal(
        Sighting(row["id"], json.loads(row["value"]), row["whole"], row["rows"], row["first_seen"]),
        PolicyDecision(row["reason"], row["message"]),
        row["state"],
        row["author"],
        row["created_at"],
        row["updated_at"],
    )
