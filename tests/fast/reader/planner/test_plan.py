"""The planner, one claim at a time; ``test_world`` lets everything happen at once."""

from __future__ import annotations

import cProfile
import itertools
import pstats
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.reader.planner import change_index
from services.reader.planner.actions import Park, Send
from services.reader.planner.in_flight_limits import MOST_SEEDS
from services.reader.planner.plan import MOST_A_TURN, SETTLES_WITHIN_S, Planner
from services.reader.planner.scheduling import Draft, Rules, choose
from shared.contracts.errors import MAX_ATTEMPTS
from shared.contracts.messages import DesiredState, Destination, ItemKind, Outcome, Problem, Progress, SeedMode, Seen
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import UPKEEP_DAMAGED, Compaction, Damage
from shared.lake.columns.followed import Break
from tests.fast.reader.simulation import answer, source_state, spec, step

PROBLEM = Problem(type="table_mismatch", message="other columns", hint="", retryable=False)


class Reader:
    """A planner with a clock and a memory of what it sent."""

    def __init__(self, *specs: Destination, rules: Rules | None = None, line: int | None = None) -> None:
        numbers = itertools.count(1)
        self.planner = Planner(rules or Rules(), lambda: f"item-{next(numbers)}", lambda: 0.0, line)
        self.now_s = 0.0
        self.cursors: dict[str, int] = {}
        for each in specs:
            self.planner.destination(each, self.now_s)

    def plan(self) -> list[Send]:
        """What goes out in the turns that are due now."""
        sent: list[Send] = []
        while True:
            sent += [action for action in self.planner.plan(self.now_s) if isinstance(action, Send)]
            due_s = self.planner.next_due_s()
            if due_s is None or due_s > self.now_s:
                return sent

    def parks(self) -> dict[str, Problem]:
        """Who is parked, once everybody who is asked again has answered from where the cursor was last seen."""
        parked: dict[str, Problem] = {}
        while actions := self.planner.plan(self.now_s):
            for action in actions:
                if isinstance(action, Park):
                    parked[action.destination] = action.problem
                else:
                    assert action.draft.kind is ItemKind.PROBE
                    self.hear(action, Outcome.ALREADY_APPLIED, self.cursors[action.destination])
        return parked

    def hear(self, send: Send, outcome: Outcome, position: int | None = None, **more: object) -> None:
        if position is not None:
            self.cursors[send.destination] = position
        self.planner.progress(answer(send, outcome, position, **more), self.now_s)  # type: ignore[arg-type]

    def probed(self, **positions: int) -> None:
        for send in self.plan():
            assert send.draft.kind is ItemKind.PROBE
            self.hear(send, Outcome.ALREADY_APPLIED, positions[send.destination])

    def observe(self, head: int, **more: Any) -> None:
        """``more`` as ``source_state`` takes it."""
        self.planner.observe(source_state(head, **more), self.now_s)

    def count(self, after: int, through: int, rows: dict[str, int], *, pinned: bool = False) -> None:
        self.planner.counted(step(after, through, rows, pinned=pinned))


def reader_at(position: int, *names: str, rules: Rules | None = None) -> Reader:
    """Everybody named is exact at ``position``, which is the head."""
    reader = Reader(*(spec(name) for name in names), rules=rules)
    reader.observe(position)
    reader.probed(**dict.fromkeys(names, position))
    assert reader.plan() == []
    return reader


def test_only_the_touched_get_an_item() -> None:
    reader = reader_at(5, "a", "b", "c")
    reader.observe(9)
    reader.count(5, 9, {"a": 3, "nobody": 7})
    (send,) = reader.plan()
    assert (send.destination, send.draft) == ("a", Draft(ItemKind.CHANGES, 5, 5, 9, 3))
    assert reader.planner.tracked["b"].exact == 9


def test_what_comes_while_an_item_is_in_flight_waits_and_goes_with_the_next() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 6, {"a": 1})
    (first,) = reader.plan()
    reader.count(6, 7, {"a": 2})
    reader.count(7, 8, {"a": 4})
    assert reader.plan() == []
    reader.hear(first, Outcome.APPLIED, 6, through=6)
    (second,) = reader.plan()
    assert second.draft == Draft(ItemKind.CHANGES, 6, 6, 8, 6)


def test_an_item_that_was_lifted_to_the_head_spares_the_steps_it_covered() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 6, {"a": 1})
    (first,) = reader.plan()
    reader.count(6, 7, {"a": 2})
    reader.hear(first, Outcome.APPLIED, 9, through=9)
    assert reader.plan() == []
    reader.count(7, 9, {"a": 2})
    assert reader.plan() == []
    reader.count(9, 10, {"a": 1})
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.CHANGES, 9, 9, 10, 1)]


