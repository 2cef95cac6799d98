"""A seed that Viaduck commits itself: a first one leaves a lake as DuckLake's extension would, row by row of its
catalog; a later one puts its rows in the place of those that are there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from services.applier.apply.direct import seed as direct_seed
from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice
from shared.contracts.layout import TableLayout
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.lake.connection.engine import connect
from shared.lake.connection.new_catalog import TABLES
from tests.lake.batches import before_commit, lose_acknowledgements
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, MakeLake
from tests.lake.twins import COLUMNS, VALUES

MORE_COLUMNS = {
    "nest": 'STRUCT(a STRUCT(x INTEGER, y VARCHAR)[], "Q q" MAP(VARCHAR, STRUCT(z DOUBLE)))',
    "ns": "TIMESTAMP_NS",
    "us": "USMALLINT",
    "odd name": "VARCHAR(10)",
}

CHANCE = re.compile(
    r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:[0-9.]+(\+00(:00)?)?|[0-9a-f]{32}"
)
"""What no two commits share: uuids, moments and tokens."""

BY_EXTENSION_ONLY = {"ducklake_inlined_data_tables"}
"""The extension makes a table for inlined rows of each table, and rows of a destination are never inlined."""


NEVER_COUNTED = {("ducklake_file_column_stats", "24"), ("ducklake_table_column_stats", "24")}
"""The INTERVAL: COPY tells nothing of its NULLs, and the extension says that it has none."""


def catalog_rows(lake: ResolvedLake) -> dict[str, list[str]]:
    """The rows of each of a catalog's own tables, without what is drawn by chance and the order of tables' ids."""
    con = connect()
    try:
        kind = "sqlite" if lake.sqlite_file is not None else "postgres"
        con.execute(f"ATTACH '{lake.sqlite_file or lake.conninfo}' AS c (TYPE {kind}, READ_ONLY)")
        schema = "main" if lake.sqlite_file is not None else lake.schema
        return {
            table: [_even(table, row) for row in con.execute(f'SELECT * FROM c."{schema}".{table}').fetchall()]
            for table in TABLES
            if table not in BY_EXTENSION_ONLY
        }
    finally:
        con.close()


def _even(table: str, row: Sequence[Any]) -> str:
    shown = [int(value) if isinstance(value, bool) else str(value) for value in row]
    if (table, shown[2 if "file" in table else 1]) in NEVER_COUNTED:
        shown = shown[:2]
    text = CHANCE.sub("*", repr(shown)).replace('"commit": "direct"', '"commit": "extension"')
    return re.sub(r"/[ab]-data/", "/data/", text)


def seed(rig: ApplyRig, lake: ResolvedLake, commit: CommitChoice, **changed: Any) -> Progress:
    """Seed the destination ``d`` in that lake."""
    rig.add("d", "a", lake=lake, **changed)
    source = SourceTable(rig.source, "main", "t", rig.routing)
    target = rig.target("d", ItemKind.SEED, item="item-of-both")
    (result,) = run_task(Task(ItemKind.SEED, source, (target,), replace(Limits(), commit=commit))).results
    return result.progress


@pytest.fixture
def wide(make_rig: MakeRig) -> ApplyRig:
    """A source of all types, most values NULL."""
    rig = make_rig()
    declared = {**COLUMNS, **MORE_COLUMNS}
    rig.sql("CREATE TABLE src.main.t (" + ", ".join(f'"{name}" {kind}' for name, kind in declared.items()) + ")")
    drawn = ", ".join(values[-1] for values in VALUES.values())
    rig.sql(
        f"INSERT INTO src.main.t (id, tenant, {', '.join(VALUES)}) VALUES (1, 'a', {drawn}), (2, 'b', {drawn})",
        "INSERT INTO src.main.t (id, tenant, f) VALUES (3, 'a', 'nan')",
    )
    return rig


def lakes(make_lake: MakeLake, rig: ApplyRig, *statements: str) -> tuple[ResolvedLake, ResolvedLake]:
    """Two lakes that are there already, in which the same was done."""
    both = make_lake("a", rig.folder / "a-data"), make_lake("b", rig.folder / "b-data")
    for name, lake in zip("ab", both, strict=True):
        rig.add(name, "nobody", lake=lake)
        rig.write(name, *statements)
        del rig.destinations[name]
    return both


@pytest.mark.parametrize(
    ("before", "schema", "table"),
    [
        ((), "main", "t"),
        (("CREATE TABLE dst.main.other (i INTEGER)", "INSERT INTO dst.main.other VALUES (1)"), "main", "t"),
        (("CREATE SCHEMA dst._viaduck", 'CREATE SCHEMA dst."Sales"'), "sales", "T-1"),
        (('CREATE SCHEMA dst."new ""schema"" of \'sales\'"',), "new \"schema\" of 'sales'", "tàble 1; --"),
    ],
    ids=["empty", "beside-another", "schemas-there", "strange-names"],
)
def test_the_catalog_is_the_one_that_the_extension_leaves(
    wide: ApplyRig, make_lake: MakeLake, before: tuple[str, ...], schema: str, table: str
) -> None:
    ours, theirs = lakes(make_lake, wide, *before)
    done = seed(wide, ours, "auto", schema_name=schema, table=table)
    assert (done.outcome, done.commit, done.error) == (Outcome.APPLIED, CommitPath.DIRECT, None)
    assert seed(wide, theirs, "extension", schema_name=schema, table=table).commit is CommitPath.EXTENSION
    found, wanted = catalog_rows(ours), catalog_rows(theirs)
    differ = {n: (set(rows) - set(wanted[n]), set(wanted[n]) - set(rows)) for n, rows in found.items()}
    assert {name: both for name, both in differ.items() if any(both)} == {}


@pytest.fixture
def narrow(make_rig: MakeRig) -> ApplyRig:
    """A source of ten rows of one tenant, whose lake is there."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(10) r(i)",
    )
    rig.add("d", "a")
    rig.write("d")
    return rig


