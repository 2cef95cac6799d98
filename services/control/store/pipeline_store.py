"""Pipelines that came over REST: in the registry, on the topic, and as copies in this service's own folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import structlog
from sqlalchemy import Connection, RowMapping, func, insert, select, text, update

from services.control.store.audit_log import WHOLE
from services.control.store.database import Database
from services.control.store.tables import audit, documents, pipelines
from shared.config.pipeline_files import PipelineFiles
from shared.contracts.errors import DependencyError
from shared.contracts.messages import PipelineDocument
from shared.kafka.sender import Sender

log = structlog.get_logger(__name__)

State = Literal["there", "deleted", "ceded"]

LOCK = 7_641_904_332
"""An advisory lock: changes are made one after the other, so that versions are committed in their order."""


@dataclass(frozen=True)
class StoredPipeline:
    """``content``: the keys of a file that are the pipeline's own; None where it is gone."""

    pipeline: str
    content: Mapping[str, Any] | None
    state: State
    version: int
    author: str | None
    at: datetime

    @property
    def message(self) -> PipelineDocument:
        content = None if self.content is None else dict(self.content)
        return PipelineDocument(pipeline=self.pipeline, version=self.version, document=content)


Require = Callable[[StoredPipeline | None], None]
"""Raises for what is held at the moment of a change; None where there is no such pipeline."""


def anything(_: StoredPipeline | None) -> None:
    """Nothing is asked of it."""


