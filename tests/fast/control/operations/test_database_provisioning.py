"""Databases on Postgres for tenants that appear: made where the template says so, never taken from anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from shared.config.catalogs import ResolvedLake, resolve
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.fast.control.rig import V1, ControlRig, offered
from tests.servers.postgres import Postgres

DATABASES = ("appear_registry", "appear_acme", "appear_other", "appear_all", "appear_theirs")
WEAK, WORD = "appear_weak", "a word"

Open = Callable[..., ControlRig]


@pytest.fixture
def open_rig(postgres: Postgres, tmp_path: Path) -> Iterator[Open]:
    """Control with its registry on Postgres, and a template whose password is in a file."""
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:*:*:{postgres.user}:{postgres.password}\n*:*:*:{WEAK}:{WORD}\n")
    passwords.chmod(0o600)
    postgres.create_database("appear_registry")
    with ExitStack() as stack:
        stack.callback(clean, postgres)

        def make(
            catalog: str = "dbname=appear_{routing_value}", user: str = postgres.user, **template: Any
        ) -> ControlRig:
            where = f"host={postgres.host} port={postgres.port} user={user} passfile={passwords}"
            given = {"catalog": f"{where} {catalog}", "data_path": "data/{routing_value}/", "create_database": True,
                     **template}  # fmt: skip
            url = postgres.uri("appear_registry").replace("postgresql://", "postgresql+psycopg://")
            rig = ControlRig(tmp_path, url=url, sections={"template": given, "appear": {"policy": "create"}})
            stack.callback(rig.close)
            return rig

        yield make


def clean(postgres: Postgres) -> None:
    for name in DATABASES:
        postgres.drop_database(name)
    with closing(postgres.connect()) as con:
        con.execute(f"DROP ROLE IF EXISTS {WEAK}")


def databases(postgres: Postgres) -> dict[str, str | None]:
    """Ours, and what their comments say."""
    query = "SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database WHERE datname LIKE 'appear%'"
    with closing(postgres.connect()) as con:
        return {name: said for name, said in con.execute(query).fetchall() if name != "appear_registry"}


def seeded(rig: ControlRig, name: str) -> ResolvedLake:
    """The destination's lake, made as its first seed would make it."""
    published = rig.published(name)
    assert published is not None
    lake = resolve(published.lake, {}, rig.folder)
    with closing(connect()) as con:
        attach(con, "lake", lake, read_only=False, create=True)
        con.execute("CREATE TABLE lake.t (i INTEGER)")
    return lake


def test_each_tenant_gets_a_database_and_hostile_values_get_none(open_rig: Open, postgres: Postgres) -> None:
    rig = open_rig()
    hostile = ['x"; DROP DATABASE postgres; --', "nul\x00", "\u202eevil", "a b"]
    rig.offers([offered(value) for value in ["acme", *hostile]])
    assert set(rig.registry.destinations()) == {"acme"}
    assert databases(postgres) == {"appear_acme": "made by Viaduck for events/acme"}
    assert set(rig.proposals()) == set(hostile)
    seeded(rig, "acme")


def test_a_database_that_is_there_is_somebodys_until_an_operator_says_otherwise(
    open_rig: Open, postgres: Postgres
) -> None:
    postgres.create_database("appear_theirs")
    rig = open_rig()
    rig.offers([offered("theirs")])
    shown = rig.proposals()["theirs"]
    assert shown["reason"] == "failed"
    assert "the database appear_theirs exists" in shown["message"]
    assert rig.http.post(f"{V1}/proposals/{shown['id']}:accept").status_code == 201
    assert databases(postgres) == {"appear_theirs": None}


def test_what_an_interrupted_control_made_is_gone_on_with(open_rig: Open, postgres: Postgres) -> None:
    postgres.create_database("appear_other")
    with closing(postgres.connect()) as con:
        con.execute("COMMENT ON DATABASE appear_other IS 'made by Viaduck for events/other'")
    rig = open_rig()
    rig.offers([offered("other")])
    assert set(rig.registry.destinations()) == {"other"}


def test_a_role_that_may_not_make_databases_is_told_what_it_lacks(open_rig: Open, postgres: Postgres) -> None:
    with closing(postgres.connect()) as con:
        con.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(WEAK), sql.Literal(WORD)))
    rig = open_rig(user=WEAK)
    rig.offers([offered("acme")])
    shown = rig.proposals()["acme"]
    assert shown["reason"] == "failed"
    assert "CREATEDB" in shown["message"]
    assert WORD not in shown["message"]
    refused = rig.http.post(f"{V1}/proposals/{shown['id']}:accept")
    assert refused.status_code == 422
    assert "CREATEDB" in refused.json()["hint"]
    assert databases(postgres) == {}


def test_one_database_for_all_is_made_once_and_each_lake_has_a_schema_of_its_own(
    open_rig: Open, postgres: Postgres
) -> None:
    rig = open_rig("dbname=appear_all", metadata_schema="tenant_{routing_value}")
    rig.offers([offered("acme"), offered("other")])
    assert set(rig.registry.destinations()) == {"acme", "other"}
    lakes = [seeded(rig, name) for name in ("acme", "other")]
    assert len({lake.identity for lake in lakes}) == 2
    with closing(postgres.connect("appear_all")) as con:
        found = con.execute("SELECT table_schema FROM information_schema.tables WHERE table_name = 'ducklake_snapshot'")
        assert {row[0] for row in found.fetchall()} == {"tenant_acme", "tenant_other"}
