"""When records of a topic are worth a transaction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.reader.planner.flushing import Flushing, FlushRules, Trigger
from shared.contracts.positions import Vector

RULES = FlushRules(rows=10, bytes=1_000, seconds=5.0)


def vector(*offsets: int) -> Vector:
    return Vector.of(dict(enumerate(offsets)))


def begun(*offsets: int) -> Flushing:
    flushing = Flushing(RULES)
    flushing.look(vector(*offsets), 100.0)
    return flushing


def test_the_first_look_takes_what_came_while_nobody_looked() -> None:
    flushing = Flushing(RULES)
    assert flushing.look(vector(3, 4), 100.0) is Trigger.CAUGHT_UP
    assert flushing.head == vector(3, 4)


def test_few_records_wait_for_more_and_no_longer_than_they_may() -> None:
    flushing = begun(3)
    assert flushing.look(vector(3), 101.0) is None
    assert flushing.look(vector(5), 102.0) is None
    assert flushing.look(vector(7), 105.9) is None
    assert flushing.head == vector(3)
    assert flushing.look(vector(8), 106.0) is Trigger.SECONDS
    assert flushing.head == vector(8)


def test_time_begins_with_the_look_before_the_first_record_was_seen() -> None:
    flushing = begun(3)
    flushing.look(vector(3), 103.0)
    flushing.look(vector(4), 104.0)
    assert flushing.waits_since_s == 103.0


def test_large_records_wait_for_nothing_once_it_is_known_how_large_they_are() -> None:
    flushing = begun(3)
    assert flushing.look(vector(6), 100.1) is None
    assert flushing.look(vector(7), 100.2, 249) is None
    assert flushing.look(vector(7), 100.3, 250) is Trigger.BYTES
    assert flushing.head == vector(7)
    assert flushing.look(vector(17), 100.4, 250) is Trigger.ROWS


def test_many_records_wait_for_nothing() -> None:
    flushing = begun(3, 3)
    assert flushing.look(vector(7, 8), 100.1) is None
    assert flushing.look(vector(8, 8), 100.2) is Trigger.ROWS
    assert flushing.head == vector(8, 8)


def test_a_log_that_lost_records_has_another_head_at_once() -> None:
    flushing = begun(3, 3)
    assert flushing.look(vector(2, 9), 100.1) is Trigger.CAUGHT_UP
    assert flushing.head == vector(2, 9)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(0.1, 3.0)), max_size=40))
def test_no_record_waits_longer_than_it_may_and_the_head_never_passes_the_newest(
    steps: list[tuple[int, int, float]],
) -> None:
    flushing, newest, now_s, seen = begun(0, 0), [0, 0], 100.0, dict[int, float]()
    for first, second, seconds in steps:
        now_s += seconds
        newest = [newest[0] + first, newest[1] + second]
        before = flushing.head
        flushing.look(vector(*newest), now_s)
        head = flushing.head
        assert before is not None
        assert head is not None
        assert head.covers(before)
        assert vector(*newest).covers(head)
        seen = {count: at for count, at in seen.items() if count > head.records}
        assert all(now_s - at < RULES.seconds for at in seen.values())
        assert vector(*newest).records - head.records < RULES.rows
        if vector(*newest).records > head.records:
            seen.setdefault(vector(*newest).records, now_s)
