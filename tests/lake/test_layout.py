"""Destinations whose tables are partitioned, sorted or encrypted as the configuration says, through a whole life."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from services.applier.apply import transaction
from services.applier.model.task import UpkeepTask
from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, compare_all
from shared.config.model import Routing
from shared.config.upkeep_rules import Policy
from shared.contracts.layout import TableLayout
from shared.contracts.messages import Destination, ItemKind, Outcome, Progress, SeedMode
from shared.contracts.upkeep import StepOutcome, UpkeepOrder, UpkeepStep
from shared.lake.attached.pool import OpenLake
from shared.lake.failure import LakeAbsent
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

META = "__ducklake_metadata_dst"
PARTS = f"""
    SELECT c.transform, k.column_name FROM {META}.ducklake_partition_info p
    JOIN {META}.ducklake_table t ON t.table_id = p.table_id AND t.end_snapshot IS NULL AND t.table_name = 't'
    JOIN {META}.ducklake_partition_column c ON c.partition_id = p.partition_id
    JOIN {META}.ducklake_column k ON k.column_id = c.column_id AND k.table_id = t.table_id AND k.end_snapshot IS NULL
    WHERE p.end_snapshot IS NULL ORDER BY c.partition_key_index"""
ORDER = f"""
    SELECT e.expression, e.sort_direction, e.null_order FROM {META}.ducklake_sort_info p
    JOIN {META}.ducklake_table t ON t.table_id = p.table_id AND t.end_snapshot IS NULL AND t.table_name = 't'
    JOIN {META}.ducklake_sort_expression e ON e.sort_id = p.sort_id
    WHERE p.end_snapshot IS NULL ORDER BY e.sort_key_index"""
FILES = f"""
    SELECT f.partition_id, f.encryption_key FROM {META}.ducklake_data_file f
    JOIN {META}.ducklake_table t ON t.table_id = f.table_id AND t.table_name = 't' AND t.end_snapshot IS NULL"""

BY_TIME = TableLayout(partitioned_by='year("T s"), month("T s")', sorted_by='"T s" DESC NULLS FIRST, v')
WHOLE = BY_TIME.model_copy(update={"encrypted": True})
SAME = TableLayout(partitioned_by="same", sorted_by="same")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    made = make_rig()
    made.sql(
        'CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, "T s" TIMESTAMP, v VARCHAR)',
        "INSERT INTO src.main.t SELECT i, 'a', TIMESTAMP '2024-01-15' + to_days(i * 9), 'v' || (i % 7)"
        " FROM range(100) r(i)",
        "INSERT INTO src.main.t VALUES (1000, 'a', NULL, NULL), (1001, 'b', NULL, 'b')",
    )
    return made


def change(rig: ApplyRig, sql: str) -> Progress:
    position = rig.head
    rig.sql(sql)
    (done,) = rig.changes(position, "a")
    assert (done.outcome, done.error) == (Outcome.APPLIED, None)
    return done


def seeded(rig: ApplyRig, **changed: Any) -> Progress:
    rig.add("a", **changed)
    (done,) = rig.seed("a")
    return done


def files(rig: ApplyRig) -> set[Path]:
    return set((rig.folder / "a-data").rglob("*.parquet"))


@pytest.mark.parametrize("layout", [BY_TIME, WHOLE], ids=["plain", "encrypted"])
def test_a_table_of_ours_is_laid_out_from_its_first_file_on(rig: ApplyRig, layout: TableLayout) -> None:
    done = seeded(rig, layout=layout)
    assert (done.outcome, done.layout) == (Outcome.APPLIED, layout)
    assert rig.look("a", PARTS) == [("year", "T s"), ("month", "T s")]
    assert rig.look("a", ORDER) == [('"T s"', "DESC", "NULLS_FIRST"), ("v", "ASC", "NULLS_LAST")]
    for sql in (
        "UPDATE src.main.t SET v = 'changed' WHERE id % 10 = 3",
        "UPDATE src.main.t SET \"T s\" = TIMESTAMP '2031-05-05' WHERE id % 10 = 4",
        "DELETE FROM src.main.t WHERE id < 20",
        "INSERT INTO src.main.t SELECT i, 'a', TIMESTAMP '2020-01-15' + to_days(i), NULL FROM range(200, 220) r(i)",
    ):
        reason = change(rig, sql).commit_reason
        assert reason == ("encrypted" if layout.encrypted else "partitioned")
    files = rig.look("a", FILES)
    assert all((key is not None) == layout.encrypted for _, key in files)
    parts = {part for part, _ in files}
    assert len(parts) == 1
    assert None not in parts
    at = rig.head
    (kept,) = rig.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    assert kept.error is None
    (probed,) = rig.run(ItemKind.PROBE, "a")
    assert (probed.outcome, probed.error) == (Outcome.ALREADY_APPLIED, None)
    assert rig.rows("a") == rig.expected("a")
    subject = Subject("p", "a", "a", rig.lake("a"), "main", "t", SeedMode.SCAN)
    (verdict,) = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject])
    assert verdict.finding is ComparisonResult.EQUAL, verdict


def test_the_same_layout_is_the_source_s_at_the_seed(rig: ApplyRig) -> None:
    rig.sql(
        'ALTER TABLE src.main.t SET PARTITIONED BY (tenant, year("T s"))',
        'ALTER TABLE src.main.t SET SORTED BY (v DESC, "T s")',
    )
    assert seeded(rig, layout=SAME).outcome is Outcome.APPLIED
    assert rig.look("a", PARTS) == [("identity", "tenant"), ("year", "T s")]
    assert rig.look("a", ORDER) == [("v", "DESC", "NULLS_LAST"), ('"T s"', "ASC", "NULLS_LAST")]
    change(rig, "UPDATE src.main.t SET v = 'changed' WHERE id % 10 = 3")
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize(
    ("layout", "statement"),
    [
        ({"partitioned_by": "same"}, "SET PARTITIONED BY (bucket(4, id))"),
        ({"sorted_by": "same"}, "SET SORTED BY (lower(v))"),
    ],
)
def test_what_of_the_source_is_not_set_at_a_destination_parks_its_seed(
    rig: ApplyRig, layout: dict[str, str], statement: str
) -> None:
    rig.sql(f"ALTER TABLE src.main.t {statement}")
    done = seeded(rig, layout=TableLayout.model_validate(layout))
    assert done.outcome is Outcome.PARKED
    assert done.error is not None
    assert done.error.type == "invalid_destination"
    assert done.error.message.startswith(f"layout.{next(iter(layout))}: ")


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"partitioned_by": "gone"}, "no column 'gone'"),
        ({"partitioned_by": "year(v)"}, "v is VARCHAR, which has no year"),
        ({"sorted_by": "gone DESC"}, "no column 'gone'"),
        ({"partitioned_by": "v; DROP TABLE t"}, "is no list"),
        ({"partitioned_by": "bucket(4, id)"}, "holds bucket()"),
    ],
)
def test_a_layout_that_does_not_fit_the_source_parks_before_anything_is_written(
    rig: ApplyRig, layout: dict[str, str], said: str
) -> None:
    done = seeded(rig, layout=TableLayout.model_validate(layout))
    assert done.outcome is Outcome.PARKED
    assert done.error is not None
    assert done.error.type == "invalid_destination"
    assert said in done.error.message
    assert tables(rig) == 0
    assert seeded(rig, layout=TableLayout(), revision="2").outcome is Outcome.APPLIED


def tables(rig: ApplyRig) -> int:
    """How many tables the lake of ``a`` ever had; none where there is no lake yet."""
    try:
        return int(rig.look("a", f"SELECT count(*) FROM {META}.ducklake_table")[0][0])
    except LakeAbsent:
        return 0


def test_a_changed_layout_holds_from_the_next_reseed_on(rig: ApplyRig) -> None:
    seeded(rig, layout=BY_TIME)
    assert rig.add("a", layout=TableLayout(partitioned_by="v"), revision="2")
    change(rig, "UPDATE src.main.t SET v = 'changed' WHERE id % 10 = 3")
    assert rig.look("a", PARTS) == [("year", "T s"), ("month", "T s")]
    rewound = seeded(rig, generation=2)
    assert rewound.outcome is Outcome.APPLIED
    assert rewound.layout == TableLayout(
        partitioned_by='year("T s"), month("T s")', sorted_by='"T s" DESC NULLS FIRST, v ASC NULLS LAST'
    )
    assert rig.look("a", PARTS) == [("year", "T s"), ("month", "T s")]
    reseeded = seeded(rig, generation=3, replace=True)
    assert (reseeded.outcome, reseeded.layout) == (Outcome.APPLIED, TableLayout(partitioned_by="v"))
    assert rig.look("a", PARTS) == [("identity", "v")]
    assert rig.look("a", ORDER) == []
    assert rig.rows("a") == rig.expected("a")


def test_the_layout_of_an_owner_is_left_alone(rig: ApplyRig) -> None:
    seeded(rig)
    rig.write("a", "ALTER TABLE dst.main.t SET PARTITIONED BY (v)")
    change(rig, "UPDATE src.main.t SET v = 'changed' WHERE id % 10 = 3")
    assert seeded(rig, generation=2).layout is None
    assert seeded(rig, generation=3, layout=BY_TIME).layout == TableLayout(partitioned_by='"v"')
    assert rig.look("a", PARTS) == [("identity", "v")]
    assert rig.rows("a") == rig.expected("a")


def test_an_empty_table_of_an_owner_without_a_layout_gets_one(rig: ApplyRig) -> None:
    rig.add("a", layout=BY_TIME)
    rig.write("a", 'CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, "T s" TIMESTAMP, v VARCHAR)')
    assert seeded(rig).layout == BY_TIME
    assert rig.look("a", PARTS) == [("year", "T s"), ("month", "T s")]


def test_a_lake_that_was_made_plain_is_not_taken_for_an_encrypted_one(rig: ApplyRig) -> None:
    seeded(rig)
    rig.add("a", layout=TableLayout(encrypted=True), generation=2, replace=True)
    (done,) = rig.seed("a")
    assert done.outcome is Outcome.PARKED
    assert done.error is not None
    assert "without encryption" in done.error.message


@pytest.mark.parametrize("layout", [BY_TIME, WHOLE], ids=["plain", "encrypted"])
def test_all_of_upkeep_goes_on_in_folders_of_partitions(rig: ApplyRig, layout: TableLayout) -> None:
    seeded(rig, layout=layout)
    for number in range(3):
        change(rig, f"UPDATE src.main.t SET v = 'changed {number}' WHERE id % 10 = {number}")
    known = files(rig)
    folder = max(known, key=lambda file: len(file.parts)).parent
    for name, days in (("old.parquet", 3), ("young.parquet", 0.5)):
        (folder / name).write_bytes(b"PAR1")
        os.utime(folder / name, (time.time() - days * 86_400,) * 2)
    policy = Policy(expire_after_s=1.0, clean_after_s=1.0, orphans_after_s=86_400.0, keep_snapshots=1)
    task = UpkeepTask(steps=tuple(UpkeepStep), policy=policy, ours=frozenset({("main", "t")}))
    order = UpkeepOrder(steps=task.steps)
    target = replace(rig.target("a", ItemKind.UPKEEP, through=0, upkeep=order), upkeep=task)
    (answer,) = rig.run_targets(ItemKind.UPKEEP, [target])
    assert answer.upkeep is not None
    assert [(step.step, step.outcome) for step in answer.upkeep.steps] == [(s, StepOutcome.DONE) for s in UpkeepStep]
    assert not (folder / "old.parquet").exists()
    assert (folder / "young.parquet").exists()
    assert rig.rows("a") == rig.expected("a")
    change(rig, "UPDATE src.main.t SET v = 'after' WHERE id % 10 = 7")
    assert rig.rows("a") == rig.expected("a")
    assert None not in [part for part, _ in rig.look("a", FILES)]


SPARSE = """
    SELECT i AS id, 'a' AS tenant, i % 5 AS p, CASE WHEN i % 5 = 3 THEN 1000 + i END AS v,
      CASE WHEN i % 5 = 4 THEN {'x': i, 'y': {'z': 'z' || i}} END AS s, CASE WHEN i = 52 THEN 'only' END AS once,
      CASE WHEN i % 5 = 2 THEN 'NaN'::DOUBLE WHEN i = 64 THEN 7.5 END AS f, NULL::DATE AS never
    FROM range(100) r(i)"""
ASKED = (
    "v > 1000",
    "v = 1098",
    "s.x = 4",
    "s.y.z > 'z1'",
    "once = 'only'",
    "f = 7.5",
    "never IS NULL",
    "p = 3",
    "id < 7",
)


@pytest.mark.parametrize("layout", [
    TableLayout(partitioned_by="p"), TableLayout(partitioned_by="p", encrypted=True),
    TableLayout(partitioned_by="p, tenant", sorted_by="v"),
], ids=["by p", "encrypted", "by two"])  # fmt: skip
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append-only"])
def test_a_stock_reader_finds_values_that_few_partitions_have(
    make_rig: MakeRig, layout: TableLayout, keyed: bool
) -> None:
    """H24: of the files of one commit, some have no value of a column."""
    rig = make_rig(routing=Routing(field="tenant", key_columns=("id",) if keyed else ()))
    rig.sql(f"CREATE TABLE src.main.t AS {SPARSE}")
    rig.add("a", layout=layout)
    (done,) = rig.seed()
    assert (done.outcome, done.inserted) == (Outcome.APPLIED, 100)
    change(rig, "INSERT INTO src.main.t VALUES (200, 'a', 0, 1, {'x': 1, 'y': {'z': 'a'}}, 'a', 1.0, DATE '2020-1-1')")
    assert str(rig.rows("a")) == str(rig.expected("a")), "as text, since NaN is not itself"
    assert stock_counts(rig, ASKED) == source_counts(rig)


@pytest.mark.parametrize("owners", [False, True], ids=["ours", "the owner's"])
@pytest.mark.parametrize("forgets", [True, False], ids=["at once", "with the next apply"])
def test_a_stock_reader_finds_the_first_values_of_a_table_that_was_seeded_empty(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, owners: bool, forgets: bool
) -> None:
    """H24: its first rows come in several files at once, of which some have no value of a column."""
    rig = make_rig()
    rig.sql(f"CREATE TABLE src.main.t AS {SPARSE} WHERE false")
    rig.add("a", layout=None if owners else TableLayout(partitioned_by="p"))
    rig.seed()
    if owners:
        rig.write("a", "ALTER TABLE dst.main.t SET PARTITIONED BY (p)")
    with monkeypatch.context() as patched:
        if not forgets:
            patched.setattr(transaction, "forget_bounds", refuse)
        assert change(rig, f"INSERT INTO src.main.t {SPARSE}").inserted == 100
        assert stock_count(rig, "v > 1000") == 20
    change(rig, "INSERT INTO src.main.t VALUES (200, 'a', 0, 1, {'x': 1, 'y': {'z': 'a'}}, 'a', 1.0, DATE '2020-1-1')")
    change(rig, "INSERT INTO src.main.t VALUES (201, 'a', 4, 2, {'x': 2, 'y': {'z': 'b'}}, 'b', 2.0, NULL)")
    assert str(rig.rows("a")) == str(rig.expected("a")), "as text, since NaN is not itself"
    assert stock_counts(rig, ASKED) == source_counts(rig)


def refuse(_: duckdb.DuckDBPyConnection, lake: OpenLake, destination: Destination) -> None:
    """Stands for bounds that could not be forgotten: the catalog went away after the commit."""
    if lake.catalog.has_rows(destination.schema_name, destination.table):
        raise duckdb.IOException("the catalog's server went away")


@pytest.mark.parametrize("added", ["v INTEGER", "s STRUCT(x INTEGER, y VARCHAR)", "f DOUBLE"])
@pytest.mark.parametrize("owners", [False, True], ids=["ours", "the owner's"])
def test_a_stock_reader_finds_the_first_values_of_a_column_that_came_later(
    make_rig: MakeRig, added: str, owners: bool
) -> None:
    """H24 is of tables without rows: later commits take a column without bounds for one without values."""
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t AS SELECT i AS id, 'a' AS tenant, i % 5 AS p FROM range(50) r(i)")
    rig.add("a", layout=None if owners else TableLayout(partitioned_by="p"))
    rig.seed()
    if owners:
        rig.write("a", "ALTER TABLE dst.main.t SET PARTITIONED BY (p)")
    position = rig.sql(f"ALTER TABLE src.main.t ADD COLUMN {added}") - 1
    name, kind = added.split(" ", 1)
    value = "{'x': 1, 'y': 'b'}" if "STRUCT" in kind else "2147480000"
    leaf = "s.x" if "STRUCT" in kind else name
    rig.sql(
        f"INSERT INTO src.main.t SELECT 100 + i, 'a', i, CASE WHEN i = 3 THEN {value} END FROM range(5) r(i)",
    )
    (done,) = rig.changes(position, "a")
    assert (done.outcome, done.inserted) == (Outcome.APPLIED, 5)
    low = "{'x': 0, 'y': 'a'}" if "STRUCT" in kind else "1"
    change(rig, f"INSERT INTO src.main.t VALUES (200, 'a', 0, {low})")
    change(rig, f"INSERT INTO src.main.t VALUES (201, 'a', 0, {low}), (202, 'a', 1, NULL)")
    assert rig.rows("a") == rig.expected("a")
    assert stock_count(rig, f"{leaf} > {0 if 'STRUCT' in kind else 5}") == 1
    assert stock_count(rig, f"{leaf} IS NOT NULL") == 3


def stock_count(rig: ApplyRig, asked: str, then: str = "") -> int:
    """What a reader that believes DuckLake's statistics counts; ``then`` is an ``AT`` clause."""
    return stock_counts(rig, [asked], then)[asked]