def test_an_empty_answer_moves_what_is_known_but_not_the_position() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.hear(first, Outcome.EMPTY, 5, through=8)
    reader.count(8, 9, {"a": 1})
    (second,) = reader.plan()
    assert second.draft == Draft(ItemKind.CHANGES, 5, 8, 9, 1)


class TestUpkeep:
    """Of destinations that had two applies where two are enough."""

    @staticmethod
    def reader(*names: str) -> Reader:
        """Everybody has had two, is exact at 7, and has changes up to 8 before it."""
        reader = reader_at(5, *names, rules=Rules(compaction=Compaction(applies=2)))
        for through in (6, 7):
            reader.count(through - 1, through, dict.fromkeys(names, 1))
            for send in reader.plan():
                reader.hear(send, Outcome.APPLIED, through, through=through)
        reader.count(7, 8, dict.fromkeys(names, 1))
        return reader

    def test_goes_before_the_next_changes_and_moves_nothing(self) -> None:
        reader = self.reader("a")
        (upkeep,) = reader.plan()
        assert upkeep.draft == Draft(ItemKind.UPKEEP, 7, 7, 7, 0)
        assert reader.plan() == []
        reader.hear(upkeep, Outcome.ALREADY_APPLIED, 7)
        assert [send.draft for send in reader.plan()] == [Draft(ItemKind.CHANGES, 7, 7, 8, 1)]

    def test_is_nobodys_reason_to_wait_longer_than_for_its_own(self) -> None:
        kinds = [send.draft.kind for send in self.reader("a", "b", "c", "d").plan()]
        assert sorted(kinds) == [ItemKind.CHANGES] * 2 + [ItemKind.UPKEEP] * 2

    def test_is_begun_by_the_next_who_have_waited_once_there_is_room(self) -> None:
        reader = self.reader("a", "b", "c")
        first = {send.destination: send for send in reader.plan()}
        for send in first.values():
            reader.hear(send, Outcome.ALREADY_APPLIED if send.draft.kind is ItemKind.UPKEEP else Outcome.APPLIED,
                        7 if send.draft.kind is ItemKind.UPKEEP else 8)  # fmt: skip
        reader.count(8, 9, {"a": 1, "b": 1, "c": 1})
        (late,) = [send.destination for send in first.values() if send.draft.kind is ItemKind.CHANGES]
        assert [send.destination for send in reader.plan() if send.draft.kind is ItemKind.UPKEEP] == [late]

    def test_that_fails_does_not_keep_changes_waiting(self) -> None:
        reader = self.reader("a")
        (upkeep,) = reader.plan()
        reader.hear(upkeep, Outcome.FAILED)
        reader.now_s += 60
        for through in (8, 9):
            (send,) = reader.plan()
            assert send.draft.kind is ItemKind.CHANGES, "and not upkeep again, before every one of them"
            reader.hear(send, Outcome.APPLIED, through, through=through)
            reader.count(through, through + 1, {"a": 1})
        assert [send.draft.kind for send in reader.plan()] == [ItemKind.UPKEEP], "but after as many as before"

    def test_is_left_to_others_where_nobody_asked_for_it(self) -> None:
        reader = reader_at(5, "a", rules=Rules(compaction=Compaction(applies=0)))
        for through in (6, 7, 8):
            reader.count(through - 1, through, {"a": 1})
            (send,) = reader.plan()
            assert send.draft.kind is ItemKind.CHANGES
            reader.hear(send, Outcome.APPLIED, through, through=through)


def test_a_gap_is_planned_from_where_the_cursor_is() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.hear(first, Outcome.GAP, 7)
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.CHANGES, 7, 7, 8, 1)]


def test_a_cursor_that_went_back_is_believed_and_counted_from_there() -> None:
    """Somebody restored the destination from a backup."""
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.hear(first, Outcome.GAP, 2)
    assert reader.plan() == []
    assert reader.planner.below() == Range(2, 5)
    reader.planner.counted_below(step(2, 5, {"a": 2}))
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.CHANGES, 2, 2, 8, 3)]


def test_a_destination_whose_lake_is_gone_is_seeded_again() -> None:
    reader = Reader(spec("a", mode=SeedMode.LATEST))
    reader.observe(5)
    reader.probed(a=5)
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.hear(first, Outcome.GAP, NOT_SEEDED)
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.SEED]


def test_a_gap_where_there_is_none_is_a_failure() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.hear(first, Outcome.GAP, 5)
    assert reader.plan() == []
    reader.now_s = 1.0
    assert len(reader.plan()) == 1


def test_failures_back_off_and_success_forgives_them() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    waited = []
    for _ in range(MAX_ATTEMPTS + 1):
        (send,) = reader.plan()
        reader.hear(send, Outcome.FAILED)
        due = reader.planner.tracked["a"].not_before_s
        waited.append(due - reader.now_s)
        reader.now_s = due - 0.001
        assert reader.plan() == []
        reader.now_s = due
    assert waited == [1, 2, 4, 8, 16, 32]
    assert reader.planner.tracked["a"].is_exhausted
    (send,) = reader.plan()
    assert send.attempt == MAX_ATTEMPTS + 2
    reader.hear(send, Outcome.APPLIED, 8, through=8)
    assert reader.planner.tracked["a"].attempts == 0