class PipelineStore:
    """Thread-safe, also with several controls on one registry. Raises ``DependencyError``.

    A change is in the registry first, then copied and published by each control that sees it, its own or not: so
    the last message of every control is the registry's state.
    """

    def __init__(
        self,
        database: Database,
        copies: PipelineFiles,
        sender: Sender,
        topic: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._copies = copies
        self._sender = sender
        self._topic = topic
        self._now = now
        self._lock = threading.RLock()
        self._known: Mapping[str, StoredPipeline] = {}
        self._version = 0

    @property
    def all(self) -> Mapping[str, StoredPipeline]:
        """By name; those that are gone, too."""
        return self._known

    def find(self, pipeline: str) -> StoredPipeline | None:
        """The document, unless it was removed."""
        found = self._known.get(pipeline)
        return None if found is None or found.content is None else found

    def is_new(self) -> bool:
        """Whether nothing was ever written to this registry."""
        with self._database.transaction() as con:
            return not any(con.execute(select(table).limit(1)).first() for table in (pipelines, documents))

    def refresh(self) -> None:
        """Take up what is newer in the registry: copy it, and publish it."""
        with self._lock:
            for each in self._newer():
                self._copy(each)
                self._known, self._version = {**self._known, each.pipeline: each}, each.version
                self._announce(each)

    def mend(self) -> None:
        """Correct the copies, since others may write to the folder. Copies without a document are removed."""
        with self._lock:
            for each in self._known.values():
                self._copy(each)
            for name in [name for name in self._copies.names() if self.find(name) is None]:
                log.warning("pipeline_copy_removed", pipeline=name)
                self._at_copies(partial(self._copies.remove, name))

    def announce_all(self) -> None:
        """Removed ones, too: a service may have been away when they were removed."""
        for each in self._known.values():
            self._announce(each)

    def put(
        self, pipeline: str, content: Mapping[str, Any], author: str | None, require: Require = anything
    ) -> StoredPipeline:
        """Keep it; the same again changes nothing."""
        return self._change(pipeline, content, "there", author, require)

    def end(self, pipeline: str, state: State, author: str | None, require: Require = anything) -> StoredPipeline:
        """Mark the document as removed, even if it is put again later. ``state``: the reason."""
        return self._change(pipeline, None, state, author, require)

    def adopt(self, found: Iterable[PipelineDocument]) -> None:
        """Into a registry that was lost, with the versions that they had."""
        with self._database.transaction() as con:
            held = self._all(con)
            for said in found:
                if said.pipeline not in held:
                    state: State = "deleted" if said.document is None else "there"
                    row = StoredPipeline(said.pipeline, said.document, state, said.version, "rebuild", self._now())
                    con.execute(insert(documents).values(**_row(row)))

    # -- the registry -------------------------------------------------------------------------------------------------

    def _change(
        self, pipeline: str, content: Mapping[str, Any] | None, state: State, author: str | None, require: Require
    ) -> StoredPipeline:
        with self._database.transaction() as con:
            before = self._all(con).get(pipeline)
            there = before if before is not None and before.content is not None else None
            require(there)
            if before is not None and before.state == state and same_content(before.content, content):
                return before
            after = StoredPipeline(pipeline, content, state, self._next(con), author, self._now())
            if before is None:
                con.execute(insert(documents).values(**_row(after)))
            else:
                con.execute(update(documents).where(documents.c.pipeline == pipeline).values(**_row(after)))
            con.execute(insert(audit).values(**_entry(before, after)))
        self.refresh()
        return after

    def _all(self, con: Connection) -> dict[str, StoredPipeline]:
        """Locks the rows: other changes wait. SQLite has one writer anyway, since BEGIN."""
        if con.dialect.name == "postgresql":
            con.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        return {row["pipeline"]: _document(row) for row in con.execute(select(documents)).mappings()}

    def _next(self, con: Connection) -> int:
        return int(con.execute(select(func.max(documents.c.version))).scalar() or 0) + 1

    def _newer(self) -> list[StoredPipeline]:
        newer = select(documents).where(documents.c.version > self._version).order_by(documents.c.version)
        with self._database.transaction() as con:
            return [_document(row) for row in con.execute(newer).mappings()]

    # -- copies and topic ---------------------------------------------------------------------------------------------

    def _copy(self, each: StoredPipeline) -> None:
        if each.content is None:
            self._at_copies(partial(self._copies.remove, each.pipeline))
        else:
            self._at_copies(partial(self._copies.write, each.pipeline, each.content, each.version))

    def _at_copies(self, do: Callable[[], None]) -> None:
        try:
            do()
        except OSError as error:
            said = f"{self._copies.folder} can't be written: {error.strerror}"
            raise DependencyError("state_dir", said, "let the service write there, or name another state_dir") from None

    def _announce(self, each: StoredPipeline) -> None:
        self._sender.send(self._topic, each.pipeline, each.message.to_bytes())


def _row(document: StoredPipeline) -> dict[str, Any]:
    return {
        "pipeline": document.pipeline,
        "content": _text(document.content),
        "state": document.state,
        "version": document.version,
        "author": document.author,
        "updated_at": document.at,
    }


def same_content(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """In whatever order; for Python itself true is 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _text(content: Mapping[str, Any] | None) -> str | None:
    return None if content is None else json.dumps(content)


def _document(row: RowMapping) -> StoredPipeline:
    content = None if row["content"] is None else json.loads(row["content"])
    return StoredPipeline(row["pipeline"], content, row["state"], row["version"], row["author"], row["updated_at"])


def _entry(before: StoredPipeline | None, after: StoredPipeline) -> dict[str, Any]:
    """What goes into the audit trail."""
    return {
        "pipeline": after.pipeline,
        "version": after.version,
        "at": after.at,
        "author": after.author,
        "destination": WHOLE,
        "deed": _deed(before, after),
        "generation": 0,
        "changes": json.dumps(_changes(before, after)),
    }


def _deed(before: StoredPipeline | None, after: StoredPipeline) -> str:
    if after.content is None:
        return "removed" if after.state == "deleted" else "taken over by a file"
    if before is None or before.content is None:
        return "added" if before is None else "added again"
    return "changed"


def _changes(before: StoredPipeline | None, after: StoredPipeline) -> dict[str, tuple[Any, Any]]:
    """By section; of destinations, which may be thousands, only the ids."""
    was, now = _shown(before), _shown(after)
    told = {name: (was.get(name), now.get(name)) for name in {**was, **now} if was.get(name) != now.get(name)}
    return {name: (_brief(name, old), _brief(name, new)) for name, (old, new) in told.items()}


def _shown(document: StoredPipeline | None) -> Mapping[str, Any]:
    return {} if document is None or document.content is None else document.content


def _brief(section: str, value: Any) -> Any:
    if section != "destinations" or not isinstance(value, list):
        return value
    return [entry.get("id") if isinstance(entry, dict) else entry for entry in value]
