"""A destination's lives on real lakes: dropped, rewound, and fenced from the ones before."""

from __future__ import annotations

from contextlib import closing

import pytest

from services.applier.run import Run
from services.applier.task import SourceTable, Task
from services.applier.worker import Worker
from shared.lake.catalog import CatalogReader, marks
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import LakeAbsent
from shared.messages import ItemKind, Outcome
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed


@pytest.fixture
def bed(make_bed: MakeBed) -> Bed:
    bed = make_bed()
    bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
            "INSERT INTO src.main.t VALUES (1, 'a', 'one'), (2, 'a', 'two'), (3, 'b', 'three')")  # fmt: skip
    bed.add("a")
    bed.seed()
    return bed


def tables(bed: Bed, name: str) -> int:
    return int(bed.look(name, "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'dst'")[0][0])


def test_a_drop_takes_table_and_cursor_away_and_says_so(bed: Bed) -> None:
    bed.add("a", generation=2)
    (dropped,) = bed.run(ItemKind.DROP, "a", through=0)
    assert (dropped.outcome, dropped.generation, dropped.position, dropped.deleted) == (Outcome.APPLIED, 2, -1, 2)
    assert tables(bed, "a") == 0
    ((author, info),) = bed.look(
        "a", "SELECT author, commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert author == "viaduck"
    assert '"kind": "drop"' in info


def test_dropping_again_finds_nothing_and_writes_nothing(bed: Bed) -> None:
    bed.add("a", generation=2)
    bed.run(ItemKind.DROP, "a", through=0)
    before = bed.commits("a")
    (again,) = bed.run(ItemKind.DROP, "a", through=0)
    assert (again.outcome, again.position, bed.commits("a")) == (Outcome.ALREADY_APPLIED, -1, before)


def test_a_lake_that_is_not_there_is_not_made_by_a_drop(bed: Bed) -> None:
    bed.add("new")
    (dropped,) = bed.run(ItemKind.DROP, "new", through=0)
    assert dropped.outcome is Outcome.ALREADY_APPLIED
    with pytest.raises(LakeAbsent):
        bed.look("new", "SELECT 1")


def test_a_table_that_no_cursor_vouches_for_is_never_dropped(bed: Bed) -> None:
    bed.add("new", table="others")
    bed.write("new", "CREATE TABLE dst.main.others AS SELECT 1 AS n")
    (dropped,) = bed.run(ItemKind.DROP, "new", through=0)
    assert dropped.outcome is Outcome.ALREADY_APPLIED
    assert bed.look("new", "SELECT n FROM dst.main.others") == [(1,)]


def test_a_delayed_drop_of_an_old_life_does_no_harm_to_a_later_one(bed: Bed) -> None:
    bed.add("a", generation=2)
    late = bed.target("a", ItemKind.DROP, through=0)
    bed.add("a", generation=3)
    bed.seed("a")
    (fenced,) = bed.run_targets(ItemKind.DROP, [late])
    assert (fenced.outcome, fenced.generation) == (Outcome.FENCED, 3)
    assert bed.rows("a") == bed.expected("a")


def test_a_delayed_seed_does_not_bring_back_what_was_dropped(bed: Bed) -> None:
    """Nor does one of a control that lost its registry; it is told which life may begin."""
    late = bed.target("a", ItemKind.SEED, through=bed.head)
    bed.add("a", generation=2)
    bed.run(ItemKind.DROP, "a", through=0)
    before = bed.commits("a")
    (fenced,) = bed.run_targets(ItemKind.SEED, [late])
    assert (fenced.outcome, fenced.generation, fenced.position) == (Outcome.FENCED, 3, -1)
    assert (tables(bed, "a"), bed.commits("a")) == (0, before)
    bed.add("a", generation=3)
    (seeded,) = bed.seed("a")
    assert seeded.outcome is Outcome.APPLIED
    assert bed.rows("a") == bed.expected("a")


def test_a_drop_buries_nobody_else_in_the_lake(bed: Bed) -> None:
    bed.add("b_", lake=bed.lake("a"), table="b")
    bed.add("b-", lake=bed.lake("a"), table="b")
    bed.seed("b_")
    bed.add("b_", lake=bed.lake("a"), table="b", generation=2)
    bed.run(ItemKind.DROP, "b_", through=0)
    (seeded,) = bed.seed("b-")
    assert seeded.outcome is Outcome.APPLIED, "its name only looks alike to LIKE"


@pytest.mark.parametrize("kind", [ItemKind.SEED, ItemKind.CHANGES, ItemKind.ADVANCE])
def test_a_delayed_item_of_an_old_life_is_fenced_after_the_id_came_back(bed: Bed, kind: ItemKind) -> None:
    position = bed.head
    bed.sql("UPDATE src.main.t SET v = 'new' WHERE id = 1")
    late = bed.target("a", kind, expected=position, after=position)
    bed.add("a", generation=3)
    bed.seed("a")
    before = bed.commits("a")
    (fenced,) = bed.run_targets(kind, [late])
    assert (fenced.outcome, fenced.generation, bed.commits("a")) == (Outcome.FENCED, 3, before)


def test_a_rewound_life_holds_the_slice_of_then_and_catches_up_to_now(bed: Bed) -> None:
    then, rows = bed.head, bed.rows("a")
    bed.sql("DELETE FROM src.main.t WHERE id = 1", "INSERT INTO src.main.t VALUES (4, 'a', 'four')",
            "ALTER TABLE src.main.t ADD COLUMN w INTEGER")  # fmt: skip
    bed.changes(then, "a")
    bed.add("a", generation=2, seed_at=then)
    (seeded,) = bed.seed("a", through=then, pinned=True)
    assert (seeded.outcome, seeded.position, bed.rows("a")) == (Outcome.APPLIED, then, rows)
    (caught_up,) = bed.changes(then, "a")
    assert caught_up.outcome is Outcome.APPLIED
    assert bed.rows("a") == bed.expected("a")


def test_a_worker_that_knew_an_earlier_life_keeps_rows_in_files_and_the_cursor_in_the_catalog(bed: Bed) -> None:
    """The options of the tables that another worker made are not read again by a lake that is attached already."""
    with closing(Worker(bed.limits)) as other:
        move(bed, other)
        bed.add("a", generation=2)
        bed.run(ItemKind.DROP, "a", through=0)
        bed.add("a", generation=3)
        bed.seed("a")
        move(bed, other)
    assert bed.rows("a") == bed.expected("a")
    assert "inserted_into_table" in done_to(bed, "main", "t")
    assert done_to(bed, SCHEMA, cursor_name("p", "a")) == {"inlined_insert", "inlined_delete"}


def test_a_seed_that_died_before_it_told_the_lake_is_made_good_by_its_repetition(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.add("b")
    seed = bed.target("b", ItemKind.SEED)
    with monkeypatch.context() as died:
        died.setattr("services.applier.apply.settle", lambda *_: None)
        bed.run_targets(ItemKind.SEED, [seed])
    (again,) = bed.run_targets(ItemKind.SEED, [seed])
    assert again.outcome is Outcome.ALREADY_APPLIED
    limits = "SELECT value FROM __ducklake_metadata_dst.ducklake_metadata WHERE key = 'data_inlining_row_limit'"
    assert sorted(bed.look("b", limits)) == [("0",), ("100",)]


def move(bed: Bed, by: Worker) -> None:
    """Change a row of the tenant's in the source, and have that applied by a worker of somebody else's."""
    position = bed.head
    bed.sql("UPDATE src.main.t SET v = v || '!' WHERE id = 1")
    changes = bed.target("a", ItemKind.CHANGES, expected=position, after=position)
    (result,) = Run(
        by, Task(changes.item.kind, SourceTable(bed.source, "main", "t", bed.routing), (changes,), bed.limits)
    ).results()
    assert result.progress.outcome is Outcome.APPLIED


def done_to(bed: Bed, schema: str, table: str) -> frozenset[str]:
    """What the newest snapshot did to a table."""
    last = (
        "SELECT changes_made FROM __ducklake_metadata_dst.ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1"
    )
    ((made,),) = bed.look("a", last)
    with closing(CatalogReader(bed.lake("a"))) as catalog:
        (table_id,) = catalog.table_ids([(schema, table)])
    return marks(made, table_id)
