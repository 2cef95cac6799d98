"""What a stored cursor and an item say together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.applier.apply.cursor.decide import Cursor, Decision, decide
from shared.contracts.messages import ItemKind, WorkItem
from shared.contracts.positions import Vector

GENERATIONS = st.integers(1, 3)
POSITIONS = st.integers(0, 6)


def cursor(generation: int, position: int) -> Cursor:
    return Cursor(generation, position, "lake", 1, "table", "value", "earlier", 0)


def item(kind: ItemKind, generation: int, expected: int, through: int) -> WorkItem:
    return WorkItem(
        item="i", kind=kind, pipeline="p", destination="d", generation=generation,
        expected=expected, after=expected, through=through,
    )  # fmt: skip


cursors = st.builds(cursor, GENERATIONS, POSITIONS)
changes = st.builds(
    lambda generation, expected, ahead: item(ItemKind.CHANGES, generation, expected, expected + ahead),
    GENERATIONS,
    POSITIONS,
    st.integers(1, 3),
)


@given(cursors, changes)
def test_changes_are_applied_exactly_where_they_begin(stored: Cursor, offered: WorkItem) -> None:
    fits = stored.generation == offered.generation and stored.position == offered.expected
    assert (decide(stored, offered) is Decision.APPLY) == fits


@given(cursors, changes)
def test_an_item_that_was_applied_is_never_applied_again(stored: Cursor, offered: WorkItem) -> None:
    if decide(stored, offered) is Decision.APPLY:
        after = cursor(stored.generation, offered.through)
        assert decide(after, offered) is Decision.ALREADY_APPLIED


@given(cursors, changes)
def test_an_item_of_another_generation_changes_nothing(stored: Cursor, offered: WorkItem) -> None:
    if stored.generation != offered.generation:
        assert decide(stored, offered) is Decision.FENCED


@given(cursors, GENERATIONS, POSITIONS)
def test_a_seed_only_ever_begins_a_younger_generation(stored: Cursor, generation: int, through: int) -> None:
    decision = decide(stored, item(ItemKind.SEED, generation, -1, through))
    if generation > stored.generation:
        assert decision is Decision.APPLY
    elif generation == stored.generation:
        assert decision is Decision.ALREADY_APPLIED
    else:
        assert decision is Decision.FENCED


def test_the_first_seed_needs_no_cursor() -> None:
    assert decide(None, item(ItemKind.SEED, 1, -1, 4)) is Decision.APPLY


def test_changes_without_a_cursor_are_a_gap() -> None:
    assert decide(None, item(ItemKind.CHANGES, 1, 2, 4)) is Decision.GAP


def test_changes_that_begin_elsewhere_are_a_gap() -> None:
    assert decide(cursor(1, 3), item(ItemKind.CHANGES, 1, 2, 4)) is Decision.GAP


@given(cursors, POSITIONS)
def test_a_probe_only_asks(stored: Cursor, through: int) -> None:
    asked = item(ItemKind.PROBE, stored.generation, -1, through)
    assert decide(stored, asked) is Decision.ALREADY_APPLIED


@given(GENERATIONS, GENERATIONS, POSITIONS)
def test_a_seed_of_a_life_that_was_dropped_does_not_bring_it_back(
    dropped_generation: int, generation: int, through: int
) -> None:
    decision = decide(None, item(ItemKind.SEED, generation, -1, through), dropped_generation)
    assert decision is (Decision.APPLY if generation > dropped_generation else Decision.FENCED)


VECTORS = st.builds(Vector.of, st.dictionaries(st.integers(0, 1), st.integers(0, 3)))


def at(stored: Vector) -> Cursor:
    return replace(cursor(1, stored.records), source_position=stored.text)


def of_topic(begin: Vector, end: Vector) -> WorkItem:
    """An item as a reader plans it: it ends beyond where it begins."""
    one, other = begin.by_partition, end.by_partition
    through = Vector.of({partition: max(one.get(partition, 0), other.get(partition, 0)) for partition in (0, 1)})
    return WorkItem(
        item="i", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=1, expected=begin.records,
        after=begin.records, through=through.records, expected_at=begin.text, through_at=through.text,
    )  # fmt: skip


@given(VECTORS, VECTORS, VECTORS)
def test_records_of_a_topic_count_as_applied_only_where_the_cursor_has_passed_each_of_them(
    stored: Vector, begin: Vector, end: Vector
) -> None:
    """A dictionary of offsets says the same: two vectors of one sum hold different records."""
    offered = of_topic(begin, end)
    wanted = Vector.parse(offered.through_at or "").by_partition
    there = all(stored.by_partition.get(partition, 0) >= offset for partition, offset in wanted.items())
    decided = decide(at(stored), offered)
    assert (decided is Decision.ALREADY_APPLIED) == there
    assert (decided is Decision.APPLY) == (not there and stored == begin)


def test_a_cursor_at_another_vector_of_the_same_sum_is_a_gap() -> None:
    offered = of_topic(Vector.of({0: 1, 1: 2}), Vector.of({0: 3, 1: 3}))
    assert decide(at(Vector.of({0: 2, 1: 1})), offered) is Decision.GAP


def test_a_cursor_of_a_lake_is_a_gap_for_an_item_of_a_topic() -> None:
    assert decide(cursor(1, 3), of_topic(Vector.of({0: 3}), Vector.of({0: 4}))) is Decision.GAP
    assert decide(cursor(1, 9), of_topic(Vector.of({0: 3}), Vector.of({0: 4}))) is Decision.GAP
