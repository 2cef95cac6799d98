"""DuckLake still behaves as docs/explanation/hazards.md says, and what we do about it still helps.

Run first after an upgrade.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.contracts.ranges import Range
from shared.lake.catalog.reader import CatalogReader
from shared.lake.catalog.runs import insertion_runs
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import SETTINGS, connect
from tests.servers.postgres import Postgres
from tests.world.stock import WIDER_SINCE

ROWS = "SELECT i, CASE WHEN i < 5 THEN 'A' ELSE 'B' END FROM range(10) r(i)"


@pytest.fixture
def lake(tmp_path: Path) -> ResolvedLake:
    return ResolvedLake(f"sqlite:{tmp_path}/lake.sqlite", None, str(tmp_path / "data"))


@pytest.fixture
def con(lake: ResolvedLake) -> duckdb.DuckDBPyConnection:
    made = connect()
    attach(made, "l", lake, read_only=False, create=True)
    made.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    made.execute("CREATE TABLE l.main.t (id BIGINT, tenant VARCHAR)")
    return made


def catalog(lake: ResolvedLake, con: duckdb.DuckDBPyConnection) -> CatalogReader:
    return CatalogReader.attached(lake, con, "l")


def deleted_tenant_b(con: duckdb.DuckDBPyConnection) -> int:
    deleted = "SELECT id, tenant FROM ducklake_table_deletions('l', 'main', 't', 3, 4)"
    sql = f"SELECT count(*) FROM ({deleted}) WHERE tenant = 'B'"
    return int(con.execute(sql).fetchall()[0][0])


def test_h1_a_rewrite_no_longer_hides_deleted_rows(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    con.execute("DELETE FROM l.main.t WHERE tenant = 'B'")
    con.execute("CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0)")
    assert deleted_tenant_b(con) == 5
    con.execute("SET disabled_optimizers = ''")
    assert deleted_tenant_b(con) != 5, "H1 is fixed upstream: the setting can go"


def test_h1_the_past_of_a_column_that_became_wider_can_be_filtered(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE l.main.w (k INTEGER)")
    con.execute("INSERT INTO l.main.w VALUES (7), (8)")
    ((before,),) = con.execute("SELECT max(snapshot_id) FROM l.snapshots()").fetchall()
    con.execute("ALTER TABLE l.main.w ALTER COLUMN k TYPE BIGINT")
    filtered = f"SELECT k FROM l.main.w AT (VERSION => {before}) WHERE k = 7"
    assert con.execute(filtered).fetchall() == [(7,)]
    con.execute("SET disabled_optimizers = ''")
    with pytest.raises(duckdb.InternalException, match=WIDER_SINCE):  # no longer: H1 is fixed upstream
        con.execute(filtered)


def test_h1_every_cursor_of_an_instance_has_the_setting() -> None:
    assert any("statistics_propagation" in setting for setting in SETTINGS)
    with connect() as con:
        found = con.cursor().execute("SELECT current_setting('disabled_optimizers')").fetchall()[0][0]
    assert {"statistics_propagation", "compressed_materialization"} <= set(found.split(","))


def test_h4_the_shapes_that_we_read_see_every_delete(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    con.execute("DELETE FROM l.main.t WHERE id IN (1, 7)")
    read = "SELECT tenant AS r, id AS k0 FROM ducklake_table_deletions('l', 'main', 't', 3, 3)"
    assert sorted(con.execute(read).fetchall()) == [("A", 1), ("B", 7)]


def test_h5_an_insertion_run_leaves_maintenance_out(lake: ResolvedLake, con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    con.execute("DELETE FROM l.main.t WHERE tenant = 'B'")
    con.execute("CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0)")
    con.execute("INSERT INTO l.main.t VALUES (99, 'A')")
    reader = catalog(lake, con)
    table = reader.table("main", "t", reader.head().snapshot)
    assert table is not None
    whole = Range(1, reader.head().snapshot)
    runs = insertion_runs(whole, reader.touching(table.table_id, whole))
    read = [
        row
        for run in runs
        for row in con.execute(
            "SELECT id FROM ducklake_table_insertions('l', 'main', 't', {}, {})".format(*run.inclusive())
        ).fetchall()
    ]
    assert sorted(read) == [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,), (9,), (99,)]


def test_h8_a_reader_never_makes_a_writer_fail(lake: ResolvedLake, con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    with connect() as other:
        attach(other, "l", lake, read_only=True)
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM l.main.t").fetchall() == [(10,)]
        con.execute("INSERT INTO l.main.t VALUES (10, 'A')")
        other.execute("COMMIT")


def test_h8_a_source_in_rollback_mode_is_switched_without_a_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "old.sqlite"
    with connect() as con:
        con.execute(f"ATTACH 'ducklake:sqlite:{file}' AS l (DATA_PATH '{tmp_path}/d')")
        con.execute("CREATE TABLE l.main.t AS SELECT 1 AS x")
    assert file.read_bytes()[18] == 1, "the header says rollback journal"
    with connect() as con:
        attach(con, "l", ResolvedLake(f"sqlite:{file}", None, None), read_only=True)
        assert con.execute("SELECT max(snapshot_id) FROM l.snapshots()").fetchall() == [(1,)]
    assert file.read_bytes()[18] == 2, "the header says WAL"


def test_h9_an_appended_range_is_proven_by_metadata_alone(lake: ResolvedLake, con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    con.execute("INSERT INTO l.main.t VALUES (10, 'A')")
    con.execute("DELETE FROM l.main.t WHERE id = 3")
    reader = catalog(lake, con)
    table = reader.table("main", "t", reader.head().snapshot)
    assert table is not None
    for snapshots, appended in ((Range(1, 3), True), (Range(3, 4), False)):
        touches = reader.touching(table.table_id, snapshots)
        assert reader.only_appended(table.table_id, snapshots, touches) is appended


def test_older_than_takes_everything_of_the_cutoff_s_date_on_sqlite(
    lake: ResolvedLake, con: duckdb.DuckDBPyConnection
) -> None:
    times = dict(con.execute("SELECT snapshot_id, snapshot_time::TIMESTAMPTZ FROM l.snapshots()").fetchall())
    midnight = f"{times[max(times)]:%Y-%m-%d} 00:00:00+00"
    older = con.execute(
        "SELECT snapshot_id FROM ducklake_expire_snapshots('l', older_than => ?::TIMESTAMPTZ, dry_run => true)",
        [midnight],
    ).fetchall()
    of_the_day = [number for number, at in times.items() if f"{at:%Y-%m-%d}" == midnight[:10]]
    wrong = {(number,) for number in of_the_day if number != max(times)}
    assert wrong
    assert (wrong & {*older}) == (set() if lake.sqlite_file is None else wrong), "it is fixed upstream, or worse"


def test_a_lake_that_must_exist_leaves_no_empty_file_behind(tmp_path: Path) -> None:
    missing = ResolvedLake(f"sqlite:{tmp_path}/typo.sqlite", None, None)
    with connect() as con, pytest.raises(Exception, match="no catalog file"):
        attach(con, "l", missing, read_only=False)
    assert not (tmp_path / "typo.sqlite").exists()


def test_the_pinned_version_is_the_one_that_was_measured() -> None:
    assert duckdb.__version__ == "1.5.5"


def test_a_lake_that_was_made_with_a_relative_path_is_found_by_its_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with connect() as con:
        con.execute("ATTACH 'ducklake:sqlite:made.sqlite' AS l (DATA_PATH 'data/')")
        con.execute("CREATE TABLE l.main.t AS SELECT * FROM range(100) r(x)")
    monkeypatch.chdir("/")
    with connect() as con:
        attach(con, "l", ResolvedLake(f"sqlite:{tmp_path}/made.sqlite", None, f"{tmp_path}/data"), read_only=True)
        assert con.execute("SELECT sum(x) FROM l.main.t").fetchall() == [(4950,)]


def test_another_data_path_than_the_stored_one_is_refused(tmp_path: Path) -> None:
    made = ResolvedLake(f"sqlite:{tmp_path}/made.sqlite", None, f"{tmp_path}/data")
    with connect() as con:
        attach(con, "l", made, read_only=False, create=True)
    with connect() as con, pytest.raises(ViaduckError, match="does not match") as caught:
        attach(con, "l", ResolvedLake(made.catalog, None, f"{tmp_path}/elsewhere"), read_only=True)
    assert caught.value.type == "lake_incompatible"


def test_h12_letting_go_of_an_invalidated_instance_does_not_abort_the_process(
    postgres: Postgres, tmp_path: Path
) -> None:
    """A flush after ADD COLUMN drops what an older attachment reads; on Postgres that costs the whole instance."""
    postgres.create_database("h12")
    lake = f"ATTACH 'ducklake:postgres:{postgres.dsn('h12')}' AS l (DATA_PATH '{tmp_path}'"
    program = f"""
