"""Columns that are committed directly under rivals and lost acknowledgements, beside the extension's commits, and what
of columns is left to it."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from services.applier.apply.direct import look as direct_look
from services.applier.worker import worker_state
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.lake.attached.pool import LakePool
from tests.lake.batches import before_commit, lose_acknowledgements
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.twin_lakes import orphans

T = "src.main.t"


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    made = make_rig()
    made.sql(
        f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, v VARCHAR)",
        f"INSERT INTO {T} SELECT i, 'a', 'v' || i FROM range(10) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def applied(rig: ApplyRig, *statements: str) -> Progress:
    before = rig.head
    rig.sql(*statements)
    (progress,) = rig.changes(before, "a")
    assert progress.outcome is Outcome.APPLIED, progress.error
    assert rig.rows("a") == rig.expected("a")
    return progress


def direct(progress: Progress) -> None:
    assert (progress.commit, progress.commit_reason) == (CommitPath.DIRECT, None)


COLUMN_AND_ROWS = (
    f"ALTER TABLE {T} RENAME COLUMN v TO w",
    f"ALTER TABLE {T} ADD COLUMN v INTEGER DEFAULT 5",
    f"UPDATE {T} SET v = 6 WHERE id < 3",
)


def test_an_alteration_of_the_owner_in_between_refuses_the_batch_as_a_whole(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.head
    before_commit(monkeypatch, lambda: rig.write("a", "ALTER TABLE dst.main.t ADD COLUMN mine INTEGER"))
    rig.sql(*COLUMN_AND_ROWS)
    (progress,) = rig.changes(before, "a")
    assert progress.error is not None
    assert progress.error.type == "table_mismatch"
    assert [row[0] for row in rig.look("a", "DESCRIBE dst.main.t")] == ["id", "tenant", "v", "mine"]
    assert orphans(rig, "a") == []


def test_columns_that_the_owner_has_given_to_another_table_in_between_are_no_matter(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write("a", "CREATE TABLE dst.main.other (i INTEGER)")
    before_commit(monkeypatch, lambda: rig.write("a", "ALTER TABLE dst.main.other ADD COLUMN j INTEGER"))
    direct(applied(rig, *COLUMN_AND_ROWS))
    direct(applied(rig, f"ALTER TABLE {T} DROP COLUMN w", f"DELETE FROM {T} WHERE id = 4"))
    assert rig.look("a", "DESCRIBE dst.main.other")[1][0] == "j"
    assert orphans(rig, "a") == []


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_an_acknowledgement_that_is_lost_costs_neither_columns_nor_files(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: the extension would delete the files that it has just committed."""
    lose_acknowledgements(monkeypatch)
    direct(applied(rig, *COLUMN_AND_ROWS))
    direct(applied(rig, f"UPDATE {T} SET v = 7 WHERE id = 1"))
    assert rig.commits("a") == 3


@pytest.mark.parametrize("lets_go", [True, False], ids=["of this worker", "of another worker"])
def test_a_lake_that_is_open_is_used_after_its_columns_were_changed_directly(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch, lets_go: bool
) -> None:
    flush = "CALL ducklake_flush_inlined_data('dst')"
    pool = worker_state.worker(rig.limits).pool
    if not lets_go:
        monkeypatch.setattr(pool, "evict_of", lambda *_, **__: None)
    for changes in (COLUMN_AND_ROWS, (f"ALTER TABLE {T} DROP COLUMN w", f"ALTER TABLE {T} RENAME COLUMN v TO u")):
        rig.write("a", flush)
        assert applied(rig, f"UPDATE {T} SET tenant = tenant WHERE id = 1").commit_reason == "cursor_in_file"
        assert count(pool, rig) == len(rig.expected("a"))  # as upkeep opens it
        direct(applied(rig, *changes))
        assert pool.has_open(rig.lake("a")) != lets_go
        rig.write("a", flush)
        by_extension = applied(rig, f"DELETE FROM {T} WHERE id = 3", f"UPDATE {T} SET tenant = 'a' WHERE id < 3")
        assert by_extension.commit_reason == "cursor_in_file"
        assert count(pool, rig) == len(rig.expected("a"))
        direct(applied(rig, f"INSERT INTO {T} (id, tenant) VALUES (3, 'a')"))


def count(pool: LakePool, rig: ApplyRig) -> int:
    """What the lake holds as this worker has it open."""
    with pool.use(rig.lake("a"), read_only=False) as lake, closing(lake.cursor()) as con:
        return int(con.execute("SELECT count(*) FROM lake.main.t").fetchall()[0][0])


