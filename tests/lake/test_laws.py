"""The laws of an apply: splitting, repetition, any history; and that nobody suffers for another's lake."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest
from hypothesis import given

from shared.contracts.messages import ItemKind, Outcome
from tests.world.history import random_history
from tests.world.replay import SEEDS, again, histories, parts, seed_of
from tests.world.scene import MakeScene, scenes
from tests.world.shape import SIMPLE
from tests.world.statements import Insert

HERE = "tests/lake/test_laws.py"


@pytest.fixture
def make_scene(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[MakeScene]:
    with scenes(world, tmp_path / "scene") as make:
        yield make


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(4))
@histories(3, soak=30)
@given(drawn=SEEDS)
def test_splitting_a_range_changes_nothing(make_scene: MakeScene, part: int, drawn: int) -> None:
    """apply(a,c] = apply(a,b] then apply(b,c], and one range over all that ever happened is enough."""
    seed = seed_of(part, drawn)
    rng = Random(seed)
    history = random_history(rng, steps=8)
    scene = make_scene(history.shape)
    whole, pieces = scene.destination("whole"), scene.destination("pieces")
    assert [scene.seed(one).outcome for one in (whole, pieces)] == [Outcome.APPLIED] * 2
    for step in history.steps:
        scene.source.run(step)
        if rng.random() < 0.6:
            scene.bring(pieces)
    scene.bring(pieces)
    scene.bring(whole)
    assert scene.rows(whole) == scene.rows(pieces), again(seed, HERE)
    assert scene.wrong() == [], again(seed, HERE)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(2))
@histories(3, soak=30)
@given(drawn=SEEDS)
def test_splitting_appends_each_row_once(make_scene: MakeScene, part: int, drawn: int) -> None:
    """Without keys a range ends where it says, so that it can be cut long after it happened."""
    seed = seed_of(part, drawn)
    rng = Random(seed)
    history = random_history(rng, steps=8, append_only=True)
    scene = make_scene(history.shape)
    whole, pieces = scene.destination("whole"), scene.destination("pieces")
    assert [scene.seed(one).outcome for one in (whole, pieces)] == [Outcome.APPLIED] * 2
    begin = scene.head
    for step in history.steps:
        scene.source.run(step)
    for cut in sorted({rng.randint(begin, scene.head) for _ in range(3)}):
        scene.bring(pieces, cut, pinned=True)
    scene.bring(pieces, pinned=True)
    scene.bring(whole, pinned=True)
    assert scene.rows(whole) == scene.rows(pieces), again(seed, HERE)
    assert scene.wrong() == [], again(seed, HERE)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(4))
@histories(3, soak=30)
@given(drawn=SEEDS)
def test_repetition_changes_nothing(make_scene: MakeScene, part: int, drawn: int) -> None:
    """Whatever was applied may come again, at once and after everything else: no second commit comes of it."""
    seed = seed_of(part, drawn)
    rng = Random(seed)
    history = random_history(rng, steps=6, append_only=part == 0)
    scene = make_scene(history.shape)
    one = scene.destination("one")
    sent = [one.item(ItemKind.SEED, scene.head)]
    assert scene.send(one, sent[0]).outcome is Outcome.APPLIED
    for step in history.steps:
        scene.source.run(step)
        brought = scene.bring(one, pinned=history.shape.append_only)
        if brought is not None and brought[1].outcome is Outcome.APPLIED:
            sent.append(brought[0])
            before = scene.commits(one)
            assert scene.send(one, brought[0]).outcome is Outcome.ALREADY_APPLIED, again(seed, HERE)
            assert scene.commits(one) == before, again(seed, HERE)
    before = scene.commits(one)
    answers = [scene.send(one, item).outcome for item in rng.sample(sent, len(sent))]
    assert answers == [Outcome.ALREADY_APPLIED] * len(sent), again(seed, HERE)
    assert scene.commits(one) == before, again(seed, HERE)
    assert scene.wrong() == [], again(seed, HERE)


def test_a_lake_that_vanished_is_nobody_elses_trouble(make_scene: MakeScene) -> None:
    """The applier keeps lakes attached: one that has gone meanwhile must not show up in the errors of another."""
    scene = make_scene(SIMPLE)
    scene.commit(Insert((("a", "1", "x"), ("b", "1", "y"))))
    gone, new = scene.destination("gone"), scene.destination("new", "b")
    assert scene.seed(gone).outcome is Outcome.APPLIED
    shutil.rmtree(scene.folder / "gone")
    answer = scene.seed(new)
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    scene.receivers.remove(gone)
    assert scene.wrong() == []
