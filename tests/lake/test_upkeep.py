"""Upkeep: many small files become few, dead rows go, and nothing else changes. ``test_histories`` mixes it with all."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker import worker_state
from services.applier.worker.task_run import run_task
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection import engine
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect, release
from shared.lake.sql import literal
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

APPLIES = 8

LIVE = "SELECT count(DISTINCT data_file), count(delete_file) FROM ducklake_list_files('dst', 't')"


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """One tenant whose table is in many files, most of them with a dead row."""
    made = seeded(make_rig())
    for number in range(APPLIES):
        position = made.head
        made.sql(f"UPDATE src.main.t SET v = {number + 1} WHERE id >= {number * 10} AND id <= {number * 10 + 10}")
        made.changes(position, "a")
    return made


@pytest.fixture
def inlining(make_rig: MakeRig) -> ApplyRig:
    """One tenant whose lake keeps small changes in its catalog, as its owner told it; only the extension does."""
    made = seeded(make_rig(limits=Limits(commit="extension")))
    worker_state.forget()
    made.write("a", "CALL dst.set_option('data_inlining_row_limit', 50, table_name => 't')")
    return made


def seeded(made: ApplyRig) -> ApplyRig:
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(200) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def keep_up(rig: ApplyRig, *, position: int | None = None, generation: int = 1) -> Progress:
    at = rig.head if position is None else position
    (answer,) = rig.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at, generation=generation)
    return answer


def live(rig: ApplyRig) -> tuple[int, int]:
    files, deletes = rig.look("a", LIVE)[0]
    return files, deletes


def test_many_files_become_one_and_nothing_moves(rig: ApplyRig) -> None:
    assert live(rig)[0] > APPLIES
    answer = keep_up(rig)
    assert (answer.outcome, answer.position) == (Outcome.ALREADY_APPLIED, rig.head)
    assert live(rig) == (1, 0)
    assert rig.rows("a") == rig.expected("a")
    position = rig.head
    rig.sql("UPDATE src.main.t SET v = -v WHERE id < 50")
    assert rig.changes(position, "a")[0].outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


OURS = "SELECT commit_extra_info FROM dst.snapshots() WHERE author = 'viaduck' ORDER BY snapshot_id"


def test_rows_that_move_to_a_new_file_are_said_to_be_maintenance(rig: ApplyRig) -> None:
    before = rig.look("a", OURS)
    keep_up(rig)
    *kept, moved = rig.look("a", OURS)
    assert kept == before
    told = json.loads(moved[0])
    said = told["kind"], told["after"], told["through"], told["deleted"], told["inserted"]
    assert said == ("maintenance", rig.head, rig.head, 0, 0)


STOCK = """
import sys, json, duckdb
con = duckdb.connect(config={"allow_unsigned_extensions": True})
for file in json.loads(sys.argv[1]): con.execute(f"LOAD '{file}'")
con.execute(sys.argv[2])
for sql in json.loads(sys.argv[3]): print(json.dumps(con.execute(sql).fetchall(), default=str))
"""


def stock(rig: ApplyRig, queries: list[str]) -> list[list[list[Any]]]:
    """What a DuckDB of somebody else's answers, in a process of its own and with none of our settings."""
    lake = rig.lake("a")
    kind = f"'{lake.conninfo}'" if lake.sqlite_file is None else f"'{lake.sqlite_file}'"
    attach_ = (
        f"ATTACH 'ducklake:{'postgres' if lake.sqlite_file is None else 'sqlite'}:{kind[1:-1]}' AS dst (READ_ONLY)"
    )
    files = [str(engine._bundled(name)) for name in engine.EXTENSIONS]
    asked = [sys.executable, "-c", STOCK, json.dumps(files), attach_, json.dumps(queries)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_stock_reader_sees_every_snapshot_as_it_was_after_upkeep_too(make_rig: MakeRig) -> None:
    """H1: DuckLake's rewrite narrows a table's statistics, and whoever has no settings of ours loses old rows by it."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR, n DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 'old', -i FROM range(30) r(i)",
        "INSERT INTO src.main.t SELECT i, 'a', 'new', i FROM range(30, 60) r(i)",
    )
    rig.add("a")
    rig.seed()
    for change in (
        "DELETE FROM src.main.t WHERE id < 20",
        "UPDATE src.main.t SET v = 'mid', n = 5 WHERE id BETWEEN 18 AND 33",
        "DELETE FROM src.main.t WHERE v = 'old'",
        "UPDATE src.main.t SET id = id + 1000 WHERE id > 50",
        "DELETE FROM src.main.t WHERE n > 40",
    ):
        position = rig.head
        rig.sql(change)
        rig.changes(position, "a")
    queries = [
        query.format(f"dst.main.t AT (VERSION => {snapshot})")
        for snapshot in range(1, rig.commits("a") + 1)
        for query in (
            "SELECT count(*) FROM {} WHERE v = 'old'",
            "SELECT count(*) FROM {} WHERE id < 20",
            "SELECT count(*) FROM {} WHERE n < 0",
            "SELECT id, v, n FROM {} ORDER BY id",
            "SELECT v, count(*), min(id), max(id) FROM {} GROUP BY v ORDER BY v",
            "SELECT id, count(*) FROM {} GROUP BY id ORDER BY id",
        )
    ]
    before = stock(rig, queries)
    for _ in range(2):
        keep_up(rig)
        assert live(rig) == (1, 0)
        assert stock(rig, queries) == before
    assert rig.rows("a") == rig.expected("a")


def test_a_table_with_a_column_called_filename_keeps_its_rows_and_its_dead(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, FileName VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'x' FROM range(50) r(i)",
    )
    rig.add("a")
    rig.seed()
    position = rig.head
    rig.sql("UPDATE src.main.t SET filename = 'y' WHERE id < 9")
    rig.changes(position, "a")
    assert keep_up(rig).error is None
    assert rig.rows("a") == rig.expected("a")


def test_deletes_that_go_to_a_file_are_said_to_be_maintenance(inlining: ApplyRig) -> None:
    """DuckLake marks that snapshot as if somebody had deleted rows."""
    rig = inlining
    position = rig.head
    rig.sql("DELETE FROM src.main.t WHERE id < 3")
    rig.changes(position, "a")
    *before, changed = rig.look("a", OURS)
    keep_up(rig)
    *kept, same, flushed = rig.look("a", OURS)
    assert (kept, same) == (before, changed)
    told = json.loads(flushed[0])
    said = told["kind"], told["after"], told["through"], told["deleted"], told["inserted"]
    assert said == ("maintenance", rig.head, rig.head, 0, 0)
    assert told["token"] != json.loads(changed[0])["token"]
    unstamped = "SELECT changes FROM dst.snapshots() WHERE author IS NULL AND snapshot_id > 1"
    assert not [marks for (marks,) in rig.look("a", unstamped) if set(marks) == {"tables_deleted_from"}]
    assert rig.rows("a") == rig.expected("a")


def test_an_item_of_another_life_or_from_elsewhere_does_nothing(rig: ApplyRig) -> None:
    before = live(rig)
    assert keep_up(rig, generation=2).outcome is Outcome.FENCED
    assert keep_up(rig, position=rig.head + 1).outcome is Outcome.GAP
    assert live(rig) == before


def test_upkeep_that_is_refused_is_told_in_the_log_and_harms_nobody(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise duckdb.TransactionException("Transaction conflict - attempting to compact")

    monkeypatch.setattr("services.applier.apply.upkeep.maintain", busy)
    at = rig.head
    target = rig.target("a", ItemKind.UPKEEP, expected=at, after=at, through=at)
    done = run_task(Task(ItemKind.UPKEEP, SourceTable(rig.source, "main", "t", rig.routing), (target,), rig.limits))
    assert [result.progress.outcome for result in done.results] == [Outcome.ALREADY_APPLIED]
    assert ["p/a" in line and "conflict" in line for line in done.log] == [True]
    monkeypatch.undo()
    keep_up(rig)
    assert live(rig) == (1, 0)


def test_what_lies_in_the_catalog_goes_to_files_before_others_are_rewritten(inlining: ApplyRig) -> None:
    """Else a flush after the rewrite shows rows again that were deleted before it, whoever looks at those snapshots.

    What is inlined here is deletes, and a row that is dead itself. A larger change wrote a file of deletes after them.
    """
    rig = inlining
    seen: dict[int, list[tuple[Any, ...]]] = {}
    for change in ("v = 1 WHERE id = 7", "tenant = 'b' WHERE id IN (7, 8)", "tenant = 'b' WHERE id >= 100"):
        position = rig.head
        rig.sql(f"UPDATE src.main.t SET {change}")
        rig.changes(position, "a")
        seen[rig.commits("a")] = rig.expected("a")
    assert inlined(rig) == (0, 2)
    keep_up(rig)
    assert inlined(rig) == (0, 0)
    rig.write("a", "CALL ducklake_flush_inlined_data('dst')")
    for snapshot, rows in seen.items():
        assert sorted(rig.look("a", f"SELECT * FROM dst.main.t AT (VERSION => {snapshot})"), key=repr) == rows


def inlined(rig: ApplyRig) -> tuple[int, int]:
    """Rows of the tenant's table that live in the catalog, and those that were deleted there and lie in a file."""
    with closing(CatalogReader(rig.lake("a"))) as catalog:
        tables = catalog.inlined_into("main", "t")
        table_id = catalog.table_id("main", "t")
    living = (f"SELECT count(*) FROM __ducklake_metadata_dst.{table} WHERE end_snapshot IS NULL" for table in tables)
    deleted = f"SELECT count(*) FROM __ducklake_metadata_dst.ducklake_inlined_delete_{table_id}"
    return sum(int(rig.look("a", each)[0][0]) for each in living), int(rig.look("a", deleted)[0][0])


def test_whoever_has_the_lake_open_reads_on_when_a_column_came_and_upkeep_after_it(inlining: ApplyRig) -> None:
    """H12: upkeep drops the catalog's table for rows of the columns that were, which others remember."""
    rig, other = inlining, connect()
    attach(other, "dst", rig.lake("a"), read_only=False)
    rows = "SELECT * FROM dst.main.t"
    for number, change in enumerate(("ADD COLUMN w INTEGER", "ADD COLUMN x INTEGER")):
        position = rig.head
        rig.sql(f"ALTER TABLE src.main.t {change}", f"UPDATE src.main.t SET v = -{number + 1} WHERE id < 20")
        rig.changes(position, "a")
        other.execute(rows).fetchall()
        keep_up(rig)
        assert sorted(other.execute(rows).fetchall(), key=repr) == rig.expected("a")
    other.execute("UPDATE dst.main.t SET v = v")
    release(other)


@pytest.mark.parametrize("comment", ["what its owner's mother says", None])
def test_a_tables_own_comment_stays(inlining: ApplyRig, comment: str | None) -> None:
    rig = inlining
    if comment is not None:
        rig.write("a", f"COMMENT ON TABLE dst.main.t IS {literal(comment)}")
    for column in ("w", "x"):
        position = rig.head
        rig.sql(f"ALTER TABLE src.main.t ADD COLUMN {column} INTEGER", "UPDATE src.main.t SET v = -1 WHERE id < 20")
        rig.changes(position, "a")
    keep_up(rig)
    shown = "SELECT comment FROM duckdb_tables() WHERE database_name = 'dst' AND table_name = 't'"
    assert rig.look("a", shown) == [(comment,)]


def test_a_comment_in_which_ducklake_would_replace_a_word_is_never_written_again(inlining: ApplyRig) -> None:
    """Its owner can write it into the catalog; in a statement of ours it would be SQL (H16)."""
    rig, comment = inlining, "{SNAPSHOT_ID}"
    rig.write("a", "COMMENT ON TABLE dst.main.t IS 'x'")
    rig.write("a", f"UPDATE __ducklake_metadata_dst.ducklake_tag SET value = '{comment}'")
    for column in ("w", "x"):
        position = rig.head
        rig.sql(f"ALTER TABLE src.main.t ADD COLUMN {column} INTEGER", "UPDATE src.main.t SET v = -1 WHERE id < 20")
        rig.changes(position, "a")
    keep_up(rig)
    assert rig.look("a", "SELECT DISTINCT value FROM __ducklake_metadata_dst.ducklake_tag") == [(comment,)]
    assert rig.rows("a") == rig.expected("a")


def test_a_file_that_is_gone_is_told_as_damage(rig: ApplyRig) -> None:
    files = sorted((rig.folder / "a-data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    Path(next(file for file in reversed(files) if "delete" not in file.name)).unlink()
    answer = keep_up(rig)
    assert answer.error is not None
    assert answer.error.type == "destination_damaged"
