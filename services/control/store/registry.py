"""What control remembers of a pipeline's destinations, and every change that was ever made to one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import BindParameter, Connection, RowMapping, bindparam, insert, select, update
from sqlalchemy.engine import URL

from services.control.model.audit import changes, deed
from services.control.model.lifecycle import Declared, Registered, Revision
from services.control.store.database import BUSY_TIMEOUT_S, Database
from services.control.store.tables import audit, destinations, pipelines
from shared.contracts.messages import DesiredState

Held = Mapping[str, Registered]
Decide = Callable[[Held], Iterable[Registered]]
Also = Callable[[Connection, Held], None]
"""What else is written in the transaction of a change, given what changed in it."""

_DECLARED = TypeAdapter(Declared)

APPENDED, EQUAL = "appended: ", "equal: "
"""Before the routing column, in the registry's text of what a destination is routed by."""

CHANGING = (
    "spec", "routing_value", "generation", "desired", "replace", "managed_by", "author", "revision", "removed",
    "removing", "seed_at", "seed_from", "version", "appeared_at",
)  # fmt: skip
KEY: Mapping[str, BindParameter[Any]] = {"pipeline": bindparam("of_pipeline"), "id": bindparam("of_id")}
VALUES: Mapping[str, BindParameter[Any]] = {
    **{name: bindparam(name) for name in CHANGING},
    "updated_at": bindparam("at"),
}
INSERT = insert(destinations).values(**KEY, **VALUES, created_at=bindparam("at"))
UPDATE = update(destinations).where(*(destinations.c[name] == given for name, given in KEY.items())).values(**VALUES)


def nothing(_: Connection, __: Held) -> None:
    """Nothing else."""