def test_the_planner_says_when_it_wants_to_be_asked_again() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.FAILED)
    assert reader.planner.next_due_s() == 0.0, "an answer is followed at once"
    assert reader.plan() == []
    assert reader.planner.next_due_s() == 1.0


def test_an_item_that_nobody_answers_is_planned_again_more_and_more_patiently() -> None:
    reader = reader_at(5, "a", rules=Rules(confirm_within_s=10.0))
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.now_s = 9.9
    assert reader.plan() == []
    reader.now_s = 10.0
    (second,) = reader.plan()
    assert second.item != first.item
    assert (second.draft, second.attempt) == (first.draft, 2)
    reader.now_s = 29.9
    assert reader.plan() == []
    reader.now_s = 30.0
    assert len(reader.plan()) == 1
    assert not reader.planner.tracked["a"].is_exhausted


def test_the_late_answer_to_an_item_that_was_given_up_still_counts() -> None:
    reader = reader_at(5, "a", rules=Rules(confirm_within_s=10.0))
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.now_s = 10.0
    (second,) = reader.plan()
    reader.hear(first, Outcome.APPLIED, 8, through=8)
    assert reader.planner.tracked["a"].exact == 8
    assert reader.planner.tracked["a"].in_flight is not None
    reader.hear(second, Outcome.ALREADY_APPLIED, 8)
    assert reader.plan() == []


def test_an_item_that_the_broker_refused_is_sent_again_soon() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.planner.undelivered("a", first.item, reader.now_s)
    reader.planner.undelivered("a", "another", reader.now_s)
    assert reader.plan() == []
    reader.now_s = 1.0
    assert [send.draft for send in reader.plan()] == [first.draft]


def test_what_was_under_way_when_the_topics_were_made_anew_is_sent_again_at_once() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (first,) = reader.plan()
    reader.planner.renewed()
    (again,) = reader.plan()
    assert (again.draft, again.attempt) == (first.draft, first.attempt)
    assert reader.planner.rows_in_flight == 1


def test_what_is_sent_goes_with_the_routing_of_the_destination_s_life() -> None:
    by = RoutedBy(field="tenant")
    (send,) = Reader(spec("a").model_copy(update={"routed_by": by})).plan()
    assert send.routed_by == by


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.PARKED, Outcome.GAP, Outcome.EMPTY])
def test_an_answer_to_another_item_can_only_move_a_position_forward(outcome: Outcome) -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    other = Send("other", "a", 1, send.draft, 1)
    reader.hear(other, outcome, 3, through=99)
    tracked = reader.planner.tracked["a"]
    assert (tracked.position, tracked.exact, tracked.parked, tracked.attempts) == (5, 5, None, 0)
    assert tracked.in_flight is not None


def test_old_answers_by_the_thousand_are_no_news_and_wake_nobody() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    due_s = reader.planner.next_due_s()
    assert due_s is not None
    assert due_s > reader.now_s
    for number, outcome in itertools.product(range(1_000), Outcome):
        old = Send(f"old {number}", "a", number % 2 + 1, send.draft, 1)
        position = 99 if old.generation == 2 else number % 6
        assert not reader.planner.progress(answer(old, outcome, position, through=99), reader.now_s)
    assert reader.planner.next_due_s() == due_s
    ahead = Send("another", "a", 1, send.draft, 1)
    assert reader.planner.progress(answer(ahead, Outcome.APPLIED, 8, through=8), reader.now_s), "that is news"


def test_news_of_another_generation_is_not_overheard() -> None:
    reader = reader_at(5, "a")
    stranger = Send("other", "a", 2, Draft(ItemKind.CHANGES), 1)
    reader.hear(stranger, Outcome.APPLIED, 99, through=99)
    assert reader.planner.tracked["a"].position == 5


def harmed(generation: int = 1) -> Progress:
    """An applier's answer to an upkeep that control ordered."""
    harm = Problem(type=UPKEEP_DAMAGED, message="other rows", hint="", retryable=False)
    ordered = Send("of control", "a", generation, Draft(ItemKind.UPKEEP), 1)
    return answer(ordered, Outcome.PARKED, error=harm)


def test_damage_that_an_ordered_upkeep_did_parks_the_destination_at_once() -> None:
    """Its answers would say that all is well, before control has heard of the damage."""
    reader = reader_at(5, "a", "b")
    reader.count(5, 8, {"a": 1, "b": 1})
    assert not reader.planner.progress(harmed(generation=2), reader.now_s)
    assert reader.planner.progress(harmed(), reader.now_s)
    assert not reader.planner.progress(harmed(), reader.now_s), "it is no news twice"
    assert [send.destination for send in reader.plan()] == ["b"]
    assert reader.planner.tracked["a"].waits_to_be_heard


