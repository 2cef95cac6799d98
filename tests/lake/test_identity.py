"""A position speaks of one history of one table with the columns that it had there; of no other, however alike."""

from __future__ import annotations

from contextlib import closing

import pytest

from shared.config.model import Routing
from shared.contracts.messages import ItemKind, Outcome, Progress, Seen
from shared.lake.catalog.reader import CatalogReader
from shared.lake.cursor import committed_at, cursor_name
from tests.lake.backup import Backup
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig


def parked_for(answer: Progress, type: str) -> str:
    """Why a destination was parked."""
    assert answer.outcome is Outcome.PARKED, answer
    assert answer.error is not None
    assert answer.error.type == type
    return answer.error.message


# -- columns ----------------------------------------------------------------------------------------------------------

ANOTHER_V = ("ALTER TABLE src.main.t DROP COLUMN v", "ALTER TABLE src.main.t ADD COLUMN v VARCHAR")

REPLACED = {
    "id was dropped and another one": (
        "ALTER TABLE src.main.t ADD COLUMN id2 BIGINT",
        "ALTER TABLE src.main.t RENAME COLUMN id TO old",
        "ALTER TABLE src.main.t RENAME COLUMN id2 TO id",
        "ALTER TABLE src.main.t DROP COLUMN old",
    ),
    "tenant was renamed to v, and another one has its name": (
        "ALTER TABLE src.main.t RENAME COLUMN v TO w",
        "ALTER TABLE src.main.t RENAME COLUMN tenant TO v",
        "ALTER TABLE src.main.t RENAME COLUMN w TO tenant",
    ),
}


@pytest.fixture
def shaped(make_rig: MakeRig) -> ApplyRig:
    """Two seeded tenants whose last column is a struct."""
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR, s STRUCT(a INTEGER, b VARCHAR))",
        "INSERT INTO src.main.t SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, 'v' || i,"
        " {'a': i, 'b': 'b' || i} FROM range(40) r(i)",
    )
    made.add("a")
    made.add("b")
    made.seed()
    return made


@pytest.mark.parametrize("why", REPLACED)
def test_a_key_or_routing_column_of_the_same_name_that_is_another_one_parks(shaped: ApplyRig, why: str) -> None:
    position = shaped.head
    shaped.sql(*REPLACED[why], "INSERT INTO src.main.t (id, tenant) VALUES (100, 'a'), (101, 'b')")
    for answer in shaped.changes(position):
        assert why in parked_for(answer, "schema_change")
    before = shaped.rows("a")
    (advance,) = shaped.run(ItemKind.ADVANCE, "a", expected=position, after=shaped.head)
    assert why in parked_for(advance, "schema_change")
    assert shaped.rows("a") == before


@pytest.mark.parametrize("column", ["tenant", "id"])
def test_a_routing_or_key_column_that_was_dropped_and_added_parks_by_its_name(shaped: ApplyRig, column: str) -> None:
    position = shaped.head
    shaped.sql(f"ALTER TABLE src.main.t DROP COLUMN {column}", f"ALTER TABLE src.main.t ADD COLUMN {column} VARCHAR")
    shaped.sql("CREATE TABLE src.main.other (i INTEGER)")
    (advance,) = shaped.run(ItemKind.ADVANCE, "a", expected=position, after=shaped.head)
    assert column in parked_for(advance, "schema_change")


def test_expiry_hides_no_change_of_columns(shaped: ApplyRig) -> None:
    """The catalog keeps the versions of columns that have ended, whatever was expired."""
    position = shaped.head
    quiet = shaped.sql(*ANOTHER_V)
    shaped.sql("INSERT INTO src.main.t (id, tenant) VALUES (100, 'a')")
    shaped.sql(f"CALL ducklake_expire_snapshots('src', versions => {list(range(quiet))})")
    (answer,) = shaped.changes(position, "a", after=quiet)
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    assert shaped.rows("a") == shaped.expected("a")


