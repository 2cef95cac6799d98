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

from services.applier import worker
from services.applier.run import run_task
from services.applier.task import SourceTable, Task
from shared.lake import engine
from shared.lake.attach import attach
from shared.lake.catalog import CatalogReader
from shared.lake.engine import connect, release
from shared.lake.sql import literal
from shared.messages import ItemKind, Outcome, Progress
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed

APPLIES = 8

LIVE = "SELECT count(DISTINCT data_file), count(delete_file) FROM ducklake_list_files('dst', 't')"


@pytest.fixture
def bed(make_bed: MakeBed) -> Bed:
    """One tenant whose table is in many files, most of them with a dead row."""
    made = seeded(make_bed())
    for number in range(APPLIES):
        position = made.head
        made.sql(f"UPDATE src.main.t SET v = {number + 1} WHERE id >= {number * 10} AND id <= {number * 10 + 10}")
        made.changes(position, "a")
    return made


@pytest.fixture
def inlining(make_bed: MakeBed) -> Bed:
    """One tenant whose lake keeps small changes in its catalog, as somebody else has told it."""
    made = seeded(make_bed())
    worker.forget()
    made.write("a", "CALL dst.set_option('data_inlining_row_limit', 50, table_name => 't')")
    return made


def seeded(made: Bed) -> Bed:
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(200) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def keep_up(bed: Bed, *, position: int | None = None, generation: int = 1) -> Progress:
    at = bed.head if position is None else position
    (answer,) = bed.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at, generation=generation)
    return answer


def live(bed: Bed) -> tuple[int, int]:
    files, deletes = bed.look("a", LIVE)[0]
    return files, deletes


def test_many_files_become_one_and_nothing_moves(bed: Bed) -> None:
    assert live(bed)[0] > APPLIES
    answer = keep_up(bed)
    assert (answer.outcome, answer.position) == (Outcome.ALREADY_APPLIED, bed.head)
    assert live(bed) == (1, 0)
    assert bed.rows("a") == bed.expected("a")
    position = bed.head
    bed.sql("UPDATE src.main.t SET v = -v WHERE id < 50")
    assert bed.changes(position, "a")[0].outcome is Outcome.APPLIED
    assert bed.rows("a") == bed.expected("a")


OURS = "SELECT commit_extra_info FROM dst.snapshots() WHERE author = 'viaduck' ORDER BY snapshot_id"


def test_rows_that_move_to_a_new_file_are_said_to_be_maintenance(bed: Bed) -> None:
    before = bed.look("a", OURS)
    keep_up(bed)
    *kept, moved = bed.look("a", OURS)
    assert kept == before
    told = json.loads(moved[0])
    said = told["kind"], told["after"], told["through"], told["deleted"], told["inserted"]
    assert said == ("maintenance", bed.head, bed.head, 0, 0)


STOCK = """
import sys, json, duckdb
con = duckdb.connect(config={"allow_unsigned_extensions": True})
for file in json.loads(sys.argv[1]): con.execute(f"LOAD '{file}'")
con.execute(sys.argv[2])
for sql in json.loads(sys.argv[3]): print(json.dumps(con.execute(sql).fetchall(), default=str))
"""


