"""What ``viaduck token -c FILE`` does, straight in the registry."""

from __future__ import annotations

import getpass
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from services.control.store.database import Database, registry_url
from services.control.store.tokens import Scope, Token, Tokens, fit
from shared.config.model import Config
from shared.contracts.errors import ConfigError


def create(config: Config, name: str, scope: Scope, pipelines: Collection[str] | None = None) -> dict[str, Any]:
    """The new token as the REST interface shows it, its text included. Raises ``ConfigError`` for invalid arguments."""
    try:
        fit(name, scope, pipelines)
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    with closing(_database(config)) as database:
        token, text = Tokens(database).create(name, scope, datetime.now(UTC), _author(), pipelines)
    return {**shown(token), "token": text}


def tokens(config: Config) -> list[dict[str, Any]]:
    with closing(_database(config)) as database:
        return [shown(each) for each in Tokens(database).all()]


def revoke(config: Config, token_id: str) -> None:
    """Raises ``ConfigError`` where there is no such token."""
    with closing(_database(config)) as database:
        if not Tokens(database).revoke(token_id, datetime.now(UTC), _author()):
            raise ConfigError([f"{token_id}: there is no such token that is still valid; see `viaduck token list`"])


def _author() -> str:
    return f"user {getpass.getuser()}"


def shown(token: Token) -> dict[str, Any]:
    """A token without what only the registry may know."""
    times = {"created_at": token.created_at, "revoked_at": token.revoked_at}
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope,
        "pipelines": None if token.pipelines is None else sorted(token.pipelines),
        "author": token.author,
        "revoked_by": token.revoked_by,
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _database(config: Config) -> Database:
    database = Database(registry_url(config))
    database.prepare()
    return database
