"""A registry that was lost is taken over from the topics once, and says what no topic could give back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.control.lifecycle import pause, remove
from services.control.rebuild import restore
from services.control.recall import NOT_KEPT, Memory
from services.control.registry import Registry
from shared.config.model import Config
from tests.fast.control.examples import PIPELINE, declared, progress, registered, revision
from tests.fast.control.files import config
from tests.fast.control.office import V1, Office
from tests.servers.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def registries(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Registry, Registry]]:
    """Those of two controls, on one database."""
    url = f"sqlite:///{tmp_path}/registry.sqlite"
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        server.create_database("rebuilt")
        url = server.uri("rebuilt").replace("postgresql://", "postgresql+psycopg://")
    with closing(Registry(make_url(url), PIPELINE)) as one, closing(Registry(make_url(url), PIPELINE)) as other:
        one.prepare()
        yield one, other
    if request.param == "postgres":
        server.drop_database("rebuilt")


def url_of(registry: Registry) -> str:
    return registry.database._engine.url.render_as_string(hide_password=False)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return config(tmp_path)


def memory(*ids: str) -> Memory:
    found = Memory(PIPELINE)
    for name in ids:
        found.note_destination(name, registered(name, declared=declared(name), managed_by="api").message(PIPELINE))
    return found


def test_what_was_changed_while_a_second_control_read_the_topics_stays(
    registries: tuple[Registry, Registry], settings: Config
) -> None:
    one, other = registries
    assert other.is_new()
    read = memory("a", "b", "late")
    restore(one, settings, memory("a", "b"))
    one.change(lambda held: [pause(held["a"], revision("2"))], revision("2"))
    before = one.destinations()

    restore(other, settings, read)
    assert one.destinations() == other.destinations() == before
    with closing(Office(settings.path.parent, url=url_of(other))) as office:
        deeds = [each["deed"] for each in office.http.get(f"{V1}/audit?destination=the pipeline").json()["items"]]
    assert deeds == ["rebuilt"]


def test_what_could_not_be_recovered_stands_in_the_trail(
    registries: tuple[Registry, Registry], settings: Config
) -> None:
    read = memory("a", "older")
    read.note_progress(progress(id="gone", generation=4))
    read.note_unreadable("broken")
    read.note_unreadable("older")
    read.note_unreadable("mended")
    read.note_destination("mended", remove(registered("mended"), revision("2")).message(PIPELINE))
    restore(registries[0], settings, read)
    with closing(Office(settings.path.parent, url=url_of(registries[0]))) as office:
        (entry,) = office.http.get(f"{V1}/audit?destination=the pipeline").json()["items"]
        rebuilt = office.desk.trail.rebuilt()
        assert office.http.get(V1).json()["rebuilt"] is None
        office.board.remember_rebuilt(rebuilt)
        shown = office.http.get(V1).json()["rebuilt"]
    assert (entry["author"], entry["version"]) == ("rebuild", 1)
    assert entry["changes"] == {
        "destinations": [None, 2], "unreadable": [None, ["broken", "older"]], "not_recovered": [None, NOT_KEPT]
    }  # fmt: skip
    assert shown == {**{name: now for name, (_, now) in entry["changes"].items()}, "at": entry["at"]}


def test_a_registry_that_nobody_lost_says_nothing(registries: tuple[Registry, Registry], settings: Config) -> None:
    restore(registries[0], settings, Memory(PIPELINE))
    assert registries[0].destinations() == {}
    with closing(Office(settings.path.parent, url=url_of(registries[0]))) as office:
        assert office.desk.trail.rebuilt() is None
