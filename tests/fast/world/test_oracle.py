"""The oracle is only believed because it finds every fault that is planted here, and none where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.world.destination import Destination, Finding, Promise
from tests.world.forge import Forge
from tests.world.lake import Lake, opened
from tests.world.model import Model, Where
from tests.world.oracle import check, check_all, check_source
from tests.world.rows import Column
from tests.world.statements import AddColumn, Delete, Insert, Statement, Transaction, Update
from tests.world.truth import RecordedTruth

COLUMNS = (Column("tenant", "VARCHAR"), Column("k", "INTEGER"), Column("v", "VARCHAR"))


def key(k: str) -> Where:
    return Where.equal(["k"], [k])


STORY: dict[int, tuple[Statement, ...]] = {
    1: (),
    2: (Insert((("a", "1", "x"), ("a", "2", None), ("a", "3", "same"), ("b", "1", "y"))),),
    3: (Update(key("2"), (("v", "now"),)),),
    4: (Insert((("b", "2", "only b"),)),),
    5: (Delete(key("1")), Insert((("a", "9", "same"),))),
    6: (AddColumn(Column("late", "INTEGER"), "7"),),
    7: (Insert((("a", "10", "", "8"),)),),
}
"""What each snapshot of the source does. Snapshot 4 concerns b alone, 6 nobody."""


@pytest.fixture(scope="module")
def truth() -> RecordedTruth:
    recorded, model = RecordedTruth("tenant"), Model(COLUMNS)
    for snapshot, statements in STORY.items():
        model = Transaction(statements).effect(model)
        recorded.record(snapshot, model)
    return recorded


class Case:
    """One forged destination, and what the oracle says of it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, truth: RecordedTruth, folder: Path, **changed: Any) -> None:
        self.con, self.truth = con, truth
        fields = {"lake": Lake.in_folder(folder), "table": "t", "pipeline": "p", "id": "d", "value": "a"}
        self.destination = Destination(**(fields | changed))  # type: ignore[arg-type]
        self.forge = Forge(con, self.destination, truth)
        self.forge.open()

    def findings(self, head: int | None = None, **changed: Any) -> list[Finding]:
        self.forge.close()
        return check(self.con, Destination(**(vars(self.destination) | changed)), self.truth, head=head)

    def rules(self, head: int | None = None, **changed: Any) -> set[str]:
        return {finding.rule for finding in self.findings(head, **changed)}


@pytest.fixture
def case(world: duckdb.DuckDBPyConnection, truth: RecordedTruth, tmp_path: Path) -> Iterator[Case]:
    made = Case(world, truth, tmp_path)
    yield made
    made.forge.close()


@pytest.fixture
def latest(world: duckdb.DuckDBPyConnection, truth: RecordedTruth, tmp_path: Path) -> Iterator[Case]:
    made = Case(world, truth, tmp_path, promise=Promise.LATEST, keys=("k",))
    yield made
    made.forge.close()


@pytest.fixture
def append_only(world: duckdb.DuckDBPyConnection, truth: RecordedTruth, tmp_path: Path) -> Iterator[Case]:
    made = Case(world, truth, tmp_path, promise=Promise.APPEND_ONLY)
    yield made
    made.forge.close()


# -- no fault ---------------------------------------------------------------------------------------------------------


def test_an_exact_destination_has_no_findings(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3)
    case.forge.commit("changes", 3, 5)
    case.forge.commit("changes", 5, 7, before=[f"ALTER TABLE {case.forge.table} ADD COLUMN late INTEGER DEFAULT 7"])
    assert case.findings(head=7) == []


def test_what_an_earlier_look_has_compared_is_not_read_again_and_what_came_since_is(case: Case) -> None:
    seen = Counter[str]()

    def look() -> tuple[list[str], int]:
        case.forge.close()
        compared = Counter[str]()
        found = check_all(case.con, [case.destination], case.truth, compared=compared, seen=seen)
        case.forge.open()
        return [finding.rule for finding in found], compared.total()

    case.forge.seed(2)
    case.forge.commit("changes", 2, 3)
    assert look() == ([], 2)
    assert look() == ([], 1), "the newest one again, whose size the next one is held against"
    case.forge.commit("changes", 3, 5, tamper=[f"UPDATE {case.forge.table} SET v = 'wrong' WHERE k = 9"])
    assert look() == (["exact"], 2)
    case.forge.commit("changes", 5, 7, before=[f"ALTER TABLE {case.forge.table} ADD COLUMN late INTEGER DEFAULT 7"])
    assert look() == (["exact"], 2)
    assert look() == ([], 1)