def test_damage_that_an_operator_has_looked_at_is_not_overheard_again() -> None:
    reader, told = reader_at(5, "a"), harmed()
    assert told.error is not None
    lifted = Damage(at=told.at, problem=told.error, lifted=True)
    reader.planner.destination(reader.planner.tracked["a"].spec.model_copy(update={"damage": lifted}), reader.now_s)
    assert not reader.planner.progress(told, reader.now_s)
    later = told.model_copy(update={"at": told.at + timedelta(seconds=1)})
    assert reader.planner.progress(later, reader.now_s)


def test_news_of_a_destination_that_was_removed_is_ignored() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.planner.forget("a")
    reader.hear(send, Outcome.APPLIED, 8, through=8)
    assert reader.planner.rows_in_flight == 0
    assert reader.plan() == []


def test_a_parked_destination_rests_until_it_is_touched() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.PARKED, error=PROBLEM)
    reader.now_s = 1e6
    reader.count(8, 9, {"a": 1})
    reader.planner.destination(spec("a"), reader.now_s)
    assert reader.plan() == []
    reader.planner.destination(spec("a", revision="2"), reader.now_s)
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.PROBE]


def test_what_was_just_mended_is_not_parked_by_an_applier_that_has_not_heard_of_it() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.PARKED, error=PROBLEM)
    reader.now_s = 100.0
    reader.planner.destination(spec("a", revision="2"), reader.now_s)
    (probe,) = reader.plan()
    reader.hear(probe, Outcome.PARKED, error=PROBLEM)
    reader.now_s += 2.0
    (again,) = reader.plan()
    reader.now_s = 100.0 + SETTLES_WITHIN_S
    reader.hear(again, Outcome.PARKED, error=PROBLEM)
    reader.now_s += 1e6
    assert reader.plan() == []
    assert reader.planner.tracked["a"].parked == PROBLEM


def test_a_destination_that_is_published_again_unchanged_is_left_alone() -> None:
    reader = reader_at(5, "a")
    reader.planner.destination(spec("a"), 1.0)
    assert reader.plan() == []


def test_a_new_generation_is_probed_and_an_older_cursor_replaced_by_a_seed() -> None:
    reader = reader_at(5, "a")
    reader.planner.destination(spec("a", generation=2, mode=SeedMode.LATEST), 1.0)
    (probe,) = reader.plan()
    assert (probe.draft.kind, probe.generation) == (ItemKind.PROBE, 2)
    reader.hear(probe, Outcome.FENCED, 5, generation=1)
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.SEED, through=5, rows=0)]


def test_a_cursor_of_a_later_generation_makes_us_wait_and_ask_again() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.FENCED, 7, generation=4)
    assert reader.plan() == []
    reader.now_s = 1.0
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.PROBE]


@pytest.mark.parametrize("state", [DesiredState.PAUSED, DesiredState.STOPPED])
def test_a_switched_off_destination_gets_nothing_and_what_is_known_of_it_stays(state: DesiredState) -> None:
    reader = reader_at(5, "a")
    reader.planner.destination(spec("a", state=state, revision="2"), 1.0)
    reader.count(5, 6, {"b": 1})
    reader.count(6, 8, {"a": 1})
    assert reader.plan() == []
    assert reader.planner.tracked["a"].exact == 6
    reader.planner.destination(spec("a", revision="3"), 2.0)
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.PROBE]


def test_a_destination_that_was_resumed_after_the_counts_were_trimmed_is_counted_anew() -> None:
    reader = reader_at(5, "a")
    reader.planner.destination(spec("a", state=DesiredState.PAUSED, revision="2"), 1.0)
    reader.count(5, 6, {"a": 1})
    reader.count(6, 8, {})
    reader.planner.destination(spec("a", revision="3"), 2.0)
    reader.probed(a=5)
    assert reader.plan() == []
    below = reader.planner.below()
    assert below == Range(5, 8)
    reader.planner.counted_below(step(5, 8, {"a": 1}))
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.CHANGES, 5, 5, 8, 1)]


def test_a_start_counts_once_for_everybody_who_stands_further_back() -> None:
    reader = Reader(*(spec(name) for name in "abc"))
    reader.observe(20)
    reader.probed(a=10, b=14, c=20)
    assert reader.planner.below() == Range(14, 20)
    reader.planner.counted_below(step(14, 20, {"c": 5}))
    assert reader.planner.below() == Range(10, 14)
    reader.planner.counted_below(step(10, 14, {"a": 5}))
    assert reader.planner.below() is None
    assert [(send.destination, send.draft) for send in reader.plan()] == [("a", Draft(ItemKind.CHANGES, 10, 10, 20, 5))]


