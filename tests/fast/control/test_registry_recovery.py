"""A registry that was lost is taken over from the topics once, and says what no topic could give back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.control.model.lifecycle import pause, remove, reseed
from services.control.model.recovery import NOT_KEPT, RememberedPipeline
from services.control.registry_recovery import catch_up, note_record, restore
from services.control.store.registry import DestinationRegistry
from shared.config.model import Config
from shared.kafka.record import Record
from shared.kafka.topics import Topics
from tests.fast.control.examples import PIPELINE, declared, progress, registered, revision
from tests.fast.control.files import config
from tests.fast.control.rig import V1, ControlRig


@pytest.fixture
def registries(database_url: str) -> Iterator[tuple[DestinationRegistry, DestinationRegistry]]:
    """Those of two controls, on one database."""
    url = make_url(database_url)
    with closing(DestinationRegistry(url, PIPELINE)) as one, closing(DestinationRegistry(url, PIPELINE)) as other:
        one.prepare()
        yield one, other


def url_of(registry: DestinationRegistry) -> str:
    return registry.database._engine.url.render_as_string(hide_password=False)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return config(tmp_path)


def memory(*ids: str) -> RememberedPipeline:
    found = RememberedPipeline(PIPELINE)
    for name in ids:
        found.note_destination(registered(name, declared=declared(name), managed_by="api").message(PIPELINE))
    return found


def test_what_was_changed_while_a_second_control_read_the_topics_stays(
    registries: tuple[DestinationRegistry, DestinationRegistry], settings: Config
) -> None:
    one, other = registries
    assert other.is_new()
    read = memory("a", "b", "late")
    restore(one, settings, memory("a", "b"))
    one.change(lambda held: [pause(held["a"], revision("2"))], revision("2"))
    before = one.destinations()

    restore(other, settings, read)
    assert one.destinations() == other.destinations() == before
    with closing(ControlRig(settings.path.parent, url=url_of(other))) as rig:
        deeds = [each["deed"] for each in rig.http.get(f"{V1}/audit?destination=the pipeline").json()["items"]]
    assert deeds == ["rebuilt"]


def test_what_could_not_be_recovered_stands_in_the_trail(
    registries: tuple[DestinationRegistry, DestinationRegistry], settings: Config
) -> None:
    read = memory("a", "older")
    read.note_progress(progress(id="gone", generation=4))
    read.note_unreadable("broken")
    read.note_unreadable("older")
    read.note_unreadable("mended")
    read.note_destination(remove(registered("mended"), revision("2")).message(PIPELINE))
    restore(registries[0], settings, read)
    with closing(ControlRig(settings.path.parent, url=url_of(registries[0]))) as rig:
        (entry,) = rig.http.get(f"{V1}/audit?destination=the pipeline").json()["items"]
        rebuilt = rig.service.audit_log.rebuilt()
        assert rig.http.get(V1).json()["rebuilt"] is None
        rig.status_store.remember_rebuilt(rebuilt)
        shown = rig.http.get(V1).json()["rebuilt"]
    assert (entry["author"], entry["version"]) == ("rebuild", 1)
    assert entry["changes"] == {
        "destinations": [None, 2], "unreadable": [None, ["broken", "older"]], "not_recovered": [None, NOT_KEPT]
    }  # fmt: skip
    assert shown == {**{name: now for name, (_, now) in entry["changes"].items()}, "at": entry["at"]}


def test_a_message_under_another_key_is_recovered_as_little_as_the_services_follow_it() -> None:
    read, topics = RememberedPipeline(PIPELINE), Topics()
    foreign = registered("a", declared=declared("a")).message("another")
    note_record(read, topics, Record(topics.destinations, 0, 0, f"{PIPELINE}/a", foreign.to_bytes()))
    assert (read.wanted, read.unreadable) == ({}, {"a"})


def test_a_registry_that_nobody_lost_says_nothing(
    registries: tuple[DestinationRegistry, DestinationRegistry], settings: Config
) -> None:
    restore(registries[0], settings, RememberedPipeline(PIPELINE))
    assert registries[0].destinations() == {}
    with closing(ControlRig(settings.path.parent, url=url_of(registries[0]))) as rig:
        assert rig.service.audit_log.rebuilt() is None


class TestAnOlderCopy:
    """A registry is restored from a backup: what was published since is not lost, and it is believed again."""

    def copied(self, folder: Path) -> tuple[DestinationRegistry, DestinationRegistry]:
        """A registry with what happened since it was copied, and the copy."""
        file, copy = folder / "registry.sqlite", folder / "copy.sqlite"
        with closing(DestinationRegistry(make_url(f"sqlite:///{file}"), PIPELINE)) as before:
            before.prepare()
            there = [registered(each, declared=declared(each), managed_by="api") for each in ("a", "b", "c")]
            before.change(lambda _: there, revision("1"))
            before.change(lambda held: [pause(held["c"], revision("2"))], revision("2"))
        shutil.copy(file, copy)
        now = DestinationRegistry(make_url(f"sqlite:///{file}"), PIPELINE)
        now.change(lambda held: [reseed(held["a"], revision("3"))], revision("3"))
        now.change(lambda held: [remove(held["b"], revision("4"))], revision("4"))
        late = registered("late", declared=declared("late"), managed_by="api")
        now.change(lambda _: [late], revision("5"))
        return now, DestinationRegistry(make_url(f"sqlite:///{copy}"), PIPELINE)

    def test_is_brought_up_to_date_and_counts_on(self, tmp_path: Path, settings: Config) -> None:
        now, copy = self.copied(tmp_path)
        with closing(now), closing(copy):
            told = {each.id: each.message(PIPELINE) for each in now.destinations().values()}
            catch_up(copy, settings, told)
            after = copy.destinations()
            lives = {each.id: (each.generation, each.desired, each.removed, each.replace) for each in after.values()}
            assert lives == {
                each.id: (each.generation, each.desired, each.removed, each.replace)
                for each in now.destinations().values()
            }
            assert [after[each].message(PIPELINE).order > told[each].order for each in ("a", "b", "late")] == [True] * 3
            assert after["c"].message(PIPELINE) == told["c"], "nothing happened to it"
            copy.change(lambda held: [pause(held["a"], revision("6"))], revision("6"))
            assert copy.destinations()["a"].message(PIPELINE).order > told["a"].order

    def test_of_before_a_registry_that_was_rebuilt_since_is_believed_too(
        self, tmp_path: Path, settings: Config
    ) -> None:
        now, copy = self.copied(tmp_path)
        with closing(now), closing(copy):
            later = {each.id: each.message(PIPELINE) for each in now.destinations().values()}
            told = {name: said.model_copy(update={"registry": said.registry + 5}) for name, said in later.items()}
            catch_up(copy, settings, told)
            copy.change(lambda held: [pause(held["late"], revision("6"))], revision("6"))
            for each in copy.destinations().values():
                assert each.message(PIPELINE).order >= told[each.id].order

    def test_one_that_is_up_to_date_stays_as_it_is(self, tmp_path: Path, settings: Config) -> None:
        now, copy = self.copied(tmp_path)
        with closing(now), closing(copy):
            before = now.destinations()
            catch_up(now, settings, {each.id: each.message(PIPELINE) for each in before.values()})
            catch_up(now, settings, {each.id: each.message(PIPELINE) for each in copy.destinations().values()})
            assert now.destinations() == before
