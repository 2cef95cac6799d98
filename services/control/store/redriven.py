"""Which rejected records of a pipeline were sent to their topic again: each is claimed before it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from services.control.store.audit_log import note
from services.control.store.database import Database
from services.control.store.tables import pipelines, redriven

AT_ONCE = 500
"""Places that one statement names."""


@dataclass(frozen=True)
class Mark:
    """When and by whom a record was sent again. Without ``confirmed`` it is not known whether it arrived."""

    at: datetime
    author: str | None
    confirmed: bool


@dataclass(frozen=True)
class RedriveClaim:
    """A record by its place (a digest), and where it lies on the topic of rejected records."""

    place: str
    partition: int
    offset: int


class Redriven:
    """Those of one pipeline. Raises ``DependencyError`` while the registry can't be used."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline

    def of(self, places: Iterable[str]) -> dict[str, Mark]:
        with self._database.transaction() as con:
            return self._of(con, places)

    def claim(
        self,
        claims: Sequence[RedriveClaim],
        author: str,
        at: datetime,
        deed: str,
        told: Mapping[str, Any],
        *,
        again: bool,
    ) -> set[str]:
        """The places that no one had claimed, which are this caller's now; with ``again`` all of them.

        The deed is in the audit trail by the same transaction: what can't be written down is not done.
        """
        with self._database.transaction() as con:
            con.execute(select(pipelines.c.name).where(pipelines.c.name == self._pipeline).with_for_update())
            if again:
                self._delete(con, [each.place for each in claims])
            taken = self._of(con, (each.place for each in claims))
            new = {each.place: each for each in claims if each.place not in taken}
            rows = [
                {"pipeline": self._pipeline, "at": at, "author": author, "confirmed": False, **vars(each)}
                for each in new.values()
            ]
            if rows:
                con.execute(insert(redriven), rows)
            note(con, self._pipeline, deed, author, at, told)
        return set(new)

    def conclude(self, confirmed: Sequence[str], failed: Sequence[str]) -> None:
        """``failed``: those that did not arrive for certain, and may be claimed again."""
        with self._database.transaction() as con:
            for some in _portions(confirmed):
                con.execute(update(redriven).where(*self._named(some)).values(confirmed=True))
            self._delete(con, failed)

    def forget(self, first: Mapping[int, int]) -> None:
        """Forget what is gone from the topic of rejected records: all before ``first``, by partition."""
        with self._database.transaction() as con:
            for partition, offset in first.items():
                gone = redriven.c.partition == partition, redriven.c.offset < offset
                con.execute(delete(redriven).where(redriven.c.pipeline == self._pipeline, *gone))

    def _of(self, con: Connection, places: Iterable[str]) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        for some in _portions(list(places)):
            rows = con.execute(select(redriven).where(*self._named(some))).mappings()
            found.update({row["place"]: Mark(row["at"], row["author"], row["confirmed"]) for row in rows})
        return found

    def _delete(self, con: Connection, places: Sequence[str]) -> None:
        for some in _portions(places):
            con.execute(delete(redriven).where(*self._named(some)))

    def _named(self, places: Sequence[str]) -> tuple[Any, Any]:
        return redriven.c.pipeline == self._pipeline, redriven.c.place.in_(places)


def _portions(places: Sequence[str]) -> Iterable[Sequence[str]]:
    return (places[first : first + AT_ONCE] for first in range(0, len(places), AT_ONCE))
