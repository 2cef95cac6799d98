"""Control's own thread: the file taken over, reloaded, refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from services.control.board import Board
from services.control.keeper import Keeper
from services.control.publish import Announcer
from services.control.registry import Registry
from services.control.worker import Worker
from shared.config.loading import load
from shared.config.model import Config
from shared.errors import ConfigError
from shared.messages import Outcome
from tests.fast.control.examples import PIPELINE, problem, progress
from tests.fast.control.fakes import UNREACHABLE, FakeSource, FakeTopic
from tests.fast.control.files import config, destination, write
from tests.fast.waiting import eventually


@dataclass
class Office:
    """A running worker on an in-memory topic and source."""

    folder: Path
    registry: Registry
    board: Board = field(default_factory=lambda: Board(PIPELINE))
    topic: FakeTopic = field(default_factory=FakeTopic)
    source: FakeSource = field(default_factory=FakeSource)
    failures: list[Exception] = field(default_factory=list)
    worker: Worker | None = None
    loads: int = 0

    def start(self, *ids: str, repeat_every_s: float = 60.0) -> Worker:
        file = config(self.folder, [destination(each) for each in ids])
        announcer = Announcer(self.topic, "viaduck.destinations", PIPELINE)
        keeper = Keeper(file, self.registry, self.board, announcer, {}, self.source.look)
        keeper.load()
        self.worker = Worker(keeper, self.board, repeat_every_s, self.failures.append, self._load)
        self.worker.start()
        return self.worker

    def reload(self, *ids: str, **sections: Any) -> None:
        """Write the file and have it read."""
        write(self.folder, [destination(each) for each in ids], **sections)
        self.read_again()

    def read_again(self) -> None:
        assert self.worker is not None
        loads = self.loads
        self.worker.reload()
        eventually(lambda: self.loads > loads)

    def _load(self, path: Path) -> Config:
        try:
            return load(path, {})
        finally:
            self.loads += 1

    def published(self, *ids: str) -> Callable[[], bool]:
        return lambda: {name for name, message in self.topic.kept.items() if message is not None} == set(ids)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(Registry(make_url(f"sqlite:///{tmp_path}/registry.sqlite"), PIPELINE)) as registry:
        registry.prepare()
        office = Office(tmp_path, registry)
        yield office
        if office.worker is not None:
            office.worker.stop(timeout_s=10.0)


def test_the_file_is_taken_over_at_the_start(office: Office) -> None:
    worker = office.start("a", "b")
    eventually(office.published("a", "b"))
    eventually(lambda: worker.source_problem is None)


def test_a_source_that_can_not_be_reached_is_waited_for_and_named(office: Office) -> None:
    office.source.error = UNREACHABLE
    worker = office.start("a")
    eventually(lambda: worker.source_problem == UNREACHABLE.message)
    assert not office.board.view().in_force
    office.source.error = None
    eventually(office.published("a"))
    eventually(lambda: worker.source_problem is None)
    assert office.failures == []


def test_a_file_that_the_source_refutes_at_the_start_ends_control(office: Office) -> None:
    office.source.error = ConfigError(["routing.field: the source table has no column x"])
    office.start("a")
    eventually(lambda: office.failures == [office.source.error])


def test_a_reloaded_file_is_taken_over(office: Office) -> None:
    office.start("a")
    eventually(office.published("a"))
    office.reload("b")
    eventually(office.published("b"))


@pytest.mark.parametrize("mistake", ["{", "destinations: 7", "nonsense: 1"])
def test_a_reloaded_file_with_mistakes_leaves_the_old_one_in_force(office: Office, mistake: str) -> None:
    office.start("a")
    eventually(office.published("a"))
    (office.folder / "viaduck.yaml").write_text(mistake)
    office.read_again()
    office.reload("a", "b")
    eventually(office.published("a", "b"))
    assert (office.failures, office.source.looks) == ([], 2)


def test_a_reloaded_file_that_the_source_refutes_leaves_the_old_one_in_force(office: Office) -> None:
    office.start("a")
    eventually(office.published("a"))
    office.source.error = ConfigError(["destinations[0].routing_value: 'x' is no INTEGER"])
    office.reload("b")
    eventually(lambda: office.source.looks == 2)
    eventually(lambda: office.board.view().in_force)
    office.source.error = None
    office.reload("a", "c")
    eventually(office.published("a", "c"))
    assert office.failures == []


OTHER_SECTIONS: list[dict[str, Any]] = [
    {"source": {"catalog": "sqlite:another.sqlite", "table": "events"}},
    {"routing": {"field": "country", "key_columns": ["event_id"]}},
]


@pytest.mark.parametrize("other", OTHER_SECTIONS, ids=["source", "routing"])
def test_a_reloaded_file_of_another_pipeline_is_refused(office: Office, other: dict[str, Any]) -> None:
    """The reader and the appliers would go on with the old sections, and the slices would be wrong."""
    office.start("a")
    eventually(office.published("a"))
    office.reload("b", **other)
    office.reload("c")
    eventually(office.published("c"))
    assert office.source.looks == 2


def test_everything_is_published_again_and_again(office: Office) -> None:
    office.start("a", repeat_every_s=0.05)
    eventually(lambda: len(office.topic.sent) > 3)


def test_answers_are_met_while_the_source_can_not_be_reached(office: Office) -> None:
    office.start("a")
    eventually(office.published("a"))
    office.source.error = UNREACHABLE
    office.board.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
    eventually(lambda: office.registry.destinations()["a"].generation == 2)


def test_a_defect_ends_control_and_not_only_its_thread(office: Office) -> None:
    office.source.error = ZeroDivisionError()
    office.start("a")
    eventually(lambda: office.failures == [office.source.error])


def test_it_stops_at_once(office: Office) -> None:
    worker = office.start("a")
    eventually(office.published("a"))
    worker.stop(timeout_s=10.0)
    assert "worker" not in {thread.name for thread in threading.enumerate()}
