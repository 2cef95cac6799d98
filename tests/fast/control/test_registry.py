"""What control remembers, on SQLite and on Postgres."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.control.lifecycle import Registered, declare, reconcile, remove, reseed
from services.control.registry import Registry, registry_url
from shared.config.model import Config
from shared.errors import ConfigError, DependencyError
from shared.messages import DesiredState, LakeRef, SeedMode
from tests.fast.control.examples import PIPELINE, by_id, declared, registered, revision
from tests.servers.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/deeper/registry.sqlite"
        return
    server: Postgres = request.getfixturevalue("postgres")
    server.create_database("registry")
    yield server.uri("registry").replace("postgresql://", "postgresql+psycopg://")
    server.drop_database("registry")


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with opened(url) as registry:
        yield registry


@contextmanager
def opened(url: str, pipeline: str = PIPELINE, busy_timeout_s: float = 10.0) -> Iterator[Registry]:
    with closing(Registry(make_url(url), pipeline, busy_timeout_s)) as registry:
        registry.prepare()
        yield registry


def write(registry: Registry, *each: Registered) -> dict[str, Registered]:
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
    revision=revision("with a name", 12.345678),
    managed_by="api",
    desired=DesiredState.PAUSED,
    replace=True,
    author="somebody",
)


def test_everything_comes_back_as_it_was_written(registry: Registry) -> None:
    gone = remove(registered("gone", declared=declared("gone")), revision("2"))
    written = write(registry, EVERYTHING, registered(), gone)
    assert registry.destinations() == written == by_id([EVERYTHING, registered(), gone])


def test_it_survives_a_restart(url: str) -> None:
    with opened(url) as first:
        write(first, registered(generation=3))
    with opened(url) as again:
        assert again.destinations()["a"].generation == 3


def test_pipelines_that_share_a_database_do_not_see_each_other(url: str, registry: Registry) -> None:
    with opened(url, "another") as other:
        write(registry, registered(generation=3))
        write(other, registered(generation=5))
        assert registry.destinations()["a"].generation == 3
        assert other.destinations()["a"].generation == 5


def test_what_a_decision_raises_undoes_everything(registry: Registry) -> None:
    write(registry, registered("z", declared=declared("z"), managed_by="api"))

    with pytest.raises(ConfigError):
        registry.change(lambda held: reconcile(held, [declared("z", table="another")], revision("2")), revision("2"))
    assert registry.destinations().keys() == {"z"}


def test_changes_from_several_threads_are_made_one_after_the_other(url: str, registry: Registry) -> None:
    """A generation that two changes count from the same number would let an older life's items through."""
    write(registry, registered())

    def count() -> None:
        with opened(url) as own:
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


def test_a_new_destination_is_written_once(registry: Registry) -> None:
    first = write(registry, declare(None, declared(), "file", revision()))
    assert registry.change(lambda held: reconcile(held, [declared()], revision("2")), revision("2")) == first
