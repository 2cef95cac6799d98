"""A tenant who writes whatever he likes into his own catalog gets nothing of anybody else's, and stands alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from shared.config.catalogs import ResolvedLake
from shared.lake.compare import Finding, Origin, Subject, compare_all
from shared.messages import ItemKind, Outcome, SeedMode
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3

HONEST = ("a", "c")
SQLITE = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


def tamper(lake: ResolvedLake, statement: str) -> None:
    """As the tenant, in his own catalog. (In a process of its own: SQLite's locks know of no second library, H11.)"""
    if lake.sqlite_file is None:
        with psycopg.connect(lake.conninfo) as con:
            con.execute(statement)
    else:
        subprocess.run([sys.executable, "-c", SQLITE, str(lake.sqlite_file), statement], check=True)


@pytest.fixture
def played(make_bed: MakeBed) -> Bed:
    """Two honest tenants and a hostile one, all seeded, their rows in files."""
    bed = make_bed()
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b', 'c'][1 + i % 3], 'secret' || i FROM range(60) r(i)",
    )
    for name in ("a", "b", "c"):
        bed.add(name)
    assert [answer.outcome for answer in bed.seed()] == [Outcome.APPLIED] * 3
    return bed


def absolute(bed: Bed, victim: Path) -> str:
    return f"UPDATE ducklake_data_file SET path = '{victim}', path_is_relative = false"


def climbing(bed: Bed, victim: Path) -> str:
    return f"UPDATE ducklake_data_file SET path = '../../../{victim.relative_to(bed.folder)}'"


def climbing_from_its_own(bed: Bed, victim: Path) -> str:
    path = f"{bed.folder}/b-data/../{victim.relative_to(bed.folder)}"
    return f"UPDATE ducklake_data_file SET path = '{path}', path_is_relative = false"


def by_its_table(bed: Bed, victim: Path) -> str:
    return f"UPDATE ducklake_table SET path = '{victim.parent}/', path_is_relative = false WHERE table_name = 't'"


@pytest.mark.parametrize("forged", [absolute, climbing, climbing_from_its_own, by_its_table])
@pytest.mark.parametrize("opened", [False, True], ids=["opened after", "open before"])
def test_a_file_of_another_tenant_is_refused_and_nobody_else_is_touched(
    played: Bed, forged: Callable[[Bed, Path], str], *, opened: bool
) -> None:
    bed, before = played, played.head
    victim = next((bed.folder / "a-data").rglob("*.parquet"))
    if not opened:
        bed.forget()
    tamper(bed.lake("b"), forged(bed, victim))
    bed.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    if opened:
        parked = bed.run(ItemKind.UPKEEP, "b", expected=before, after=before, through=before)
        assert "secret" not in str(parked)
        bed.forget()
    answers = dict(zip("abc", bed.changes(before), strict=True))
    assert {name: answers[name].outcome for name in HONEST} == dict.fromkeys(HONEST, Outcome.APPLIED)
    refused = answers["b"]
    assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files")
    for name in HONEST:
        assert bed.rows(name) == bed.expected(name)
    for file in (bed.folder / "b-data").rglob("*.parquet"):
        assert b"secret0" not in file.read_bytes(), "a row of the victim's"
    verdict = compare_all(Origin(bed.source, "main", "t", bed.routing), [subject(bed, "b"), subject(bed, "a")])
    assert [each.finding for each in verdict] == [Finding.FAILED, Finding.EQUAL]
    assert verdict[0].problem is not None
    assert verdict[0].problem.type == "foreign_files"


def subject(bed: Bed, name: str) -> Subject:
    return Subject("p", name, name, bed.lake(name), "main", "t", SeedMode.SCAN)


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_view_in_the_place_of_the_table_is_never_run(played: Bed) -> None:
    bed = played
    victim = next((bed.folder / "a-data").rglob("*.parquet"))
    bed.write("b", "DROP TABLE dst.main.t", f"CREATE VIEW dst.main.t AS SELECT * FROM read_parquet('{victim}')")
    bed.forget()
    answer = bed.seed("b", generation=2)[0]
    assert answer.outcome is not Outcome.APPLIED
    assert "secret" not in str(answer.error)


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_macros_under_our_functions_names_are_never_called(played: Bed) -> None:
    bed, before = played, played.head
    for name in ("count", "coalesce", "literal", "chr"):
        bed.write("b", f"CREATE MACRO dst.main.{name}(x) AS error('a macro of the tenant''s')")
    bed.forget()
    bed.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    assert [answer.outcome for answer in bed.changes(before)] == [Outcome.APPLIED] * 3
    assert bed.rows("b") == bed.expected("b")


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_forged_catalog_on_s3_gets_no_file_by_the_victims_keys(
    make_bed: MakeBed, postgres: Postgres, s3: S3, tmp_path: Path
) -> None:
    """The victim's lake is open in the same worker, with keys that may read everything."""
    bed = make_bed()
    s3.create_bucket("foreign")
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b'][1 + i % 2], 'secret' || i FROM range(40) r(i)",
    )
    for name in ("a", "b"):
        file = f"sqlite:{tmp_path}/on-s3-{name}.sqlite"
        bed.add(name, lake=ResolvedLake(file, None, f"s3://foreign/{name}", s3.properties(s3.admin)))
    assert [answer.outcome for answer in bed.seed()] == [Outcome.APPLIED] * 2
    before = bed.head
    ((victim,),) = bed.look("a", "SELECT data_file FROM ducklake_list_files('dst', 't')")
    for forged in (victim, victim.replace("/a/", "/b/../a/"), f"s3://foreign/b/x?s3_endpoint=127.0.0.1:{s3.port}"):
        tamper(bed.lake("b"), f"UPDATE ducklake_data_file SET path = '{forged}', path_is_relative = 0")
        bed.forget()
        bed.sql("UPDATE src.main.t SET v = v || '+' WHERE id = 1")
        refused = bed.changes(before, "b")[0]
        assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files")
    assert bed.rows("a") == bed.expected("a")
