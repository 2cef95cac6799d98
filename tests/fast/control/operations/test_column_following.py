"""Which column is which, and what it takes to follow: on versions of columns that a test writes down."""

from __future__ import annotations

import pytest

from services.control.operations.column_following import FollowingPlan, SourceColumns, Table, following
from shared.contracts.evolution import EvolutionPolicy
from shared.lake.catalog.arrangement import Arrangement
from shared.lake.columns.history import ColumnVersion, Field
from shared.lake.columns.identity import Identifying
from tests.fast.reader.simulation import spec

POSITION, HEAD = 5, 9
OWN = (Field(1, "id", "int64", ()), Field(2, "tenant", "varchar", ()), Field(3, "v", "int32", ()))
"""A destination's table; its ids are not the source's."""


def version(column: int, name: str, type: str, begin: int = 1, end: int | None = None) -> ColumnVersion:
    return ColumnVersion(column, None, name, type, None, begin, end)


SAME = (version(1, "id", "int64"), version(2, "tenant", "varchar"))
RENAMED = (*SAME, version(7, "v", "int32", 1, 8), version(7, "w", "int32", 8))
DROPPED = (*SAME, version(7, "v", "int32", 1, 8))


def of(
    versions: tuple[ColumnVersion, ...],
    fields: tuple[Field, ...] = OWN,
    policy: EvolutionPolicy | None = None,
    arrangement: Arrangement | None = None,
) -> FollowingPlan:
    destination = spec("a").model_copy(update={"evolution": policy})
    table = Table(fields, arrangement or Arrangement())
    return following(SourceColumns(versions, HEAD), Identifying("tenant", ("id",)), POSITION, destination, table)


def test_columns_are_told_by_their_order_and_steps_are_the_net_difference() -> None:
    assert of(RENAMED) == FollowingPlan({1: 1, 2: 2, 3: 7}, ("rename v to w",))
    assert of((*SAME, version(7, "v", "int32"))) == FollowingPlan({1: 1, 2: 2, 3: 7})


def test_fields_within_a_column_have_their_counterparts_too() -> None:
    own = Field(3, "s", "struct", (Field(4, "a", "int32", ()), Field(5, "b", "varchar", ())))
    versions = (
        *SAME, version(7, "s", "struct"), ColumnVersion(8, 7, "a", "int32", None, 1, 8),
        ColumnVersion(9, 7, "b", "varchar", None, 1, None),
    )  # fmt: skip
    assert of(versions, (*OWN[:2], own)) == FollowingPlan({1: 1, 2: 2, 3: 7, 4: 8, 5: 9}, ("drop s.a",))


def test_a_column_that_came_without_a_row_may_be_missing() -> None:
    assert of((*SAME, version(7, "v", "int32"), version(8, "n", "int64", 3))).steps == ("add n BIGINT",)


def test_nothing_is_to_be_done_where_the_owner_has_done_it() -> None:
    assert of(RENAMED, (*OWN[:2], Field(3, "w", "int32", ()))) == FollowingPlan({1: 1, 2: 2, 3: 7})


def test_a_policy_that_does_not_follow_is_told_with_what_helps() -> None:
    refused = of(RENAMED, policy=EvolutionPolicy.ADDITIVE).refused
    assert refused is not None
    assert refused.type == "schema_change"
    assert "rename v to w" in refused.message
    assert "evolution.policy: follow" in refused.hint


def test_a_table_that_somebody_else_altered_is_told_and_no_column_guessed() -> None:
    found = of(RENAMED, (*OWN[:2], Field(3, "x", "int32", ())))
    assert (found.ids, found.steps) == ({}, ())
    assert found.refused is not None
    assert found.refused.type == "table_mismatch"
    assert "column 3 is x INTEGER and should be v INTEGER" in found.refused.message
    gone = of(RENAMED, ()).refused
    assert gone is not None
    assert "is gone" in gone.message


def test_a_routing_column_that_was_replaced_is_never_followed() -> None:
    versions = (SAME[0], version(2, "tenant", "varchar", 1, 8), version(9, "tenant", "varchar", 8), RENAMED[2])
    refused = of(versions).refused
    assert refused is not None
    assert "column tenant was dropped" in refused.message


@pytest.mark.parametrize(
    ("arrangement", "by"),
    [
        (Arrangement(partitions=(("identity", "V"),)), "PARTITIONED"),
        (Arrangement(sort_keys=(('"v"', "ASC", "NULLS LAST"),)), "SORTED"),
        (Arrangement(sort_keys=(("v", "ASC", "NULLS LAST"),)), "SORTED"),
    ],
)
def test_a_column_that_goes_and_that_the_table_is_arranged_by_is_told_with_the_statement(
    arrangement: Arrangement, by: str
) -> None:
    refused = of(DROPPED, arrangement=arrangement).refused
    assert refused is not None
    assert (refused.type, f'ALTER TABLE "main"."t" RESET {by} BY;' in refused.hint) == ("schema_change", True)
    assert of(RENAMED, arrangement=arrangement).refused is None
