"""What ``viaduck token -c FILE`` does, straight in the registry."""

from __future__ import annotations

import getpass
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from services.control.database import Database, registry_url
from services.control.tokens import Scope, Token, Tokens
from shared.config.model import Config
from shared.errors import ConfigError


def create(config: Config, name: str, scope: Scope) -> dict[str, Any]:
    """The new token as the REST interface shows it, its text included."""
    with closing(_database(config)) as database:
        token, text = Tokens(database).create(name, scope, datetime.now(UTC), getpass.getuser())
    return {**shown(token), "token": text}


def tokens(config: Config) -> list[dict[str, Any]]:
    with closing(_database(config)) as database:
        return [shown(each) for each in Tokens(database).all()]


def revoke(config: Config, id: str) -> None:
    """Raises ``ConfigError`` where there is no such token."""
    with closing(_database(config)) as database:
        if not Tokens(database).revoke(id, datetime.now(UTC), getpass.getuser()):
            raise ConfigError([f"{id}: there is no such token that is still valid; see `viaduck token list`"])


def shown(token: Token) -> dict[str, Any]:
    """A token without what only the registry may know."""
    times = {"created_at": token.created_at, "revoked_at": token.revoked_at}
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "author": token.author,
        "revoked_by": token.revoked_by,
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _database(config: Config) -> Database:
    database = Database(registry_url(config))
    database.prepare()
    return database
