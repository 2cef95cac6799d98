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
def consumer(tmp_path: Path) -> Replayed:
    return Replayed(tmp_path)


def test_thousands_of_old_items_cost_one_look_for_each_destination_and_hold_up_no_fresh_one(consumer: Replayed) -> None:
    rng = random.Random(7)
    for name in TENANTS:
        consumer.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    for fresh in range(50, 53):
        again = rng.choices(old, k=2_000)
        consumer.sends(*again[:1_000], *[changes(name, fresh, fresh + 1) for name in TENANTS], *again[1_000:])
        consumer.turn(Lane.CHANGES)
        assert {consumer.lakes.cursors[name] for name in TENANTS} == {fresh + 1}, "the first job has every fresh item"
        consumer.works_off()
        assert consumer.in_hand == 0
    assert consumer.lakes.looks.total() == 3 * len(TENANTS), "the fresh ones alone"
    assert max(consumer.lakes.looks.values()) == 1


def test_a_backlog_of_old_items_alone_is_one_look_for_each_destination(consumer: Replayed) -> None:
    for name in TENANTS:
        consumer.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    random.Random(1).shuffle(old)
    consumer.sends(*old)
    consumer.works_off()
    assert consumer.lakes.looks == {(name, 50): 1 for name in TENANTS}
    newest = {name: max((each for each in old if each.destination == name), key=published_at) for name in TENANTS}
    assert {each.item for each in newest.values()} <= set(consumer.outcomes()), "a reader may wait for its last"
    assert len(consumer.sent.answers) < len(old) / 2
    assert {tuple(each) for each in consumer.outcomes().values()} == {(Outcome.ALREADY_APPLIED,)}
    assert {each.position for each in consumer.sent.answers} == {50}
    assert {each.rows_applied for each in consumer.sent.answers} == {7}
    told = len(consumer.sent.answers)
    consumer.sends(*old, *old)
    consumer.works_off()
    assert (consumer.in_hand, consumer.lakes.looks.total()) == (0, len(TENANTS))
    assert len(consumer.sent.answers) == told, "nobody is told twice"
    again = [each.model_copy(update={"item": f"{each.item} again", "attempt": 2}) for each in old]
    consumer.sends(*again)
    assert len(consumer.sent.answers) == told + len(again), "whoever asks a second time waits, whatever his clock says"
    assert consumer.lakes.looks.total() == len(TENANTS)


def test_a_fresh_item_never_passes_for_a_repeated_one(consumer: Replayed) -> None:
    consumer.wants("a", 0)
    for end in range(1, 130):
        consumer.sends(changes("a", end - 1, end))
        consumer.works_off()
    assert consumer.lakes.cursors["a"] == 129
    assert {tuple(each) for each in consumer.outcomes().values()} == {(Outcome.APPLIED,)}


def test_an_item_that_begins_where_the_cursor_was_seen_and_reaches_beyond_is_looked_at(consumer: Replayed) -> None:
    consumer.wants("a", 10)
    consumer.sends(changes("a", 9, 10))
    consumer.works_off()
    consumer.sends(changes("a", 5, 11))
    consumer.works_off()
    assert consumer.outcomes() == {"a 9-10": [Outcome.ALREADY_APPLIED], "a 5-11": [Outcome.GAP]}