@pytest.mark.slow
def test_of_many_snapshots_so_many_are_read_from_the_first_to_the_newest(case: Case) -> None:
    def look(most: int) -> tuple[list[str], int]:
        case.forge.close()
        compared = Counter[str]()
        found = check_all(case.con, [case.destination], case.truth, compared=compared, most=most)
        case.forge.open()
        return [finding.rule for finding in found], compared.total()

    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, tamper=[f"UPDATE {case.forge.table} SET v = 'wrong' WHERE k = 9"])
    case.forge.commit("changes", 3, 5, tamper=[f"UPDATE {case.forge.table} SET v = 'right' WHERE k = 9"])
    first, between, last = (look(most) for most in (2, 3, 100))
    assert first[1] == 2
    assert between[1] == last[1] == 3
    assert "exact" in last[0]
    assert between == last


def test_a_range_may_begin_after_snapshots_that_changed_nothing_of_the_destination(case: Case) -> None:
    case.forge.seed(3)
    case.forge.commit("changes", 4, 5)
    assert case.findings() == []


def test_a_destination_need_not_move_where_nothing_of_it_changed(case: Case) -> None:
    case.forge.seed(3)
    assert case.findings(head=4) == []


def test_an_advance_brings_new_columns(case: Case) -> None:
    case.forge.seed(5)
    added = f"ALTER TABLE {case.forge.table} ADD COLUMN late INTEGER DEFAULT 7"
    case.forge.commit("advance", 5, 6, before=[added])
    case.forge.commit("changes", 6, 7)
    assert case.findings(head=7) == []


def test_an_advance_without_new_columns_is_told(case: Case) -> None:
    case.forge.seed(5)
    case.forge.commit("advance", 5, 6)
    assert [finding.rule for finding in case.findings()] == ["columns"]


def test_a_reseed_begins_a_new_generation(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("seed", 2, 5, generation=2)
    assert case.findings(head=5) == []


def test_unstamped_compaction_is_allowed(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3)
    case.forge.transact("CALL ducklake_flush_inlined_data('forged')", "CALL ducklake_merge_adjacent_files('forged')")
    case.forge.commit("changes", 3, 5)
    assert case.findings(head=5) == []


@pytest.mark.parametrize("own", ["DELETE FROM {} WHERE v IS NOT NULL", "COMMENT ON TABLE {} IS 'mine'"])
def test_what_is_no_compaction_has_to_be_stamped(case: Case, own: str) -> None:
    case.forge.seed(2)
    case.forge.transact("CALL forged.set_option('data_inlining_row_limit', 0)")
    case.forge.transact(own.format(case.forge.table))
    assert "unstamped" in case.rules()


def test_destinations_that_share_a_lake_are_told_apart(case: Case, world: duckdb.DuckDBPyConnection) -> None:
    other = Destination(**(vars(case.destination) | {"id": "e", "table": "u", "value": "b"}))
    second = Forge(world, other, case.truth)
    case.forge.seed(2)
    second.seed(3)
    case.forge.commit("changes", 2, 3)
    second.commit("changes", 3, 4)
    case.forge.close()
    assert [check(world, mine, case.truth, head=4) for mine in (case.destination, other)] == [[], []]


def test_a_latest_destination_holds_what_was_touched_since_its_seed(latest: Case) -> None:
    table = latest.forge.table
    latest.forge.seed(2, tamper=[f"DELETE FROM {table}"], stamp={"inserted": 0})
    rest = f"DELETE FROM {table} WHERE k <> 2"
    latest.forge.commit("changes", 2, 3, tamper=[rest], stamp={"deleted": 0, "inserted": 1})
    assert latest.findings(head=3) == []


def test_an_append_only_destination_keeps_what_was_deleted(append_only: Case) -> None:
    append_only.forge.seed(3)
    kept = "VALUES ('a', 1, 'x')"
    append_only.forge.commit(
        "changes", 3, 5, tamper=[f"INSERT INTO {append_only.forge.table} {kept}"], stamp={"inserted": 4}
    )
    assert append_only.findings(head=5) == []


# -- a fault in the rows ----------------------------------------------------------------------------------------------

ROWS = {
    "a missing row": "DELETE FROM {t} WHERE k = 3",
    "a doubled row": "INSERT INTO {t} SELECT * FROM {t} WHERE k = 3",
    "a changed value": "UPDATE {t} SET v = 'X' WHERE k = 1",
    "a value with a space more": "UPDATE {t} SET v = v || ' ' WHERE k = 1",
    "an empty string for NULL": "UPDATE {t} SET v = '' WHERE k = 2",
    "NULL for a value": "UPDATE {t} SET v = NULL WHERE k = 3",
    "the text NULL for NULL": "UPDATE {t} SET v = 'NULL' WHERE k = 2",
    "another tenant's row": "INSERT INTO {t} VALUES ('b', 1, 'y')",
    "another tenant's value": "UPDATE {t} SET tenant = 'b' WHERE k = 1",
    "two rows with their keys swapped": "UPDATE {t} SET k = 4 - k WHERE k IN (1, 3)",
}


@pytest.mark.parametrize("fault", ROWS, ids=str)
def test_rows_that_differ_are_found(case: Case, fault: str) -> None:
    grows = {"a missing row": -1, "a doubled row": 1, "another tenant's row": 1}.get(fault, 0)
    case.forge.seed(2, tamper=[ROWS[fault].format(t=case.forge.table)], stamp={"inserted": 3 + grows})
    assert case.rules() == {"exact"}


def test_a_file_that_is_gone_is_found(case: Case, tmp_path: Path) -> None:
    case.forge.seed(2)
    case.forge.transact("CALL ducklake_flush_inlined_data('forged', table_name => 't')")
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    assert case.rules() == {"damaged"}


def test_a_fault_that_the_next_snapshot_repairs_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, tamper=[f"UPDATE {case.forge.table} SET v = 'oops' WHERE k = 1"])
    case.forge.commit("changes", 3, 5)
    [finding] = case.findings(head=5)
    assert (finding.rule, finding.missing, finding.extra) == ("exact", (("a", "1", "x"),), (("a", "1", "oops"),))
    assert "(2, 3]" in str(finding)


