"""What real lakes and the real applier leave behind is a behaviour of the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest

from shared.contracts.messages import ItemKind, Outcome, WorkItem
from tests.model.judge import judge
from tests.model.record import Recorder
from tests.model.trace import Answered, Anything, Committed, dump, parse
from tests.world.scene import Scene, scenes
from tests.world.service_view import Receiver
from tests.world.shape import SIMPLE
from tests.world.statements import Insert


@pytest.fixture
def scene(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[Scene]:
    with scenes(world, tmp_path / "scene") as make:
        yield make(SIMPLE)


def writes(scene: Scene, tenant: str) -> None:
    scene.commit(Insert(((tenant, str(scene.head), "x"),)))


def changes(scene: Scene, one: Receiver, expected: int) -> WorkItem:
    return one.item(ItemKind.CHANGES, scene.head, expected=expected)


def played(scene: Scene) -> list[Anything]:
    """Two destinations, and all that Kafka and an operator may do to them: late, twice, out of order, other lives."""
    writes(scene, "a")
    one, two = scene.destination("one"), scene.destination("two", "b")
    recorder = Recorder(scene)
    recorder.send(one, one.item(ItemKind.PROBE, 0))
    seeds = [(each, each.item(ItemKind.SEED, scene.head)) for each in (one, two)]
    for each, item in seeds:
        recorder.send(each, item)
    begin = scene.head
    writes(scene, "a")
    first = changes(scene, one, begin)
    writes(scene, "a")
    recorder.send(one, first)
    middle = scene.head
    writes(scene, "b")
    recorder.send(one, changes(scene, one, middle))
    recorder.send(one, one.item(ItemKind.ADVANCE, scene.head, expected=middle, after=scene.head))
    late = changes(scene, two, begin)
    recorder.send(two, late)
    for item in Random(4).sample([first, first, seeds[0][1], changes(scene, one, begin)], 4):
        recorder.send(one, item)
    writes(scene, "a")
    recorder.send(one, changes(scene, one, begin))
    one.begin_again(replace=True)
    recorder.send(one, one.item(ItemKind.PROBE, 0))
    recorder.send(one, one.item(ItemKind.SEED, scene.head))
    reseeded = scene.head
    writes(scene, "a")
    recorder.send(one, one.item(ItemKind.CHANGES, scene.head, expected=reseeded, generation=1))
    recorder.send(one, changes(scene, one, reseeded))
    one.begin_again(replace=False)
    recorder.send(one, one.item(ItemKind.DROP, 0))
    recorder.send(one, one.item(ItemKind.SEED, scene.head, generation=2))
    recorder.send(one, one.item(ItemKind.DROP, 0))
    one.begin_again(replace=False)
    recorder.send(one, one.item(ItemKind.SEED, scene.head))
    return recorder.events


def without_a_commit(events: list[Anything]) -> list[Anything]:
    lost = next(n for n, event in enumerate(events) if isinstance(event, Committed) and event.kind == "changes")
    return events[:lost] + events[lost + 1 :]


def committed_twice(events: list[Anything]) -> list[Anything]:
    n, doubled = next((n, e) for n, e in enumerate(events) if isinstance(e, Committed) and e.kind == "changes")
    zombie = doubled.model_copy(update={"token": "another", "item": "another"})
    return [*events[: n + 1], zombie, *events[n + 1 :]]


def answered_otherwise(events: list[Anything]) -> list[Anything]:
    n, gap = next((n, e) for n, e in enumerate(events) if isinstance(e, Answered) and e.outcome is Outcome.GAP)
    return [*events[:n], gap.model_copy(update={"outcome": Outcome.ALREADY_APPLIED}), *events[n + 1 :]]


WRONGED: tuple[Callable[[list[Anything]], list[Anything]], ...] = (
    without_a_commit,
    committed_twice,
    answered_otherwise,
)


def test_a_scene_on_real_lakes_is_explained_and_the_same_with_one_lie_refused(scene: Scene, tmp_path: Path) -> None:
    events = played(scene)
    told = {event.outcome for event in events if isinstance(event, Answered)}
    assert told >= {Outcome.APPLIED, Outcome.ALREADY_APPLIED, Outcome.GAP, Outcome.EMPTY, Outcome.FENCED}
    assert scene.wrong() == []
    explained, *refused = judge([parse(dump(events).splitlines()), *(lie(events) for lie in WRONGED)], tmp_path)
    assert explained is None, dump(events)
    assert all(refused)