def test_a_start_goes_on_counting_where_the_last_life_stopped_if_that_is_still_there() -> None:
    for line, oldest, begins in ((15, 3, 15), (15, 16, 20), (99, 3, 20)):
        reader = Reader(line=line)
        reader.observe(20, oldest=oldest)
        assert reader.planner.index is not None
        assert reader.planner.index.line == begins


def test_seeds_wait_until_their_rows_are_counted() -> None:
    reader = Reader(spec("a"), spec("b"))
    reader.observe(5)
    reader.probed(a=NOT_SEEDED, b=NOT_SEEDED)
    assert reader.plan() == []
    wanted = [reader.planner.wants_sizes]
    reader.planner.sized({"a": 12})
    wanted.append(reader.planner.wants_sizes)
    assert wanted == [True, False]
    assert {send.destination: send.draft.rows for send in reader.plan()} == {"a": 12, "b": 0}


def test_whoever_stands_before_the_oldest_retained_snapshot_is_parked_with_the_reason() -> None:
    reader = Reader(spec("a"), spec("b"))
    reader.observe(20, oldest=10)
    for send in reader.plan():
        reader.hear(send, Outcome.ALREADY_APPLIED, {"a": 9, "b": 10}[send.destination])
    parks = reader.parks()
    assert set(parks) == {"a"}
    assert parks["a"].type == "history_expired"
    assert "9" in parks["a"].message
    assert "10" in parks["a"].message
    assert "reseed" in parks["a"].hint


def test_a_cursor_is_asked_once_more_before_its_destination_is_parked() -> None:
    """The answer that it moved on may have been lost."""
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (lost,) = reader.plan()
    reader.now_s = reader.planner.tracked["a"].in_flight.until_s  # type: ignore[union-attr]
    reader.observe(8, oldest=7)
    (probe,) = reader.plan()
    assert (lost.draft.kind, probe.draft.kind) == (ItemKind.CHANGES, ItemKind.PROBE)
    reader.hear(probe, Outcome.ALREADY_APPLIED, 8)
    assert reader.parks() == {}
    assert reader.planner.tracked["a"].exact == 8


def test_a_boundary_that_is_gone_parks_those_who_stand_on_it_and_nobody_else() -> None:
    reader = Reader(spec("a"), spec("b"))
    reader.observe(20)
    reader.probed(a=9, b=11)
    reader.planner.below()
    reader.planner.expired(11)
    assert set(reader.parks()) == {"b"}
    assert reader.planner.below() == Range(9, 20)


def test_what_can_not_be_counted_is_not_asked_for_while_an_answer_is_awaited() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    assert len(reader.plan()) == 1
    reader.observe(12, oldest=9)
    assert reader.planner.below() is None


def test_a_line_that_expired_is_given_up() -> None:
    reader = reader_at(5, "a")
    reader.observe(9)
    reader.planner.expired(5)
    assert set(reader.parks()) == {"a"}
    assert reader.planner.above() is None


def test_an_item_in_flight_is_awaited_before_anybody_is_parked() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    (send,) = reader.plan()
    reader.observe(8, oldest=7)
    assert reader.parks() == {}
    reader.hear(send, Outcome.APPLIED, 8, through=8)
    assert reader.parks() == {}


def test_a_table_that_was_created_again_parks_whoever_was_filled_from_the_old_one() -> None:
    reader = reader_at(5, "a", "b")
    reader.observe(9, born=8, table="another")
    parks = reader.parks()
    assert {name: problem.type for name, problem in parks.items()} == {"a": "source_recreated", "b": "source_recreated"}
    assert reader.planner.above() is None


def test_a_start_notices_that_the_table_is_younger_than_a_position() -> None:
    reader = Reader(spec("a"))
    reader.observe(9, born=8)
    reader.probed(a=7)
    assert reader.parks()["a"].type == "source_recreated"


def test_another_lake_in_the_old_place_parks_everybody() -> None:
    reader = reader_at(5, "a")
    reader.observe(50, lake="another")
    assert reader.parks()["a"].type == "source_recreated"


def test_a_history_that_went_back_parks_whoever_is_ahead_of_it() -> None:
    """The source's catalog was restored from a backup: snapshot ids will come again with other content."""
    reader = reader_at(5, "a")
    reader.observe(4)
    assert reader.parks()["a"].type == "source_moved"
    assert reader.planner.above() is None


@pytest.mark.parametrize("more", [{"head": 6}, {"head": 9, "history": 1}], ids=["back", "and past it"])
def test_what_was_concluded_in_a_history_that_was_undone_is_forgotten(more: dict[str, int]) -> None:
    """Whoever stands before the backup goes on from where its cursor is, and from nowhere further."""
    reader = reader_at(5, "a")
    reader.observe(8)
    reader.count(5, 8, {"b": 1})
    assert reader.planner.tracked["a"].exact == 8
    reader.observe(**more)
    assert reader.planner.tracked["a"].exact == NOT_SEEDED
    reader.probed(a=5)
    assert reader.planner.tracked["a"].exact == 5
    assert reader.planner.below() == Range(5, more["head"])


