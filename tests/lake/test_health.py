"""What the catalogs say of lakes' health, against what DuckLake itself shows of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import attach, detach
from shared.lake.connection.engine import connect
from shared.lake.connection.statements import Postgres as Statements
from shared.lake.connection.statements import Row
from shared.lake.sql import ident, path
from shared.lake.upkeep.health import HealthReader, TableHealth
from tests.lake.rig import EVERY_CATALOG, ApplyRig, MakeLake

SMALL = 16_000_000
HOSTILE = [
    """q"uo'te;--""", "per%cent_{}", ":small", "Straße ☃ 🚚", "{x}:place", "A.b.C", "select", " lead\ttrail ",
    "$1 ?1 $small", "\\' OR 1=1 --",
]  # fmt: skip
"""Names of schemas and tables: whatever an owner may call them."""


@pytest.fixture
def reader() -> Iterator[HealthReader]:
    with HealthReader(SMALL) as made:
        yield made


def look(reader: HealthReader, lake: ResolvedLake, schema: str = "main", table: str = "t") -> TableHealth:
    return reader.look(lake, [(schema, table)])[0]


def files_of(con: duckdb.DuckDBPyConnection, table: str = "t") -> list[tuple[int, int | None]]:
    """Size of each live data file, and of its delete file, as DuckLake itself lists them."""
    found = con.execute(
        "SELECT data_file_size_bytes, delete_file_size_bytes FROM ducklake_list_files('src', ?)", [table]
    )
    return found.fetchall()


def count(con: duckdb.DuckDBPyConnection, table: str = "src.main.t") -> int:
    return int(con.execute(f"SELECT count(*) FROM (SELECT * FROM {table})").fetchall()[0][0])


@EVERY_CATALOG
def test_the_figures_are_those_that_ducklake_shows(rig: ApplyRig, reader: HealthReader) -> None:
    rig.sql(
        "CALL src.set_option('data_inlining_row_limit', 0, table_name => 't')",
        "INSERT INTO src.main.t SELECT i, 'a', 'w' FROM range(100, 200) r(i)",
        "DELETE FROM src.main.t WHERE id BETWEEN 100 AND 109",
    )
    found, files = look(reader, rig.source), files_of(rig.con)
    assert (found.files, found.bytes) == (len(files), sum(size for size, _ in files))
    assert found.delete_files == sum(1 for _, deleted in files if deleted is not None) == 1
    assert found.rows == count(rig.con) == 110
    assert (found.dead_rows, found.inlined_rows, found.small_files) == (10, 0, len(files))
    assert found.snapshots == rig.head + 1
    assert found.oldest_snapshot == 0
    assert 0 <= found.oldest_age_s < 600
    assert found.format_version == "1.0"


@EVERY_CATALOG
def test_rows_and_deletions_that_the_catalog_holds_are_counted(rig: ApplyRig, reader: HealthReader) -> None:
    rig.sql(
        "INSERT INTO src.main.t SELECT i, 'a', 'w' FROM range(100, 200) r(i)",
        "INSERT INTO src.main.t VALUES (300, 'a', 'x'), (301, 'b', 'y')",
        "ALTER TABLE src.main.t ADD COLUMN more VARCHAR",
        "INSERT INTO src.main.t VALUES (302, 'b', 'z', 'm')",
        "DELETE FROM src.main.t WHERE id IN (100, 101, 300)",
    )
    found = look(reader, rig.source)
    assert found.rows == count(rig.con)
    assert (found.inlined_rows, found.dead_rows) == (2, 2)


@EVERY_CATALOG
def test_a_small_file_is_one_up_to_the_given_size(rig: ApplyRig) -> None:
    rig.sql("INSERT INTO src.main.t SELECT i, 'a', random()::VARCHAR FROM range(1000, 5000) r(i)")
    sizes = sorted(size for size, _ in files_of(rig.con))
    with HealthReader(sizes[0]) as reader:
        assert look(reader, rig.source).small_files == 1
    with HealthReader(sizes[0] - 1) as reader:
        assert look(reader, rig.source).small_files == 0


