"""What control remembers, on SQLite and on Postgres."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import make_url

from services.control.model.lifecycle import Registered, declare, pause, remove, reseed
from services.control.model.reconciliation import reconcile
from services.control.store.audit_log import AuditLog
from services.control.store.database import Database, registry_url
from services.control.store.migration import HEAD, scripts
from services.control.store.registry import DestinationRegistry
from services.control.store.tables import metadata
from services.control.store.tokens import Tokens
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError
from shared.contracts.messages import DesiredState, LakeRef, SeedMode
from shared.contracts.routed_by import RoutedBy
from tests.fast.control.examples import PIPELINE, by_id, declared, registered, revision


@pytest.fixture
def registry(database_url: str) -> Iterator[DestinationRegistry]:
    with opened(database_url) as registry:
        yield registry


@contextmanager
def opened(database_url: str, pipeline: str = PIPELINE, busy_timeout_s: float = 10.0) -> Iterator[DestinationRegistry]:
    with closing(DestinationRegistry(make_url(database_url), pipeline, busy_timeout_s)) as registry:
        registry.prepare()
        yield registry


def write(registry: DestinationRegistry, *each: Registered) -> Mapping[str, Registered]:
    return registry.change(lambda _: each, revision())


EVERYTHING = registered(
    "all:of+it@once",
    declared=declared(
        "all:of+it@once",
        routing_value='it\'s "quoted", ünïcode 🦆\nand long',
        lake=LakeRef(
            postgres_uri_env="LAKE",
            metadata_schema="m",
            data_path="s3://bucket/data",
            properties={"s3_region": "eu", "s3_secret_access_key_env": "KEY"},
        ),
        identity=None,
        seed_mode=SeedMode.REPLAY,
        name="a catalog",
    ),
    generation=2**40,
    revision=replace(revision("with a name", 12.345678), author="somebody"),
    managed_by="api",
    desired=DesiredState.PAUSED,
    replace=True,
    removing=True,
    seed_at=2**40,
    seed_from='{"0":1099511627776}',
)


def test_everything_comes_back_as_it_was_written(registry: DestinationRegistry) -> None:
    gone = remove(registered("gone", declared=declared("gone")), revision("2"))
    written = write(registry, EVERYTHING, registered(), gone)
    assert registry.destinations() == written
    assert written == by_id(replace(each, version=1) for each in [EVERYTHING, registered(), gone])


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize("field", ["company", "equal: x", "appended: x", "größe \u2028"])
def test_it_survives_a_restart(database_url: str, field: str, append_only: bool) -> None:
    by = RoutedBy(field=field, append_only=append_only)
    with opened(database_url) as first:
        write(first, registered(generation=3, declared=replace(declared(), routed_by=by)))
    with opened(database_url) as again:
        assert again.destinations()["a"].generation == 3
        assert again.destinations()["a"].declared.routed_by == by


def test_pipelines_that_share_a_database_do_not_see_each_other(
    database_url: str, registry: DestinationRegistry
) -> None:
    with opened(database_url, "another") as other:
        write(registry, registered(generation=3))
        write(other, registered(generation=5))
        assert registry.destinations()["a"].generation == 3
        assert other.destinations()["a"].generation == 5


def test_what_a_decision_raises_undoes_everything(registry: DestinationRegistry) -> None:
    write(registry, registered("z", declared=declared("z"), managed_by="api"))

    with pytest.raises(ConfigError):
        registry.change(lambda held: reconcile(held, [declared("z", table="another")], revision("2")), revision("2"))
    assert registry.destinations().keys() == {"z"}


def test_changes_from_several_threads_are_made_one_after_the_other(
    database_url: str, registry: DestinationRegistry
) -> None:
    """A generation that two changes count from the same number would let an older life's items through."""
    write(registry, registered())

    def count() -> None:
        with opened(database_url) as own:
            for _ in range(5):
                own.change(lambda held: [reseed(held["a"], revision())], revision())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.destinations()["a"].generation == 21