def test_an_item_that_was_sent_in_a_history_that_was_undone_is_forgotten() -> None:
    reader = reader_at(5, "a")
    reader.observe(6)
    reader.count(5, 6, {"a": 1})
    (sent,) = reader.plan()
    reader.observe(7, history=1)
    reader.hear(sent, Outcome.EMPTY, through=6)
    assert reader.planner.tracked["a"].exact == NOT_SEEDED
    reader.probed(a=5)
    assert reader.planner.tracked["a"].exact == 5


def test_an_item_that_begins_beyond_the_cursor_says_what_it_rests_on() -> None:
    reader = reader_at(5, "a")
    reader.observe(8)
    reader.count(5, 8, {"b": 1})
    at = datetime(2026, 5, 5, tzinfo=UTC)
    reader.observe(9, at=at)
    reader.count(8, 9, {"a": 1})
    (sent,) = reader.plan()
    assert (sent.draft.expected, sent.draft.after, sent.seen) == (5, 8, Seen(snapshot=9, at=at))
    reader.hear(sent, Outcome.APPLIED, 9, through=9)
    reader.observe(10)
    reader.count(9, 10, {"a": 1})
    (sent,) = reader.plan()
    assert (sent.draft.expected, sent.draft.after, sent.seen) == (9, 9, None)


def test_columns_that_can_not_be_followed_park_whoever_stands_before_the_change() -> None:
    reader = reader_at(5, "a")
    reader.observe(6, breaks=(Break(2, 4, "the column x was renamed to y"),))
    reader.count(5, 6, {})
    assert reader.parks() == {}
    reader.observe(7, breaks=(Break(2, 6, "the column v was dropped and another one of that name added"),))
    reader.count(6, 7, {})
    problem = reader.parks()["a"]
    assert problem.type == "schema_change"
    assert "column v" in problem.message
    assert reader.plan() == []


def test_an_answer_from_beyond_the_head_that_was_seen_last_is_no_contradiction() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 6, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.APPLIED, 9, through=9)
    assert reader.parks() == {}
    reader.observe(9)
    assert reader.parks() == {}


def test_a_quiet_destination_is_advanced_though_the_source_is_idle() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 9, {"b": 1})
    reader.now_s = 3600.0
    reader.observe(9)
    (send,) = reader.plan()
    assert send.draft == Draft(ItemKind.ADVANCE, 5, 9, 9, 0)
    reader.hear(send, Outcome.APPLIED, 9, through=9)
    reader.now_s = 9999.0
    reader.observe(9)
    assert reader.plan() == []


def test_quiet_destinations_get_the_columns_that_changed_at_once_and_behind_changes() -> None:
    names = [f"d{number:03}" for number in range(200)]
    reader = reader_at(5, *names, rules=Rules(advances_at_once=30))
    reader.observe(7, reshaped=[6])
    reader.count(5, 7, {"d150": 1})
    changes, *first = reader.plan()
    assert changes.destination == "d150"
    assert [send.draft for send in first] == [Draft(ItemKind.ADVANCE, 5, 7, 7, 0)] * 30
    for send in first:
        reader.hear(send, Outcome.APPLIED, 7, through=7)
    others = set[str]()
    while sends := reader.plan():
        assert len(sends) <= 30
        for send in sends:
            others.add(send.destination)
            reader.hear(send, Outcome.APPLIED, 7, through=7)
    assert others | {send.destination for send in first} == set(names) - {"d150"}
    reader.observe(7, reshaped=[6])
    assert reader.plan() == []


def test_who_was_found_further_back_follows_columns_as_soon_as_it_is_counted_for() -> None:
    """After a restart, of an idle source: the next look is a minute away."""
    reader = Reader(spec("a"))
    reader.observe(9, reshaped=[1, 7])
    reader.probed(a=5)
    assert reader.plan() == []
    reader.planner.counted_below(step(5, 9, {"b": 1}))
    assert [send.draft for send in reader.plan()] == [Draft(ItemKind.ADVANCE, 5, 9, 9, 0)]


def test_columns_that_are_not_known_to_be_reached_hurry_nobody() -> None:
    reader = reader_at(5, "a")
    reader.observe(9, reshaped=[8])
    reader.count(5, 7, {"b": 1})
    reader.observe(9, reshaped=[8])
    assert reader.plan() == []


def test_a_step_that_does_not_fit_the_ledger_any_more_is_ignored() -> None:
    reader = reader_at(5, "a")
    reader.count(7, 9, {"a": 1})
    reader.planner.counted_below(step(1, 3, {"a": 1}))
    assert reader.plan() == []
    assert reader.planner.index is not None
    assert (reader.planner.index.floor, reader.planner.index.line) == (5, 5)


