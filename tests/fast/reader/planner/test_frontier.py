from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from services.reader.planner.frontier import MOST_PER_PAGE, CatalogTime, is_settled, lagging, pages, standing
from services.reader.planner.scheduling import Draft
from shared.contracts.digest import digest
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.messages import DesiredState, ItemKind, Outcome, Problem
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.reports import Lagging
from shared.lake.columns.followed import Break
from tests.fast.reader.planner.test_plan import PROBLEM, Reader, reader_at
from tests.fast.reader.simulation import EPOCH, source_state, spec

NOON = CatalogTime(head=EPOCH, now=EPOCH + timedelta(hours=12))


def told(reader: Reader, now_s: float = 0.0, catalog: CatalogTime | None = NOON) -> dict[str, Lagging]:
    """What a frontier says of those who lag, all of them in one page."""
    found = standing(reader.planner, catalog, readable=True)
    return lagging(reader.planner, found.lagging, found.head, now_s, catalog)


def test_only_those_who_are_not_exact_at_the_head_are_named() -> None:
    reader = reader_at(5, "a", "b")
    reader.count(5, 8, {"a": 1})
    found = standing(reader.planner, NOON, readable=True)
    assert (found.head, set(found.lagging), found.settled) == (8, {"a"}, False)
    assert found.head_time == EPOCH


def test_the_lag_is_the_age_of_the_oldest_unapplied_change_by_the_catalogs_clock() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {})
    reader.count(8, 9, {"a": 1})
    assert told(reader)["a"] == Lagging(known_through=8, lag_seconds=12 * 3600 - 9)


def test_an_unprobed_destination_is_named_with_nothing_known() -> None:
    reader = Reader(spec("a"))
    reader.observe(5)
    assert told(reader)["a"] == Lagging(known_through=NOT_SEEDED)


def test_after_a_restart_nobody_knows_how_far_a_destination_is_behind_until_its_cursor_tells() -> None:
    """The appliers are away: an hour of lag must not become none."""
    reader = Reader(spec("a"))
    reader.observe(5)
    assert told(reader, 3600.0)["a"].lag_seconds is None


def test_without_the_catalogs_time_nobody_knows_an_age() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 8, {"a": 1})
    assert told(reader, 0.0, None)["a"].lag_seconds is None


def test_nobody_is_exact_before_the_source_was_seen() -> None:
    reader = Reader(spec("a"))
    reader.probed(a=5)
    found = standing(reader.planner, None, readable=False)
    assert (found.head, told(reader, 0.0, None)["a"].known_through, found.settled) == (0, 5, False)


def test_a_destination_that_waits_for_its_seed_lags_since_that_was_known() -> None:
    reader = Reader(spec("a"))
    reader.observe(5)
    reader.probed(a=NOT_SEEDED)
    assert told(reader, 7.5)["a"].lag_seconds == 7.5


def test_everything_is_settled_once_all_that_can_move_has() -> None:
    reader = reader_at(5, "a", "b", "c", "d")
    assert is_settled(reader.planner)
    reader.count(5, 6, {"a": 1, "b": 1, "c": 1})
    assert not is_settled(reader.planner)
    a, b, _ = reader.plan()
    reader.hear(a, Outcome.APPLIED, 6, through=6)
    reader.hear(b, Outcome.PARKED, error=PROBLEM)
    reader.planner.destination(spec("c", state=DesiredState.PAUSED, revision="2"), 0.0)
    assert is_settled(reader.planner)
    found = standing(reader.planner, NOON, readable=True)
    assert set(found.lagging) == {"b", "c"}
    assert not standing(reader.planner, NOON, readable=False).settled


def test_a_destination_past_its_retries_holds_up_nobody() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 6, {"a": 1})
    while not reader.planner.tracked["a"].is_exhausted:
        assert not is_settled(reader.planner)
        reader.now_s += 300.0
        for send in reader.plan():
            reader.hear(send, Outcome.FAILED)
    assert is_settled(reader.planner)
    assert told(reader, reader.now_s)["a"].exhausted


def test_a_quiet_destination_with_the_columns_that_were_is_not_exact_where_they_changed() -> None:
    reader = reader_at(5, "a", "b")
    reader.observe(9, reshaped=[1, 7, 8])
    reader.count(5, 9, {"b": 1})
    changes, advance = reader.plan()
    assert (changes.destination, advance.draft) == ("b", Draft(ItemKind.ADVANCE, 5, 9, 9, 0))
    assert told(reader)["a"] == Lagging(known_through=6, rows_through=9, lag_seconds=12 * 3600 - 7, in_flight=True)
    reader.hear(changes, Outcome.APPLIED, 9, through=9)
    assert not is_settled(reader.planner)
    reader.hear(advance, Outcome.APPLIED, 9, through=9)
    assert (told(reader), is_settled(reader.planner)) == ({}, True)