import duckdb
from shared.lake.connection.engine import connect, release
writer, reader = connect(), connect()
writer.execute({lake!r} + ")")
writer.execute("CREATE TABLE l.main.t (k INTEGER)")
writer.execute("INSERT INTO l.main.t VALUES (1)")
writer.execute("ALTER TABLE l.main.t ADD COLUMN x INTEGER")
reader.execute({lake!r} + ", READ_ONLY)")
insertions = "SELECT * FROM ducklake_table_insertions('l', 'main', 't', 2, 2)"
assert len(reader.execute(insertions).fetchall()) == 1
writer.execute("CALL ducklake_flush_inlined_data('l')").fetchall()
cursor = reader.cursor()
cursor.execute("BEGIN")
try:
    cursor.execute(insertions)
except duckdb.InternalException:
    print("the hazard is there")
release(cursor)
release(reader)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "the hazard is there\n"), ran.stderr[-2000:]


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "unnoticed"])
def test_h12_so_does_not_letting_go_of_a_transaction_whose_connection_has_ended(
    postgres: Postgres, tmp_path: Path, noticed: bool
) -> None:
    """As where a server was restarted, or a firewall has forgotten a connection."""
    database = f"h12_{'noticed' if noticed else 'unnoticed'}"
    postgres.create_database(database)
    program = f"""
import duckdb, psycopg
from shared.lake.connection.engine import connect, release
con = connect()
con.execute("ATTACH 'ducklake:postgres:{postgres.dsn(database)}' AS l (DATA_PATH '{tmp_path}')")
con.execute("CREATE TABLE l.main.t (k INTEGER)")
con.execute("BEGIN")
con.execute("SELECT * FROM l.main.t").fetchall()
others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
with psycopg.connect({postgres.dsn(database)!r}, autocommit=True) as server:
    server.execute(others + " AND pid <> pg_backend_pid()").fetchall()
if {noticed}:
    try:
        con.execute("SELECT * FROM l.main.t AT (VERSION => 1)")
    except duckdb.Error:
        print("noticed")
release(con)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "noticed\n" * noticed), ran.stderr[-2000:]


def test_h13_a_flush_after_a_rewrite_beside_inlined_deletes_shows_deleted_rows_again(
    lake: ResolvedLake, con: duckdb.DuckDBPyConnection
) -> None:
    con.execute(f"INSERT INTO l.main.t {ROWS}")
    for limit, deleted in ((10, 1), (0, 0)):
        con.execute(f"CALL l.set_option('data_inlining_row_limit', {limit})")
        con.execute(f"DELETE FROM l.main.t WHERE id = {deleted}")
    before = int(con.execute("SELECT id FROM l.current_snapshot()").fetchall()[0][0])
    con.execute("CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0)")
    con.execute("CALL ducklake_flush_inlined_data('l')")
    rows = "SELECT count(*) FROM l.main.t"
    assert con.execute(rows).fetchall() == [(8,)], "the head is right"
    assert con.execute(f"{rows} AT (VERSION => {before})").fetchall() != [(8,)], "H13 is fixed upstream"
    assert catalog(lake, con).live_rows("main", "t") == 8, "it leaves deletes of a file that is gone"


@pytest.mark.parametrize("updates", [["k = 4"], ["k IN (0, 16)"], ["k = 4", "k IN (0, 16)"]])
def test_h18_two_updates_of_rows_that_their_own_transaction_inlines_and_writes_lose_one(
    con: duckdb.DuckDBPyConnection, updates: list[str]
) -> None:
    con.execute("CREATE TABLE l.main.u (k BIGINT, v VARCHAR)")
    con.execute("CALL l.set_option('data_inlining_row_limit', 10)")
    con.execute("BEGIN")
    con.execute("INSERT INTO l.main.u VALUES (0, 'inlined')")
    con.execute("INSERT INTO l.main.u SELECT i, 'in a file' FROM range(4, 18) r(i)")
    for where in updates:
        con.execute(f"UPDATE l.main.u SET v = 'updated' WHERE {where}")
    con.execute("COMMIT")
    left = con.execute("SELECT count(*), count(*) FILTER (k = 4) FROM l.main.u").fetchall()
    assert left == ([(15, 1)] if len(updates) == 1 else [(14, 0)]), "H18 is fixed upstream, or worse"


def test_h19_inlined_rows_of_a_sorted_table_can_not_be_flushed_once_a_column_before_its_key_was_dropped(
    con: duckdb.DuckDBPyConnection,
) -> None:
    con.execute("CREATE TABLE l.main.s (n INTEGER, v VARCHAR, k BIGINT, tenant VARCHAR)")
    con.execute("CALL l.set_option('data_inlining_row_limit', 10)")
    con.execute("INSERT INTO l.main.s VALUES (1, 'v', 1, 'a')")
    con.execute("ALTER TABLE l.main.s SET SORTED BY (k DESC)")
    con.execute("ALTER TABLE l.main.s DROP COLUMN n")
    with pytest.raises(duckdb.InternalException, match="Failed to bind column reference"):
        con.execute("CALL ducklake_flush_inlined_data('l')")


def test_h22_rows_that_are_inlined_after_a_column_was_replaced_unnoticed_lie_in_other_columns(
    con: duckdb.DuckDBPyConnection,
) -> None:
    con.execute("CALL l.set_option('data_inlining_row_limit', 10)")
    con.execute("CREATE TABLE l.main.r (n INTEGER, v INTEGER)")
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute("ALTER TABLE l.main.r DROP COLUMN n")
    con.execute("ALTER TABLE l.main.r ADD COLUMN n INTEGER DEFAULT 0")
    con.execute("CALL l.set_option('data_inlining_row_limit', 10)")
    con.execute("INSERT INTO l.main.r (v, n) VALUES (5, 6)")
    assert con.execute("SELECT v, n FROM l.main.r").fetchall() == [(6, 0)], "H22 is fixed upstream, or other"


def test_h24_absent_bounds_are_taken_for_those_of_no_value(con: duckdb.DuckDBPyConnection) -> None:
    """A direct commit never leaves both bounds away (tests/lake/test_direct_commit.py)."""
    con.execute("CREATE TABLE l.main.n (v VARCHAR)")
    for value in ("'z' || chr(0)", "'m'"):
        con.execute(f"INSERT INTO l.main.n VALUES ({value})")
    one = "SELECT count(*) FROM l.main.n WHERE v > 'y'"
    assert con.execute(one).fetchall() == [(1,)]
    con.execute("SET disabled_optimizers = ''")
    assert con.execute(one).fetchall() == [(0,)], "H24 is fixed upstream: statistics may be left out again"


def test_h24_a_file_without_a_value_leaves_a_column_of_many_without_bounds(con: duckdb.DuckDBPyConnection) -> None:
    """Where a commit of the extension writes several files, as into partitions."""
    con.execute("CREATE TABLE l.main.n (p INTEGER, v INTEGER)")
    con.execute("ALTER TABLE l.main.n SET PARTITIONED BY (p)")
    con.execute("INSERT INTO l.main.n VALUES (1, NULL), (2, 2147480000), (3, 0)")
    con.execute("INSERT INTO l.main.n VALUES (1, 1)")
    one = "SELECT count(*) FROM l.main.n WHERE v > 5"
    assert con.execute(one).fetchall() == [(1,)]
    con.execute("SET disabled_optimizers = ''")
    assert con.execute(one).fetchall() == [(0,)], "H24 is fixed upstream: partitioned destinations have right bounds"


def test_h27_a_column_that_was_made_wider_forgets_its_bounds_and_takes_those_of_newer_rows(
    con: duckdb.DuckDBPyConnection,
) -> None:
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute("CREATE TABLE l.main.w (n INTEGER)")
    con.execute("INSERT INTO l.main.w VALUES (-7), (900)")
    con.execute("BEGIN")
    con.execute("ALTER TABLE l.main.w ALTER COLUMN n SET DATA TYPE BIGINT")
    con.execute("INSERT INTO l.main.w VALUES (5)")
    con.execute("COMMIT")
    con.execute("INSERT INTO l.main.w VALUES (6)")
    one = "SELECT count(*) FROM l.main.w WHERE n < 0"
    assert con.execute(one).fetchall() == [(1,)]
    con.execute("SET disabled_optimizers = ''")
    assert con.execute(one).fetchall() == [(0,)], "H27 is fixed upstream: bounds of widened columns may be kept"


def test_h27_of_a_column_without_statistics_no_insert_makes_any_again(con: duckdb.DuckDBPyConnection) -> None:
    kept = "__ducklake_metadata_l.ducklake_table_column_stats"
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute("CREATE TABLE l.main.w (n INTEGER)")
    con.execute("INSERT INTO l.main.w VALUES (-7)")
    con.execute(f"DELETE FROM {kept}")
    con.execute("ALTER TABLE l.main.w ALTER COLUMN n SET DATA TYPE BIGINT")
    for value in (6, 7):
        con.execute(f"INSERT INTO l.main.w VALUES ({value})")
    assert con.execute(f"SELECT count(*) FROM {kept}").fetchall() == [(0,)]


def test_h25_a_scan_of_parquet_files_misses_blobs_that_it_is_asked_for(tmp_path: Path) -> None:
    """Ours compare BLOBs in a shape that no scan takes for its column (``unseen`` in shared/lake/pruning.py)."""
    file = tmp_path / "blobs.parquet"
    with connect() as con:
        con.execute(f"COPY (SELECT '\\x00\\xFF'::BLOB AS v FROM range(40)) TO '{file}' (FORMAT parquet)")
        asked = f"SELECT count(*) FROM read_parquet('{file}') f"
        assert con.execute(f"{asked} JOIN (VALUES ('\\x00\\xFF'::BLOB)) k(k) ON [f.v] = [k.k]").fetchall() == [(40,)]
        assert con.execute(f"{asked} WHERE f.v = '\\x00\\xFF'::BLOB").fetchall() == [(0,)], "H25 is fixed upstream"


def test_h26_a_default_that_was_made_wider_is_null_for_the_rest_of_its_transaction(
    con: duckdb.DuckDBPyConnection,
) -> None:
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute("CREATE TABLE l.main.w (k INTEGER)")
    con.execute("INSERT INTO l.main.w VALUES (1), (2)")
    con.execute("ALTER TABLE l.main.w ADD COLUMN d INTEGER DEFAULT 5")
    con.execute("BEGIN")
    con.execute("ALTER TABLE l.main.w ALTER COLUMN d SET DATA TYPE BIGINT")
    assert con.execute("SELECT d FROM l.main.w").fetchall() == [(None,)] * 2, "H26 is fixed upstream"
    con.execute("COMMIT")
    assert con.execute("SELECT d FROM l.main.w").fetchall() == [(5,)] * 2


@pytest.mark.parametrize(
    "change", ["ALTER COLUMN s SET DATA TYPE STRUCT(a BIGINT, f BIGINT)", "RENAME COLUMN s.f TO g"]
)
def test_h26_a_field_that_is_made_wider_or_renamed_forgets_its_default(
    con: duckdb.DuckDBPyConnection, change: str
) -> None:
    con.execute("CREATE TABLE l.main.w (s STRUCT(a INTEGER))")
    con.execute("INSERT INTO l.main.w VALUES ({'a': 1})")
    con.execute("ALTER TABLE l.main.w ADD COLUMN s.f INTEGER DEFAULT 7")
    assert con.execute("SELECT s.f FROM l.main.w").fetchall() == [(7,)]
    con.execute(f"ALTER TABLE l.main.w {change}")
    ((shown,),) = con.execute("SELECT s FROM l.main.w").fetchall()
    assert list(shown.values()) == [1, None], "H26 is fixed upstream"


def test_h26_a_struct_can_not_be_changed_in_the_transaction_that_adds_it(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE l.main.w (k INTEGER)")
    con.execute("BEGIN")
    con.execute("ALTER TABLE l.main.w ADD COLUMN s STRUCT(a INTEGER, b INTEGER)")
    con.execute("ALTER TABLE l.main.w DROP COLUMN s.b")
    con.execute("COMMIT")
    ((declared,),) = con.execute("SELECT column_type FROM (DESCRIBE l.main.w) WHERE column_name = 's'").fetchall()
    assert declared == "STRUCT(a INTEGER, b INTEGER)", "H26 is fixed upstream"


def test_h29_a_column_with_fields_loses_them_where_the_transaction_that_adds_it_renames_it(
    con: duckdb.DuckDBPyConnection, lake: ResolvedLake
) -> None:
    con.execute("CREATE TABLE l.main.w (k INTEGER)")
    con.execute("BEGIN")
    con.execute("ALTER TABLE l.main.w ADD COLUMN s INTEGER[]")
    con.execute("ALTER TABLE l.main.w RENAME COLUMN s TO t")
    con.execute("COMMIT")
    with closing(connect()) as other:
        attach(other, "l", lake, read_only=True)
        with pytest.raises(duckdb.InternalException, match="optional pointer"):
            other.execute("SELECT k FROM l.main.w")


def test_a_null_that_is_inlined_in_a_column_born_not_null_can_not_be_flushed(con: duckdb.DuckDBPyConnection) -> None:
    """Upstream #1383. Rows of destinations are not inlined, so this one's upkeep meets none."""
    con.execute("CALL l.set_option('data_inlining_row_limit', 10)")
    con.execute("CREATE TABLE l.main.n (k INTEGER, v INTEGER NOT NULL)")
    con.execute("BEGIN")
    con.execute("ALTER TABLE l.main.n ALTER COLUMN v DROP NOT NULL")
    con.execute("INSERT INTO l.main.n VALUES (1, NULL)")
    con.execute("COMMIT")
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute("INSERT INTO l.main.n VALUES (2, NULL)")
    for made in ("SELECT 1", "DELETE FROM l.main.n WHERE k = 1"):
        con.execute(made)
        with pytest.raises(duckdb.ConstraintException, match=r"NOT NULL constraint failed: n\.v"):  # else it is fixed
            con.execute("CALL ducklake_flush_inlined_data('l')")
    assert con.execute("SELECT * FROM l.main.n").fetchall() == [(2, None)], "reads are right"


