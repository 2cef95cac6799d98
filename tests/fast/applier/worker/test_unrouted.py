"""What a reader is told of the records of a range that no destination takes."""

from __future__ import annotations

from services.applier.records.record_batch import batch_of
from services.applier.records.routing import Routed
from services.applier.worker.unrouted import unrouted_of
from shared.contracts.digest import value_digest
from shared.contracts.positions import LONGEST_SPELLING, Vector
from shared.contracts.reports import LONGEST_OFFERED, MOST_OF_A_RANGE, UnroutedRecords, parse_progress

ENDS = Vector.of({0: 3}), Vector.of({0: 10, 1: 4})


def told(known: set[str], places: dict[str, list[int]], nowhere: int = 0) -> UnroutedRecords:
    return unrouted_of(Routed(batch_of([]), places, (), nowhere), known, "p", "topic id", ENDS)


def test_records_without_a_value_count_and_those_of_destinations_do_not() -> None:
    found = told({"a"}, {"a": [0, 1], "b": [2, 3, 4], "c": [5]}, 2)
    assert found.rows == 6
    assert [(each.value, each.rows, each.first_seen) for each in found.values] == [("b", 3, 14), ("c", 1, 14)]
    assert (found.after_at, found.through_at, found.more) == ('{"0":3}', '{"0":10,"1":4}', False)


def test_a_range_without_any_is_told_too_since_the_next_one_follows_it() -> None:
    found = told({"a"}, {"a": [0]})
    assert (found.rows, found.values, found.more) == (0, (), False)


def test_a_flood_of_long_values_is_told_in_part_and_counted_as_a_whole() -> None:
    flood = {f"{number:04}" + "\x00" * 10_000: [0] * (number + 1) for number in range(MOST_OF_A_RANGE + 5)}
    found = told(set(), flood)
    assert found.more
    assert found.rows == sum(map(len, flood.values()))
    assert [each.rows for each in found.values] == list(range(MOST_OF_A_RANGE + 5, 5, -1))
    assert {each.digest for each in found.values} <= {value_digest(each) for each in flood}
    assert not any(each.whole for each in found.values)
    assert all(len(each.value) == LONGEST_OFFERED for each in found.values)
    assert parse_progress(found.to_bytes()) == found


def test_the_largest_is_smaller_than_what_a_broker_takes() -> None:
    flood = {f"{number:04}" + "\x00" * 10_000: [0] * 2**10 for number in range(MOST_OF_A_RANGE)}
    ends = Vector.of(dict.fromkeys(range(8_000), 10**14))
    assert 0.9 < len(ends.text) / LONGEST_SPELLING < 1
    found = unrouted_of(Routed(batch_of([]), flood, (), 2**40), set(), "p" * 200, "t" * 200, (ends, ends))
    assert len(found.to_bytes()) < 900_000
