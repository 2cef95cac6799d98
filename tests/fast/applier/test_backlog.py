"""Items that come again: what they cost, counted in looks at lakes, and whom they hold up."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from services.applier.model.grouping import Lane
from shared.contracts.messages import DesiredState, ItemKind, Outcome, WorkItem
from tests.fast.applier.consumers import item
from tests.fast.applier.driven_consumer import PIPELINE, Replayed, changes, probe

TENANTS = [f"t{number}" for number in range(20)]


def published_at(item: WorkItem) -> datetime:
    return item.published_at


@pytest.fixture
def crew(tmp_path: Path) -> Replayed:
    return Replayed(tmp_path)


def test_thousands_of_old_items_cost_one_look_for_each_destination_and_hold_up_no_fresh_one(crew: Replayed) -> None:
    rng = random.Random(7)
    for name in TENANTS:
        crew.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    for fresh in range(50, 55):
        again = rng.choices(old, k=2_000)
        crew.sends(*again[:1_000], *[changes(name, fresh, fresh + 1) for name in TENANTS], *again[1_000:])
        crew.turn(Lane.CHANGES)
        assert {crew.lakes.cursors[name] for name in TENANTS} == {fresh + 1}, "the first job has every fresh item"
        crew.works_off()
        assert crew.in_hand == 0
    assert crew.lakes.looks.total() == 5 * len(TENANTS), "the fresh ones alone"
    assert max(crew.lakes.looks.values()) == 1


def test_a_backlog_of_old_items_alone_is_one_look_for_each_destination(crew: Replayed) -> None:
    for name in TENANTS:
        crew.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    random.Random(1).shuffle(old)
    crew.sends(*old)
    crew.works_off()
    assert crew.lakes.looks == {(name, 50): 1 for name in TENANTS}
    newest = {name: max((each for each in old if each.destination == name), key=published_at) for name in TENANTS}
    assert {each.item for each in newest.values()} <= set(crew.outcomes()), "a reader may wait for its last"
    assert len(crew.sent.answers) < len(old) / 2
    assert {tuple(each) for each in crew.outcomes().values()} == {(Outcome.ALREADY_APPLIED,)}
    assert {each.position for each in crew.sent.answers} == {50}
    assert {each.rows_applied for each in crew.sent.answers} == {7}
    told = len(crew.sent.answers)
    crew.sends(*old, *old)
    crew.works_off()
    assert (crew.in_hand, crew.lakes.looks.total()) == (0, len(TENANTS))
    assert len(crew.sent.answers) == told, "nobody is told twice"
    again = [each.model_copy(update={"item": f"{each.item} again", "attempt": 2}) for each in old]
    crew.sends(*again)
    assert len(crew.sent.answers) == told + len(again), "whoever asks a second time waits, whatever his clock says"
    assert crew.lakes.looks.total() == len(TENANTS)


def test_a_fresh_item_never_passes_for_a_repeated_one(crew: Replayed) -> None:
    crew.wants("a", 0)
    for end in range(1, 200):
        crew.sends(changes("a", end - 1, end))
        crew.works_off()
    assert crew.lakes.cursors["a"] == 199
    assert {tuple(each) for each in crew.outcomes().values()} == {(Outcome.APPLIED,)}


def test_an_item_that_begins_where_the_cursor_was_seen_and_reaches_beyond_is_looked_at(crew: Replayed) -> None:
    crew.wants("a", 10)
    crew.sends(changes("a", 9, 10))
    crew.works_off()
    crew.sends(changes("a", 5, 11))
    crew.works_off()
    assert crew.outcomes() == {"a 9-10": [Outcome.ALREADY_APPLIED], "a 5-11": [Outcome.GAP]}


def test_what_was_seen_of_one_life_says_nothing_of_the_next(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.sends(changes("a", 99, 100))
    crew.works_off()
    crew.lakes.generation = 2
    crew.wants("a", 5, generation=2)
    crew.sends(changes("a", 5, 6, generation=2))
    crew.works_off()
    assert crew.outcomes()["a 5-6"] == [Outcome.APPLIED]
    crew.sends(changes("a", 98, 99))
    assert crew.sent.answers[-1].outcome is Outcome.FENCED
    assert crew.lakes.cursors["a"] == 6


def test_whatever_an_operator_touches_is_looked_at_anew(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.sends(changes("a", 99, 100))
    crew.works_off()
    crew.wants("a", 50, revision="touched after its lake was restored")
    crew.sends(changes("a", 50, 60))
    crew.works_off()
    assert crew.outcomes()["a 50-60"] == [Outcome.APPLIED]


def _probed(crew: Replayed) -> None:
    crew.sends(probe("a", 1))


def _met_a_gap(crew: Replayed) -> None:
    crew.sends(changes("a", 100, 110))


def _moved_elsewhere(crew: Replayed) -> None:
    crew.loses(0)


@pytest.mark.parametrize("learns", [_probed, _met_a_gap, _moved_elsewhere])
def test_a_lake_that_was_restored_is_believed(crew: Replayed, learns: Callable[[Replayed], None]) -> None:
    crew.wants("a", 100)
    crew.sends(changes("a", 99, 100))
    crew.works_off()
    crew.lakes.cursors["a"] = 50
    learns(crew)
    crew.works_off()
    crew.sends(changes("a", 50, 60))
    crew.works_off()
    assert crew.outcomes()["a 50-60"] == [Outcome.APPLIED]
    assert crew.lakes.cursors["a"] == 60


def test_another_partitions_destinations_stay_known(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.sends(changes("a", 99, 100))
    crew.works_off()
    crew.loses(1)
    crew.sends(changes("a", 98, 99))
    crew.works_off()
    assert crew.lakes.looks.total() == 1


def test_probes_are_always_looked_at_but_one_look_answers_all_that_wait(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.sends(*[probe("a", number) for number in range(50)])
    crew.works_off()
    assert (crew.lakes.looks.total(), len(crew.sent.answers)) == (1, 50)
    crew.lakes.cursors["a"] = 30
    crew.sends(probe("a", 50))
    crew.works_off()
    assert crew.sent.answers[-1].position == 30
    crew.sends(*[probe("a", number) for number in range(50)])
    crew.works_off()
    assert crew.lakes.looks.total() == 2, "those were answered, whoever sends them again"


def test_a_probe_that_came_while_another_was_under_way_is_looked_at_itself(crew: Replayed) -> None:
    """What the first one saw may be of before the second was asked."""
    crew.wants("a", 100)
    lakes = crew.lakes

    def meanwhile(*_: object) -> int:
        if lakes.looks.total() == 0:
            crew.sends(probe("a", 2))
        return 1_000

    object.__setattr__(crew.crew._jobs._context, "on_task", meanwhile)
    crew.sends(probe("a", 1))
    crew.works_off()
    assert lakes.runs == ["a probe 1", "a probe 2"]


def test_seeds_of_a_life_that_has_begun_are_looked_at_once(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.sends(*[item(PIPELINE, "a", 90, item=f"seed {number}", kind=ItemKind.SEED) for number in range(30)])
    crew.works_off()
    assert crew.lakes.looks.total() == 1
    assert {tuple(each) for each in crew.outcomes().values()} == {(Outcome.ALREADY_APPLIED,)}


def test_a_seed_whose_options_nobody_has_looked_at_is_not_taken_for_done(crew: Replayed) -> None:
    """Whoever seeded may have died before the table's options were set; who answers a seed looks at them."""
    crew.wants("a", 100)
    crew.sends(changes("a", 99, 100))
    crew.works_off()
    crew.sends(item(PIPELINE, "a", 90, item="seed", kind=ItemKind.SEED))
    crew.works_off()
    assert crew.lakes.runs == ["a 99-100", "seed"]