def test_rows_are_counted_from_metadata_alone_wherever_they_lie(
    lake: ResolvedLake, con: duckdb.DuckDBPyConnection
) -> None:
    for limit, statement in (
        (10, "INSERT INTO l.main.t VALUES (100, 'A'), (101, 'A')"),
        (0, f"INSERT INTO l.main.t {ROWS}"),
        (10, "DELETE FROM l.main.t WHERE id IN (1, 100)"),
        (0, "DELETE FROM l.main.t WHERE id = 2"),
        (10, "ALTER TABLE l.main.t ADD COLUMN w INTEGER"),
        (10, "INSERT INTO l.main.t VALUES (102, 'A', 1)"),
        (0, "CALL ducklake_flush_inlined_data('l')"),
    ):
        con.execute(f"CALL l.set_option('data_inlining_row_limit', {limit})")
        con.execute(statement).fetchall()
        ((held,),) = con.execute("SELECT count(*) FROM l.main.t").fetchall()
        assert catalog(lake, con).live_rows("main", "t") == held, statement


@pytest.mark.parametrize("asked", ["older_than => now() + INTERVAL 1 DAY", "versions => [4]"])
def test_the_newest_snapshot_never_expires_so_no_number_is_given_again(
    con: duckdb.DuckDBPyConnection, asked: str
) -> None:
    """What a direct commit rests on: in ``tla/DirectCommit.tla``, mutant ``number_reused``."""
    newest = "SELECT max(snapshot_id) FROM l.snapshots()"
    for number in range(3):
        con.execute("INSERT INTO l.main.t VALUES (?, 'A')", [number]).fetchall()
    assert con.execute(newest).fetchall() == [(4,)]
    con.execute(f"CALL ducklake_expire_snapshots('l', {asked})").fetchall()
    assert con.execute(newest).fetchall() == [(4,)]
    con.execute("INSERT INTO l.main.t VALUES (3, 'A')").fetchall()
    assert con.execute(newest).fetchall() == [(5,)]


