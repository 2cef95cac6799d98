"""Bearer tokens with scopes: shown once when they are made, kept as salted digests, revoked by their id.

A token is ``vdk_ID_SECRET``. The secret is 256 random bits, so a plain salted SHA-256 is as good as a slow one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import structlog
from sqlalchemy import RowMapping, insert, select, update

from services.control.store.audit_log import SERVER, note
from services.control.store.database import HINT, Database
from services.control.store.tables import NAME, tokens
from shared.contracts.errors import DependencyError
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

Scope = Literal["read", "write", "drop", "admin"]

RANK: dict[Scope, int] = {"read": 1, "write": 2, "drop": 3, "admin": 4}
"""Each scope may do what those below it may. ``drop``: take a destination's table away, which nothing brings back."""

RESERVED = frozenset({"anonymous", "api", "control", "file", "loopback", "operator", "policy", "rebuild", "viaduck"})
"""Who else stands in the audit trail."""

PREFIX = "vdk"
SHOWN_NAME = 150
MOST_PIPELINES = 100
LOOK_EVERY_S = 2.0
"""A token that another control has revoked is refused after this and the time of a query."""


@dataclass(frozen=True)
class Token:
    """A token as it is kept; ``salt`` and ``digest`` are never shown."""

    id: str
    name: str
    scope: Scope
    salt: str
    digest: str
    author: str | None
    created_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    pipelines: frozenset[str] | None = None
    """Those that it is for; None for all."""

    @property
    def author_name(self) -> str:
        """The author in the audit trail: kind and id, because a name can be chosen freely."""
        return f"token {self.name[:SHOWN_NAME]} ({self.id})"


class Tokens(Threaded):
    """The tokens of one registry. May be used from several threads; raises ``DependencyError`` while it can't be.

    ``check`` and ``any_valid`` answer from memory, which a thread keeps up to date: a registry that is silent delays no
    request. While it is unavailable the last known tokens stay valid; otherwise no user could diagnose it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        """Held while the registry is asked, so that an older answer does not replace a newer one."""
        self._valid: Mapping[str, Token] | None = None
        self._loop = Background("tokens", self._run)

    def refresh(self) -> None:
        """Ask the registry which tokens are valid now."""
        with self._lock:
            self._valid = {each.id: each for each in self.all() if each.revoked_at is None}

    def create(
        self,
        name: str,
        scope: Scope,
        at: datetime,
        author: str | None = None,
        pipelines: Collection[str] | None = None,
    ) -> tuple[Token, str]:
        """A new token and its text, which is not stored."""
        token_id, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_hex(16)
        only = None if pipelines is None else frozenset(pipelines)
        token = Token(token_id, name, scope, salt, _digest(salt, secret), author, at, pipelines=only)
        kept = None if only is None else json.dumps(sorted(only))
        with self._lock:
            with self._database.transaction() as con:
                con.execute(insert(tokens).values(**{**vars(token), "pipelines": kept}))
                told = {"token": token_id, "name": name, "scope": scope, "pipelines": kept}
                note(con, SERVER, "token_created", author, at, told)
            if self._valid is not None:
                self._valid = {**self._valid, token_id: token}
        return token, f"{PREFIX}_{token_id}_{secret}"

    def revoke(self, token_id: str, at: datetime, author: str | None = None) -> bool:
        """Whether there was such a token that was not revoked before."""
        with self._lock:
            with self._database.transaction() as con:
                valid = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
                changed = con.execute(update(tokens).where(valid).values(revoked_at=at, revoked_by=author)).rowcount
                if changed == 1:
                    note(con, SERVER, "token_revoked", author, at, {"token": token_id})
            if self._valid is not None:
                self._valid = {other: each for other, each in self._valid.items() if other != token_id}
        return changed == 1

    def all(self, limit: int | None = None, after: Token | None = None) -> list[Token]:
        """Revoked ones too, the oldest first: those behind ``after`` in that order."""
        found = select(tokens).order_by(tokens.c.created_at, tokens.c.id).limit(limit)
        if after is not None:
            same = (tokens.c.created_at == after.created_at) & (tokens.c.id > after.id)
            found = found.where((tokens.c.created_at > after.created_at) | same)
        with self._database.transaction() as con:
            return [_token(row) for row in con.execute(found).mappings()]

    def find(self, token_id: str) -> Token | None:
        """A token, revoked or not: tokens are never deleted."""
        with self._database.transaction() as con:
            row = con.execute(select(tokens).where(tokens.c.id == token_id)).mappings().first()
        return None if row is None else _token(row)

    def any_valid(self) -> bool:
        """Whether one can be used: then writes need one."""
        return bool(self._known())

    def check(self, text: str) -> Token | None:
        """The token with this text; None for an unknown or revoked token."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._known().get(token_id)
        if prefix != PREFIX or token is None:
            return None
        return token if hmac.compare_digest(_digest(token.salt, secret), token.digest) else None

    def _known(self) -> Mapping[str, Token]:
        known = self._valid
        if known is None:
            raise DependencyError("registry", "has not answered since control started", HINT)
        return known

    def _run(self, loop: Background) -> None:
        waits = False
        while not loop.stopped.wait(LOOK_EVERY_S):
            loop.turned()
            try:
                self.refresh()
            except DependencyError as error:
                if not waits:
                    log.warning("tokens_delayed", error=str(error), hint=error.hint)
                waits = True
            else:
                waits = False


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode()).hexdigest()


def _token(row: RowMapping) -> Token:
    only = row["pipelines"]
    return Token(**{**row, "pipelines": None if only is None else frozenset(json.loads(only))})


def fit(name: str, scope: Scope, pipelines: Collection[str] | None) -> None:
    """Raises ``ValueError`` for what no token can be."""
    if not 1 <= len(name) <= NAME or not name.isprintable():
        raise ValueError(f"a token's name has 1 to {NAME} characters that can be seen")
    if name.casefold() in RESERVED:
        raise ValueError(f"{name} is reserved for another author in the audit trail; choose another name")
    if pipelines is not None and not 1 <= len(pipelines) <= MOST_PIPELINES:
        raise ValueError(f"a token is for all pipelines, or for 1 to {MOST_PIPELINES} that are named")
    if pipelines is not None and scope == "admin":
        raise ValueError("the scope admin is for the whole deployment; a token for some pipelines has another")