def test_a_commit_of_a_neighbour_that_harms_this_table_is_found(case: Case) -> None:
    case.forge.seed(2)
    stamp = {"destination": "e", "token": "e-1"}
    case.forge.commit("changes", 2, 2, tamper=[f"DELETE FROM {case.forge.table} WHERE k = 1"], stamp=stamp)
    assert "exact" in case.rules()


def test_a_maintenance_that_loses_a_row_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("maintenance", 2, 2, tamper=[f"DELETE FROM {case.forge.table} WHERE k = 1"])
    assert case.rules() == {"exact"}


def test_a_latest_destination_that_lacks_a_touched_row_is_found(latest: Case) -> None:
    empty = [f"DELETE FROM {latest.forge.table}"]
    latest.forge.seed(2, tamper=empty, stamp={"inserted": 0})
    latest.forge.commit("changes", 2, 3, tamper=empty, stamp={"deleted": 0, "inserted": 0})
    assert latest.rules() == {"exact"}


def test_a_latest_destination_that_starts_full_is_found(latest: Case) -> None:
    latest.forge.seed(2)
    assert latest.rules() == {"exact"}


def test_an_append_only_destination_that_drops_a_deleted_row_is_found(append_only: Case) -> None:
    append_only.forge.seed(3)
    append_only.forge.commit("changes", 3, 5)
    assert append_only.rules() == {"exact"}


def test_an_append_only_destination_that_appends_twice_is_found(append_only: Case) -> None:
    again = f"INSERT INTO {append_only.forge.table} VALUES ('a', 1, 'x')"
    append_only.forge.seed(2, tamper=[again], stamp={"inserted": 4})
    assert append_only.rules() == {"exact"}


# -- a fault in the columns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        (COLUMNS[0], COLUMNS[1], Column("w", "VARCHAR")),
        (COLUMNS[0], Column("k", "BIGINT"), COLUMNS[2]),
        (*COLUMNS, Column("late", "INTEGER")),
        (*COLUMNS[:2], Column("V", "VARCHAR")),
    ],
    ids=["another name", "another type", "a column too many", "another case"],
)
def test_columns_that_differ_are_found(case: Case, columns: tuple[Column, ...]) -> None:
    wide = len(columns) > len(COLUMNS)
    case.forge.seed(1, columns, tamper=[f"INSERT INTO {case.forge.table} VALUES ('a', 1, 'x', 2)"] if wide else [])
    assert "columns" in case.rules()


def test_swapped_columns_are_found(case: Case) -> None:
    swapped = (COLUMNS[2], COLUMNS[1], COLUMNS[0])
    case.forge.seed(1, swapped)
    assert case.rules() == {"columns"}


def test_another_column_of_the_same_name_and_values_is_found(case: Case) -> None:
    """The source's column is still the one that it was."""
    case.forge.seed(6)
    again = ["DROP COLUMN late", "ADD COLUMN late INTEGER"]
    case.forge.commit("changes", 6, 7, before=[f"ALTER TABLE {case.forge.table} {each}" for each in again])
    assert case.rules() == {"identity"}


def test_a_missing_table_is_found(case: Case) -> None:
    case.forge.seed(2)
    assert case.rules(table="elsewhere") == {"columns"}


def test_changes_that_come_without_the_new_column_are_found(case: Case) -> None:
    case.forge.seed(5)
    case.forge.commit("advance", 5, 6, stamp={"kind": "changes"})
    assert case.rules() == {"columns"}


# -- a fault in the stamps --------------------------------------------------------------------------------------------

