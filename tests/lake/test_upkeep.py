"""Upkeep: many small files become few, dead rows go, and nothing else changes. ``test_histories`` mixes it with all."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from services.applier.run import run_task
from services.applier.task import SourceTable, Task
from shared.messages import ItemKind, Outcome, Progress
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed

APPLIES = 8

LIVE = "SELECT count(DISTINCT data_file), count(delete_file) FROM ducklake_list_files('dst', 't')"


@pytest.fixture
def bed(make_bed: MakeBed) -> Bed:
    """One tenant whose table is in many files, most of them with a dead row."""
    made = make_bed()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(200) r(i)",
    )
    made.add("a")
    made.seed()
    for number in range(APPLIES):
        position = made.head
        made.sql(f"UPDATE src.main.t SET v = {number + 1} WHERE id >= {number * 10} AND id <= {number * 10 + 10}")
        made.changes(position, "a")
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


def test_upkeep_says_of_no_snapshot_that_it_is_viaducks(bed: Bed) -> None:
    ours = "SELECT count(*) FROM dst.snapshots() WHERE author = 'viaduck'"
    before = bed.look("a", ours)
    keep_up(bed)
    assert bed.look("a", ours) == before


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


def test_a_file_that_is_gone_is_told_as_damage(bed: Bed) -> None:
    files = sorted((bed.folder / "a-data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    Path(next(file for file in reversed(files) if "delete" not in file.name)).unlink()
    answer = keep_up(bed)
    assert answer.error is not None
    assert answer.error.type == "destination_damaged"