def test_ten_thousand_untouched_destinations_cost_no_item() -> None:
    names = [f"d{number}" for number in range(10_000)]
    reader = Reader(*(spec(name) for name in names))
    reader.observe(5)
    while sends := reader.plan():
        for send in sends:
            reader.hear(send, Outcome.ALREADY_APPLIED, 5)
    reader.count(5, 6, {"d7": 1, "d8": 1, "d9": 1})
    assert {send.destination for send in reader.plan()} == {"d7", "d8", "d9"}


def test_a_life_that_was_rewound_begins_at_its_snapshot_to_the_letter_and_goes_on_from_there() -> None:
    reader = reader_at(5, "a")
    reader.planner.destination(spec("a", generation=2, seed_at=3), reader.now_s)
    (probe,) = reader.plan()
    reader.hear(probe, Outcome.FENCED, 5, generation=1)
    (seed,) = reader.plan()
    assert seed.draft == Draft(ItemKind.SEED, through=3, pinned=True)
    reader.hear(seed, Outcome.APPLIED, 3)
    assert reader.planner.below() == Range(3, 5)


@pytest.mark.parametrize(("oldest", "born", "type"), [(4, 1, "history_expired"), (0, 4, "source_recreated")])
def test_a_rewind_to_what_is_no_longer_there_parks_before_anything_is_written(
    oldest: int, born: int, type: str
) -> None:
    reader = Reader(spec("a", generation=2, seed_at=3))
    reader.observe(9, oldest=oldest, born=born)
    reader.probed(a=NOT_SEEDED)
    assert {name: each.type for name, each in reader.parks().items()} == {"a": type}


def test_data_that_is_to_go_is_dropped_once_and_tried_again_until_it_is() -> None:
    reader = reader_at(5, "a")
    stopped = spec("a", generation=2, state=DesiredState.STOPPED, drop=True)
    reader.planner.destination(stopped, reader.now_s)
    (drop,) = reader.plan()
    assert (drop.draft.kind, drop.generation) == (ItemKind.DROP, 2)
    reader.hear(drop, Outcome.FAILED)
    assert reader.plan() == []
    reader.now_s += 10
    (again,) = reader.plan()
    assert again.attempt == 2
    reader.hear(again, Outcome.APPLIED, NOT_SEEDED)
    reader.now_s += 1_000
    assert reader.plan() == []


def seeding(reader: Reader) -> list[Send]:
    reader.observe(5)
    reader.probed(a=NOT_SEEDED)
    reader.plan()
    reader.planner.sized({"a": 2})
    return reader.plan()


@pytest.mark.parametrize("outcome", [Outcome.APPLIED, Outcome.FENCED, Outcome.PARKED, Outcome.FAILED])
def test_a_seed_that_is_under_way_is_awaited_before_its_data_is_dropped(outcome: Outcome) -> None:
    reader = Reader(spec("a"))
    (seed,) = seeding(reader)
    reader.planner.destination(spec("a", generation=2, state=DesiredState.STOPPED, drop=True), reader.now_s)
    assert (seed.draft.kind, reader.plan()) == (ItemKind.SEED, [])
    reader.hear(seed, outcome, 5)
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.DROP]


def test_a_seed_that_nobody_answers_does_not_hold_up_the_drop_for_ever() -> None:
    reader = Reader(spec("a"))
    seeding(reader)
    reader.planner.destination(spec("a", generation=2, state=DesiredState.STOPPED, drop=True), reader.now_s)
    reader.now_s += Rules().confirm_within_s
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.DROP]


def test_a_drop_that_was_parked_is_tried_again_when_an_operator_asks_again() -> None:
    reader = Reader(spec("a", state=DesiredState.STOPPED, drop=True))
    (drop,) = reader.plan()
    reader.hear(drop, Outcome.PARKED, error=PROBLEM)
    assert reader.plan() == []
    reader.planner.destination(spec("a", state=DesiredState.STOPPED, drop=True, revision="2"), reader.now_s)
    assert [send.draft.kind for send in reader.plan()] == [ItemKind.DROP]


def test_a_tenant_larger_than_the_bound_is_seeded_though_changes_never_end() -> None:
    reader = Reader(spec("busy"), spec("large"), rules=Rules(max_rows_in_flight=100, segment_rows=40))
    reader.observe(5)
    reader.probed(busy=5, large=NOT_SEEDED)
    reader.plan()
    reader.planner.sized({"large": 1_000})
    seeds: list[Send] = []
    head = 5
    for _ in range(20):  # there is always a change in flight
        reader.count(head, head + 1, {"busy": 60})
        head += 1
        changes, seeds = partitioned(reader.plan(), seeds)
        reader.count(head, head + 1, {"busy": 60})
        head += 1
        for send in changes:
            reader.hear(send, Outcome.APPLIED, send.draft.through, through=send.draft.through)
    assert [send.destination for send in seeds] == ["large"]


