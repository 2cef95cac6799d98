"""Routing values without a destination: remembered within bounds, counted, offered, forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.reader.planner.counted_changes import CountedStep
from services.reader.source.unrouted_values import LOOK_AGAIN_AFTER_S, UnroutedValues
from shared.contracts.digest import value_digest
from shared.contracts.ranges import Range
from shared.contracts.reports import LONGEST_OFFERED, MOST_OFFERED, Offer, Offered, parse_progress


def step(after: int, through: int, **rows: int) -> CountedStep:
    return CountedStep(Range(after, through), rows, sum(rows.values()))


def found(value: str, rows: int, snapshot: int = 5) -> Offered:
    return Offered(value=value, digest=value_digest(value), rows=rows, first_seen=snapshot)


def told(unknown: UnroutedValues, *routed: str) -> dict[str, tuple[int, int]]:
    return {each.value: (each.rows, each.first_seen) for each in unknown.offer(routed)}


def test_rows_of_values_without_a_destination_add_up_from_where_they_were_seen_first() -> None:
    unknown = UnroutedValues()
    unknown.note(step(5, 6, a=1, b=2), ["a"])
    unknown.note(step(6, 8, a=1, b=3, c=1), ["a"])
    assert told(unknown, "a") == {"b": (5, 6), "c": (1, 8)}


def test_rows_that_a_look_at_everything_has_counted_are_not_counted_again() -> None:
    unknown = UnroutedValues()
    unknown.looked([found("b", 7)], False, 0.0)
    unknown.note(step(0, 5, b=7), [])
    unknown.note(step(5, 6, b=1), [])
    assert told(unknown) == {"b": (8, 5)}


def test_a_value_that_got_a_destination_is_forgotten_and_begins_anew_when_that_goes() -> None:
    unknown = UnroutedValues()
    long = "x" * (LONGEST_OFFERED + 1)
    unknown.note(CountedStep(Range(0, 1), {"a": 3, long: 2}), [])
    assert len(unknown.offer([])) == 2
    assert unknown.offer(["a", long]) == ()
    unknown.note(step(1, 2, a=1), [])
    assert told(unknown) == {"a": (1, 2)}


def test_a_long_value_is_offered_by_its_beginning_and_the_digest_of_the_whole() -> None:
    unknown = UnroutedValues()
    values = ["x" * 10_000, "x" * 10_001]
    unknown.note(CountedStep(Range(0, 1), dict.fromkeys(values, 1)), [])
    offered = unknown.offer([])
    assert {each.digest for each in offered} == {value_digest(each) for each in values}
    assert {(each.value, each.whole) for each in offered} == {("x" * LONGEST_OFFERED, False)}


def test_no_flood_of_values_makes_it_remember_more_and_the_last_ones_stay() -> None:
    unknown = UnroutedValues(most=3)
    unknown.note(step(0, 1, old=1), [])
    unknown.note(step(1, 2, **{f"v{number}": number for number in range(100)}), [])
    assert set(told(unknown)) == {"v97", "v98", "v99"}
    assert unknown.more
    unknown.note(step(2, 3, new=1), [])
    assert "new" in told(unknown)


def test_everything_is_looked_at_once_and_again_when_there_is_room_for_those_left_out() -> None:
    unknown = UnroutedValues(most=2)
    assert unknown.wants_look(0.0)
    unknown.looked([found("a", 9), found("b", 8)], True, 0.0)
    assert not unknown.wants_look(1e9)
    unknown.offer(["a"])
    assert not unknown.wants_look(LOOK_AGAIN_AFTER_S - 1)
    assert unknown.wants_look(LOOK_AGAIN_AFTER_S)
    unknown.looked([found("b", 8), found("c", 7)], False, LOOK_AGAIN_AFTER_S)
    unknown.offer(["b", "c"])
    assert not unknown.wants_look(1e9)


@given(st.lists(st.text(), max_size=20))
def test_whatever_the_values_hold_the_message_comes_back_as_it_went(values: list[str]) -> None:
    unknown = UnroutedValues()
    unknown.note(CountedStep(Range(0, 1), dict.fromkeys(values, 1)), [])
    offer = Offer(pipeline="p", instance="i", values=unknown.offer([]))
    assert parse_progress(offer.to_bytes()) == offer


def test_the_largest_offer_is_smaller_than_what_a_broker_takes() -> None:
    unknown = UnroutedValues()
    unknown.note(
        CountedStep(Range(0, 1), {f"{number:04}" + "\x00" * 10_000: 2**40 for number in range(MOST_OFFERED)}), []
    )
    offer = Offer(pipeline="p" * 200, instance="i" * 200, values=unknown.offer([]), more=True)
    assert len(offer.values) == MOST_OFFERED
    assert len(offer.to_bytes()) < 900_000
