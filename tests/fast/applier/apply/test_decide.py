"""What a stored cursor and an item say together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.applier.apply.decide import Cursor, Decision, decide
from shared.contracts.messages import ItemKind, WorkItem

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
