"""The planner in a world where messages are lost, doubled and reordered, and everything dies now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from services.reader.planner import change_index
from services.reader.planner.frontier import is_settled, known_through, reshapes_of
from services.reader.planner.plan import Planner
from shared.contracts.messages import DesiredState, ItemKind, SeedMode
from tests.fast.reader.simulation import World, spec

NAMES = "abc"
VALUES = "abcde"  # the last two are nobody's

Deed = Callable[[World, int], None]


def _commit(world: World, number: int) -> None:
    """One to three values, now and then more rows than a segment holds; every fourth commit changes nothing."""
    rows = {VALUES[(number + i) % 5]: 1 + number % 13 for i in range(number % 4)}
    world.commit(rows)


def _change_destination(world: World, number: int) -> None:
    name = NAMES[number % 3]
    old = world.specs[name]
    state = (DesiredState.PAUSED, DesiredState.STOPPED, *[DesiredState.RUNNING] * 3)[number % 5]
    changed = {"generation": old.generation + number // 5 % 2, "state": state, "revision": f"{number}"}
    world.want(old.model_copy(update=changed))


def _forget(world: World, number: int) -> None:
    name = NAMES[number % 3]
    world.planner.forget(name)
    world.open.pop(name, None)
    world.planner.destination(world.specs[name], world.now_s)


def _rewind(world: World, number: int) -> None:
    """A new life that begins at a snapshot of long ago."""
    name = NAMES[number % 3]
    old = world.specs[name]
    begins = max(1, number // 3 % (world.head + 1))
    world.want(old.model_copy(update={"generation": old.generation + 1, "seed_at": begins, "revision": f"{number}"}))


def _sleep(world: World, number: int) -> None:
    world.now_s += number % 40


DEEDS: tuple[tuple[int, Deed], ...] = (
    (10, _commit),
    (2, lambda w, _: w.alter()),
    (10, lambda w, _: w.poll()),
    (4, lambda w, _: w.catch_up()),
    (8, lambda w, _: w.plan()),
    (14, lambda w, n: w.work(n)),
    (3, lambda w, n: w.work(n, keep=True)),
    (14, lambda w, n: w.hear(n)),
    (3, lambda w, n: w.hear(n, keep=True)),
    (3, lambda w, n: w.fail(n)),
    (2, lambda w, n: w.lose(n)),
    (1, lambda w, _: w.answers.clear()),
    (1, lambda w, _: w.restart()),
    (1, _forget),
    (3, _change_destination),
    (4, _sleep),
)
DECK = tuple(deed for weight, deed in DEEDS for _ in range(weight))

stories = st.lists(st.integers(0, len(DECK) * 1024 - 1), min_size=25, max_size=120)
modes = st.lists(st.sampled_from(SeedMode), min_size=3, max_size=3)


def play(world: World, story: list[int], deck: Sequence[Deed] = DECK) -> None:
    for number in story:
        deck[number % len(deck)](world, number // len(deck))


def begin(append_only: bool, seed_modes: list[SeedMode]) -> World:
    world = World(append_only)
    for name, mode in zip(NAMES, seed_modes, strict=True):
        world.want(spec(name, mode=mode))
    return world


def at_rest(world: World) -> bool:
    return not world.items and not world.answers and is_settled(world.planner)


def end_at_the_head(world: World) -> None:
    world.calm_down(lambda: at_rest(world))
    for name, tracked in world.planner.tracked.items():
        if tracked.spec.state is DesiredState.RUNNING:
            known = known_through(tracked, reshapes_of(world.planner))
            assert known >= world.head, f"{name} is left behind: {tracked}"
            assert world.cursors[name].position >= max(world.reshaped, default=0), f"{name} has old columns: {tracked}"
    assert not world.parks


@settings(max_examples=600, deadline=None)
@given(st.booleans(), modes, stories)
def test_nothing_is_lost_or_doubled_whatever_happens_and_all_ends_at_the_head(
    append_only: bool, seed_modes: list[SeedMode], story: list[int]
) -> None:
    """``World`` asserts at each step: no change is skipped or applied twice, one item in flight, the bound on rows."""
    world = begin(append_only, seed_modes)
    play(world, story)
    end_at_the_head(world)


@settings(max_examples=300, deadline=None)
@given(st.booleans(), modes, stories, st.integers(0, 3))
def test_the_same_holds_where_the_ledger_forgets_whatever_is_not_needed(
    append_only: bool, seed_modes: list[SeedMode], story: list[int], most: int
) -> None:
    """Those that come back with a cursor of long ago are counted for again, and that ends."""
    with patch.object(change_index, "MOST_COUNTS", most):
        world = begin(append_only, seed_modes)
        play(world, story, (*DECK, *[_rewind] * 8))
        end_at_the_head(world)


@settings(max_examples=300, deadline=None)
@given(st.booleans(), stories, st.integers(1, 40))
def test_expiry_strands_only_those_that_were_behind_and_says_so(
    append_only: bool, story: list[int], oldest: int
) -> None:
    world = begin(append_only, [SeedMode.SCAN] * 3)
    play(world, story)
    world.expire(oldest)
    world.calm_down(lambda: at_rest(world))
    for name, tracked in world.planner.tracked.items():
        if tracked.parked is not None:
            assert tracked.parked.type == "history_expired"
            assert world.cursors[name].position < world.oldest
        elif tracked.spec.state is DesiredState.RUNNING:
            assert known_through(tracked, reshapes_of(world.planner)) >= world.head


@settings(max_examples=200, deadline=None)
@given(st.booleans(), st.lists(st.sampled_from([{"a": 3}, {"e": 4}, {}, {"a": 1, "d": 30}]), max_size=12))
def test_a_destination_that_was_not_touched_gets_no_item(append_only: bool, commits: list[dict[str, int]]) -> None:
    world = begin(append_only, [SeedMode.SCAN] * 3)
    world.calm_down(lambda: at_rest(world))
    got: list[str] = []
    for rows in commits:
        world.commit(rows)
        world.poll()
        got += [send.destination for send in world.items]
        world.calm_down(lambda: at_rest(world), rounds=5)
    assert "b" not in got
    assert ("a" in got) == any("a" in rows for rows in commits)


@settings(max_examples=200, deadline=None)
@given(st.booleans(), stories)
def test_after_a_restart_known_destinations_are_probed_before_anything_else(
    append_only: bool, story: list[int]
) -> None:
    world = begin(append_only, [SeedMode.SCAN] * 3)
    play(world, story)
    world.items.clear()
    world.restart()
    world.plan()
    running = {name for name, each in world.specs.items() if each.state is DesiredState.RUNNING}
    assert {send.destination for send in world.items} == running
    assert all(send.draft.kind is ItemKind.PROBE for send in world.items)


def test_an_idle_share_plans_nothing() -> None:
    world = begin(False, [SeedMode.SCAN] * 3)
    world.calm_down(lambda: at_rest(world))
    for _ in range(100):
        world.now_s += 1.0
        world.poll()
        assert not world.items


def test_a_planner_that_never_saw_the_source_only_probes() -> None:
    planner = Planner(World().rules, lambda: "item", lambda: 0.0)
    planner.destination(spec("a"), 0.0)
    (probe,) = planner.plan(0.0)
    assert probe.draft.kind is ItemKind.PROBE  # type: ignore[union-attr]