def stock_counts(rig: ApplyRig, asked: Iterable[str], then: str = "") -> dict[str, int]:
    """The same of several conditions, by one reader."""
    with rig.opened("a") as con:
        con.execute("SET disabled_optimizers = ''")
        return {each: counted(con, f"dst.main.t {then}", each) for each in asked}


def source_counts(rig: ApplyRig) -> dict[str, int]:
    return {each: counted(rig.con, "src.main.t", each) for each in ASKED}


def counted(con: duckdb.DuckDBPyConnection, table: str, condition: str) -> int:
    return int(con.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchall()[0][0])


def test_a_sorted_destination_is_committed_to_by_the_extension(rig: ApplyRig) -> None:
    seeded(rig, layout=TableLayout(sorted_by="v"))
    assert change(rig, "UPDATE src.main.t SET v = 'changed' WHERE id % 10 = 3").commit_reason == "sorted"
    assert rig.rows("a") == rig.expected("a")


def test_two_lakes_do_not_differ_by_the_encryption_that_is_asked_for(rig: ApplyRig) -> None:
    """One process attaches a catalog's file once, whatever two of its destinations declare."""
    rig.add("a")
    plain = rig.lake("a")
    assert {plain, replace(plain, encrypted=True)} == {plain}


def test_a_text_that_names_no_folder_parks_the_seed(rig: ApplyRig) -> None:
    rig.sql("INSERT INTO src.main.t VALUES (7000, 'a', NULL, 'x' || chr(0))")
    done = seeded(rig, layout=TableLayout(partitioned_by="v"))
    assert done.error is not None
    assert done.error.type == "value_not_carried"
