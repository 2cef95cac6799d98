"""Tokens: what opens a door, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from services.control.operations import token_command
from services.control.store.audit_log import SERVER, AuditLog
from services.control.store.database import Database
from services.control.store.tables import NAME
from services.control.store.tokens import KNOWN_FOR_S, Scope, Tokens
from shared.contracts.errors import ConfigError
from tests.fast.control.examples import at
from tests.fast.control.files import config


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(make_url(f"sqlite:///{tmp_path}/registry.sqlite"))) as database:
        database.prepare()
        yield database


def test_a_token_opens_with_its_own_text_alone(database: Database) -> None:
    tokens = Tokens(database)
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


def test_a_revoked_token_opens_nothing(database: Database) -> None:
    tokens = Tokens(database)
    token, said = tokens.create("deploy", "write", at(0))
    assert tokens.any_valid()
    assert tokens.revoke(token.id, at(5), "olga")
    assert not tokens.revoke(token.id, at(6), "hugo")
    assert tokens.check(said) is None
    assert not tokens.any_valid()
    assert [(each.revoked_at, each.revoked_by) for each in tokens.all()] == [(at(5), "olga")]


def test_what_another_control_revoked_is_refused_soon(database: Database) -> None:
    now = [0.0]
    here, there = Tokens(database, lambda: now[0]), Tokens(database)
    token, said = there.create("deploy", "write", at(0))
    assert here.check(said) == token
    there.revoke(token.id, at(5))
    now[0] += KNOWN_FOR_S
    assert here.check(said) is None


def test_a_token_from_the_command_line_may_be_for_some_pipelines_and_says_who_made_it(tmp_path: Path) -> None:
    file = config(tmp_path, [])
    made = token_command.create(file, "deploy", "drop", ["events"])
    assert (made["scope"], made["pipelines"]) == ("drop", ["events"])
    assert made["author"].startswith("user ")
    with closing(Database.open(file)) as opened:
        kept = Tokens(opened).check(made["token"])
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