def test_a_database_that_can_not_be_used_is_named_without_its_password() -> None:
    with pytest.raises(DependencyError) as caught, opened("postgresql+psycopg://somebody:s3cret@127.0.0.1:1/registry"):
        pass
    assert "registry" in str(caught.value)
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_file_that_is_no_database_is_a_dependency_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").write_text("this is not a database, " * 100)
    with pytest.raises(DependencyError, match="not a database"), opened(f"sqlite:///{tmp_path}/registry.sqlite"):
        pass


def test_a_lock_that_is_held_by_somebody_else_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/registry.sqlite", busy_timeout_s=0.1) as registry:
        with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert "locked" in str(registry.problem())
        assert registry.problem() is None


def config(tmp_path: Path, **registry: str) -> Config:
    return Config.model_validate(
        {
            "path": tmp_path / "viaduck.yaml",
            "pipeline": PIPELINE,
            "source": {"catalog": "sqlite:/s", "table": "events"},
            "routing": {"field": "company"},
            "registry": registry,
            "state_dir": tmp_path / "state",
        }
    )


def test_without_a_url_it_is_a_file_in_the_state_folder(tmp_path: Path) -> None:
    url = registry_url(config(tmp_path), {})
    assert url.get_backend_name() == "sqlite"
    assert url.database == str(tmp_path / "state" / "registry.sqlite")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_postgres_url_gets_the_driver_that_we_bring(tmp_path: Path, scheme: str) -> None:
    url = registry_url(config(tmp_path, url_env="REGISTRY"), {"REGISTRY": f"{scheme}://u:p@h/d"})
    assert url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize("written", ["s3cret", "nonsense://u:s3cret@h/d", "mysql+nodriver://u:s3cret@h/d"])
def test_a_url_that_is_none_is_a_mistake_in_the_file_and_is_not_shown(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match=r"^registry\.url: ") as caught:
        registry_url(config(tmp_path, url=written), {})
    assert "s3cret" not in str(caught.value)


def test_a_variable_that_is_not_set_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="REGISTRY_URL is not set"):
        registry_url(config(tmp_path, url_env="REGISTRY_URL"), {})


def test_every_change_has_a_version_of_its_own_and_what_did_not_change_keeps_its(registry: DestinationRegistry) -> None:
    write(registry, registered("a"), registered("b"))
    after = write(registry, registered("b", generation=2))
    assert {each.id: each.version for each in after.values()} == {"a": 1, "b": 2}


def test_what_another_control_writes_is_found_without_reading_everything_again(
    database_url: str, registry: DestinationRegistry
) -> None:
    before = write(registry, registered("a"), registered("b"))
    with opened(database_url) as other:
        write(other, registered("b", generation=2))
    after = registry.destinations()
    assert after["a"] is before["a"]
    assert (after["b"].generation, after["b"].version) == (2, 2)


def test_a_decision_sees_what_another_control_wrote_before(database_url: str, registry: DestinationRegistry) -> None:
    write(registry, registered())
    with opened(database_url) as other:
        other.change(lambda held: [reseed(held["a"], revision("2"))], revision("2"))
    assert registry.change(lambda held: [reseed(held["a"], revision("3"))], revision("3"))["a"].generation == 3


def test_a_change_that_was_undone_leaves_no_version_and_no_trace(registry: DestinationRegistry) -> None:
    write(registry, registered())

    def fail(_: Mapping[str, Registered]) -> list[Registered]:
        raise LookupError

    with pytest.raises(LookupError):
        registry.change(fail, revision("2"))
    assert registry.destinations()["a"].version == 1
    assert len(AuditLog(registry.database, PIPELINE).entries(10)) == 1


def test_the_trail_tells_who_did_what_the_newest_first(registry: DestinationRegistry) -> None:
    write(registry, registered())
    paused = replace(revision("2", 5), author="olga")
    registry.change(lambda held: [pause(held["a"], paused)], paused)
    write(registry, registered("b", declared=declared("b")))
    trail = AuditLog(registry.database, PIPELINE)
    entries = trail.entries(10)
    assert [(each.destination, each.deed, each.version, each.author) for each in entries] == [
        ("b", "added", 3, None),
        ("a", "paused", 2, "olga"),
        ("a", "added", 1, None),
    ]
    assert entries[1].changes == {"state": ["running", "paused"]}
    assert [each.id for each in trail.entries(10, before=entries[0].id, destination="a")] == [e.id for e in entries[1:]]