def test_a_column_that_comes_after_another_went_is_none_of_it(rig: ApplyRig) -> None:
    """Neither its values nor its bounds: a reader that believes statistics finds the rows from before it (H1)."""
    direct(applied(rig, f"ALTER TABLE {T} DROP COLUMN v", f"DELETE FROM {T} WHERE id = 4"))
    direct(applied(rig, f"ALTER TABLE {T} ADD COLUMN v VARCHAR", f"UPDATE {T} SET v = 'new' WHERE id = 1"))
    direct(applied(rig, f"ALTER TABLE {T} RENAME COLUMN v TO w", f"UPDATE {T} SET w = 'newer' WHERE id = 1"))
    with rig.opened("a") as con:
        con.execute("RESET disabled_optimizers")
        counted = [con.execute(f"SELECT count(*) FROM dst.main.t WHERE w IS {each}").fetchall() for each in KINDS]
    assert counted == [[(8,)], [(1,)]]


KINDS = ("NULL", "NOT NULL")


def test_what_is_remembered_of_the_table_is_what_the_next_look_finds(rig: ApplyRig) -> None:
    rig.write("a", "COMMENT ON COLUMN dst.main.t.v IS 'the owner said so'")
    key = direct_look.key_of(rig.target("a", ItemKind.PROBE))
    for statements in (COLUMN_AND_ROWS, (f"ALTER TABLE {T} DROP COLUMN w", f"DELETE FROM {T} WHERE id = 5")):
        direct(applied(rig, *statements))
        lakes = worker_state.worker(rig.limits).applier._direct._lakes
        remembered = lakes.structure(key)
        direct(applied(rig, f"UPDATE {T} SET tenant = 'a' WHERE id = 7"))
        assert lakes.structure(key) is remembered, "it was believed"
        lakes.forget(key)
        direct(applied(rig, f"UPDATE {T} SET tenant = 'a' WHERE id = 7"))
        found = lakes.structure(key)
        assert found is not None
        assert remembered is not None
        assert replace(remembered, comments=found.comments) == found, "a comment stays when its column goes"


LEFT = {
    "a comment": (f"ALTER TABLE {T} ADD COLUMN w INTEGER", f"COMMENT ON COLUMN {T}.w IS 'new'"),
    "NOT NULL": (f"ALTER TABLE {T} RENAME COLUMN v TO w", f"ALTER TABLE {T} ALTER w SET NOT NULL"),
    "a default": (f"ALTER TABLE {T} RENAME COLUMN v TO w", f"ALTER TABLE {T} ALTER w SET DEFAULT 'x'"),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_else_is_changed_takes_all_of_it_to_the_extension(rig: ApplyRig, what: str) -> None:
    done = applied(rig, *LEFT[what], f"UPDATE {T} SET tenant = 'a' WHERE id = 1")
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, "schema_change")


def test_a_table_whose_rows_may_stay_in_the_catalog_is_altered_by_the_extension(rig: ApplyRig) -> None:
    """It makes another place for them there."""
    rig.write("a", "CALL dst.set_option('data_inlining_row_limit', 10, table_name => 't')")
    done = applied(rig, f"ALTER TABLE {T} ADD COLUMN w INTEGER", f"INSERT INTO {T} (id, tenant) VALUES (77, 'a')")
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, "schema_change")


def test_a_default_that_ducklake_would_spell_otherwise_is_the_extensions(rig: ApplyRig) -> None:
    """Another program wrote it to the source's catalog."""
    done = applied(
        rig,
        f"ALTER TABLE {T} ADD COLUMN w INTEGER DEFAULT 5",
        "UPDATE __ducklake_metadata_src.ducklake_column SET initial_default = '05' WHERE column_name = 'w'",
        f"UPDATE {T} SET tenant = 'a' WHERE id = 1",
    )
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, "schema_change")


def test_the_stamp_says_what_became_of_the_columns(rig: ApplyRig) -> None:
    """As the extension's commits say it; a default whose text DuckLake shows otherwise is said twice."""
    direct(
        applied(
            rig,
            *COLUMN_AND_ROWS[:2],
            f"ALTER TABLE {T} ADD COLUMN d DECIMAL(18, 4) DEFAULT '5'",
            f"ALTER TABLE {T} ALTER tenant SET DEFAULT upper('x')",
            f"UPDATE {T} SET tenant = 'a' WHERE id = 1",
        )
    )
    ((text,),) = rig.look("a", "SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert json.loads(text)["columns"] == [
        "rename v to w", "add v INTEGER", "add d DECIMAL(18,4)", "set default of d",
        "not carried: default of tenant (it is no plain value)",
    ]  # fmt: skip
