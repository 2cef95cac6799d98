"""Bearer tokens with scopes: shown once when they are made, kept as salted digests, revoked by their id.

A token is ``vdk_ID_SECRET``. The secret is 256 random bits, so a plain salted SHA-256 is as good as a slow one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import RowMapping, insert, select, update

from services.control.database import Database
from services.control.tables import tokens
from shared.errors import DependencyError

Scope = Literal["read", "write", "admin"]

RANK: dict[Scope, int] = {"read": 1, "write": 2, "admin": 3}
"""Each scope may do what those below it may."""

PREFIX = "vdk"
KNOWN_FOR_S = 5.0
"""A revoked token is refused everywhere after that long at the latest."""


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


class Tokens:
    """The tokens of one registry. May be used from several threads; raises ``DependencyError`` while it can't be."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._known: dict[str, Token] = {}
        self._known_until = float("-inf")
        self._looked = False

    def create(self, name: str, scope: Scope, at: datetime, author: str | None = None) -> tuple[Token, str]:
        """A new token, and its text, which nobody can tell again."""
        id, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_hex(16)  # noqa: A001
        token = Token(id, name, scope, salt, _digest(salt, secret), author, at)
        with self._database.transaction() as con:
            con.execute(insert(tokens).values(**vars(token)))
        self._known_until = float("-inf")
        return token, f"{PREFIX}_{id}_{secret}"

    def revoke(self, id: str, at: datetime, author: str | None = None) -> bool:
        """Whether there was such a token that was not revoked before."""
        with self._database.transaction() as con:
            valid = (tokens.c.id == id) & tokens.c.revoked_at.is_(None)
            changed = con.execute(update(tokens).where(valid).values(revoked_at=at, revoked_by=author)).rowcount
        self._known_until = float("-inf")
        return changed == 1

    def all(self, limit: int | None = None, after: Token | None = None) -> list[Token]:
        """Revoked ones too, the oldest first: those behind ``after`` in that order."""
        found = select(tokens).order_by(tokens.c.created_at, tokens.c.id).limit(limit)
        if after is not None:
            same = (tokens.c.created_at == after.created_at) & (tokens.c.id > after.id)
            found = found.where((tokens.c.created_at > after.created_at) | same)
        with self._database.transaction() as con:
            return [_token(row) for row in con.execute(found).mappings()]

    def find(self, id: str) -> Token | None:
        """Also one that was revoked: none is ever forgotten."""
        with self._database.transaction() as con:
            row = con.execute(select(tokens).where(tokens.c.id == id)).mappings().first()
        return None if row is None else _token(row)

    @property
    def fresh(self) -> bool:
        """Whether what is known needs no look at the registry now."""
        return self._clock() < self._known_until

    def any_valid(self) -> bool:
        """Whether one can be used: then writes need one."""
        return bool(self._valid())

    def check(self, text: str) -> Token | None:
        """The token that ``text`` is; None for one that is none of ours, or was revoked."""
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")  # noqa: A001
        token = self._valid().get(id)
        if prefix != PREFIX or token is None:
            return None
        return token if hmac.compare_digest(_digest(token.salt, secret), token.digest) else None

    def _valid(self) -> dict[str, Token]:
        if not self.fresh:
            self._look()
        return self._known

    def _look(self) -> None:
        """While the registry is away, those that were valid are: else nobody could look at what is wrong."""
        try:
            self._known = {each.id: each for each in self.all() if each.revoked_at is None}
            self._looked = True
        except DependencyError:
            if not self._looked:
                raise
        self._known_until = self._clock() + KNOWN_FOR_S


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode()).hexdigest()


def _token(row: RowMapping) -> Token:
    return Token(**row)