def test_migrations_make_the_tables_that_the_code_knows(database_url: str, registry: DestinationRegistry) -> None:
    with registry.database.transaction() as con:
        assert compare_metadata(MigrationContext.configure(con), metadata) == []
        assert ScriptDirectory.from_config(scripts(con)).get_heads() == [HEAD]


def test_tokens_of_the_revision_before_stay_valid_and_nobody_is_said_to_have_revoked_them(database_url: str) -> None:
    with closing(Database(make_url(database_url))) as database:
        with database.transaction() as con:
            command.upgrade(scripts(con), "0004")
            for id, revoked in (("one", "NULL"), ("other", "'2026-01-02T00:00:00.000000+00:00'")):  # noqa: A001
                con.execute(text(f"INSERT INTO tokens VALUES ('{id}', 'deploy', 'write', 's', 'd', 'olga',"
                                 f" '2026-01-01T00:00:00.000000+00:00', {revoked})"))  # fmt: skip
        database.prepare()
        tokens = Tokens(database)
        assert [(each.id, each.author, each.revoked_by) for each in tokens.all()] == [
            ("one", "olga", None), ("other", "olga", None)
        ]  # fmt: skip
        assert tokens.revoke("one", revision().at, "hugo")
        assert [each.revoked_by for each in tokens.all()] == ["hugo", None]
        with database.transaction() as con:
            assert compare_metadata(MigrationContext.configure(con), metadata) == []


def test_a_registry_from_before_there_were_migrations_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "registry.sqlite"
    with closing(sqlite3.connect(file)) as old:
        old.executescript(BEFORE_MIGRATIONS)
    with opened(f"sqlite:///{file}") as registry:
        assert registry.destinations()["a"].generation == 7
        assert write(registry, registered("b"))["b"].version == 1


BEFORE_MIGRATIONS = """
CREATE TABLE pipelines (name VARCHAR(200) PRIMARY KEY, created_at VARCHAR(32) NOT NULL);
CREATE TABLE destinations (pipeline VARCHAR(200) REFERENCES pipelines (name), id VARCHAR(200), spec TEXT NOT NULL,
    routing_value TEXT NOT NULL, generation BIGINT NOT NULL, desired VARCHAR(16) NOT NULL, replace BOOLEAN NOT NULL,
    managed_by VARCHAR(8) NOT NULL, author VARCHAR(200), revision VARCHAR(64) NOT NULL, removed BOOLEAN NOT NULL,
    created_at VARCHAR(32) NOT NULL, updated_at VARCHAR(32) NOT NULL, PRIMARY KEY (pipeline, id));
CREATE INDEX destinations_by_routing_value ON destinations (pipeline, routing_value);
INSERT INTO pipelines VALUES ('events', '2026-01-01T00:00:00.000000+00:00');
INSERT INTO destinations VALUES ('events', 'a', '{"lake": {"catalog": "sqlite:/a"}, "identity": null,
    "schema_name": "main", "table": "events", "seed_mode": "scan", "slice_of": "equal: company", "name": ""}', 'x', 7,
    'running', false, 'file', NULL, 'r', false, '2026-01-01T00:00:00.000000+00:00', '2026-01-01T00:00:00.000000+00:00');
"""


def test_the_registry_of_a_newer_control_is_left_alone(database_url: str, registry: DestinationRegistry) -> None:
    with registry.database.transaction() as con:
        con.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DependencyError, match="revision 9999"), opened(database_url):
        pass


def test_a_new_destination_is_written_once(registry: DestinationRegistry) -> None:
    first = write(registry, declare(None, declared(), "file", revision()))
    assert registry.change(lambda held: reconcile(held, [declared()], revision("2")), revision("2")) == first
