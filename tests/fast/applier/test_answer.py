"""Answers that need no Spark job."""

from __future__ import annotations

import pytest

from services.applier.answer import answer, answer_again, failed
from services.applier.lane import repeats
from shared.errors import DestinationError
from shared.messages import ItemKind, Outcome, WorkItem

OLDER = WorkItem(
    item="older", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=3, expected=5, after=6, through=9
)
NEWER = OLDER.model_copy(update={"item": "newer", "attempt": 2, "through": 12})


def test_what_was_applied_is_told_again_as_done_and_counts_no_rows() -> None:
    done = answer(OLDER, Outcome.APPLIED, "me").model_copy(
        update={"position": 9, "through": 9, "rows_applied": 70, "inserted": 4, "deleted": 3, "upserted": 4}
    )
    told = answer_again(done, NEWER)
    assert (told.item, told.outcome, told.generation) == ("newer", Outcome.ALREADY_APPLIED, 3)
    assert (told.position, told.rows_applied) == (9, 70)
    assert (told.inserted, told.deleted, told.upserted) == (0, 0, 0)


def test_what_became_of_an_item_otherwise_is_told_again_as_it_is() -> None:
    empty = answer(OLDER, Outcome.EMPTY, "me").model_copy(update={"position": 5, "through": 9})
    assert answer_again(empty, NEWER) == empty.model_copy(update={"item": "newer"})
    refused = failed(OLDER, DestinationError("destination_busy", "busy", "wait"), "me")
    assert answer_again(refused, NEWER) == refused.model_copy(update={"item": "newer"})


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