def test_columns_that_changed_hold_up_nobody_who_is_switched_off_parked_or_past_its_retries() -> None:
    reader = reader_at(5, "a", "b", "c")
    reader.observe(7, reshaped=[1, 6], breaks=(Break(1, 5, "x was dropped", EvolutionPolicy.FREEZE, by_policy=True),))
    reader.planner.destination(spec("a", state=DesiredState.PAUSED, revision="2"), 0.0)
    reader.count(5, 7, {})
    while not reader.planner.tracked["b"].is_exhausted:
        assert not is_settled(reader.planner)
        reader.now_s += 300.0
        for send in reader.plan():
            reader.hear(send, Outcome.PARKED if send.destination == "c" else Outcome.FAILED, error=PROBLEM)
    assert is_settled(reader.planner)
    found = told(reader)
    assert {name: (each.known_through, each.rows_through) for name, each in found.items()} == {
        "a": (5, 7), "b": (5, 7), "c": (5, 7),
    }  # fmt: skip


def test_of_columns_that_changed_in_an_expired_snapshot_nobody_knows_the_age() -> None:
    reader = reader_at(5, "a")
    seen = source_state(9, reshaped=[1, 7])
    reader.planner.observe(replace(seen, reshapes=replace(seen.reshapes, times={})), 0.0)
    reader.count(5, 9, {})
    assert told(reader)["a"] == Lagging(known_through=6, rows_through=9, lag_seconds=None)


def test_nothing_is_settled_while_the_head_is_still_to_be_counted() -> None:
    reader = reader_at(5, "a")
    reader.observe(6)
    assert not is_settled(reader.planner)


def test_the_revision_is_the_digest_of_all_that_is_known_in_whatever_state() -> None:
    reader = Reader(spec("a"), spec("b", generation=3, state=DesiredState.PAUSED, revision="x"))
    found = standing(reader.planner, None, readable=True)
    assert found.revision == digest([("b", 3, "x"), ("a", 1, "1")])


def test_a_digest_tells_sets_apart_and_knows_no_order() -> None:
    one, other = ("a", 1, "r"), ("b", 1, "r")
    assert digest([one, other]) == digest([other, one])
    assert len({digest([]), digest([one]), digest([other]), digest([one, other]), digest([("a", 2, "r")])}) == 5
    assert digest([("a", 11, "r")]) != digest([("a1", 1, "r")])


def test_pages_hold_two_thousand_each_and_there_is_always_one() -> None:
    names = tuple(f"d{number}" for number in range(MOST_PER_PAGE + 1))
    assert [len(page) for page in pages(names)] == [MOST_PER_PAGE, 1]
    assert [name for page in pages(names) for name in page] == list(names)
    assert pages(()) == [()]


def test_of_a_destination_that_went_while_a_cycle_was_told_nothing_is_known() -> None:
    """Left out of a page it would be taken for exact at the head."""
    reader = reader_at(5, "a")
    assert lagging(reader.planner, ("gone",), 5, 0.0, NOON) == {"gone": Lagging(known_through=NOT_SEEDED)}


def test_a_page_never_speaks_of_more_than_the_head_of_its_cycle() -> None:
    """The source moves on while the pages of a cycle are sent, one a turn."""
    reader = reader_at(5, "a")
    reader.count(5, 8, {})
    assert lagging(reader.planner, ("a",), 5, 0.0, NOON)["a"].known_through == 5


def test_a_parked_destination_goes_on_ageing() -> None:
    reader = reader_at(5, "a")
    reader.count(5, 6, {"a": 1})
    (send,) = reader.plan()
    reader.hear(send, Outcome.PARKED, error=Problem(type="table_mismatch", message="", hint="", retryable=False))
    reader.count(6, 7, {})
    reader.count(7, 8, {"a": 1})
    assert told(reader)["a"].lag_seconds == 12 * 3600 - 6


def test_a_destination_of_another_table_is_never_called_exact() -> None:
    """Nothing of its tenant in the new table does not mean that it equals the new table."""
    reader = Reader(spec("a"))
    reader.observe(9, born=8)
    (probe,) = reader.plan()
    reader.hear(probe, Outcome.ALREADY_APPLIED, 7)
    assert reader.planner.below() is None
    assert "a" in reader.parks()
    reader.count(9, 12, {})
    assert told(reader)["a"].known_through == 7


def test_a_destination_ahead_of_a_restored_history_is_never_called_exact() -> None:
    reader = reader_at(8, "a")
    reader.observe(6)
    assert "a" in reader.parks()
    found = standing(reader.planner, NOON, readable=True)
    assert (found.head, told(reader)["a"].known_through) == (6, 6)
