"""A destination whose files are encrypted has a whole life: its files are looked for without being read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, compare_all
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import ItemKind, Outcome, SeedMode
from shared.lake.connection.engine import connect
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig


def make_encrypted(lake: ResolvedLake) -> None:
    kind = f"sqlite:{lake.sqlite_file}" if lake.sqlite_file is not None else f"postgres:{lake.conninfo}"
    within = "" if lake.metadata_schema is None else f", METADATA_SCHEMA '{lake.metadata_schema}'"
    with closing(connect()) as con:
        con.execute(f"ATTACH 'ducklake:{kind}' AS l (DATA_PATH '{lake.data_path}', ENCRYPTED{within})")
        con.execute("CREATE TABLE l.main.owners_own (i INTEGER)")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(200) r(i)",
    )
    made.add("a")
    make_encrypted(made.lake("a"))
    assert made.seed()[0].outcome is Outcome.APPLIED
    return made


def change(rig: ApplyRig, sql: str) -> None:
    position = rig.head
    rig.sql(sql)
    assert rig.changes(position, "a")[0].outcome is Outcome.APPLIED


def test_it_is_seeded_changed_probed_kept_and_verified(rig: ApplyRig) -> None:
    assert {key for (key,) in rig.look("a", "SELECT encryption_key FROM __ducklake_metadata_dst.ducklake_data_file")}
    for number in range(3):
        change(rig, f"UPDATE src.main.t SET v = 'changed' WHERE id % 10 = {number}")
        (probed,) = rig.run(ItemKind.PROBE, "a")
        assert (probed.outcome, probed.position, probed.error) == (Outcome.ALREADY_APPLIED, rig.head, None)
    at = rig.head
    (kept,) = rig.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    assert kept.error is None
    (probed,) = rig.run(ItemKind.PROBE, "a")
    assert probed.error is None
    change(rig, "DELETE FROM src.main.t WHERE id < 20")
    assert rig.rows("a") == rig.expected("a")
    subject = Subject("p", "a", "a", rig.lake("a"), "main", "t", SeedMode.SCAN)
    (verdict,) = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject])
    assert verdict.finding is ComparisonResult.EQUAL, verdict


def test_a_file_of_it_that_is_gone_is_still_found_missing(rig: ApplyRig) -> None:
    change(rig, "UPDATE src.main.t SET v = 'changed' WHERE id < 50")
    newest = max(Path(f"{rig.folder}/a-data").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    newest.unlink()
    (probed,) = rig.run(ItemKind.PROBE, "a")
    assert probed.error is not None
    assert probed.error.type == "destination_damaged"
