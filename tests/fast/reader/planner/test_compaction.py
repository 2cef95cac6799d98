"""When a table is compacted: as soon as that pays, not before, and never again where it brought nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.reader.planner.compaction import ASKED, LEAST_DEAD_ROWS, MENDED_BY_FLUSH, UNKNOWN, Wear, is_due, worn
from shared.contracts.upkeep import Compaction, TableWear, UpkeepOverride
from shared.lake.direct.eligibility import ExtensionReason

RULES = Compaction(files=10, dead_share=0.5, applies=1_000)


def table(files: int, rows: int = 1_000, dead: int = 0) -> TableWear:
    return TableWear(files=files, rows=rows, dead_rows=dead)


def after(wear: Wear, *told: TableWear | None, reason: str | None = None) -> Wear:
    for each in told:
        wear = worn(wear, each, reason)
    return wear


def test_files_that_were_seen_ask_for_it_and_not_the_number_of_commits() -> None:
    assert not is_due(after(UNKNOWN, *[table(9)] * 500), RULES)
    assert is_due(after(UNKNOWN, table(10)), RULES)


def test_commits_that_tell_nothing_count_as_one_file_each() -> None:
    assert not is_due(after(UNKNOWN, *[None] * 9), RULES)
    assert is_due(after(UNKNOWN, *[None] * 10), RULES)
    assert is_due(after(UNKNOWN, table(8), None, None), RULES)


def test_files_that_a_compaction_left_do_not_ask_again() -> None:
    left = after(ASKED, table(31))
    assert not is_due(left, RULES)
    assert not is_due(after(left, table(39)), RULES)
    assert is_due(after(left, table(40)), RULES)


def test_files_that_an_owner_merged_meanwhile_are_not_expected_to_be_left() -> None:
    assert is_due(after(ASKED, table(31), table(1), table(11)), RULES)


def test_a_compaction_that_was_just_asked_for_is_not_asked_for_again() -> None:
    assert not is_due(ASKED, Compaction(files=2, applies=1))


def test_deleted_rows_ask_for_it_where_they_are_half_of_what_is_read() -> None:
    live = 4 * LEAST_DEAD_ROWS
    assert not is_due(after(UNKNOWN, table(1, live, live - 1)), RULES)
    assert is_due(after(UNKNOWN, table(1, live, live)), RULES)


def test_deleted_rows_of_a_small_table_do_not() -> None:
    assert not is_due(after(UNKNOWN, table(1, 10, LEAST_DEAD_ROWS - 1)), RULES)


def test_deleted_rows_that_a_compaction_left_do_not_ask_again() -> None:
    lost = table(1, 1_000, LEAST_DEAD_ROWS)
    assert is_due(after(UNKNOWN, lost), RULES)
    assert not is_due(after(ASKED, lost, lost), RULES)


@pytest.mark.parametrize("reason", sorted(MENDED_BY_FLUSH))
def test_rows_that_wait_for_a_flush_ask_for_it_once(reason: str) -> None:
    assert is_due(after(UNKNOWN, None, reason=reason), RULES)
    left = after(ASKED, None, None, reason=reason)
    assert not is_due(left, RULES), "the flush did not end it"
    mended = after(left, table(1))
    assert is_due(after(mended, None, reason=reason), RULES)


def test_what_a_flush_ends_are_reasons_of_the_extensions_commits() -> None:
    assert {ExtensionReason.INLINED_ROWS, ExtensionReason.INLINED_DELETES} == MENDED_BY_FLUSH


def test_the_number_of_commits_is_an_upper_bound() -> None:
    rules = Compaction(applies=3)
    assert not is_due(after(UNKNOWN, table(1), table(1)), rules)
    assert is_due(after(UNKNOWN, table(1), table(1), table(1)), rules)


@given(st.lists(st.none() | st.builds(table, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))))
def test_zero_means_never(told: list[TableWear | None]) -> None:
    assert not is_due(after(UNKNOWN, *told, reason="inlined_rows"), Compaction(files=2, applies=0))


@given(st.lists(st.none() | st.builds(table, st.integers(0, 500)), max_size=60), st.integers(2, 50))
def test_between_two_that_are_asked_for_there_are_as_many_new_files_as_were_wished(
    told: list[TableWear | None], files: int
) -> None:
    """Whatever answers tell, a table that a compaction can't mend is not compacted before each of its commits."""
    wear, before = ASKED, None
    for each in told:
        wear = worn(wear, each, None)
        before = wear.files - 1 if before is None else min(before, wear.files)
        assert is_due(wear, Compaction(files=files)) == (wear.files - before >= files)
        if is_due(wear, Compaction(files=files)):
            wear, before = ASKED, None


def test_a_destinations_own_keys_come_before_its_pipelines() -> None:
    assert RULES.overridden(None) is RULES
    own = UpkeepOverride(compact_files=3, compact_after_applies=0)
    assert RULES.overridden(own) == Compaction(files=3, dead_share=0.5, applies=0)