def follow(rig: ApplyRig) -> Progress:
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    (done,) = rig.changes(before, "d")
    return done


def test_schemas_that_are_not_there_are_made_and_changes_follow_directly(
    narrow: ApplyRig,
) -> None:
    narrow.add("d", schema_name='sales "new"', table="T {1}")
    (seeded,) = narrow.seed("d")
    assert (seeded.commit, seeded.error) == (CommitPath.DIRECT, None)
    assert follow(narrow).commit is CommitPath.DIRECT
    assert sorted(narrow.look("d", 'SELECT * FROM dst."sales ""new"""."T {1}"')) == narrow.expected("d")
    orphans = "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)"
    assert narrow.look_writing("d", orphans) == []


@pytest.mark.parametrize("make_lake", ["postgres", "postgres-schema"], indirect=True)
def test_a_lake_that_is_not_there_is_made_without_the_extension(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a')")
    rig.add("a")
    (seeded,) = rig.seed()
    assert (seeded.commit, seeded.error) == (CommitPath.DIRECT, None)
    assert rig.rows("a") == rig.expected("a")


def test_a_tenant_without_rows_gets_an_empty_table(narrow: ApplyRig) -> None:
    narrow.sql("DELETE FROM src.main.t")
    assert narrow.seed("d")[0].commit is CommitPath.DIRECT
    assert narrow.rows("d") == []
    before = narrow.head
    narrow.sql("INSERT INTO src.main.t VALUES (1, 'a', 'x')")
    assert narrow.changes(before, "d")[0].commit is CommitPath.DIRECT
    assert narrow.rows("d") == narrow.expected("d")


@pytest.mark.parametrize(
    ("before", "changed", "reason"),
    [
        (("CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",), {}, "table_exists"),
        (
            ("CREATE TABLE dst.main.o (i INTEGER)", "CALL ducklake_expire_snapshots('dst', versions => [0])"),
            {},
            "table_exists",
        ),
        ((), {"layout": TableLayout(partitioned_by="id")}, "partitioned"),
        ((), {"layout": TableLayout(sorted_by="v")}, "sorted"),
        (("CALL dst.set_option('parquet_compression', 'zstd')",), {}, "option"),
    ],
)
def test_what_is_not_made_directly_is_the_extensions(
    narrow: ApplyRig, before: tuple[str, ...], changed: dict[str, Any], reason: str
) -> None:
    narrow.write("d", *before)
    narrow.add("d", **changed)
    (done,) = narrow.seed("d")
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, reason)
    assert narrow.rows("d") == narrow.expected("d")


