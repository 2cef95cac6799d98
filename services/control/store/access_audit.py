"""Audit entries of access: refused requests, logins and reads, beside the changes.

Wrong tokens in large numbers do not fill the registry: a limited number of entries a minute, a count of the rest, and
the oldest entries removed when there are too many. Each kind has its own limit, so that a flood displaces no other.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import structlog
from sqlalchemy import Connection, delete, select

from services.control.store.audit_log import SERVER, note
from services.control.store.database import Database
from services.control.store.tables import audit
from shared.contracts.errors import DependencyError
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

Deed = Literal["logged_in", "login_failed", "token_refused", "refused", "validated", "not_noted"]

PER_MINUTE = 60
WINDOW_S = 60.0
MOST_KEPT = 10_000
"""Of each kind, as of ``PER_MINUTE``."""

WRITE_EVERY_S = 1.0


@dataclass(frozen=True)
class Incident:
    """``told``: where, from where and with which outcome; nothing of a body, which may hold anything."""

    deed: Deed
    author: str
    at: datetime
    told: Mapping[str, Any]


class AccessAudit(Threaded):
    """Any thread may note something, and never waits. What can't be written is in the log alone."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._now = now
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[Incident] = []
        self._left_out: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self._until = clock() + WINDOW_S
        self._loop = Background("incidents", self._run)

    def note(self, deed: Deed, author: str, told: Mapping[str, Any]) -> None:
        with self._lock:
            self._renew()
            if self._noted[deed] == PER_MINUTE:
                self._left_out[deed] += 1
                return
            self._noted[deed] += 1
            self._waiting.append(Incident(deed, author, self._now(), told))

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            self._renew()
            found, self._waiting = self._waiting, []
        if not found:
            return
        try:
            self._write(found)
        except DependencyError as error:
            for each in found:
                log.warning("action_not_audited", deed=each.deed, author=each.author, error=str(error), **each.told)

    def _run(self, loop: Background) -> None:
        while not loop.stopped.wait(WRITE_EVERY_S):
            loop.turned()
            self.flush()
        self.flush()

    def _renew(self) -> None:
        """Another minute begins; what was left out of the last one is told in one entry."""
        if self._clock() < self._until:
            return
        self._noted.clear()
        self._until = self._clock() + WINDOW_S
        if self._left_out:
            self._waiting.append(Incident("not_noted", "control", self._now(), dict(self._left_out)))
            self._left_out.clear()

    def _write(self, found: list[Incident]) -> None:
        with self._database.transaction() as con:
            for each in found:
                note(con, SERVER, each.deed, each.author, each.at, each.told)
            for deed in {each.deed for each in found}:
                _forget_oldest(con, deed)


def _forget_oldest(con: Connection, deed: Deed) -> None:
    mine = (audit.c.pipeline == SERVER) & (audit.c.deed == deed)
    oldest = select(audit.c.id).where(mine).order_by(audit.c.id.desc()).offset(MOST_KEPT).limit(1)
    last = con.execute(oldest).scalar()
    if last is not None:
        con.execute(delete(audit).where(mine, audit.c.id <= last))