def test_an_old_failure_is_told_to_all_that_waited_and_holds_up_nobody(crew: Replayed) -> None:
    crew.wants("a", 100)
    crew.wants("b", 100)
    crew.lakes.broken.add("a")
    crew.sends(*[changes("a", end - 1, end) for end in range(1, 101)])
    crew.works_off()
    assert crew.lakes.looks["a", 100] == 1
    assert {tuple(each) for each in crew.outcomes().values()} == {(Outcome.FAILED,)}
    crew.sends(*[changes("a", end - 1, end, item=f"again {end}") for end in range(1, 101)])
    crew.sends(changes("b", 100, 101))
    crew.turn(Lane.CHANGES)
    assert crew.lakes.runs[1:] == ["b 100-101"], "those of the one in trouble are in the lane for retries"
    crew.works_off()
    crew.lakes.broken.clear()
    crew.sends(changes("a", 100, 101, attempt=2))
    crew.works_off()
    crew.sends(changes("a", 101, 102))
    crew.turn(Lane.CHANGES)
    assert crew.lakes.cursors["a"] == 102, "it is out of trouble, and back among the others"


def test_what_is_for_nobody_any_more_is_let_go_at_once(crew: Replayed) -> None:
    crew.say("gone", removed=True)
    crew.say("paused", state=DesiredState.PAUSED)
    crew.sends(*[changes("gone", end - 1, end) for end in range(1, 100)])
    crew.crew._committable()
    assert (crew.in_hand, crew.sent.answers) == (0, [])
    crew.sends(*[changes("paused", end - 1, end) for end in range(1, 100)])
    crew.crew._lanes[Lane.CHANGES]._thin()
    assert crew.crew._lanes[Lane.CHANGES].queued == 1, "a resume may have been overtaken by one of them: the last"


def test_a_gap_is_told_to_nobody_else(crew: Replayed) -> None:
    """An item from before a restore is ahead of the cursor; the reader's own begins at it."""
    crew.wants("a", 50)
    crew.sends(changes("a", 90, 100), changes("a", 50, 60))
    crew.works_off()
    assert crew.outcomes() == {"a 90-100": [Outcome.GAP], "a 50-60": [Outcome.APPLIED]}


def test_of_a_destination_that_nobody_knows_the_item_that_reaches_furthest_goes_first(crew: Replayed) -> None:
    for name in TENANTS:
        crew.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    crew.sends(*old[:500], *[changes(name, 50, 51) for name in TENANTS], *old[500:])
    crew.turn(Lane.CHANGES)
    assert set(crew.lakes.cursors.values()) == {51}
    crew.works_off()
    assert crew.lakes.looks.total() == len(TENANTS)


def test_items_that_nobody_would_send_now_run_after_all_others(crew: Replayed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their destinations were restored, so no cursor has passed them: each costs a look."""
    monkeypatch.setattr("services.applier.lane.MAX_TARGETS", 5)
    for name in TENANTS:
        crew.wants(name, 50)
        crew.sends(probe(name, 0))
    crew.works_off()
    crew.sends(*[changes(name, end - 1, end) for end in range(90, 99) for name in TENANTS[5:]])
    crew.sends(*[changes(name, 50, 51) for name in TENANTS[:5]])
    crew.turn(Lane.CHANGES)
    assert [crew.lakes.cursors[name] for name in TENANTS[:5]] == [51] * 5


def test_the_lake_is_asked_before_the_source_where_nobody_knows_the_position(crew: Replayed) -> None:
    crew.wants("a", 50)
    for end in (51, 52, 53):
        crew.sends(changes("a", end - 1, end))
        crew.works_off()
    crew.sends(changes("a", 49, 60))
    crew.works_off()
    assert crew.lakes.looked_first == ["a 50-51", "a 49-60"]