def test_no_table_is_made_beside_a_view_of_its_name(narrow: ApplyRig) -> None:
    """The view would win over it, for DuckLake and every reader (docs/explanation/hazards.md)."""
    narrow.write("d", "CREATE VIEW dst.main.T AS SELECT 1 AS i")
    (done,) = narrow.seed("d")
    assert (done.outcome, done.error and done.error.type) == (Outcome.PARKED, "unsafe_catalog")
    assert narrow.rows("d") == [(1,)]


def test_a_large_seed_is_the_extensions(narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_seed, "MOST_ROWS", 9)
    (done,) = narrow.seed("d")
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, "large_seed")
    assert narrow.rows("d") == narrow.expected("d")


def test_a_late_seed_of_a_life_that_was_dropped_makes_nothing(narrow: ApplyRig) -> None:
    narrow.seed("d")
    assert narrow.run(ItemKind.DROP, "d")[0].outcome is Outcome.APPLIED
    narrow.forget()
    (late,) = narrow.seed("d")
    assert late.outcome is Outcome.FENCED
    assert narrow.look("d", "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'dst'") == [(0,)]


def test_a_rival_that_makes_the_table_first_is_not_overwritten(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes it between the look and the batch: then the batch has no effect, and its file goes."""
    made = ("CREATE TABLE dst.main.t (id BIGINT)", "INSERT INTO dst.main.t VALUES (7)")
    before_commit(monkeypatch, lambda: narrow.write("d", *made))
    (done,) = narrow.seed("d")
    assert (done.outcome, done.error and done.error.type) == (Outcome.PARKED, "table_not_empty")
    assert narrow.rows("d") == [(7,)]
    assert len(list((narrow.folder / "d-data").rglob("*.parquet"))) <= 1


def test_two_seeds_of_one_destination_begin_one_life(narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    target, quicker = narrow.target("d", ItemKind.SEED), narrow.target("d", ItemKind.SEED)

    def overtake() -> None:
        narrow.run_targets(ItemKind.SEED, [quicker])

    before_commit(monkeypatch, overtake)
    (done,) = narrow.run_targets(ItemKind.SEED, [target])
    assert done.outcome is Outcome.ALREADY_APPLIED
    assert narrow.rows("d") == narrow.expected("d")


def test_a_seed_that_was_frozen_past_the_expiry_of_its_rivals_is_refused(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is free again, and another seed has made the tables."""
    quicker = narrow.target("d", ItemKind.SEED)

    def overtake() -> None:
        narrow.run_targets(ItemKind.SEED, [quicker])
        narrow.write("d", "CREATE TABLE dst.main.other (i INTEGER)")
        narrow.write("d", "CALL ducklake_expire_snapshots('dst', versions => [1])")

    before_commit(monkeypatch, overtake)
    (done,) = narrow.seed("d")
    assert done.outcome is Outcome.ALREADY_APPLIED
    assert narrow.rows("d") == narrow.expected("d")


def test_a_seed_that_was_frozen_past_the_expiry_of_others_commits_comes_after_them(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        narrow.write(
            "d",
            "CREATE TABLE dst.main.other (i INTEGER)",
            "INSERT INTO dst.main.other VALUES (1)",
            "CALL ducklake_expire_snapshots('dst', versions => [1])",
        )

    before_commit(monkeypatch, others)
    (done,) = narrow.seed("d")
    assert done.outcome is Outcome.APPLIED
    snapshots = narrow.look("d", "SELECT snapshot_id, author FROM dst.snapshots() ORDER BY snapshot_id DESC")
    assert snapshots[0][1] == "viaduck"
    assert narrow.rows("d") == narrow.expected("d")


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_lost_acknowledgement_of_a_seed_is_found_by_its_token_and_no_file_is_lost(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: the extension would delete the files that it has just committed."""
    lose_acknowledgements(monkeypatch)
    (done,) = narrow.seed("d")
    assert (done.outcome, done.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert narrow.rows("d") == narrow.expected("d")


def test_a_lake_that_the_extension_had_attached_goes_on_with_what_was_made_directly(narrow: ApplyRig) -> None:
    """It has read the options before the tables were there, and must not keep rows in the catalog for that."""
    narrow.add("other", "b", lake=narrow.lake("d"), table="o")
    narrow.limits = replace(narrow.limits, commit="extension")
    assert narrow.seed("other")[0].commit is CommitPath.EXTENSION  # attaches the lake
    narrow.limits = replace(narrow.limits, commit="auto")
    assert narrow.seed("d")[0].commit is CommitPath.DIRECT
    narrow.limits = replace(narrow.limits, commit="extension")
    assert follow(narrow).commit is CommitPath.EXTENSION
    assert narrow.rows("d") == narrow.expected("d")
    narrow.limits = replace(narrow.limits, commit="auto")
    done = follow(narrow)
    assert (done.commit, done.commit_reason) == (CommitPath.DIRECT, None)
    assert narrow.rows("d") == narrow.expected("d")


def test_a_late_seed_of_a_dropped_life_makes_nothing_though_the_owner_expired_snapshots_in_between(
    narrow: ApplyRig,
) -> None:
    """No table that was dropped is known any more, and the oldest snapshot is retained: only the stamp tells."""
    narrow.seed("d")
    narrow.run(ItemKind.DROP, "d")
    ((dropped,),) = narrow.look("d", "SELECT max(snapshot_id) FROM dst.snapshots()")
    between = ", ".join(str(each) for each in range(1, dropped))
    narrow.write("d", "CREATE TABLE dst.main.other (i INTEGER)")
    narrow.write("d", f"CALL ducklake_expire_snapshots('dst', versions => [{between}])")
    narrow.forget()
    (late,) = narrow.seed("d")
    assert late.outcome is Outcome.FENCED
    assert narrow.look("d", "SELECT table_name FROM duckdb_tables() WHERE database_name = 'dst'") == [("other",)]


def reseed(rig: ApplyRig, **changed: Any) -> Progress:
    """The next life of the destination ``d``, which replaces what is there."""
    rig.add("d", generation=rig.destinations["d"].generation + 1, **{"replace": True, **changed})
    (done,) = rig.seed("d")
    return done


REPLACES = pytest.mark.parametrize("replace", [True, False], ids=["reseed", "rewind"])


def test_a_reseed_puts_its_rows_in_the_place_of_what_is_there(narrow: ApplyRig) -> None:
    narrow.seed("d")
    follow(narrow)
    before = narrow.rows("d")
    ((then,),) = narrow.look("d", "SELECT max(snapshot_id) FROM dst.snapshots()")
    narrow.write("d", "INSERT INTO dst.main.t VALUES (99, 'a', 'of its owner')")
    narrow.sql("INSERT INTO src.main.t VALUES (20, 'a', 'new'), (21, 'b', 'of another')")
    done = reseed(narrow)
    said = done.outcome, done.commit, done.commit_reason, done.deleted, done.inserted, done.rows_applied
    assert (*said, done.error) == (Outcome.APPLIED, CommitPath.DIRECT, None, 11, 11, 11, None)
    assert narrow.rows("d") == narrow.expected("d")
    assert sorted(narrow.look("d", f"SELECT * FROM dst.main.t AT (VERSION => {then})")) == before
    assert follow(narrow).commit is CommitPath.DIRECT
    assert narrow.rows("d") == narrow.expected("d")
    narrow.write("d", "CALL ducklake_rewrite_data_files('dst', 't')", "CALL ducklake_merge_adjacent_files('dst')")
    assert narrow.rows("d") == narrow.expected("d")
    assert (
        narrow.look_writing("d", "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)")
        == []
    )


def test_a_reseed_to_nothing_empties_the_table(narrow: ApplyRig) -> None:
    narrow.seed("d")
    narrow.sql("DELETE FROM src.main.t")
    done = reseed(narrow)
    assert (done.commit, done.deleted, done.inserted) == (CommitPath.DIRECT, 10, 0)
    assert narrow.rows("d") == []


@REPLACES
def test_a_later_life_needs_no_file_of_the_life_before(narrow: ApplyRig, replace: bool) -> None:
    narrow.seed("d")
    for file in (narrow.folder / "d-data").rglob("*.parquet"):
        file.unlink()
    done = reseed(narrow, replace=replace)
    assert (done.commit, done.deleted, done.inserted) == (CommitPath.DIRECT, 10, 10)
    assert narrow.rows("d") == narrow.expected("d")


@pytest.mark.parametrize(
    ("before", "changed", "reason"),
    [
        (("ALTER TABLE dst.main.t ADD COLUMN own INTEGER",), {}, "schema_change"),
        (("ALTER TABLE dst.main.t SET PARTITIONED BY (id)",), {}, "partitioned"),
        (("CALL dst.set_option('data_inlining_row_limit', 7, schema => 'main', table_name => 't')",), {}, "option"),
        (("DROP TABLE dst.main.t",), {}, "table_exists"),
        ((), {"layout": TableLayout(sorted_by="v")}, "sorted"),
    ],
)
def test_a_reseed_of_what_became_of_the_table_meanwhile_is_the_extensions(
    narrow: ApplyRig, before: tuple[str, ...], changed: dict[str, Any], reason: str
) -> None:
    narrow.seed("d")
    narrow.write("d", *before)
    done = reseed(narrow, **changed)
    assert (done.outcome, done.commit, done.commit_reason) == (Outcome.APPLIED, CommitPath.EXTENSION, reason)
    assert narrow.rows("d") == narrow.expected("d")


def test_a_late_seed_of_an_earlier_life_replaces_nothing(narrow: ApplyRig) -> None:
    late = narrow.target("d", ItemKind.SEED)
    narrow.seed("d")
    reseed(narrow)
    follow(narrow)
    (done,) = narrow.run_targets(ItemKind.SEED, [late])
    assert done.outcome is Outcome.FENCED
    assert narrow.rows("d") == narrow.expected("d")


def test_changes_that_come_between_the_look_of_a_reseed_and_its_batch_are_replaced_too(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that looked before them has no effect; the look that follows sees them."""
    narrow.seed("d")
    first = narrow.head
    narrow.sql("INSERT INTO src.main.t VALUES (20, 'a', 'new')")
    narrow.add("d", generation=1)
    late = narrow.target("d", ItemKind.CHANGES, expected=first, after=first)

    def overtake() -> None:
        narrow.run_targets(ItemKind.CHANGES, [late])

    before_commit(monkeypatch, overtake)
    done = reseed(narrow)
    assert (done.commit, done.deleted, done.inserted) == (CommitPath.DIRECT, 11, 11)
    assert narrow.rows("d") == narrow.expected("d")


def test_a_rewind_holds_the_rows_of_then_and_goes_on_from_there(narrow: ApplyRig) -> None:
    narrow.seed("d")
    then, rows = narrow.head, narrow.rows("d")
    follow(narrow)
    ((newest,),) = narrow.look("d", "SELECT max(snapshot_id) FROM dst.snapshots()")
    later = narrow.rows("d")
    narrow.add("d", generation=2, seed_at=then)
    (done,) = narrow.seed("d", through=then, pinned=True)
    said = done.outcome, done.commit, done.commit_reason, done.position, done.deleted, done.inserted
    assert (*said, done.error) == (Outcome.APPLIED, CommitPath.DIRECT, None, then, len(later), len(rows), None)
    assert narrow.rows("d") == rows
    assert sorted(narrow.look("d", f"SELECT * FROM dst.main.t AT (VERSION => {newest})")) == later
    (again,) = narrow.changes(then, "d")
    assert (again.outcome, again.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert narrow.rows("d") == narrow.expected("d")


@REPLACES
@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_lost_acknowledgement_of_a_later_life_is_found_by_its_token(
    narrow: ApplyRig, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    narrow.seed("d")
    lose_acknowledgements(monkeypatch)
    done = reseed(narrow, replace=replace)
    assert (done.outcome, done.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert narrow.rows("d") == narrow.expected("d")