def test_a_reseed_takes_the_columns_that_there_are(shaped: ApplyRig) -> None:
    shaped.sql(*ANOTHER_V)
    shaped.add("a", generation=2, replace=True)
    assert [answer.outcome for answer in shaped.seed("a")] == [Outcome.APPLIED]
    position = shaped.head
    shaped.sql("UPDATE src.main.t SET v = 'new' WHERE id = 2")
    assert [answer.outcome for answer in shaped.changes(position, "a")] == [Outcome.APPLIED]
    assert shaped.rows("a") == shaped.expected("a")


FOLLOWED = {
    "added, dropped and added again": (
        "ALTER TABLE src.main.t ADD COLUMN n INTEGER DEFAULT 1",
        "ALTER TABLE src.main.t DROP COLUMN n",
        "ALTER TABLE src.main.t ADD COLUMN n INTEGER DEFAULT 2",
    ),
    "renamed there and back": (
        "ALTER TABLE src.main.t RENAME COLUMN v TO w",
        "ALTER TABLE src.main.t RENAME COLUMN w TO v",
    ),
    "the table renamed there and back": (
        "ALTER TABLE src.main.t RENAME TO u",
        "ALTER TABLE src.main.u RENAME TO t",
    ),
    "default, comment, not null": (
        "ALTER TABLE src.main.t ALTER COLUMN v SET DEFAULT 'x'",
        "COMMENT ON COLUMN src.main.t.v IS 'words'",
        "ALTER TABLE src.main.t ALTER COLUMN tenant SET NOT NULL",
    ),
}


@pytest.mark.parametrize("what", FOLLOWED)
def test_columns_that_are_what_they_were_are_followed(shaped: ApplyRig, what: str) -> None:
    position = shaped.head
    shaped.sql(*FOLLOWED[what], "UPDATE src.main.t SET v = 'new' WHERE id < 4")
    assert [answer.outcome for answer in shaped.changes(position)] == [Outcome.APPLIED] * 2
    assert shaped.rows("a") == shaped.expected("a")


def test_a_text_default_that_spells_null_is_a_text(shaped: ApplyRig) -> None:
    position = shaped.head
    shaped.sql(
        "ALTER TABLE src.main.t ADD COLUMN n VARCHAR DEFAULT 'NULL'", "ALTER TABLE src.main.t ADD COLUMN m INTEGER"
    )
    shaped.sql("UPDATE src.main.t SET v = 'new' WHERE id = 2")
    assert [answer.outcome for answer in shaped.changes(position, "a")] == [Outcome.APPLIED]
    assert shaped.rows("a") == shaped.expected("a")
    assert {(row[-2], row[-1]) for row in shaped.rows("a")} == {("NULL", None)}


@pytest.mark.parametrize(
    "column",
    ["big HUGEINT", "big UHUGEINT[]", "late TIME_NS", "late TIMETZ[]", "rowid INTEGER", "snapshot_id BIGINT"],
)
def test_a_column_that_can_not_be_carried_parks_by_its_name_whenever_it_comes(shaped: ApplyRig, column: str) -> None:
    position, before = shaped.head, shaped.rows("a")
    shaped.sql("CALL src.set_option('data_inlining_row_limit', 0)")  # Postgres has no type for TIME_NS
    shaped.sql(f"ALTER TABLE src.main.t ADD COLUMN {column}", "DELETE FROM src.main.t WHERE id = 2")
    (changes,) = shaped.changes(position, "a")
    (advance,) = shaped.run(ItemKind.ADVANCE, "b", expected=position, after=shaped.head)
    shaped.add("c", "a")
    (seed,) = shaped.seed("c")
    for answer in (changes, advance, seed):
        assert column.split()[0] in parked_for(answer, "schema_change")
    assert shaped.rows("a") == before