def test_what_was_seen_of_one_life_says_nothing_of_the_next(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.sends(changes("a", 99, 100))
    consumer.works_off()
    consumer.lakes.generation = 2
    consumer.wants("a", 5, generation=2)
    consumer.sends(changes("a", 5, 6, generation=2))
    consumer.works_off()
    assert consumer.outcomes()["a 5-6"] == [Outcome.APPLIED]
    consumer.sends(changes("a", 98, 99))
    assert consumer.sent.answers[-1].outcome is Outcome.FENCED
    assert consumer.lakes.cursors["a"] == 6


def test_whatever_an_operator_touches_is_looked_at_anew(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.sends(changes("a", 99, 100))
    consumer.works_off()
    consumer.wants("a", 50, revision="touched after its lake was restored")
    consumer.sends(changes("a", 50, 60))
    consumer.works_off()
    assert consumer.outcomes()["a 50-60"] == [Outcome.APPLIED]


def _probed(consumer: Replayed) -> None:
    consumer.sends(probe("a", 1))


def _met_a_gap(consumer: Replayed) -> None:
    consumer.sends(changes("a", 100, 110))


def _moved_elsewhere(consumer: Replayed) -> None:
    consumer.loses(0)


@pytest.mark.parametrize("learns", [_probed, _met_a_gap, _moved_elsewhere])
def test_a_lake_that_was_restored_is_believed(consumer: Replayed, learns: Callable[[Replayed], None]) -> None:
    consumer.wants("a", 100)
    consumer.sends(changes("a", 99, 100))
    consumer.works_off()
    consumer.lakes.cursors["a"] = 50
    learns(consumer)
    consumer.works_off()
    consumer.sends(changes("a", 50, 60))
    consumer.works_off()
    assert consumer.outcomes()["a 50-60"] == [Outcome.APPLIED]
    assert consumer.lakes.cursors["a"] == 60


def test_another_partitions_destinations_stay_known(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.sends(changes("a", 99, 100))
    consumer.works_off()
    consumer.loses(1)
    consumer.sends(changes("a", 98, 99))
    consumer.works_off()
    assert consumer.lakes.looks.total() == 1


def test_probes_are_always_looked_at_but_one_look_answers_all_that_wait(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.sends(*[probe("a", number) for number in range(50)])
    consumer.works_off()
    assert (consumer.lakes.looks.total(), len(consumer.sent.answers)) == (1, 50)
    consumer.lakes.cursors["a"] = 30
    consumer.sends(probe("a", 50))
    consumer.works_off()
    assert consumer.sent.answers[-1].position == 30
    consumer.sends(*[probe("a", number) for number in range(50)])
    consumer.works_off()
    assert consumer.lakes.looks.total() == 2, "those were answered, whoever sends them again"


def test_an_old_probe_of_a_lake_whose_position_is_known_costs_no_look_and_holds_up_no_change(
    consumer: Replayed,
) -> None:
    """Its reader has asked for something else since. A probe that a reader waits for is its newest item."""
    for name in TENANTS:
        consumer.wants(name, 50)
    asked = [probe(name, number) for name in TENANTS for number in range(20)]
    consumer.sends(*[changes(name, 49, 50) for name in TENANTS])
    consumer.works_off()
    consumer.sends(*asked[:200], *[changes(name, 50, 51) for name in TENANTS], *asked[200:])
    consumer.turn(Lane.CHANGES)
    assert {consumer.lakes.cursors[name] for name in TENANTS} == {51}, "the first job has every change"
    consumer.works_off()
    assert consumer.lakes.looks.total() == 2 * len(TENANTS), "the changes alone"
    told = [consumer.outcomes()[each.item] for each in asked]
    assert told == [[Outcome.ALREADY_APPLIED]] * len(asked), "where a clock was set back, a reader may wait for one"


def test_a_probe_that_came_while_another_was_under_way_is_looked_at_itself(consumer: Replayed) -> None:
    """What the first one saw may be of before the second was asked."""
    consumer.wants("a", 100)
    lakes = consumer.lakes

    def meanwhile(*_: object) -> int:
        if lakes.looks.total() == 0:
            consumer.sends(probe("a", 2))
        return 1_000

    object.__setattr__(consumer.consumer._jobs._context, "on_task", meanwhile)
    consumer.sends(probe("a", 1))
    consumer.works_off()
    assert lakes.runs == ["a probe 1", "a probe 2"]


def test_seeds_of_a_life_that_has_begun_are_looked_at_once(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.sends(*[item(PIPELINE, "a", 90, item=f"seed {number}", kind=ItemKind.SEED) for number in range(30)])
    consumer.works_off()
    assert consumer.lakes.looks.total() == 1
    assert {tuple(each) for each in consumer.outcomes().values()} == {(Outcome.ALREADY_APPLIED,)}


def test_a_seed_whose_options_nobody_has_looked_at_is_not_taken_for_done(consumer: Replayed) -> None:
    """Whoever seeded may have died before the table's options were set; who answers a seed looks at them."""
    consumer.wants("a", 100)
    consumer.sends(changes("a", 99, 100))
    consumer.works_off()
    consumer.sends(item(PIPELINE, "a", 90, item="seed", kind=ItemKind.SEED))
    consumer.works_off()
    assert consumer.lakes.runs == ["a 99-100", "seed"]


def test_an_old_failure_is_told_to_all_that_waited_and_holds_up_nobody(consumer: Replayed) -> None:
    consumer.wants("a", 100)
    consumer.wants("b", 100)
    consumer.lakes.broken.add("a")
    consumer.sends(*[changes("a", end - 1, end) for end in range(1, 101)])
    consumer.works_off()
    assert consumer.lakes.looks["a", 100] == 1
    assert {tuple(each) for each in consumer.outcomes().values()} == {(Outcome.FAILED,)}
    consumer.sends(*[changes("a", end - 1, end, item=f"again {end}") for end in range(1, 101)])
    consumer.sends(changes("b", 100, 101))
    consumer.turn(Lane.CHANGES)
    assert consumer.lakes.runs[1:] == ["b 100-101"], "those of the one in trouble are in the lane for retries"
    consumer.works_off()
    consumer.lakes.broken.clear()
    consumer.sends(changes("a", 100, 101, attempt=2))
    consumer.works_off()
    consumer.sends(changes("a", 101, 102))
    consumer.turn(Lane.CHANGES)
    assert consumer.lakes.cursors["a"] == 102, "it is out of trouble, and back among the others"


def test_what_is_for_nobody_any_more_is_let_go_at_once(consumer: Replayed) -> None:
    consumer.say("gone", removed=True)
    consumer.say("paused", state=DesiredState.PAUSED)
    consumer.sends(*[changes("gone", end - 1, end) for end in range(1, 100)])
    consumer.consumer._committable()
    assert (consumer.in_hand, consumer.sent.answers) == (0, [])
    consumer.sends(*[changes("paused", end - 1, end) for end in range(1, 100)])
    consumer.consumer._lanes[Lane.CHANGES]._thin()
    assert len(consumer.consumer._lanes[Lane.CHANGES]._waiting) == 1, (
        "a resume may have been overtaken by one of them: the last"
    )


def test_a_gap_is_told_to_nobody_else(consumer: Replayed) -> None:
    """An item from before a restore is ahead of the cursor; the reader's own begins at it."""
    consumer.wants("a", 50)
    consumer.sends(changes("a", 90, 100), changes("a", 50, 60))
    consumer.works_off()
    assert consumer.outcomes() == {"a 90-100": [Outcome.GAP], "a 50-60": [Outcome.APPLIED]}


def test_of_a_destination_that_nobody_knows_the_item_that_reaches_furthest_goes_first(consumer: Replayed) -> None:
    for name in TENANTS:
        consumer.wants(name, 50)
    old = [changes(name, end - 1, end) for name in TENANTS for end in range(1, 51)]
    consumer.sends(*old[:500], *[changes(name, 50, 51) for name in TENANTS], *old[500:])
    consumer.turn(Lane.CHANGES)
    assert set(consumer.lakes.cursors.values()) == {51}
    consumer.works_off()
    assert consumer.lakes.looks.total() == len(TENANTS)


def test_items_that_nobody_would_send_now_run_after_all_others(
    consumer: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their destinations were restored, so no cursor has passed them: each costs a look."""
    monkeypatch.setattr("services.applier.lane.MAX_TARGETS", 5)
    for name in TENANTS:
        consumer.wants(name, 50)
        consumer.sends(probe(name, 0))
    consumer.works_off()
    consumer.sends(*[changes(name, end - 1, end) for end in range(90, 99) for name in TENANTS[5:]])
    consumer.sends(*[changes(name, 50, 51) for name in TENANTS[:5]])
    consumer.turn(Lane.CHANGES)
    assert [consumer.lakes.cursors[name] for name in TENANTS[:5]] == [51] * 5


def test_the_lake_is_asked_before_the_source_where_nobody_knows_the_position(consumer: Replayed) -> None:
    consumer.wants("a", 50)
    for end in (51, 52, 53):
        consumer.sends(changes("a", end - 1, end))
        consumer.works_off()
    consumer.sends(changes("a", 49, 60))
    consumer.works_off()
    assert consumer.lakes.looked_first == ["a 50-51", "a 49-60"]
