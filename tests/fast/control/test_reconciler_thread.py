"""Control's own thread: the file taken over, reloaded, refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.control.model.conflicts import PipelineContext
from services.control.operations.reconciler import Reconciler
from services.control.reconciler_thread import ReconcilerThread
from services.control.store.destination_topic import DestinationPublisher
from services.control.store.registry import DestinationRegistry
from services.control.view.status_store import StatusStore
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError
from shared.contracts.messages import Outcome
from shared.runtime.background import problems
from tests.fast.control.examples import PIPELINE, problem, progress
from tests.fast.control.fakes import UNREACHABLE, FakeSource, FakeTopic
from tests.fast.control.files import config, destination, write
from tests.fast.control.fresh_registry import fresh
from tests.fast.waiting import eventually


@dataclass
class ControlRig:
    """A running worker on an in-memory topic and source."""

    folder: Path
    registry: DestinationRegistry
    status_store: StatusStore = field(default_factory=lambda: StatusStore(PIPELINE))
    topic: FakeTopic = field(default_factory=FakeTopic)
    source: FakeSource = field(default_factory=FakeSource)
    failures: list[Exception] = field(default_factory=list)
    worker: ReconcilerThread | None = None
    loads: int = 0

    def start(self, *ids: str, repeat_every_s: float = 60.0, alone: bool = True) -> ReconcilerThread:
        file = config(self.folder, [destination(each) for each in ids])
        announcer = DestinationPublisher(self.topic, "viaduck.destinations", PIPELINE)
        reconciler = Reconciler(
            file, self.registry, self.status_store, announcer, PipelineContext({}, lambda _: ()), self.source.look
        )
        reconciler.load()
        self.worker = ReconcilerThread(
            reconciler, self.status_store, repeat_every_s, self.failures.append, self._load, alone=alone
        )
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
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(DestinationRegistry(fresh(tmp_path / "registry.sqlite"), PIPELINE)) as registry:
        registry.prepare()
        rig = ControlRig(tmp_path, registry)
        yield rig
        if rig.worker is not None:
            rig.worker.stop(timeout_s=10.0)


def test_the_file_is_taken_over_at_the_start(rig: ControlRig) -> None:
    worker = rig.start("a", "b")
    eventually(rig.published("a", "b"))
    eventually(lambda: worker.source_problem is None)


def test_a_source_that_can_not_be_reached_is_waited_for_and_named(rig: ControlRig) -> None:
    rig.source.error = UNREACHABLE
    worker = rig.start("a")
    eventually(lambda: worker.source_problem == UNREACHABLE.message)
    assert not rig.status_store.view().in_force
    rig.source.error = None
    eventually(rig.published("a"))
    eventually(lambda: worker.source_problem is None)
    assert rig.failures == []


def test_a_file_that_the_source_refutes_at_the_start_ends_control(rig: ControlRig) -> None:
    rig.source.error = ConfigError(["routing.field: the source table has no column x"])
    rig.start("a")
    eventually(lambda: rig.failures == [rig.source.error])


def test_a_reloaded_file_is_taken_over(rig: ControlRig) -> None:
    rig.start("a")
    eventually(rig.published("a"))
    rig.reload("b")
    eventually(rig.published("b"))


@pytest.mark.parametrize("mistake", ["{", "destinations: 7", "nonsense: 1"])
def test_a_reloaded_file_with_mistakes_leaves_the_old_one_in_force(rig: ControlRig, mistake: str) -> None:
    rig.start("a")
    eventually(rig.published("a"))
    (rig.folder / "viaduck.yaml").write_text(mistake)
    rig.read_again()
    rig.reload("a", "b")
    eventually(rig.published("a", "b"))
    assert (rig.failures, rig.source.looks) == ([], 2)


def test_a_reloaded_file_that_the_source_refutes_leaves_the_old_one_in_force(rig: ControlRig) -> None:
    rig.start("a")
    eventually(rig.published("a"))
    rig.source.error = ConfigError(["destinations[0].routing_value: 'x' is no INTEGER"])
    rig.reload("b")
    eventually(lambda: rig.source.looks == 2)
    eventually(lambda: rig.status_store.view().in_force)
    rig.source.error = None
    rig.reload("a", "c")
    eventually(rig.published("a", "c"))
    assert rig.failures == []


OTHER_SECTIONS: list[dict[str, Any]] = [
    {"source": {"catalog": "sqlite:another.sqlite", "table": "events"}},
    {"routing": {"field": "country", "key_columns": ["event_id"]}},
]


@pytest.mark.parametrize("other", OTHER_SECTIONS, ids=["source", "routing"])
def test_a_reloaded_file_of_another_pipeline_is_refused(rig: ControlRig, other: dict[str, Any]) -> None:
    """The reader and the appliers would go on with the old sections, and the slices would be wrong."""
    rig.start("a")
    eventually(rig.published("a"))
    rig.reload("b", **other)
    rig.reload("c")
    eventually(rig.published("c"))
    assert rig.source.looks == 2


def test_everything_is_published_again_and_again(rig: ControlRig) -> None:
    rig.start("a", repeat_every_s=0.05)
    eventually(lambda: len(rig.topic.sent) > 3)


def test_answers_are_met_while_the_source_can_not_be_reached(rig: ControlRig) -> None:
    rig.start("a")
    eventually(rig.published("a"))
    rig.source.error = UNREACHABLE
    rig.status_store.note(progress(Outcome.PARKED, error=problem("destination_damaged")))
    eventually(lambda: rig.registry.destinations()["a"].generation == 2)


def test_a_defect_ends_control_and_not_only_its_thread(rig: ControlRig) -> None:
    rig.source.error = ZeroDivisionError()
    rig.start("a")
    eventually(lambda: rig.failures == [rig.source.error])


def test_a_defect_of_one_of_several_pipelines_is_named_and_it_begins_again(rig: ControlRig) -> None:
    rig.source.error = ZeroDivisionError()
    worker = rig.start("a", alone=False)
    eventually(lambda: f"thread worker {PIPELINE}" in problems())
    rig.source.error = None
    eventually(rig.published("a"))
    eventually(lambda: worker.source_problem is None)
    assert rig.failures == []


def test_it_stops_at_once(rig: ControlRig) -> None:
    worker = rig.start("a")
    eventually(rig.published("a"))
    worker.stop(timeout_s=10.0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("worker")]