@EITHER_PATH
@pytest.mark.parametrize(("renamed", "name"), [("v", "rowid"), ("s", "snapshot_id"), ("v", "RowID")])
def test_a_column_that_is_renamed_into_a_reserved_name_parks_by_it(shaped: ApplyRig, renamed: str, name: str) -> None:
    position, before = shaped.head, shaped.rows("a")
    shaped.sql(f"ALTER TABLE src.main.t RENAME COLUMN {renamed} TO {name}", "DELETE FROM src.main.t WHERE id = 2")
    (changes,) = shaped.changes(position, "a")
    (advance,) = shaped.run(ItemKind.ADVANCE, "b", expected=position, after=shaped.head)
    shaped.add("c", "a")
    (seed,) = shaped.seed("c")
    for answer in (changes, advance, seed):
        assert name in parked_for(answer, "schema_change")
        assert answer.error is not None
        assert f'ALTER TABLE "main"."t" RENAME COLUMN "{name}" TO "own_{name}";' in answer.error.hint
    assert shaped.rows("a") == before
    shaped.sql(f'ALTER TABLE src.main.t RENAME COLUMN "{name}" TO "own_{name}"')
    (changes,) = shaped.changes(position, "a")
    assert (changes.outcome, changes.error) == (Outcome.APPLIED, None)
    assert shaped.rows("a") == shaped.expected("a")


@pytest.mark.parametrize("keys", [(), ("id",)], ids=["append-only", "with keys"])
def test_a_replay_from_a_snapshot_that_is_shown_wrong_parks(make_rig: MakeRig, keys: tuple[str, ...]) -> None:
    """H13: of 18 rows 38 are shown, by what a rewrite and a flush have left."""
    rig = make_rig(routing=Routing(field="tenant", key_columns=keys))
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(20) r(i)",
        "CALL src.set_option('data_inlining_row_limit', 10)",
        "DELETE FROM src.main.t WHERE id = 1",
        "CALL src.set_option('data_inlining_row_limit', 0)",
    )
    first = rig.sql("DELETE FROM src.main.t WHERE id = 0")
    rig.sql(
        "CALL ducklake_rewrite_data_files('src', 't', delete_threshold => 0)", "CALL ducklake_flush_inlined_data('src')"
    )
    shown = "SELECT count(*) FROM (SELECT * FROM src.main.t AT (VERSION => {}))"
    assert rig.con.execute(shown.format(first)).fetchall() == [(38,)], "H13 is fixed upstream"
    rig.add("a")
    (answer,) = rig.seed("a", through=first, pinned=True)
    assert f"snapshot {first}" in parked_for(answer, "history_damaged")
    (answer,) = rig.seed("a", through=first - 1, pinned=True)
    assert (answer.error, answer.outcome, answer.inserted) == (None, Outcome.APPLIED, 19)


# -- history ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored(rig: ApplyRig) -> ApplyRig:
    """Two tenants that have followed a commit which the source has lost since: its number is another one's now."""
    rig.seed()
    backup, position = Backup(rig.con, "src", rig.source), rig.head
    rig.sql("UPDATE src.main.t SET v = 'lost' WHERE id < 6")
    assert [answer.outcome for answer in rig.changes(position)] == [Outcome.APPLIED] * 2
    backup.restore()
    rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 'other'), (101, 'b', 'other')")
    return rig


def test_changes_on_top_of_a_history_that_was_written_anew_park(restored: ApplyRig) -> None:
    position, before = restored.head, restored.rows("a")
    restored.sql("INSERT INTO src.main.t VALUES (200, 'a', 'more'), (201, 'b', 'more')")
    for answer in restored.changes(position):
        assert answer.error is not None
        assert "reseed" in answer.error.hint
        assert "restore" in parked_for(answer, "source_moved")
    assert restored.rows("a") == before


def test_so_does_an_advance_and_a_probe(restored: ApplyRig) -> None:
    position = restored.head
    restored.sql("CREATE TABLE src.main.other (i INTEGER)")
    (advance,) = restored.run(ItemKind.ADVANCE, "a", expected=position, after=position)
    parked_for(advance, "source_moved")
    (probe,) = restored.run(ItemKind.PROBE, "b", through=0)
    parked_for(probe, "source_moved")


def test_a_position_before_the_backup_is_what_it_was(rig: ApplyRig) -> None:
    rig.seed()
    position = rig.head
    rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    backup = Backup(rig.con, "src", rig.source)
    rig.sql("DELETE FROM src.main.t WHERE id = 2")
    backup.restore()
    rig.sql("DELETE FROM src.main.t WHERE id = 4")
    assert [answer.outcome for answer in rig.run(ItemKind.PROBE, through=0)] == [Outcome.ALREADY_APPLIED] * 2
    assert [answer.outcome for answer in rig.changes(position)] == [Outcome.APPLIED, Outcome.EMPTY]
    assert rig.rows("a") == rig.expected("a")


