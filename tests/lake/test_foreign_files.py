"""A tenant who writes whatever he likes into his own catalog gets nothing of anybody else's, and stands alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, compare_all
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.contracts.messages import ItemKind, Outcome, SeedMode
from shared.lake.attached.pool import LakePool
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, owners_connection
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3

HONEST = ("a", "c")
SQLITE = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


def tamper(lake: ResolvedLake, statement: str) -> None:
    """As the tenant, in his own catalog. (In a process of its own: SQLite's locks know of no second library, H11.)"""
    if lake.sqlite_file is None:
        with owners_connection(lake) as con:
            con.execute(statement)
    else:
        subprocess.run([sys.executable, "-c", SQLITE, str(lake.sqlite_file), statement], check=True)


@pytest.fixture
def played(make_rig: MakeRig) -> ApplyRig:
    """Two honest tenants and a hostile one, all seeded, their rows in files."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b', 'c'][1 + i % 3], 'secret' || i FROM range(60) r(i)",
    )
    for name in ("a", "b", "c"):
        rig.add(name)
    assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED] * 3
    return rig


def absolute(rig: ApplyRig, victim: Path) -> str:
    return f"UPDATE ducklake_data_file SET path = '{victim}', path_is_relative = false"


def climbing(rig: ApplyRig, victim: Path) -> str:
    return f"UPDATE ducklake_data_file SET path = '../../../{victim.relative_to(rig.folder)}'"


def climbing_from_its_own(rig: ApplyRig, victim: Path) -> str:
    path = f"{rig.folder}/b-data/../{victim.relative_to(rig.folder)}"
    return f"UPDATE ducklake_data_file SET path = '{path}', path_is_relative = false"


def by_its_table(rig: ApplyRig, victim: Path) -> str:
    return f"UPDATE ducklake_table SET path = '{victim.parent}/', path_is_relative = false WHERE table_name = 't'"


@pytest.mark.parametrize("forged", [absolute, climbing, climbing_from_its_own, by_its_table])
@pytest.mark.parametrize("opened", [False, True], ids=["opened after", "open before"])
def test_a_file_of_another_tenant_is_refused_and_nobody_else_is_touched(
    played: ApplyRig, forged: Callable[[ApplyRig, Path], str], *, opened: bool
) -> None:
    rig, before = played, played.head
    victim = next((rig.folder / "a-data").rglob("*.parquet"))
    if not opened:
        rig.forget()
    tamper(rig.lake("b"), forged(rig, victim))
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    if opened:
        parked = rig.run(ItemKind.UPKEEP, "b", expected=before, after=before, through=before)
        assert "secret" not in str(parked)
        rig.forget()
    answers = dict(zip("abc", rig.changes(before), strict=True))
    assert {name: answers[name].outcome for name in HONEST} == dict.fromkeys(HONEST, Outcome.APPLIED)
    refused = answers["b"]
    assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files")
    for name in HONEST:
        assert rig.rows(name) == rig.expected(name)
    for file in (rig.folder / "b-data").rglob("*.parquet"):
        assert b"secret0" not in file.read_bytes(), "a row of the victim's"
    verdict = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), [subject(rig, "b"), subject(rig, "a")])
    assert [each.finding for each in verdict] == [ComparisonResult.FAILED, ComparisonResult.EQUAL]
    assert verdict[0].problem is not None
    assert verdict[0].problem.type == "foreign_files"


def subject(rig: ApplyRig, name: str) -> Subject:
    return Subject("p", name, name, rig.lake(name), "main", "t", SeedMode.SCAN)


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_view_in_the_place_of_the_table_is_never_run(played: ApplyRig) -> None:
    rig = played
    victim = next((rig.folder / "a-data").rglob("*.parquet"))
    rig.write("b", "DROP TABLE dst.main.t", f"CREATE VIEW dst.main.t AS SELECT * FROM read_parquet('{victim}')")
    rig.forget()
    answer = rig.seed("b", generation=2)[0]
    assert answer.outcome is not Outcome.APPLIED
    assert "secret" not in str(answer.error)


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_macros_under_our_functions_names_are_never_called(played: ApplyRig) -> None:
    rig, before = played, played.head
    for name in ("count", "coalesce", "literal", "chr"):
        rig.write("b", f"CREATE MACRO dst.main.{name}(x) AS error('a macro of the tenant''s')")
    rig.forget()
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    assert [answer.outcome for answer in rig.changes(before)] == [Outcome.APPLIED] * 3
    assert rig.rows("b") == rig.expected("b")


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_forged_catalog_on_s3_gets_no_file_by_the_victims_keys(
    make_rig: MakeRig, postgres: Postgres, s3: S3, tmp_path: Path
) -> None:
    """The victim's lake is open in the same worker, with keys that may read everything."""
    rig = make_rig()
    s3.create_bucket("foreign")
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, ['a', 'b'][1 + i % 2], 'secret' || i FROM range(40) r(i)",
    )
    for name in ("a", "b"):
        file = f"sqlite:{tmp_path}/on-s3-{name}.sqlite"
        rig.add(name, lake=ResolvedLake(file, None, f"s3://foreign/{name}", s3.properties(s3.admin)))
    assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED] * 2
    before = rig.head
    ((victim,),) = rig.look("a", "SELECT data_file FROM ducklake_list_files('dst', 't')")
    climbing = f"x/../../../../a/{victim.partition('/a/')[2]}"
    for forged, relative in (
        (victim, "0"),
        (victim, "NULL"),
        (victim.replace("/a/", "/b/../a/"), "0"),
        (victim.replace("/a/", "/b/main/t/../../../a/"), "0"),
        (climbing, "1"),
        (f"s3://foreign/b/x?s3_endpoint=127.0.0.1:{s3.port}", "0"),
        (f"x?s3_endpoint=127.0.0.1:{s3.port}", "1"),
        ("s3://foreign/b/main/t/x#y.parquet", "0"),
        ("x#y.parquet", "1"),
        (f"x' || char(0) || '/../{climbing}", "1"),
    ):
        tamper(rig.lake("b"), f"UPDATE ducklake_data_file SET path = '{forged}', path_is_relative = {relative}")
        rig.forget()
        rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id = 1")
        refused = rig.changes(before, "b")[0]
        assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files"), forged
    tamper(rig.lake("b"), "UPDATE ducklake_data_file SET path = 'x.parquet', path_is_relative = 1")
    plain = "UPDATE ducklake_{} SET path = '{}/', path_is_relative = 1"
    for table, honest in (("table", "t"), ("schema", "main")):
        for path in ("../../a/main/t", "x/../../a", f"x?s3_endpoint=127.0.0.1:{s3.port}", "x#y"):
            tamper(rig.lake("b"), plain.format(table, path))
            rig.forget()
            refused = rig.changes(before, "b")[0]
            assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files"), path
            assert "secret" not in str(refused)
        tamper(rig.lake("b"), plain.format(table, honest))
    for path in (climbing, victim, f"x?s3_endpoint=127.0.0.1:{s3.port}"):
        tamper(rig.lake("b"), "DELETE FROM ducklake_delete_file")
        tamper(
            rig.lake("b"),
            "INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
            " path_is_relative, format, delete_count, file_size_bytes, footer_size)"
            f" SELECT 999, table_id, begin_snapshot, data_file_id, '{path}', {int('://' not in path)}, 'parquet', 1,"
            " file_size_bytes, footer_size FROM ducklake_data_file LIMIT 1",
        )
        rig.forget()
        refused = rig.changes(before, "b")[0]
        assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "foreign_files"), path
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize("make_lake", ["sqlite", "postgres"], indirect=True)
def test_where_files_are_is_not_for_a_strangers_catalog_to_say(played: ApplyRig) -> None:
    """Left to his catalog, he could turn it to another's folder later, and have its files compacted."""
    rig = played
    untrusted = replace(rig.lake("b"), data_path=None, untrusted=True)
    with closing(LakePool(2)) as pool:
        with pytest.raises(DestinationError, match="only the catalog") as refused, pool.use(untrusted, read_only=False):
            pass
        assert refused.value.type == "not_allowed"
        with pool.use(replace(untrusted, data_path=rig.lake("b").data_path), read_only=False):
            pass  # who declares it
        with pool.use(replace(untrusted, untrusted=False), read_only=False):
            pass  # an operator's own
    verdict = compare_all(
        ComparedSource(rig.source, "main", "t", rig.routing),
        [replace(subject(rig, "b"), lake=untrusted), subject(rig, "a")],
    )
    assert [each.problem and each.problem.type for each in verdict] == ["not_allowed", None]


