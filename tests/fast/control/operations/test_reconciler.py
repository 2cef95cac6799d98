"""Registry, status store and topic in step with the file and the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.model.conflicts import PipelineContext
from services.control.model.lifecycle import Registered
from services.control.operations.reconciler import Reconciler
from services.control.store.destination_topic import GONE_FOR, DestinationPublisher
from services.control.store.registry import DestinationRegistry
from services.control.view.destination_status import status
from services.control.view.status_store import StatusStore
from services.reader.messaging.status_repetition import StatusRepetition
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.destination_state import DestinationState
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import DependencyError
from shared.contracts.messages import Outcome, Progress
from shared.contracts.reports import Share
from shared.kafka.topics import Topics
from shared.lake.columns.history import ColumnVersion
from tests.fast.control.examples import PIPELINE, START, problem, progress
from tests.fast.control.fakes import UNREACHABLE, FakeSource, FakeTopic
from tests.fast.control.files import config, destination, write
from tests.fast.control.fresh_registry import fresh
from tests.fast.reader.fakes import ReaderSender


@dataclass
class Setup:
    """A reconciler with everything around it, in memory but for the registry."""

    folder: Path
    registry: DestinationRegistry
    status_store: StatusStore = field(default_factory=lambda: StatusStore(PIPELINE))
    topic: FakeTopic = field(default_factory=FakeTopic)
    source: FakeSource = field(default_factory=FakeSource)
    environ: dict[str, str] = field(default_factory=dict)
    now: datetime = START

    def reconciler(self, file: Config) -> Reconciler:
        announcer = DestinationPublisher(self.topic, "viaduck.destinations", PIPELINE)
        return Reconciler(
            file,
            self.registry,
            self.status_store,
            announcer,
            PipelineContext(self.environ, lambda _: ()),
            self.source.look,
            lambda: self.now,
        )

    def started(self, file: Config) -> Reconciler:
        reconciler = self.reconciler(file)
        reconciler.load()
        reconciler.announce_all()
        reconciler.apply(file)
        return reconciler

    def file(self, *ids: str, **sections: Any) -> Config:
        return config(self.folder, [destination(each) for each in ids], **sections)

    def generation(self, id: str) -> int:
        message = self.topic.kept[id]
        assert message is not None
        return message.generation


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    with closing(DestinationRegistry(fresh(tmp_path / "registry.sqlite"), PIPELINE)) as registry:
        registry.prepare()
        yield Setup(tmp_path, registry)


def test_what_the_file_declares_is_registered_shown_and_published(setup: Setup) -> None:
    setup.started(setup.file("a", "b"))
    assert (
        setup.topic.kept.keys() == setup.status_store.view().destinations.keys() == setup.registry.destinations().keys()
    )
    message = setup.topic.kept["a"]
    assert message is not None
    assert (message.routing_value, message.table, message.generation) == ("value of a", "events", 1)
    assert message.lake.catalog == f"sqlite:{setup.folder}/lakes/a.sqlite"


def test_a_file_that_did_not_change_publishes_nothing_new_at_a_restart(setup: Setup) -> None:
    setup.started(setup.file("a"))
    before = setup.topic.kept
    setup.started(setup.file("a"))
    assert setup.topic.kept == before


def test_what_is_registered_is_published_before_the_source_answers(setup: Setup) -> None:
    setup.started(setup.file("a"))
    setup.topic.sent.clear()
    setup.source.error = UNREACHABLE
    reconciler = setup.reconciler(setup.file("a", "b"))
    reconciler.load()
    reconciler.announce_all()
    with pytest.raises(type(UNREACHABLE)):
        reconciler.apply(reconciler.config)
    assert setup.topic.kept.keys() == {"a"}


def test_a_destination_that_went_from_the_file_is_said_to_be_gone_which_is_repeated_for_a_while(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a", "b"))
    reconciler.apply(setup.file("b"))
    assert setup.topic.kept["a"] is None
    assert setup.status_store.view().destinations.keys() == {"b"}

    setup.topic.sent.clear()
    setup.now += GONE_FOR / 2
    reconciler.announce_all()
    assert setup.topic.kept["a"] is None

    setup.topic.sent.clear()
    setup.now += GONE_FOR
    reconciler.announce_all()
    assert setup.topic.kept.keys() == {"b"}


def routed_by(field: str) -> dict[str, Any]:
    return {"field": field, "key_columns": ["event_id"]}


RENAMED = (
    ColumnVersion(2, None, "company", "varchar", None, 1, 5),
    ColumnVersion(2, None, "tenant", "varchar", None, 5, None),
)
OTHER = ColumnVersion(3, None, "country", "varchar", None, 1, None)


@pytest.mark.parametrize(("name", "generation"), [("tenant", 1), ("country", 2)])
def test_a_routing_column_is_what_the_name_means_in_the_source(setup: Setup, name: str, generation: int) -> None:
    setup.source.versions = (*RENAMED, OTHER)
    setup.started(setup.file("a"))
    setup.started(setup.file("a", routing=routed_by(name)))
    assert setup.generation("a") == generation


def test_whether_it_is_the_same_column_waits_for_the_source(setup: Setup) -> None:
    setup.started(setup.file("a"))
    reconciler, setup.source.error = setup.reconciler(setup.file("a", routing=routed_by("tenant"))), UNREACHABLE
    reconciler.load()
    with pytest.raises(type(UNREACHABLE)):
        reconciler.apply(reconciler.config)
    assert setup.registry.destinations()["a"].generation == 1
    setup.source.error, setup.source.versions = None, RENAMED
    reconciler.apply(reconciler.config)
    assert setup.registry.destinations()["a"].generation == 1


def test_a_destination_that_comes_back_fences_its_former_life(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    reconciler.apply(setup.file())
    reconciler.apply(setup.file("a"))
    assert setup.generation("a") == 2


def test_a_damaged_destination_is_published_anew_at_once(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    setup.status_store.note(progress(Outcome.PARKED, error=problem("destination_damaged", retryable=False)))
    reconciler.react()
    message = setup.topic.kept["a"]
    assert message is not None
    assert (message.generation, message.replace) == (2, True)
    assert status(setup.status_store.view(), "a").state == "seeding"


@pytest.mark.parametrize(("on_gap", "generation"), [("park", 1), ("reseed", 2)])
def test_a_gap_is_met_as_the_file_says(setup: Setup, on_gap: str, generation: int) -> None:
    reconciler = setup.started(setup.file("a", routing={"field": "company", "on_gap": on_gap}))
    setup.status_store.note(progress(Outcome.PARKED, error=problem("history_expired", retryable=False)))
    reconciler.react()
    assert setup.generation("a") == generation


def test_a_gap_whose_first_message_was_lost_is_met_as_soon_as_a_reader_says_it_again(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a", routing={"field": "company", "on_gap": "reseed"}))
    reconciler.react()
    assert status(setup.status_store.view(), "a").state == "seeding"
    for said in repeated(reconciler.held["a"], parked=problem("history_expired", retryable=False)):
        setup.status_store.note(said)
    reconciler.react()
    assert setup.generation("a") == 2


def test_a_control_without_memory_shows_what_its_readers_say_again(setup: Setup) -> None:
    """Neither its own earlier life nor the topics remember anything."""
    reconciler = setup.started(setup.file("a", "b"))
    told_at = START + timedelta(hours=1)
    for said in (
        *repeated(reconciler.held["a"], parked=problem("access_denied"), told_at=told_at),
        *repeated(reconciler.held["b"]),
    ):
        setup.status_store.note(said)
    shown = status(setup.status_store.view(), "a")
    assert shown.error is not None
    assert (shown.state, shown.error.type, shown.error.since) == ("parked", "access_denied", told_at)
    well = status(setup.status_store.view(), "b")
    assert (well.state, well.position, well.rows_applied, well.error) == ("running", 7, 70, None)


def repeated(held: Registered, **state: Any) -> list[Progress]:
    """What a reader says of a destination once the topics are others."""
    tracked = DestinationState(held.message(PIPELINE), 0.0, position=7, exact=7, rows_applied=70)
    for field_, value in state.items():
        setattr(tracked, field_, value)
    sender = ReaderSender()
    repeater = StatusRepetition(WorkPublisher(sender, Topics("v"), PIPELINE, "viaduck-0", Share(), lambda _: None), 0.0)
    repeater.all([tracked.name])
    repeater.tell({tracked.name: tracked}, 0.0)
    return sender.parks


def test_a_lost_registry_adopts_the_generation_of_the_cursor(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    setup.status_store.note(progress(Outcome.FENCED, generation=6))
    reconciler.react()
    assert setup.generation("a") == 6
    assert setup.registry.destinations()["a"].generation == 6


def test_an_answer_is_met_once(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    for _ in range(3):
        setup.status_store.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
        reconciler.react()
    assert setup.generation("a") == 2


def test_an_answer_about_a_stranger_is_ignored(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    sent = len(setup.topic.sent)
    setup.status_store.note(progress(Outcome.FENCED, id="stranger", generation=6))
    reconciler.react()
    assert len(setup.topic.sent) == sent


def test_an_answer_waits_for_a_registry_that_can_not_be_used(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    registry = setup.folder / "registry.sqlite"
    registry.rename(setup.folder / "away")
    registry.mkdir()
    setup.registry.close()
    setup.status_store.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
    with pytest.raises(DependencyError):
        reconciler.react()
    assert setup.generation("a") == 1

    registry.rmdir()
    (setup.folder / "away").rename(registry)
    reconciler.react()
    assert setup.generation("a") == 2


def test_a_password_that_changed_in_the_file_is_tried_at_once_and_leaves_no_trace(setup: Setup) -> None:
    def file(password: str) -> Config:
        catalog = f"postgres:dbname=lake host=db user=u password={password}"
        return config(setup.folder, [destination("a", catalog=catalog)])

    reconciler = setup.started(file("s3cret-one"))
    before = setup.topic.kept["a"]
    reconciler.apply(file("s3cret-two"))
    after = setup.topic.kept["a"]
    assert before is not None
    assert after is not None
    assert (after.generation, after.lake.from_file) == (before.generation, True)
    assert after.revision != before.revision


def test_nothing_secret_reaches_the_registry_or_a_message(setup: Setup) -> None:
    words = {"URI": "postgresql://u:s3cret-1@db/one"}
    destinations = [
        destination("a", catalog="postgres:dbname=two host=db user=u password=s3cret-2"),
        {"id": "b", "routing_value": "b", "postgres_uri_env": "URI"},
        destination("c", properties={"s3_access_key_id": "s3cret-3", "s3_secret_access_key": "s3cret-4"}),
    ]
    setup.environ.update(words)
    setup.started(load(write(setup.folder, destinations), words))
    told = b"".join(value or b"" for _, value in setup.topic.sent)
    kept = b"".join(file.read_bytes() for file in setup.folder.glob("registry.sqlite*"))
    assert b"value of a" in told
    assert b"value of a" in kept
    assert b"s3cret" not in told + kept


def test_a_variable_that_leads_to_another_lake_means_the_next_generation(setup: Setup) -> None:
    def file(uri: str) -> Config:
        setup.environ["URI"] = uri
        by_variable = {"id": "a", "routing_value": "a", "postgres_uri_env": "URI"}
        return load(write(setup.folder, [by_variable]), setup.environ)

    reconciler = setup.started(file("postgresql://u:one@db/lake"))
    reconciler.apply(file("postgresql://other:two@db:5432/lake"))
    assert setup.generation("a") == 1
    reconciler.apply(file("postgresql://u:one@db/another"))
    assert setup.generation("a") == 2


def test_a_revision_tells_when_it_was_made(setup: Setup) -> None:
    reconciler = setup.started(setup.file("a"))
    setup.now += timedelta(seconds=5)
    reconciler.apply(setup.file("a", routing={"field": "company", "key_columns": ["event_id"], "seed_mode": "latest"}))
    assert setup.registry.destinations()["a"].revision.at == setup.now
    assert setup.generation("a") == 1