STAMPS: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong end": ({"through": 5}, "exact"),
    "an end that is no snapshot": ({"through": 99}, "range"),
    "an end that lies before the last": ({"after": 1, "through": 1}, "range"),
    "the same end again": ({"through": 2}, "range"),
    "a beginning before the last end": ({"after": 1}, "range"),
    "a beginning that leaves out a change": ({"after": 3}, "skipped"),
    "an older generation": ({"generation": 0}, "generation"),
    "a newer generation without a seed": ({"generation": 2}, "generation"),
    "a seed within a generation": ({"kind": "seed"}, "generation"),
    "a seed that forgets what it replaces": ({"kind": "seed", "generation": 2, "after": -1}, "range"),
    "a token used before": ({"token": "d-1"}, "token"),
    "no token": ({"token": None}, "stamp"),
    "an empty item": ({"item": ""}, "stamp"),
    "an unknown kind": ({"kind": "miracle"}, "stamp"),
    "a number as text": ({"through": "3"}, "stamp"),
    "too many rows": ({"inserted": 99}, "growth"),
}


@pytest.mark.parametrize("fault", STAMPS, ids=str)
def test_a_stamp_that_does_not_tell_the_truth_is_found(case: Case, fault: str) -> None:
    stamp, rule = STAMPS[fault]
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, stamp=stamp)
    assert rule in case.rules()


def test_an_advance_over_a_change_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("advance", 2, 3)
    assert "skipped" in case.rules()


def test_changes_of_a_destination_that_was_never_seeded_are_found(case: Case) -> None:
    case.forge.seed(2, stamp={"kind": "changes", "after": 1})
    assert case.rules() == {"range"}


def test_a_snapshot_of_somebody_else_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, author="mallory")
    assert "unstamped" in case.rules()


def test_a_commit_message_that_nobody_can_read_is_found(case: Case) -> None:
    case.forge.seed(2)
    con, forge = case.con, case.forge
    con.execute("BEGIN")
    con.execute(f"INSERT INTO {forge.table} VALUES ('a', 77, 'x')")
    con.execute("CALL forged.set_commit_message('viaduck', 'x', extra_info => 'no json')").fetchall()
    con.execute("COMMIT")
    assert "stamp" in case.rules()


# -- a fault in the cursor --------------------------------------------------------------------------------------------


def test_a_cursor_that_lags_behind_its_stamp_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, position=2)
    assert case.rules() == {"cursor"}


def test_a_cursor_that_commits_after_its_data_is_found(case: Case) -> None:
    case.forge.seed(2)
    case.forge.commit("changes", 2, 3, position=2)
    case.forge.transact(f"UPDATE {case.forge.cursor} SET position = 3")
    assert {"cursor", "unstamped"} <= case.rules()


def test_two_cursor_rows_are_found(case: Case) -> None:
    case.forge.seed(2, tamper=[f"INSERT INTO {case.forge.cursor} FROM {case.forge.cursor}"])
    assert case.rules() == {"cursor"}


def test_a_second_cursor_table_is_found(case: Case) -> None:
    case.forge.seed(2, tamper=[f"CREATE TABLE forged._viaduck.another AS FROM {case.forge.cursor}"])
    assert case.rules() == {"cursor"}


def test_a_missing_cursor_is_found(case: Case) -> None:
    case.forge.seed(2, tamper=[f"DELETE FROM {case.forge.cursor}"])
    assert case.rules() == {"cursor"}


# -- the end, and the source ------------------------------------------------------------------------------------------


def test_a_destination_that_never_came_to_be_is_found(case: Case) -> None:
    assert case.rules(head=7) == {"behind"}


def test_a_destination_that_stopped_short_of_the_head_is_found(case: Case) -> None:
    case.forge.seed(3)
    assert case.rules(head=5) == {"behind"}


def test_a_write_to_the_source_is_found(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    lake, truth = Lake.in_folder(tmp_path), RecordedTruth("tenant")
    with opened(world, lake, read_only=False, create=True) as alias:
        world.execute(f"CREATE TABLE {alias}.t (tenant VARCHAR)")
        truth.record(1, Model((Column("tenant", "VARCHAR"),)))
        assert check_source(world, lake, truth) == []
        world.execute(f"CREATE SCHEMA {alias}._viaduck")
    assert [finding.rule for finding in check_source(world, lake, truth)] == ["source_written"]


def test_a_stamp_of_ours_on_the_source_is_found(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    lake, truth = Lake.in_folder(tmp_path), RecordedTruth("tenant")
    with opened(world, lake, read_only=False, create=True) as alias:
        world.execute("BEGIN")
        world.execute(f"CREATE TABLE {alias}.t (tenant VARCHAR)")
        world.execute(f"CALL {alias}.set_commit_message('viaduck', 'x')").fetchall()
        world.execute("COMMIT")
    truth.record(1, Model((Column("tenant", "VARCHAR"),)))
    assert [finding.rule for finding in check_source(world, lake, truth)] == ["source_written"]