def test_a_strangers_lake_on_sqlite_may_have_its_files_beside_it(tmp_path: Path) -> None:
    lake = ResolvedLake(f"sqlite:{tmp_path}/x.sqlite", untrusted=True)
    for _ in range(2):
        with closing(LakePool(2)) as pool, pool.use(lake, read_only=False, create=True) as held:
            held.con.execute("CREATE OR REPLACE TABLE lake.main.t AS SELECT 1 AS x")
    tamper(lake, f"UPDATE ducklake_metadata SET value = '{tmp_path}/other/' WHERE key = 'data_path'")
    with (
        closing(LakePool(2)) as pool,
        pytest.raises(DestinationError, match="only the catalog"),
        pool.use(lake, read_only=False),
    ):
        pass


def test_a_forged_name_of_inlined_rows_is_refused_before_anything_is_written(played: ApplyRig) -> None:
    """DuckLake puts it into its own statements unquoted."""
    rig, before = played, played.head
    tamper(
        rig.lake("b"),
        "INSERT INTO ducklake_inlined_data_tables (table_id, table_name, schema_version)"
        " SELECT table_id, 'x; DROP TABLE ducklake_snapshot; --', 1 FROM ducklake_table WHERE table_name = 't'",
    )
    rig.forget()
    rig.sql("UPDATE src.main.t SET v = v || '+' WHERE id < 9")
    answers = dict(zip("abc", rig.changes(before), strict=True))
    assert {name: answers[name].outcome for name in HONEST} == dict.fromkeys(HONEST, Outcome.APPLIED)
    refused = answers["b"]
    assert (refused.outcome, refused.error and refused.error.type) == (Outcome.PARKED, "lake_incompatible")
