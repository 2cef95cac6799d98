"""A destination's lives on real lakes: dropped, rewound, and fenced from the ones before."""

from __future__ import annotations

from contextlib import closing

import pytest

from services.applier.model.task import SourceTable, Task
from services.applier.worker.task_run import TaskRun
from services.applier.worker.worker_state import Worker
from shared.contracts.messages import ItemKind, Outcome
from shared.lake.catalog.reader import CatalogReader
from shared.lake.catalog.touches import marks
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import LakeAbsent
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
            "INSERT INTO src.main.t VALUES (1, 'a', 'one'), (2, 'a', 'two'), (3, 'b', 'three')")  # fmt: skip
    rig.add("a")
    rig.seed()
    return rig


def tables(rig: ApplyRig, name: str) -> int:
    return int(rig.look(name, "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'dst'")[0][0])


def test_a_drop_takes_table_and_cursor_away_and_says_so(rig: ApplyRig) -> None:
    rig.add("a", generation=2)
    (dropped,) = rig.run(ItemKind.DROP, "a", through=0)
    assert (dropped.outcome, dropped.generation, dropped.position, dropped.deleted) == (Outcome.APPLIED, 2, -1, 2)
    assert tables(rig, "a") == 0
    ((author, info),) = rig.look(
        "a", "SELECT author, commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert author == "viaduck"
    assert '"kind": "drop"' in info


def test_dropping_again_finds_nothing_and_writes_nothing(rig: ApplyRig) -> None:
    rig.add("a", generation=2)
    rig.run(ItemKind.DROP, "a", through=0)
    before = rig.commits("a")
    (again,) = rig.run(ItemKind.DROP, "a", through=0)
    assert (again.outcome, again.position, rig.commits("a")) == (Outcome.ALREADY_APPLIED, -1, before)


def test_a_lake_that_is_not_there_is_not_made_by_a_drop(rig: ApplyRig) -> None:
    rig.add("new")
    (dropped,) = rig.run(ItemKind.DROP, "new", through=0)
    assert dropped.outcome is Outcome.ALREADY_APPLIED
    with pytest.raises(LakeAbsent):
        rig.look("new", "SELECT 1")


def test_a_table_that_no_cursor_vouches_for_is_never_dropped(rig: ApplyRig) -> None:
    rig.add("new", table="others")
    rig.write("new", "CREATE TABLE dst.main.others AS SELECT 1 AS n")
    (dropped,) = rig.run(ItemKind.DROP, "new", through=0)
    assert dropped.outcome is Outcome.ALREADY_APPLIED
    assert rig.look("new", "SELECT n FROM dst.main.others") == [(1,)]


def test_a_delayed_drop_of_an_old_life_does_no_harm_to_a_later_one(rig: ApplyRig) -> None:
    rig.add("a", generation=2)
    late = rig.target("a", ItemKind.DROP, through=0)
    rig.add("a", generation=3)
    rig.seed("a")
    (fenced,) = rig.run_targets(ItemKind.DROP, [late])
    assert (fenced.outcome, fenced.generation) == (Outcome.FENCED, 3)
    assert rig.rows("a") == rig.expected("a")


def test_a_delayed_seed_does_not_bring_back_what_was_dropped(rig: ApplyRig) -> None:
    """Nor does one of a control that lost its registry; it is told which life may begin."""
    late = rig.target("a", ItemKind.SEED, through=rig.head)
    rig.add("a", generation=2)
    rig.run(ItemKind.DROP, "a", through=0)
    before = rig.commits("a")
    (fenced,) = rig.run_targets(ItemKind.SEED, [late])
    assert (fenced.outcome, fenced.generation, fenced.position) == (Outcome.FENCED, 3, -1)
    assert (tables(rig, "a"), rig.commits("a")) == (0, before)
    rig.add("a", generation=3)
    (seeded,) = rig.seed("a")
    assert seeded.outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


def test_a_drop_buries_nobody_else_in_the_lake(rig: ApplyRig) -> None:
    rig.add("b_", lake=rig.lake("a"), table="b")
    rig.add("b-", lake=rig.lake("a"), table="b")
    rig.seed("b_")
    rig.add("b_", lake=rig.lake("a"), table="b", generation=2)
    rig.run(ItemKind.DROP, "b_", through=0)
    (seeded,) = rig.seed("b-")
    assert seeded.outcome is Outcome.APPLIED, "its name only looks alike to LIKE"


@pytest.mark.parametrize("kind", [ItemKind.SEED, ItemKind.CHANGES, ItemKind.ADVANCE])
def test_a_delayed_item_of_an_old_life_is_fenced_after_the_id_came_back(rig: ApplyRig, kind: ItemKind) -> None:
    position = rig.head
    rig.sql("UPDATE src.main.t SET v = 'new' WHERE id = 1")
    late = rig.target("a", kind, expected=position, after=position)
    rig.add("a", generation=3)
    rig.seed("a")
    before = rig.commits("a")
    (fenced,) = rig.run_targets(kind, [late])
    assert (fenced.outcome, fenced.generation, rig.commits("a")) == (Outcome.FENCED, 3, before)


def test_a_rewound_life_holds_the_slice_of_then_and_catches_up_to_now(rig: ApplyRig) -> None:
    then, rows = rig.head, rig.rows("a")
    rig.sql("DELETE FROM src.main.t WHERE id = 1", "INSERT INTO src.main.t VALUES (4, 'a', 'four')",
            "ALTER TABLE src.main.t ADD COLUMN w INTEGER")  # fmt: skip
    rig.changes(then, "a")
    rig.add("a", generation=2, seed_at=then)
    (seeded,) = rig.seed("a", through=then, pinned=True)
    assert (seeded.outcome, seeded.position, rig.rows("a")) == (Outcome.APPLIED, then, rows)
    (caught_up,) = rig.changes(then, "a")
    assert caught_up.outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_a_worker_that_knew_an_earlier_life_keeps_rows_in_files_and_the_cursor_in_the_catalog(rig: ApplyRig) -> None:
    """The options of the tables that another worker made are not read again by a lake that is attached already."""
    with closing(Worker(rig.limits)) as other:
        move(rig, other)
        rig.add("a", generation=2)
        rig.run(ItemKind.DROP, "a", through=0)
        rig.add("a", generation=3)
        rig.seed("a")
        move(rig, other)
    assert rig.rows("a") == rig.expected("a")
    assert "inserted_into_table" in done_to(rig, "main", "t")
    assert done_to(rig, SCHEMA, cursor_name("p", "a")) == {"inlined_insert", "inlined_delete"}


def test_a_seed_that_died_before_it_told_the_lake_is_made_good_by_its_repetition(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.add("b")
    seed = rig.target("b", ItemKind.SEED)
    with monkeypatch.context() as died:
        died.setattr("services.applier.apply.transaction.set_options", lambda *_: None)
        rig.run_targets(ItemKind.SEED, [seed])
    (again,) = rig.run_targets(ItemKind.SEED, [seed])
    assert again.outcome is Outcome.ALREADY_APPLIED
    assert sorted(limits(rig, "b")) == ["0", "100"]


def limits(rig: ApplyRig, destination: str) -> list[str]:
    """How many rows each table of the lake may keep in the catalog, as far as anybody said so."""
    said = "SELECT value FROM __ducklake_metadata_dst.ducklake_metadata WHERE key = 'data_inlining_row_limit'"
    return [value for (value,) in rig.look(destination, said)]


def test_a_seed_says_the_limits_once_whatever_was_said_before(rig: ApplyRig) -> None:
    rig.add("b")
    rig.seed("b")
    rig.look_writing("b", "CALL dst.set_option('data_inlining_row_limit', 7, schema => 'main', table_name => 't')")
    assert sorted(limits(rig, "b")) == ["100", "7"]
    rig.add("b", generation=2)
    rig.seed("b")
    assert sorted(limits(rig, "b")) == ["0", "100"]


def move(rig: ApplyRig, by: Worker) -> None:
    """Change a row of the tenant's in the source, and have that applied by a worker of somebody else's."""
    position = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id = 1")
    changes = rig.target("a", ItemKind.CHANGES, expected=position, after=position)
    (result,) = TaskRun(
        by, Task(changes.item.kind, SourceTable(rig.source, "main", "t", rig.routing), (changes,), rig.limits)
    ).results()
    assert result.progress.outcome is Outcome.APPLIED


def done_to(rig: ApplyRig, schema: str, table: str) -> frozenset[str]:
    """What the newest snapshot did to a table."""
    last = (
        "SELECT changes_made FROM __ducklake_metadata_dst.ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1"
    )
    ((made,),) = rig.look("a", last)
    with closing(CatalogReader(rig.lake("a"))) as catalog:
        table_id = catalog.table_id(schema, table)
    assert table_id is not None
    return marks(made, table_id)
