"""Tokens: what opens a door, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from services.control.operations import token_command
from services.control.store.audit_log import SERVER, AuditLog
from services.control.store.database import Database
from services.control.store.tables import NAME
from services.control.store.tokens import Scope, Tokens
from shared.contracts.errors import ConfigError, DependencyError
from tests.fast.control.examples import at
from tests.fast.control.files import config
from tests.fast.control.fresh_registry import fresh
from tests.fast.waiting import eventually


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(fresh(tmp_path / "registry.sqlite"))) as database:
        database.prepare()
        yield database


@pytest.fixture
def tokens(database: Database) -> Tokens:
    tokens = Tokens(database)
    tokens.refresh()
    return tokens


def test_a_token_opens_with_its_own_text_alone(tokens: Tokens) -> None:
    token, said = tokens.create("deploy", "write", at(0), "olga")
    other, other_said = tokens.create("other", "read", at(1))
    assert tokens.check(said) == token
    assert tokens.check(other_said) == other
    swapped = said.replace(token.id, other.id)
    for wrong in ("", "vdk", "vdk__", said[:-1], said + "x", said.upper(), swapped, said.replace("vdk", "xyz"), "ü"):
        assert tokens.check(wrong) is None


def test_nothing_that_is_kept_tells_the_token(database: Database) -> None:
    _, said = Tokens(database).create("deploy", "write", at(0))
    with database.transaction() as con:
        kept = str(con.execute(text("SELECT * FROM tokens")).all())
    assert said.split("_", 2)[2] not in kept


def test_the_same_secret_has_another_digest_under_another_salt(database: Database) -> None:
    tokens = Tokens(database)
    one, _ = tokens.create("a", "read", at(0))
    two, _ = tokens.create("b", "read", at(0))
    assert one.salt != two.salt


def test_a_revoked_token_opens_nothing(tokens: Tokens) -> None:
    token, said = tokens.create("deploy", "write", at(0))
    assert tokens.any_valid()
    assert tokens.revoke(token.id, at(5), "olga")
    assert not tokens.revoke(token.id, at(6), "hugo")
    assert tokens.check(said) is None
    assert not tokens.any_valid()
    assert [(each.revoked_at, each.revoked_by) for each in tokens.all()] == [(at(5), "olga")]


def test_what_another_control_revoked_is_refused_soon(
    database: Database, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.control.store.tokens.LOOK_EVERY_S", 0.01)
    there = Tokens(database)
    with ExitStack() as stack:
        stack.callback(tokens.stop, 1.0)
        tokens.start()
        token, said = there.create("deploy", "write", at(0))
        eventually(lambda: tokens.check(said) == token)
        there.revoke(token.id, at(5))
        eventually(lambda: tokens.check(said) is None)


def test_a_token_stays_valid_while_the_registry_is_away(
    database: Database, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.control.store.tokens.LOOK_EVERY_S", 0.01)
    token, said = tokens.create("deploy", "write", at(0))
    with ExitStack() as stack, capture_logs() as logs:
        stack.callback(tokens.stop, 1.0)
        with database.transaction() as con:
            con.execute(text("DROP TABLE tokens"))
        tokens.start()
        eventually(lambda: any(each["event"] == "tokens_delayed" for each in logs))
        assert tokens.check(said) == token


def test_nothing_is_open_before_the_registry_has_answered_once(database: Database) -> None:
    """Otherwise a control without an answer would take itself for one without tokens."""
    tokens = Tokens(database)
    token, said = tokens.create("deploy", "write", at(0))
    for ask in (tokens.any_valid, lambda: tokens.check(said)):
        with pytest.raises(DependencyError):
            ask()
    tokens.refresh()
    assert tokens.check(said) == token


def test_a_token_from_the_command_line_may_be_for_some_pipelines_and_says_who_made_it(tmp_path: Path) -> None:
    file = config(tmp_path, [])
    made = token_command.create(file, "deploy", "drop", ["events"])
    assert (made["scope"], made["pipelines"]) == ("drop", ["events"])
    assert made["author"].startswith("user ")
    with closing(Database.open(file)) as opened:
        tokens = Tokens(opened)
        tokens.refresh()
        kept = tokens.check(made["token"])
        assert kept is not None
        assert kept.pipelines == frozenset({"events"})
        assert [(each.deed, each.author) for each in AuditLog(opened, SERVER).entries(10)] == [
            ("token_created", made["author"])
        ]


@pytest.mark.parametrize(
    ("name", "scope", "pipelines"),
    [("operator", "read", None), ("x\n", "read", None), ("x" * 201, "read", None), ("x", "admin", ["events"]),
     ("x", "read", [])],
)  # fmt: skip
def test_the_command_line_makes_no_token_that_rest_would_not(
    tmp_path: Path, name: str, scope: Scope, pipelines: list[str] | None
) -> None:
    with pytest.raises(ConfigError):
        token_command.create(config(tmp_path, []), name, scope, pipelines)


def test_the_longest_name_fits_into_the_trail(database: Database) -> None:
    token, _ = Tokens(database).create("x" * 200, "admin", at(0))
    assert len(token.author_name) <= NAME
