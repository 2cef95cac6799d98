"""Registry, board and topic in step with the file and the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from services.control.model.lifecycle import Registered
from services.control.operations.reconciler import Reconciler
from services.control.store.destination_topic import GONE_FOR, Announcer
from services.control.store.registry import Registry
from services.control.view.destination_status import status
from services.control.view.status_store import StatusStore
from services.reader.messaging.status_repetition import Repeater
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.destination_state import Tracked
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import DependencyError
from shared.contracts.messages import Outcome, Progress, Share
from shared.kafka.topics import Topics
from tests.fast.control.examples import PIPELINE, START, problem, progress
from tests.fast.control.fakes import UNREACHABLE, FakeSource, FakeTopic
from tests.fast.control.files import config, destination, write
from tests.fast.reader.fakes import FakeSender


@dataclass
class Desk:
    """A keeper with everything around it, in memory but for the registry."""

    folder: Path
    registry: Registry
    board: StatusStore = field(default_factory=lambda: StatusStore(PIPELINE))
    topic: FakeTopic = field(default_factory=FakeTopic)
    source: FakeSource = field(default_factory=FakeSource)
    environ: dict[str, str] = field(default_factory=dict)
    now: datetime = START

    def keeper(self, file: Config) -> Reconciler:
        announcer = Announcer(self.topic, "viaduck.destinations", PIPELINE)
        return Reconciler(file, self.registry, self.board, announcer, self.environ, self.source.look, lambda: self.now)

    def started(self, file: Config) -> Reconciler:
        keeper = self.keeper(file)
        keeper.load()
        keeper.announce_all()
        keeper.apply(file)
        return keeper

    def file(self, *ids: str, **sections: Any) -> Config:
        return config(self.folder, [destination(each) for each in ids], **sections)

    def generation(self, id: str) -> int:
        message = self.topic.kept[id]
        assert message is not None
        return message.generation


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with closing(Registry(make_url(f"sqlite:///{tmp_path}/registry.sqlite"), PIPELINE)) as registry:
        registry.prepare()
        yield Desk(tmp_path, registry)


def test_what_the_file_declares_is_registered_shown_and_published(desk: Desk) -> None:
    desk.started(desk.file("a", "b"))
    assert desk.topic.kept.keys() == desk.board.view().destinations.keys() == desk.registry.destinations().keys()
    message = desk.topic.kept["a"]
    assert message is not None
    assert (message.routing_value, message.table, message.generation) == ("value of a", "events", 1)
    assert message.lake.catalog == f"sqlite:{desk.folder}/lakes/a.sqlite"


def test_a_file_that_did_not_change_publishes_nothing_new_at_a_restart(desk: Desk) -> None:
    desk.started(desk.file("a"))
    before = desk.topic.kept
    desk.started(desk.file("a"))
    assert desk.topic.kept == before


def test_what_is_registered_is_published_before_the_source_answers(desk: Desk) -> None:
    desk.started(desk.file("a"))
    desk.topic.sent.clear()
    desk.source.error = UNREACHABLE
    keeper = desk.keeper(desk.file("a", "b"))
    keeper.load()
    keeper.announce_all()
    with pytest.raises(type(UNREACHABLE)):
        keeper.apply(keeper.config)
    assert desk.topic.kept.keys() == {"a"}


def test_a_destination_that_went_from_the_file_is_said_to_be_gone_which_is_repeated_for_a_while(desk: Desk) -> None:
    keeper = desk.started(desk.file("a", "b"))
    keeper.apply(desk.file("b"))
    assert desk.topic.kept["a"] is None
    assert desk.board.view().destinations.keys() == {"b"}

    desk.topic.sent.clear()
    desk.now += GONE_FOR / 2
    keeper.announce_all()
    assert desk.topic.kept["a"] is None

    desk.topic.sent.clear()
    desk.now += GONE_FOR
    keeper.announce_all()
    assert desk.topic.kept.keys() == {"b"}


def test_a_destination_that_comes_back_fences_its_former_life(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    keeper.apply(desk.file())
    keeper.apply(desk.file("a"))
    assert desk.generation("a") == 2


def test_a_damaged_destination_is_published_anew_at_once(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    desk.board.note(progress(Outcome.PARKED, error=problem("destination_damaged", retryable=False)))
    keeper.react()
    message = desk.topic.kept["a"]
    assert message is not None
    assert (message.generation, message.replace) == (2, True)
    assert status(desk.board.view(), "a").state == "seeding"


@pytest.mark.parametrize(("on_gap", "generation"), [("park", 1), ("reseed", 2)])
def test_a_gap_is_met_as_the_file_says(desk: Desk, on_gap: str, generation: int) -> None:
    keeper = desk.started(desk.file("a", routing={"field": "company", "on_gap": on_gap}))
    desk.board.note(progress(Outcome.PARKED, error=problem("history_expired", retryable=False)))
    keeper.react()
    assert desk.generation("a") == generation


def test_a_gap_whose_first_message_was_lost_is_met_as_soon_as_a_reader_says_it_again(desk: Desk) -> None:
    keeper = desk.started(desk.file("a", routing={"field": "company", "on_gap": "reseed"}))
    keeper.react()
    assert status(desk.board.view(), "a").state == "seeding"
    for said in repeated(keeper.held["a"], parked=problem("history_expired", retryable=False)):
        desk.board.note(said)
    keeper.react()
    assert desk.generation("a") == 2


def test_a_control_without_memory_shows_what_its_readers_say_again(desk: Desk) -> None:
    """Neither its own earlier life nor the topics remember anything."""
    keeper = desk.started(desk.file("a", "b"))
    told_at = START + timedelta(hours=1)
    for said in (
        *repeated(keeper.held["a"], parked=problem("access_denied"), told_at=told_at),
        *repeated(keeper.held["b"]),
    ):
        desk.board.note(said)
    shown = status(desk.board.view(), "a")
    assert shown.error is not None
    assert (shown.state, shown.error.type, shown.error.since) == ("parked", "access_denied", told_at)
    well = status(desk.board.view(), "b")
    assert (well.state, well.position, well.rows_applied, well.error) == ("running", 7, 70, None)


def repeated(held: Registered, **state: Any) -> list[Progress]:
    """What a reader says of a destination once the topics are others."""
    tracked = Tracked(held.message(PIPELINE), 0.0, position=7, exact=7, rows_applied=70)
    for field_, value in state.items():
        setattr(tracked, field_, value)
    sender = FakeSender()
    repeater = Repeater(WorkPublisher(sender, Topics("v"), PIPELINE, "viaduck-0", Share(), lambda _: None), 0.0)
    repeater.all([tracked.name])
    repeater.tell({tracked.name: tracked}, 0.0)
    return sender.parks


def test_a_lost_registry_adopts_the_generation_of_the_cursor(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    desk.board.note(progress(Outcome.FENCED, generation=6))
    keeper.react()
    assert desk.generation("a") == 6
    assert desk.registry.destinations()["a"].generation == 6


def test_an_answer_is_met_once(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    for _ in range(3):
        desk.board.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
        keeper.react()
    assert desk.generation("a") == 2


def test_an_answer_about_a_stranger_is_ignored(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    sent = len(desk.topic.sent)
    desk.board.note(progress(Outcome.FENCED, id="stranger", generation=6))
    keeper.react()
    assert len(desk.topic.sent) == sent


def test_an_answer_waits_for_a_registry_that_can_not_be_used(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    registry = desk.folder / "registry.sqlite"
    registry.rename(desk.folder / "away")
    registry.mkdir()
    desk.registry.close()
    desk.board.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
    with pytest.raises(DependencyError):
        keeper.react()
    assert desk.generation("a") == 1

    registry.rmdir()
    (desk.folder / "away").rename(registry)
    keeper.react()
    assert desk.generation("a") == 2


def test_a_password_that_changed_in_the_file_is_tried_at_once_and_leaves_no_trace(desk: Desk) -> None:
    def file(password: str) -> Config:
        catalog = f"postgres:dbname=lake host=db user=u password={password}"
        return config(desk.folder, [destination("a", catalog=catalog)])

    keeper = desk.started(file("s3cret-one"))
    before = desk.topic.kept["a"]
    keeper.apply(file("s3cret-two"))
    after = desk.topic.kept["a"]
    assert before is not None
    assert after is not None
    assert (after.generation, after.lake.from_file) == (before.generation, True)
    assert after.revision != before.revision


def test_nothing_secret_reaches_the_registry_or_a_message(desk: Desk) -> None:
    words = {"URI": "postgresql://u:s3cret-1@db/one"}
    destinations = [
        destination("a", catalog="postgres:dbname=two host=db user=u password=s3cret-2"),
        {"id": "b", "routing_value": "b", "postgres_uri_env": "URI"},
        destination("c", properties={"s3_access_key_id": "s3cret-3", "s3_secret_access_key": "s3cret-4"}),
    ]
    desk.environ.update(words)
    desk.started(load(write(desk.folder, destinations), words))
    told = b"".join(value or b"" for _, value in desk.topic.sent)
    kept = b"".join(file.read_bytes() for file in desk.folder.glob("registry.sqlite*"))
    assert b"value of a" in told
    assert b"value of a" in kept
    assert b"s3cret" not in told + kept


def test_a_variable_that_leads_to_another_lake_means_the_next_generation(desk: Desk) -> None:
    def file(uri: str) -> Config:
        desk.environ["URI"] = uri
        by_variable = {"id": "a", "routing_value": "a", "postgres_uri_env": "URI"}
        return load(write(desk.folder, [by_variable]), desk.environ)

    keeper = desk.started(file("postgresql://u:one@db/lake"))
    keeper.apply(file("postgresql://other:two@db:5432/lake"))
    assert desk.generation("a") == 1
    keeper.apply(file("postgresql://u:one@db/another"))
    assert desk.generation("a") == 2


def test_a_revision_tells_when_it_was_made(desk: Desk) -> None:
    keeper = desk.started(desk.file("a"))
    desk.now += timedelta(seconds=5)
    keeper.apply(desk.file("a", routing={"field": "company", "key_columns": ["event_id"], "seed_mode": "latest"}))
    assert desk.registry.destinations()["a"].revision.at == desk.now
    assert desk.generation("a") == 1
