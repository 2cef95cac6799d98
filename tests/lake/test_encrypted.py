"""A destination whose files are encrypted has a whole life: its files are looked for without being read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.compare import Finding, Origin, Subject, compare_all
from shared.lake.engine import connect
from shared.messages import ItemKind, Outcome, SeedMode
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed


def make_encrypted(lake: ResolvedLake) -> None:
    kind = f"sqlite:{lake.sqlite_file}" if lake.sqlite_file is not None else f"postgres:{lake.conninfo}"
    with closing(connect()) as con:
        con.execute(f"ATTACH 'ducklake:{kind}' AS l (DATA_PATH '{lake.data_path}', ENCRYPTED)")
        con.execute("CREATE TABLE l.main.owners_own (i INTEGER)")


@pytest.fixture
def bed(make_bed: MakeBed) -> Bed:
    made = make_bed()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(200) r(i)",
    )
    made.add("a")
    make_encrypted(made.lake("a"))
    assert made.seed()[0].outcome is Outcome.APPLIED
    return made


def change(bed: Bed, sql: str) -> None:
    position = bed.head
    bed.sql(sql)
    assert bed.changes(position, "a")[0].outcome is Outcome.APPLIED


def test_it_is_seeded_changed_probed_kept_and_verified(bed: Bed) -> None:
    assert {key for (key,) in bed.look("a", "SELECT encryption_key FROM __ducklake_metadata_dst.ducklake_data_file")}
    for number in range(3):
        change(bed, f"UPDATE src.main.t SET v = 'changed' WHERE id % 10 = {number}")
        (probed,) = bed.run(ItemKind.PROBE, "a")
        assert (probed.outcome, probed.position, probed.error) == (Outcome.ALREADY_APPLIED, bed.head, None)
    at = bed.head
    (kept,) = bed.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    assert kept.error is None
    (probed,) = bed.run(ItemKind.PROBE, "a")
    assert probed.error is None
    change(bed, "DELETE FROM src.main.t WHERE id < 20")
    assert bed.rows("a") == bed.expected("a")
    subject = Subject("p", "a", "a", bed.lake("a"), "main", "t", SeedMode.SCAN)
    (verdict,) = compare_all(Origin(bed.source, "main", "t", bed.routing), [subject])
    assert verdict.finding is Finding.EQUAL, verdict


def test_a_file_of_it_that_is_gone_is_still_found_missing(bed: Bed) -> None:
    change(bed, "UPDATE src.main.t SET v = 'changed' WHERE id < 50")
    newest = max(Path(f"{bed.folder}/a-data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    newest.unlink()
    (probed,) = bed.run(ItemKind.PROBE, "a")
    assert probed.error is not None
    assert probed.error.type == "destination_damaged"
