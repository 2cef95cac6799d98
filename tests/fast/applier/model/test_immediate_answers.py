"""Answers that need no Spark job."""

from __future__ import annotations

import pytest

from services.applier.backlog import repeats
from services.applier.model.immediate_answers import answer, answer_again
from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem

OLDER = WorkItem(
    item="older", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=3, expected=5, after=6, through=9
)
NEWER = OLDER.model_copy(update={"item": "newer", "attempt": 2})
FURTHER = NEWER.model_copy(update={"through": 12})


def told_again(progress: Progress, item: WorkItem) -> Progress:
    told = answer_again(progress, item)
    assert told is not None
    return told


def test_what_was_applied_is_told_again_as_done_and_counts_no_rows() -> None:
    done = answer(OLDER, Outcome.APPLIED, "me").model_copy(
        update={"position": 9, "through": 9, "rows_applied": 70, "inserted": 4, "deleted": 3, "upserted": 4}
    )
    told = told_again(done, NEWER)
    assert (told.item, told.outcome, told.generation) == ("newer", Outcome.ALREADY_APPLIED, 3)
    assert (told.position, told.rows_applied) == (9, 70)
    assert (told.inserted, told.deleted, told.upserted) == (0, 0, 0)


@pytest.mark.parametrize("outcome", [Outcome.APPLIED, Outcome.ALREADY_APPLIED])
def test_who_asks_for_more_is_told_where_it_is(outcome: Outcome) -> None:
    done = answer(OLDER, outcome, "me").model_copy(update={"position": 9})
    told = told_again(done, FURTHER)
    assert (told.outcome, told.position) == (Outcome.GAP, 9)


@pytest.mark.parametrize("kind", [ItemKind.PROBE, ItemKind.SEED, ItemKind.DROP])
def test_what_has_no_end_to_reach_is_done(kind: ItemKind) -> None:
    done = answer(OLDER.model_copy(update={"kind": kind}), Outcome.APPLIED, "me").model_copy(update={"position": -1})
    assert told_again(done, FURTHER.model_copy(update={"kind": kind})).outcome is Outcome.ALREADY_APPLIED


def test_an_empty_range_is_empty_for_who_asks_for_no_more() -> None:
    empty = answer(OLDER, Outcome.EMPTY, "me").model_copy(update={"position": 5, "through": 9})
    assert answer_again(empty, NEWER) == empty.model_copy(update={"item": "newer"})
    assert answer_again(empty, FURTHER) is None


@pytest.mark.parametrize(("through_at", "is_told"), [('{"0":9}', True), ('{"1":9}', False), (None, False)])
def test_an_empty_range_of_a_topic_is_empty_for_an_item_whose_end_it_covers(
    through_at: str | None, is_told: bool
) -> None:
    empty = answer(OLDER, Outcome.EMPTY, "me").model_copy(update={"through": 9, "through_at": through_at})
    asked = NEWER.model_copy(update={"expected_at": '{"0":5}', "through_at": '{"0":9}'})
    assert (answer_again(empty, asked) is not None) is is_told


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.PARKED, Outcome.FENCED, Outcome.GAP])
def test_whatever_else_became_of_it_is_told_again_as_it_is(outcome: Outcome) -> None:
    told = answer(OLDER, outcome, "me").model_copy(update={"position": 4})
    assert answer_again(told, FURTHER) == told.model_copy(update={"item": "newer"})


@pytest.mark.parametrize(
    ("changed", "is_one"),
    [
        ({}, True),
        ({"attempt": 1}, False),
        ({"generation": 4}, False),
        ({"kind": ItemKind.SEED}, False),
        ({"expected": 6}, False),
        ({"after": 7}, False),
        ({"pinned": True}, False),
        ({"destination": "e"}, False),
    ],
)
def test_only_what_asks_for_the_same_repeats_an_item(changed: dict[str, object], *, is_one: bool) -> None:
    assert repeats(NEWER.model_copy(update=changed), OLDER) is is_one