def test_changes_of_others_go_on_while_a_seed_larger_than_the_bound_is_under_way() -> None:
    reader = Reader(spec("busy"), spec("large"), rules=Rules(max_rows_in_flight=100, segment_rows=40))
    reader.observe(5)
    reader.probed(busy=5, large=NOT_SEEDED)
    reader.plan()
    reader.planner.sized({"large": 1_000})
    assert [send.destination for send in reader.plan()] == ["large"]
    reader.count(5, 6, {"busy": 60})
    assert [send.destination for send in reader.plan()] == ["busy"]


def partitioned(sends: list[Send], seeds: list[Send]) -> tuple[list[Send], list[Send]]:
    """What are no seeds, and all seeds so far."""
    others = [send for send in sends if send.draft.kind is not ItemKind.SEED]
    return others, [*seeds, *(send for send in sends if send.draft.kind is ItemKind.SEED)]


def test_whoever_waits_is_not_looked_at_in_every_turn() -> None:
    """Else a turn costs as much as there are who wait: fifty thousand seeds took six minutes."""
    reader = Reader(*(spec(f"d{number:04d}") for number in range(3_000)))
    reader.observe(5)
    while sends := [send for send in reader.plan() if send.draft.kind is ItemKind.PROBE]:
        for send in sends:
            reader.hear(send, Outcome.ALREADY_APPLIED, NOT_SEEDED)
    reader.planner.sized({})
    under_way = reader.plan()
    assert len(under_way) == MOST_SEEDS

    def a_hundred_turns() -> None:
        for send in under_way[:100]:
            reader.hear(send, Outcome.APPLIED, 5, through=5)
            reader.observe(5)
            assert len(reader.plan()) == 1

    assert calls(choose.__name__, a_hundred_turns) < 500


def calls(function: str, work: Callable[[], None]) -> int:
    """How often ``work`` calls a function of that name."""
    profile = cProfile.Profile()
    profile.runcall(work)
    stats: dict[tuple[str, int, str], tuple[int, ...]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return sum(found[1] for (_, _, name), found in stats.items() if name == function)


def test_a_turn_goes_through_a_bounded_number_of_destinations_and_asks_for_the_next_at_once() -> None:
    reader = Reader(*(spec(f"d{number:04d}") for number in range(MOST_A_TURN + 10)))
    assert len(reader.planner.plan(0.0)) <= MOST_A_TURN
    assert reader.planner.next_due_s() == 0.0


def test_who_comes_from_before_a_count_without_him_is_counted_for() -> None:
    """Values without a destination were too many to be kept, and his was one of them."""
    reader = reader_at(5, "away")
    reader.observe(7)
    reader.planner.counted(replace(step(5, 6, {"away": 1}), is_partial=True))
    reader.count(6, 7, {"away": 1, "comes": 1})
    reader.planner.destination(spec("comes"), reader.now_s)
    (probe,) = [each for each in reader.plan() if each.destination == "comes"]
    reader.hear(probe, Outcome.ALREADY_APPLIED, 5)
    assert [each for each in reader.plan() if each.destination == "comes"] == []
    assert reader.planner.below() == Range(5, 7)
    reader.planner.counted_below(step(5, 7, {"away": 2, "comes": 2}))
    (send,) = [each for each in reader.plan() if each.destination == "comes"]
    assert send.draft == Draft(ItemKind.CHANGES, 5, 5, 7, 2)


def test_who_begins_anew_where_the_ledger_has_forgotten_his_changes_is_counted_for_again_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One destination away holds the ledger open; of another, at the head, nothing old is kept, until it is rewound."""
    monkeypatch.setattr(change_index, "MOST_COUNTS", 3)
    reader = reader_at(5, "away", "well")
    reader.observe(9)
    for after in range(5, 9):
        reader.count(after, after + 1, {"away": 1, "well": 1})
        for send in reader.plan():
            if send.destination == "well":
                reader.hear(send, Outcome.APPLIED, after + 1, through=after + 1)
    held = reader.planner.index
    assert held is not None
    assert (held.floor, held.line, held.knows(9, "well"), held.knows(5, "well")) == (5, 9, True, False)
    assert reader.planner.below() is None

    reader.planner.destination(spec("well", generation=2, seed_at=6), reader.now_s)
    reader.now_s += SETTLES_WITHIN_S
    for outcome, position in ((Outcome.ALREADY_APPLIED, NOT_SEEDED), (Outcome.APPLIED, 6)):
        (send,) = [each for each in reader.plan() if each.destination == "well"]
        reader.hear(send, outcome, position, through=max(position, 0))
    assert [each for each in reader.plan() if each.destination == "well"] == []
    assert reader.planner.below() == Range(6, 9)
    reader.planner.counted_below(step(6, 9, {"away": 3, "well": 3}))
    (send,) = [each for each in reader.plan() if each.destination == "well"]
    assert send.draft == Draft(ItemKind.CHANGES, 6, 6, 9, 3)
