"""What a pipeline without key columns does with a snapshot that did more than insert."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.applier.apply.source.refusals import require_insertions
from shared.config.model import Routing
from shared.contracts.errors import DestinationError
from shared.lake.catalog.touches import Touch

STRICT = Routing(field="tenant", on_update="park", on_delete="park")
LENIENT = Routing(field="tenant", on_update="append", on_delete="ignore")


def touch(*marks: str) -> Touch:
    return Touch(7, datetime(2026, 3, 1, tzinfo=UTC), frozenset(marks))


def kind(touched: Touch, *, deletes: bool = False) -> str | None:
    try:
        require_insertions(touched, STRICT, deletes=deletes)
    except DestinationError as error:
        return error.type
    return None


@pytest.mark.parametrize(
    ("marks", "type"),
    [
        ({"inserted_into_table"}, None),
        ({"inlined_insert"}, None),
        ({"deleted_from_table"}, "delete_in_append_only"),
        ({"inlined_delete"}, "delete_in_append_only"),
        ({"inserted_into_table", "inlined_delete"}, "update_in_append_only"),
        ({"compacted_table"}, None),
    ],
)
def test_a_snapshot_that_deletes_is_refused_by_what_else_it_did(marks: set[str], type: str | None) -> None:
    assert kind(touch(*marks)) == type


def test_rows_that_the_catalog_shows_as_taken_back_count_as_deleted_whatever_the_marks_say() -> None:
    assert kind(touch("inserted_into_table"), deletes=True) == "update_in_append_only"
    assert kind(touch("compacted_table"), deletes=True) == "delete_in_append_only"


@pytest.mark.parametrize("marks", [{"deleted_from_table"}, {"inserted_into_table", "deleted_from_table"}])
def test_a_pipeline_may_choose_to_ignore_deletes_and_to_append_both_sides_of_an_update(marks: set[str]) -> None:
    require_insertions(touch(*marks), LENIENT, deletes=False)