def stock(bed: Bed, queries: list[str]) -> list[list[list[Any]]]:
    """What a DuckDB of somebody else's answers, in a process of its own and with none of our settings."""
    lake = bed.lake("a")
    kind = f"'{lake.conninfo}'" if lake.sqlite_file is None else f"'{lake.sqlite_file}'"
    attach_ = (
        f"ATTACH 'ducklake:{'postgres' if lake.sqlite_file is None else 'sqlite'}:{kind[1:-1]}' AS dst (READ_ONLY)"
    )
    files = [str(engine._bundled(name)) for name in engine.EXTENSIONS]
    asked = [sys.executable, "-c", STOCK, json.dumps(files), attach_, json.dumps(queries)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_stock_reader_sees_every_snapshot_as_it_was_after_upkeep_too(make_bed: MakeBed) -> None:
    """H1: DuckLake's rewrite narrows a table's statistics, and whoever has no settings of ours loses old rows by it."""
    bed = make_bed()
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR, n DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 'old', -i FROM range(30) r(i)",
        "INSERT INTO src.main.t SELECT i, 'a', 'new', i FROM range(30, 60) r(i)",
    )
    bed.add("a")
    bed.seed()
    for change in (
        "DELETE FROM src.main.t WHERE id < 20",
        "UPDATE src.main.t SET v = 'mid', n = 5 WHERE id BETWEEN 18 AND 33",
        "DELETE FROM src.main.t WHERE v = 'old'",
        "UPDATE src.main.t SET id = id + 1000 WHERE id > 50",
        "DELETE FROM src.main.t WHERE n > 40",
    ):
        position = bed.head
        bed.sql(change)
        bed.changes(position, "a")
    queries = [
        query.format(f"dst.main.t AT (VERSION => {snapshot})")
        for snapshot in range(1, bed.commits("a") + 1)
        for query in (
            "SELECT count(*) FROM {} WHERE v = 'old'",
            "SELECT count(*) FROM {} WHERE id < 20",
            "SELECT count(*) FROM {} WHERE n < 0",
            "SELECT id, v, n FROM {} ORDER BY id",
            "SELECT v, count(*), min(id), max(id) FROM {} GROUP BY v ORDER BY v",
            "SELECT id, count(*) FROM {} GROUP BY id ORDER BY id",
        )
    ]
    before = stock(bed, queries)
    for _ in range(2):
        keep_up(bed)
        assert live(bed) == (1, 0)
        assert stock(bed, queries) == before
    assert bed.rows("a") == bed.expected("a")


def test_a_table_with_a_column_called_filename_keeps_its_rows_and_its_dead(make_bed: MakeBed) -> None:
    bed = make_bed()
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, FileName VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'x' FROM range(50) r(i)",
    )
    bed.add("a")
    bed.seed()
    position = bed.head
    bed.sql("UPDATE src.main.t SET filename = 'y' WHERE id < 9")
    bed.changes(position, "a")
    assert keep_up(bed).error is None
    assert bed.rows("a") == bed.expected("a")


def test_deletes_that_go_to_a_file_are_said_to_be_maintenance(inlining: Bed) -> None:
    """DuckLake marks that snapshot as if somebody had deleted rows."""
    bed = inlining
    position = bed.head
    bed.sql("DELETE FROM src.main.t WHERE id < 3")
    bed.changes(position, "a")
    *before, changed = bed.look("a", OURS)
    keep_up(bed)
    *kept, same, flushed = bed.look("a", OURS)
    assert (kept, same) == (before, changed)
    told = json.loads(flushed[0])
    said = told["kind"], told["after"], told["through"], told["deleted"], told["inserted"]
    assert said == ("maintenance", bed.head, bed.head, 0, 0)
    assert told["token"] != json.loads(changed[0])["token"]
    unstamped = "SELECT changes FROM dst.snapshots() WHERE author IS NULL AND snapshot_id > 1"
    assert not [marks for (marks,) in bed.look("a", unstamped) if set(marks) == {"tables_deleted_from"}]
    assert bed.rows("a") == bed.expected("a")


def test_an_item_of_another_life_or_from_elsewhere_does_nothing(bed: Bed) -> None:
    before = live(bed)
    assert keep_up(bed, generation=2).outcome is Outcome.FENCED
    assert keep_up(bed, position=bed.head + 1).outcome is Outcome.GAP
    assert live(bed) == before