class DestinationRegistry:
    """The destinations of one pipeline. May be used from several threads, and by several controls on one database.

    Raises ``DependencyError`` while the database can't be used, then nothing of the call has happened.
    """

    def __init__(self, url: URL | Database, pipeline: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """On a database for one pipeline, or on a shared one."""
        self.database = url if isinstance(url, Database) else Database(url, busy_timeout_s)
        self.pipeline = pipeline
        self._lock = threading.Lock()
        self._known: Held = {}
        self._known_version = -1

    def prepare(self) -> None:
        self.database.prepare()

    def is_new(self) -> bool:
        """Whether nothing was ever written about this pipeline."""
        with self.database.transaction() as con:
            return con.execute(select(pipelines.c.name).where(pipelines.c.name == self.pipeline)).first() is None

    def destinations(self) -> Held:
        """All of them by id, removed ones too. Only what changed since the last call is read."""
        mine = pipelines.c.name == self.pipeline
        with self.database.transaction() as con:
            row = con.execute(select(pipelines.c.version, pipelines.c.created_at).where(mine)).first()
            return self._held(con, *((0, None) if row is None else row))

    def count_on_from(self, began_ms: int, version: int) -> None:
        """Give the next change a later version than a message of this registry from before it was lost.

        ``began_ms``: when the registry that published it began with this pipeline, in milliseconds since 1970.
        """
        mine = pipelines.c.name == self.pipeline
        with self.database.transaction() as con:
            row = con.execute(select(pipelines.c.version, pipelines.c.created_at).where(mine).with_for_update()).first()
            if row is None or (_milliseconds(row.created_at), row.version) >= (began_ms, version):
                return
            began = max(row.created_at, datetime.fromtimestamp(began_ms / 1000, UTC))
            values = {"version": max(row.version, version), "created_at": began}
            con.execute(update(pipelines).where(mine).values(values))
        with self._lock:
            self._known, self._known_version = {}, -1

    def change(self, decide: Decide, revision: Revision, also: Also = nothing) -> Held:
        """Write what ``decide`` returns for the current rows, and return all rows after that.

        ``decide`` sees rows that no other transaction changes before the write. An exception of it undoes the
        transaction, and so does one of ``also``, which is called if anything changes.
        """
        with self.database.transaction() as con:
            version, created_at = self._locked(con, revision)
            held = self._held(con, version, created_at)
            began = _milliseconds(created_at)
            changed = {each.id: replace(each, version=version + 1, registry=began) for each in decide(held)}
            if not changed:
                return held
            self._write(con, held, changed)
            self._record(con, held, changed, revision)
            con.execute(update(pipelines).where(pipelines.c.name == self.pipeline).values(version=version + 1))
            also(con, changed)
        return self._remember({**held, **changed}, version + 1)

    def problem(self) -> str | None:
        """None if the database answers now, else what is wrong."""
        return self.database.problem()

    def close(self) -> None:
        self.database.close()

    def _locked(self, con: Connection, revision: Revision) -> tuple[int, datetime]:
        """The pipeline's version, and since when it is held here.

        One writer at a time from here on; SQLite has one for the file, since BEGIN.
        """
        mine = pipelines.c.name == self.pipeline
        row = con.execute(select(pipelines.c.version, pipelines.c.created_at).where(mine).with_for_update()).first()
        if row is None:
            con.execute(insert(pipelines).values(name=self.pipeline, created_at=revision.at, version=0))
            return 0, revision.at
        return row[0], row[1]

    def _held(self, con: Connection, version: int, created_at: datetime | None) -> Held:
        """What is held at ``version``: what is known, and what was written since."""
        with self._lock:
            known, since = self._known, self._known_version
        if since >= version:
            return known
        newer = select(destinations).where(destinations.c.pipeline == self.pipeline, destinations.c.version > since)
        found = {row["id"]: _registered(row, _milliseconds(created_at)) for row in con.execute(newer).mappings()}
        return self._remember({**known, **found}, version)

    def _remember(self, held: Held, version: int) -> Held:
        with self._lock:
            if version > self._known_version:
                self._known, self._known_version = held, version
        return held

    def _write(self, con: Connection, held: Held, changed: Held) -> None:
        for statement, rows in (
            (UPDATE, [_row(self.pipeline, name, each) for name, each in changed.items() if name in held]),
            (INSERT, [_row(self.pipeline, name, each) for name, each in changed.items() if name not in held]),
        ):
            if rows:
                con.execute(statement, rows)

    def _record(self, con: Connection, held: Held, changed: Held, revision: Revision) -> None:
        con.execute(
            insert(audit),
            [
                {
                    "pipeline": self.pipeline,
                    "version": each.version,
                    "at": revision.at,
                    "author": revision.author,
                    "destination": name,
                    "deed": deed(held.get(name), each),
                    "generation": each.generation,
                    "changes": json.dumps(changes(held.get(name), each)),
                }
                for name, each in changed.items()
            ],
        )


def _row(pipeline: str, destination: str, held: Registered) -> dict[str, Any]:
    """Parameters of ``UPDATE`` and ``INSERT``; a destination that is written first is created at its revision."""
    return {
        "of_pipeline": pipeline,
        "of_id": destination,
        "spec": _spec(held.declared),
        "routing_value": held.declared.routing_value,
        "generation": held.generation,
        "desired": held.desired.value,
        "replace": held.replace,
        "managed_by": held.managed_by,
        "author": held.revision.author,
        "revision": held.revision.id,
        "removed": held.removed,
        "removing": held.removing,
        "seed_at": held.seed_at,
        "seed_from": held.seed_from,
        "version": held.version,
        "appeared_at": held.appeared_at,
        "at": held.revision.at,
    }


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else max(0, int(moment.timestamp() * 1000))


AS_HELD = ("managed_by", "replace", "removed", "removing", "seed_at", "seed_from", "version", "appeared_at")


def _registered(row: RowMapping, registry: int) -> Registered:
    return Registered(
        declared=_declared(row),
        generation=row["generation"],
        revision=Revision(row["revision"], row["updated_at"], row["author"]),
        desired=DesiredState(row["desired"]),
        registry=registry,
        **{name: row[name] for name in AS_HELD},
    )


def _spec(declared: Declared) -> str:
    """All but what has columns of its own."""
    spec = _DECLARED.dump_python(declared, mode="json", exclude={"id", "routing_value", "routed_by"})
    by = declared.routed_by
    return json.dumps(spec | {"slice_of": f"{APPENDED if by.append_only else EQUAL}{by.field}"})


def _declared(row: RowMapping) -> Declared:
    spec = json.loads(row["spec"])
    text, append_only = spec["slice_of"], spec["slice_of"].startswith(APPENDED)
    by = {"field": text.removeprefix(APPENDED if append_only else EQUAL), "append_only": append_only}
    own = {"id": row["id"], "routing_value": row["routing_value"], "routed_by": by}
    return _DECLARED.validate_python(spec | own)
