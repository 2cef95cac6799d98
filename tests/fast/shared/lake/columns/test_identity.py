"""Which column a configured name means at each snapshot, and which names mean the same one."""

from __future__ import annotations

import pytest

from shared.lake.columns.history import ColumnVersion
from shared.lake.columns.identity import Identifying, identified, own_names, replaced


def column(number: int, name: str, begin: int, end: int | None = None, parent: int | None = None) -> ColumnVersion:
    return ColumnVersion(number, parent, name, "varchar", None, begin, end)


RENAMED = [column(1, "company", 1, 5), column(1, "tenant", 5), column(2, "id", 1)]
TWICE = [column(1, "company", 1, 5), column(1, "org", 5, 7), column(1, "tenant", 7)]
SWAPPED = [column(1, "company", 1, 5), column(1, "country", 5), column(2, "country", 1, 5), column(2, "company", 5)]
USED_BEFORE = [column(2, "tenant", 1, 3), column(1, "company", 1, 5), column(1, "tenant", 5)]
USED_AGAIN = [column(1, "company", 1, 5), column(1, "tenant", 5), column(2, "company", 6)]
WITHIN = [column(1, "company", 1, 5), column(1, "tenant", 5), column(2, "s", 1), column(3, "company", 1, parent=2)]


@pytest.mark.parametrize(
    ("versions", "name", "at", "meant"),
    [
        (RENAMED, "COMPANY", 9, 1),
        (RENAMED, "tenant", 9, 1),
        (RENAMED, "tenant", 3, 1),
        (RENAMED, "region", 9, None),
        (TWICE, "org", 9, 1),
        (TWICE, "org", 3, 1),
        (SWAPPED, "company", 3, 1),
        (SWAPPED, "company", 9, 2),
        (USED_BEFORE, "tenant", 2, 2),
        (USED_BEFORE, "tenant", 4, 1),
        ([column(1, "a", 1, 6), column(1, "n", 6, 8), column(2, "b", 1, 9), column(2, "n", 9)], "n", 4, 2),
        ([column(1, "a", 1), column(2, "later", 5)], "later", 3, None),
        (WITHIN, "company", 9, 1),
    ],
)
def test_a_name_means_the_column_that_has_had_or_will_have_it(
    versions: list[ColumnVersion], name: str, at: int, meant: int | None
) -> None:
    found = identified(versions, name, at)
    assert (None if found is None else found.id) == meant


@pytest.mark.parametrize(
    ("versions", "name", "names"),
    [
        (RENAMED, "company", {"company", "tenant"}),
        (RENAMED, "TENANT", {"company", "tenant"}),
        (RENAMED, "id", {"id"}),
        (RENAMED, "region", set()),
        (TWICE, "tenant", {"company", "org", "tenant"}),
        (SWAPPED, "country", set()),
        (USED_BEFORE, "tenant", set()),
        (USED_BEFORE, "company", {"company"}),
        (USED_AGAIN, "tenant", {"tenant"}),
        (WITHIN, "tenant", {"company", "tenant"}),
        ([], "company", set()),
    ],
)
def test_names_are_a_column_s_own_unless_another_one_ever_had_them(
    versions: list[ColumnVersion], name: str, names: set[str]
) -> None:
    assert own_names(versions, name, 9) == names


@pytest.mark.parametrize("name", ["company", "tenant"])
@pytest.mark.parametrize(("since", "at"), [(1, 4), (1, 9), (4, 9), (6, 9)])
def test_a_column_that_was_renamed_is_not_replaced_by_whichever_name(name: str, since: int, at: int) -> None:
    assert replaced(RENAMED, Identifying(name, ("id",)), since, at) is None


@pytest.mark.parametrize("name", ["company", "country"])
def test_a_name_that_two_columns_exchanged_is_replaced(name: str) -> None:
    assert f"the column {name} was renamed to" in str(replaced(SWAPPED, Identifying(name), 3, 9))


def test_a_name_that_meant_another_column_for_a_while_is_that_one_only_then() -> None:
    """A destination from before it must not follow the other column to its end."""
    versions = [column(1, "a", 1, 6), column(1, "n", 6, 8), column(1, "a", 8), column(2, "b", 1, 9), column(2, "n", 9)]
    assert replaced(versions, Identifying("n"), 4, 9) is None
    assert replaced(versions, Identifying("n"), 4, 7) is not None