@pytest.mark.parametrize(
    ("declared", "value", "within", "shown"),
    [
        ("STRUCT(a INTEGER)[]", "[NULL]", "element", "[{'c': NULL}]"),
        ("MAP(VARCHAR, STRUCT(a INTEGER))", "MAP {'z': NULL}", "value", "{z={'c': NULL}}"),
        ("STRUCT(x INTEGER, n STRUCT(a INTEGER))", "{'x': 1, 'n': NULL}", "n", "{'x': 1, 'n': {'c': NULL}}"),
    ],
)
def test_h28_a_struct_within_a_value_is_null_only_while_a_field_is_left_that_it_had(
    con: duckdb.DuckDBPyConnection, declared: str, value: str, within: str, shown: str
) -> None:
    con.execute("CALL l.set_option('data_inlining_row_limit', 0)")
    con.execute(f"CREATE TABLE l.main.w (s {declared})")
    con.execute(f"INSERT INTO l.main.w VALUES ({value})")
    con.execute(f"ALTER TABLE l.main.w ADD COLUMN s.{within}.c INTEGER")
    ((before,),) = con.execute("SELECT CAST(s AS VARCHAR) FROM l.main.w").fetchall()
    assert before in ("[NULL]", "{z=NULL}", "{'x': 1, 'n': NULL}")
    con.execute(f"ALTER TABLE l.main.w DROP COLUMN s.{within}.a")
    assert con.execute("SELECT CAST(s AS VARCHAR) FROM l.main.w").fetchall() == [(shown,)], "H28 is fixed upstream"