def test_what_the_reader_saw_of_another_history_moves_nobody(rig: ApplyRig) -> None:
    """The reader found a range empty that holds a change in the history that took its place."""
    rig.seed()
    position = rig.head
    backup = Backup(rig.con, "src", rig.source)
    quiet = rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    with closing(CatalogReader(rig.source)) as catalog:
        seen = Seen(snapshot=quiet, at=catalog.head().time)
    backup.restore()
    rig.sql("DELETE FROM src.main.t WHERE id = 2", "DELETE FROM src.main.t WHERE id = 4")
    stale = {"expected": position, "after": quiet, "seen": seen}
    for kind in (ItemKind.CHANGES, ItemKind.ADVANCE):
        (answer,) = rig.run(kind, "a", **stale)
        assert answer.outcome is Outcome.FAILED
        assert answer.error is not None
        assert (answer.error.type, answer.error.retryable) == ("source_behind", True)
    assert [answer.outcome for answer in rig.changes(position, "a")] == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


OTHER_HISTORIES = {
    "a row is deleted": (
        "ALTER TABLE src.main.t ADD COLUMN w INTEGER DEFAULT 7",
        "DELETE FROM src.main.t WHERE id = 4",
    ),
    "a column has another default": (
        "ALTER TABLE src.main.t ADD COLUMN w INTEGER DEFAULT 9",
        "UPDATE src.main.t SET v = 'new' WHERE id = 4",
    ),
    "a column has another name": (
        "ALTER TABLE src.main.t ADD COLUMN x INTEGER DEFAULT 7",
        "UPDATE src.main.t SET v = 'new' WHERE id = 4",
    ),
    "it is shorter": ("DELETE FROM src.main.t WHERE id = 4",),
    "it is longer": (
        "DELETE FROM src.main.t WHERE id = 6",
        "ALTER TABLE src.main.t ADD COLUMN x VARCHAR DEFAULT 'x'",
        "DELETE FROM src.main.t WHERE id = 4",
        "INSERT INTO src.main.t VALUES (100, 'a', 'new', 'y')",
    ),
}


@pytest.mark.parametrize("other", OTHER_HISTORIES)
def test_a_worker_that_has_the_source_open_from_another_history_reads_the_one_that_there_is(
    rig: ApplyRig, other: str
) -> None:
    """DuckLake remembers by numbers of snapshots and of schemas, which a restored source gives to others."""
    rig.seed()
    position, backup = rig.head, Backup(rig.con, "src", rig.source)
    after = rig.sql(
        "ALTER TABLE src.main.t ADD COLUMN w INTEGER DEFAULT 7", "INSERT INTO src.main.t VALUES (50, 'b', '', 1)"
    )
    assert patient_changes(rig, position, "b").position == after
    backup.restore(forgets=False)
    rig.sql(*OTHER_HISTORIES[other])
    assert patient_changes(rig, position, "a").outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


def patient_changes(rig: ApplyRig, position: int, name: str) -> Progress:
    """Again while connections are found ended, as a restore of a database ends them all."""
    for _ in range(4):
        (answer,) = rig.changes(position, name)
        if answer.error is None or "terminating connection" not in answer.error.message:
            return answer
    raise AssertionError(answer)


def test_a_cursor_from_before_times_were_kept_learns_its_own_with_the_next_commit(rig: ApplyRig) -> None:
    rig.seed("a")
    cursor = f"dst._viaduck.{cursor_name('p', 'a')}"
    rig.write("a", f"UPDATE {cursor} SET source_lake = split_part(source_lake, '@', 1)")
    position = rig.head
    rig.sql("DELETE FROM src.main.t WHERE id = 2")
    assert [answer.outcome for answer in rig.changes(position, "a")] == [Outcome.APPLIED]
    with closing(CatalogReader(rig.source)) as catalog:
        at = catalog.head().time
    ((kept,),) = rig.look("a", f"SELECT source_lake FROM {cursor}")
    assert committed_at(kept) == at