def test_upkeep_that_is_refused_is_told_in_the_log_and_harms_nobody(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise duckdb.TransactionException("Transaction conflict - attempting to compact")

    monkeypatch.setattr("services.applier.apply.tidy", busy)
    at = bed.head
    target = bed.target("a", ItemKind.UPKEEP, expected=at, after=at, through=at)
    done = run_task(Task(ItemKind.UPKEEP, SourceTable(bed.source, "main", "t", bed.routing), (target,), bed.limits))
    assert [result.progress.outcome for result in done.results] == [Outcome.ALREADY_APPLIED]
    assert ["p/a" in line and "conflict" in line for line in done.log] == [True]
    monkeypatch.undo()
    keep_up(bed)
    assert live(bed) == (1, 0)


def test_what_lies_in_the_catalog_goes_to_files_before_others_are_rewritten(inlining: Bed) -> None:
    """Else a flush after the rewrite shows rows again that were deleted before it, whoever looks at those snapshots.

    What is inlined here is deletes, and a row that is dead itself. A larger change wrote a file of deletes after them.
    """
    bed = inlining
    seen: dict[int, list[tuple[Any, ...]]] = {}
    for change in ("v = 1 WHERE id = 7", "tenant = 'b' WHERE id IN (7, 8)", "tenant = 'b' WHERE id >= 100"):
        position = bed.head
        bed.sql(f"UPDATE src.main.t SET {change}")
        bed.changes(position, "a")
        seen[bed.commits("a")] = bed.expected("a")
    assert inlined(bed) == (0, 2)
    keep_up(bed)
    assert inlined(bed) == (0, 0)
    bed.write("a", "CALL ducklake_flush_inlined_data('dst')")
    for snapshot, rows in seen.items():
        assert sorted(bed.look("a", f"SELECT * FROM dst.main.t AT (VERSION => {snapshot})"), key=repr) == rows


def inlined(bed: Bed) -> tuple[int, int]:
    """Rows of the tenant's table that live in the catalog, and those that were deleted there and lie in a file."""
    with closing(CatalogReader(bed.lake("a"))) as catalog:
        tables = catalog.inlined_into("main", "t")
        (table_id,) = catalog.table_ids([("main", "t")])
    living = (f"SELECT count(*) FROM __ducklake_metadata_dst.{table} WHERE end_snapshot IS NULL" for table in tables)
    deleted = f"SELECT count(*) FROM __ducklake_metadata_dst.ducklake_inlined_delete_{table_id}"
    return sum(int(bed.look("a", each)[0][0]) for each in living), int(bed.look("a", deleted)[0][0])


def test_whoever_has_the_lake_open_reads_on_when_a_column_came_and_upkeep_after_it(inlining: Bed) -> None:
    """H12: upkeep drops the catalog's table for rows of the columns that were, which others remember."""
    bed, other = inlining, connect()
    attach(other, "dst", bed.lake("a"), read_only=False)
    rows = "SELECT * FROM dst.main.t"
    for number, change in enumerate(("ADD COLUMN w INTEGER", "ADD COLUMN x INTEGER")):
        position = bed.head
        bed.sql(f"ALTER TABLE src.main.t {change}", f"UPDATE src.main.t SET v = -{number + 1} WHERE id < 20")
        bed.changes(position, "a")
        other.execute(rows).fetchall()
        keep_up(bed)
        assert sorted(other.execute(rows).fetchall(), key=repr) == bed.expected("a")
    other.execute("UPDATE dst.main.t SET v = v")
    release(other)


@pytest.mark.parametrize("comment", ["what its owner's mother says", None])
def test_a_tables_own_comment_stays(inlining: Bed, comment: str | None) -> None:
    bed = inlining
    if comment is not None:
        bed.write("a", f"COMMENT ON TABLE dst.main.t IS {literal(comment)}")
    for column in ("w", "x"):
        position = bed.head
        bed.sql(f"ALTER TABLE src.main.t ADD COLUMN {column} INTEGER", "UPDATE src.main.t SET v = -1 WHERE id < 20")
        bed.changes(position, "a")
    keep_up(bed)
    shown = "SELECT comment FROM duckdb_tables() WHERE database_name = 'dst' AND table_name = 't'"
    assert bed.look("a", shown) == [(comment,)]


def test_a_file_that_is_gone_is_told_as_damage(bed: Bed) -> None:
    files = sorted((bed.folder / "a-data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    Path(next(file for file in reversed(files) if "delete" not in file.name)).unlink()
    answer = keep_up(bed)
    assert answer.error is not None
    assert answer.error.type == "destination_damaged"