@EVERY_CATALOG
def test_files_that_only_older_snapshots_show_and_those_that_wait_for_cleanup(
    rig: ApplyRig, reader: HealthReader
) -> None:
    rig.sql("CALL src.set_option('data_inlining_row_limit', 0, table_name => 't')")
    for start in (100, 200, 300):
        rig.sql(f"INSERT INTO src.main.t SELECT i, 'a', 'w' FROM range({start}, {start + 20}) r(i)")
    whole = files_of(rig.con)
    rig.sql("DELETE FROM src.main.t")
    emptied = look(reader, rig.source)
    assert (emptied.files, emptied.rows, emptied.old_files) == (0, 0, len(whole))
    assert emptied.old_bytes == sum(size for size, _ in whole)
    assert emptied.cleanup_files == 0
    rig.con.execute("CALL ducklake_expire_snapshots('src', older_than => now() + INTERVAL 1 DAY)").fetchall()
    expired = look(reader, rig.source)
    assert (expired.old_files, expired.old_bytes) == (0, 0)
    assert expired.cleanup_files >= len(whole)
    assert expired.snapshots == 1
    assert expired.oldest_snapshot == rig.head
    rig.con.execute("CALL ducklake_cleanup_old_files('src', cleanup_all => true)").fetchall()
    assert look(reader, rig.source).cleanup_files == 0


@EVERY_CATALOG
def test_one_statement_serves_all_tables_of_a_lake(
    rig: ApplyRig, reader: HealthReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.sql(
        "CALL src.set_option('data_inlining_row_limit', 0)",
        *(f"CREATE TABLE src.main.u{n} AS SELECT * FROM range({n + 1}) r(i)" for n in range(20)),
    )
    asked: list[str] = []
    select = CatalogReader.select

    def noted(self: CatalogReader, sql: str, **values: str | int) -> Sequence[Row]:
        asked.append(sql)
        return select(self, sql, **values)

    monkeypatch.setattr(CatalogReader, "select", noted)
    found = reader.look(rig.source, [("main", f"u{n}") for n in (*range(19, -1, -1),)])
    assert [each.rows for each in found] == list(range(20, 0, -1))
    with_figures = [sql for sql in asked if "ducklake_files_scheduled_for_deletion" in sql]
    assert len(with_figures) == 1
    assert len(asked) <= 2


@EVERY_CATALOG
@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_an_owner_s_choosing_are_only_names(rig: ApplyRig, reader: HealthReader, name: str) -> None:
    there = path("src", name, name)
    rig.con.execute(f"CREATE SCHEMA {path('src', name)}")
    rig.sql(f"CREATE TABLE {there} (i BIGINT)", f"INSERT INTO {there} SELECT * FROM range(30)")
    found = reader.look(rig.source, [(name, name), ("main", "t"), (name, f"{name}x")])
    assert [each.rows for each in found] == [30, 20, 0]


@EVERY_CATALOG
def test_a_table_that_is_not_there_has_no_files_and_the_lake_s_own_figures(rig: ApplyRig, reader: HealthReader) -> None:
    found = look(reader, rig.source, "nowhere", "nothing")
    assert (found.files, found.rows, found.old_files) == (0, 0, 0)
    assert found.snapshots == rig.head + 1


@EVERY_CATALOG
def test_names_compare_as_ducklake_s_do(rig: ApplyRig, reader: HealthReader) -> None:
    assert look(reader, rig.source, "MAIN", "T").rows == 20


@EVERY_CATALOG
def test_a_destination_is_looked_at_beside_its_cursor_table(rig: ApplyRig, reader: HealthReader) -> None:
    rig.seed()
    assert [look(reader, rig.lake(name)).rows for name in ("a", "b")] == [10, 10]


@EVERY_CATALOG
def test_a_lake_that_is_not_there_is_told_and_the_next_one_is_looked_at(
    rig: ApplyRig, reader: HealthReader, make_lake: MakeLake, tmp_path: Path
) -> None:
    absent = make_lake("absent", tmp_path / "absent-data")
    with pytest.raises(ViaduckError) as told:
        look(reader, absent)
    assert told.value.type == "lake_missing"
    assert look(reader, rig.source).rows == 20


@EVERY_CATALOG
def test_a_lake_of_another_format_is_told(rig: ApplyRig, reader: HealthReader) -> None:
    rig.con.execute("UPDATE __ducklake_metadata_src.ducklake_metadata SET value = '9.9' WHERE key = 'version'")
    with pytest.raises(ViaduckError, match=r"format '9\.9'") as told:
        look(reader, rig.source)
    assert told.value.type == "lake_incompatible"


@EVERY_CATALOG
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}.ducklake_data_file SET record_count = -5",
        "UPDATE {}.ducklake_data_file SET file_size_bytes = -1",
        "DELETE FROM {}.ducklake_snapshot",
    ],
)
def test_figures_that_can_t_be_are_told_and_never_shown(rig: ApplyRig, reader: HealthReader, damage: str) -> None:
    rig.con.execute(damage.format("__ducklake_metadata_src"))
    with pytest.raises(ViaduckError) as told:
        look(reader, rig.source)
    assert told.value.type == "lake_incompatible"


