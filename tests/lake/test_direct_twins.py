"""A lake that Viaduck commits to directly equals its twin that DuckLake's extension commits to, and the extension
says so: in fresh instances, at the head, at each snapshot, in the change feed, by filters, and after maintenance."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from services.applier.model.task import Limits
from shared.contracts.messages import CommitPath, ItemKind
from tests.lake.conftest import MakeRig
from tests.lake.twin_lakes import Lake, orphans, require_same_histories
from tests.lake.twins import CLEAN_UP, MAINTENANCE, TWINS, Twins

OWNERS = (
    *((statement,) for statement in MAINTENANCE[:3]),
    ("UPDATE dst.main.t SET b = b WHERE id % 3 = 1",),
    ("UPDATE dst.main.t SET b = b WHERE id % 3 = 1", *MAINTENANCE[:2]),
)
"""What an owner does to a table whose rows stay what they are; an update of his keeps row ids."""


@pytest.fixture
def twins(make_rig: MakeRig, request: pytest.FixtureRequest) -> Twins:
    return Twins(make_rig(limits=Limits(threads=1, most_threads=1)), random.Random(request.node.name))


def require_equal(twins: Twins, *, replays: bool = False) -> None:
    """Heads equal the slice; retained snapshots, feeds between them and filtered reads equal the extension's twin."""
    wanted = [repr(row) for row in twins.rig.expected_of("a")]
    with ExitStack() as opened:
        lakes = {name: Lake(opened.enter_context(twins.rig.opened(name))) for name in TWINS}
        filtered, found = lakes["extension"].filtered(), twins.found()
        for name, ours in lakes.items():
            assert ours.bag("SELECT * FROM dst.main.t") == wanted, name
            assert ours.cursors() == 1, name
            assert name == "extension" or ours.filtered() == filtered, name
        require_same_histories(lakes, "extension", twins.rng, replays=replays)
        for name, lake in lakes.items():
            assert lake.found_by_stock() == found, name


def test_twins_are_equal_through_changes_of_every_type(twins: Twins) -> None:
    twins.rig.sql(twins.insert(60))
    assert [each.commit for each in twins.follow(ItemKind.SEED)][:2] == [CommitPath.DIRECT, CommitPath.EXTENSION]
    for _ in range(8):
        twins.rig.sql(*twins.change())
        twins.follow()
    require_equal(twins, replays=True)
    assert twins.paths["direct: direct"] >= 4
    assert twins.paths["extension: direct"] == 0
    assert [orphans(twins.rig, name) for name in TWINS] == [[], [], []]


def test_twins_are_equal_under_an_owners_maintenance(twins: Twins) -> None:
    """Snapshots are expired and their files cleaned up in the midst of it; all that are retained then are compared."""
    twins.rig.sql(twins.insert(40))
    twins.follow(ItemKind.SEED)
    for number in range(10):
        twins.rig.sql(*twins.change())
        twins.follow()
        if number % 2:
            twins.maintain(*twins.rng.choice(OWNERS))
        if number % 5 == 4:
            twins.expire()
            twins.rig.sql(*twins.change())
            twins.follow()
            require_equal(twins)
    for statement in MAINTENANCE:
        twins.maintain(statement)
        if statement in (MAINTENANCE[2], CLEAN_UP):
            require_equal(twins)
    twins.rig.sql(*twins.change())
    twins.follow()
    require_equal(twins)
    assert [orphans(twins.rig, name) for name in TWINS] == [[], [], []]


def test_twins_are_equal_after_they_were_rewound(twins: Twins) -> None:
    twins.rig.sql(twins.insert(40))
    twins.follow(ItemKind.SEED)
    twins.rig.sql(*twins.change())
    twins.follow()
    then = twins.rig.head
    twins.rig.sql(*twins.change(), twins.insert(5))
    twins.follow()
    twins.paths.clear()
    twins.rewind(then)
    assert (twins.paths["direct: direct"], twins.paths["extension: extension"]) == (1, 1), twins.reasons
    twins.follow()
    require_equal(twins)
    assert [orphans(twins.rig, name) for name in TWINS] == [[], [], []]