@EVERY_CATALOG
def test_a_look_leaves_the_catalog_free_for_its_writer(rig: ApplyRig, reader: HealthReader) -> None:
    look(reader, rig.source)
    rig.sql("INSERT INTO src.main.t VALUES (999, 'a', 'after')")
    assert look(reader, rig.source).rows == 21


def test_lakes_of_one_database_share_a_connection(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue("postgres")
    server.create_database("health_shared")
    lakes = [
        ResolvedLake(f"postgres:{server.dsn('health_shared')}", f"lake_{number}", str(tmp_path / str(number)))
        for number in range(5)
    ]
    con = connect()
    for number, lake in enumerate(lakes):
        attach(con, "l", lake, read_only=False, create=True)
        con.execute("CREATE TABLE l.main.t AS SELECT * FROM range(?)", [20 + number])
        detach(con, "l")
    con.close()
    opened: list[Statements] = []
    connected = Statements._connected

    def noted(self: Statements) -> Any:
        opened.append(self)
        return connected(self)

    monkeypatch.setattr(Statements, "_connected", noted)
    with HealthReader(SMALL) as reader:
        assert [look(reader, lake).rows for lake in lakes] == [20, 21, 22, 23, 24]
    assert len(opened) == 1


def test_a_read_only_role_is_enough(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("postgres")
    server.create_database("health_read_only")
    writer = ResolvedLake(f"postgres:{server.dsn('health_read_only')}", None, str(tmp_path / "data"))
    con = connect()
    attach(con, "l", writer, read_only=False, create=True)
    con.execute("CREATE TABLE l.main.t AS SELECT * FROM range(3)")
    con.execute("INSERT INTO l.main.t VALUES (7)")
    con.close()
    options = "options='-c default_transaction_read_only=on'"
    with HealthReader(SMALL) as reader:
        assert look(reader, ResolvedLake(f"{writer.catalog} {options}")).rows == 4


def test_a_file_that_is_no_database_is_told(tmp_path: Path, reader: HealthReader) -> None:
    (tmp_path / "text.sqlite").write_text("no database at all, only text " * 100)
    with pytest.raises(ViaduckError) as told:
        look(reader, ResolvedLake(f"sqlite:{tmp_path}/text.sqlite"))
    assert told.value.type == "lake_incompatible"
    with pytest.raises(ViaduckError) as missing:
        look(reader, ResolvedLake(f"sqlite:{tmp_path}/none.sqlite"))
    assert missing.value.type == "lake_missing"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["ducklake_snapshot", "anything", "ducklake_inlined_delete_1"])
def test_a_view_that_never_ends_holds_up_no_other_lake(tmp_path: Path, reader: HealthReader, name: str) -> None:
    lake = ResolvedLake(f"sqlite:{tmp_path}/l.sqlite", None, str(tmp_path / "data"))
    con = connect()
    attach(con, "l", lake, read_only=False, create=True)
    con.execute("CREATE TABLE l.main.t AS SELECT * FROM range(30) r(i)")
    detach(con, "l")
    con.close()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS snapshot_id FROM n"
    with closing(sqlite3.connect(tmp_path / "l.sqlite")) as file:
        file.execute("DROP TABLE IF EXISTS " + ident(name))
        file.execute(f"CREATE VIEW {ident(name)} AS {endless}")
        file.commit()
    with pytest.raises(ViaduckError, match="is no table") as told:
        look(reader, lake)
    assert told.value.type == "unsafe_catalog"
