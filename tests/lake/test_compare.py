"""Verifying finds what is different, and only that. The destinations here are written by hand, not by an applier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, Verdict, compare_all
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.messages import SeedMode
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import attach, detach
from shared.lake.connection.engine import connect
from shared.lake.cursor import cursor_name, origin
from tests.lake.backup import Backup

CURSOR = f"d._viaduck.{cursor_name('p', 'x')}"


class Pair:
    """A source of tenants a and b, attached as s, and the destination of a, attached as d."""

    def __init__(self, con: duckdb.DuckDBPyConnection, root: Path) -> None:
        self.con = con
        self.source = ResolvedLake(f"sqlite:{root}/s.sqlite", data_path=f"{root}/s")
        self.destination = ResolvedLake(f"sqlite:{root}/d.sqlite", data_path=f"{root}/d")
        attach(self.con, "s", self.source, read_only=False, create=True)
        self.run("CREATE TABLE s.t(id INT, tenant VARCHAR, v DOUBLE)")
        self.run("INSERT INTO s.t SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, i FROM range(40) r(i)")

    def run(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute(statement).fetchall()

    def append(self, rows: str) -> None:
        """Rows that the source gets, and the destination by an apply."""
        self.run(f"INSERT INTO s.t {rows}")
        self.run(f"INSERT INTO d.t {rows}")

    def head(self) -> int:
        (found,) = self.run("SELECT id FROM s.current_snapshot()")[0]
        assert isinstance(found, int)
        return found

    def origin(self) -> str:
        """What a cursor at the head says of the source's history."""
        with closing(CatalogReader(self.source)) as catalog:
            return origin("the lake", catalog.head().time)

    def seed(self, rows: str = "SELECT * FROM s.t WHERE tenant = 'a'") -> None:
        attach(self.con, "d", self.destination, read_only=False, create=True)
        (uuid,) = self.run("SELECT table_uuid FROM __ducklake_metadata_s.ducklake_table WHERE end_snapshot IS NULL")[0]
        self.run("BEGIN")
        self.run("CREATE SCHEMA d._viaduck")
        self.run(
            f"CREATE TABLE {CURSOR} (generation INT, position INT, source_table_uuid VARCHAR, routing_value VARCHAR,"
            " source_lake VARCHAR)"
        )
        self.run(f"INSERT INTO {CURSOR} VALUES (1, {self.head()}, '{uuid}', 'a', '{self.origin()}')")
        self.run(f"CREATE TABLE d.t AS {rows}")
        stamp = {
            "viaduck": 1,
            "pipeline": "p",
            "destination": "x",
            "kind": "seed",
            "generation": 1,
            "after": -1,
            "through": self.head(),
            "item": "item",
            "token": "token",
            "deleted": 0,
            "inserted": 0,
        }
        self.run(f"CALL d.set_commit_message('viaduck', 'seed', extra_info => '{json.dumps(stamp)}')")
        self.run("COMMIT")

    def caught_up(self) -> None:
        self.run(f"UPDATE {CURSOR} SET position = {self.head()}, source_lake = '{self.origin()}'")

    def verdict(self, *, keys: tuple[str, ...] = ("id",), mode: SeedMode = SeedMode.SCAN, value: str = "a") -> Verdict:
        origin = ComparedSource(self.source, "main", "t", Routing(field="tenant", key_columns=keys))
        (verdict,) = compare_all(origin, [Subject("p", "x", value, self.destination, "main", "t", mode)])
        return verdict


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect()) as con:
        yield con


@pytest.fixture
def pair(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[Pair]:
    yield Pair(con, tmp_path)
    for alias in ("s", "d"):
        detach(con, alias)


@pytest.fixture
def seeded(pair: Pair) -> Pair:
    pair.seed()
    return pair


class TestEqual:
    def test_a_fresh_seed_is_equal(self, seeded: Pair) -> None:
        verdict = seeded.verdict()
        assert (verdict.finding, verdict.rows) == (ComparisonResult.EQUAL, 20)

    def test_what_only_others_changed_is_proven_at_the_head(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO s.t VALUES (101, 'b', 1)")
        verdict = seeded.verdict()
        assert verdict.finding is ComparisonResult.EQUAL
        assert verdict.proven_at == seeded.head()

    def test_a_source_that_was_renamed_is_the_same_one(self, seeded: Pair) -> None:
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.run("ALTER TABLE s.t RENAME TO u")
        verdict = seeded.verdict()
        assert (verdict.finding, verdict.position) == (ComparisonResult.EQUAL, verdict.proven_at), "by looking back"
        seeded.run("UPDATE d.t SET v = -1 WHERE id = 2")
        seeded.caught_up()
        assert seeded.verdict().finding is ComparisonResult.EQUAL

    def test_a_destination_that_lags_is_compared_at_its_position(self, seeded: Pair) -> None:
        position = seeded.head()
        seeded.run("INSERT INTO s.t VALUES (102, 'a', 1)")
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.run("UPDATE s.t SET tenant = 'b' WHERE id = 4")
        seeded.run("UPDATE s.t SET tenant = 'a' WHERE id = 5")
        seeded.run("DELETE FROM s.t WHERE id = 6")
        verdict = seeded.verdict()
        assert (verdict.finding, verdict.position, verdict.proven_at) == (ComparisonResult.EQUAL, position, position)

    def test_compaction_after_the_position_disproves_nothing(self, seeded: Pair) -> None:
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.run("CALL ducklake_flush_inlined_data('s')")
        seeded.run("CALL ducklake_rewrite_data_files('s', 't', delete_threshold => 0)")
        seeded.run("CALL ducklake_merge_adjacent_files('s')")
        assert seeded.verdict().finding is ComparisonResult.EQUAL

    def test_a_column_that_was_added_since_the_last_change_is_still_to_come(self, seeded: Pair) -> None:
        seeded.run("ALTER TABLE s.t ADD COLUMN z INT DEFAULT 5")
        assert seeded.verdict().finding is ComparisonResult.EQUAL
        seeded.caught_up()
        assert seeded.verdict().finding is ComparisonResult.EQUAL


class TestLater:
    """What was done to the source's columns after the position makes no destination different there."""

    @pytest.mark.parametrize("more", [(), ("INSERT INTO s.t (id, tenant) VALUES (102, 'a')",)], ids=["", "and a row"])
    @pytest.mark.parametrize(
        "later",
        [
            ("ALTER TABLE s.t DROP COLUMN v", "ALTER TABLE s.t ADD COLUMN v DOUBLE"),
            ("ALTER TABLE s.t DROP COLUMN v",),
            ("ALTER TABLE s.t RENAME COLUMN v TO w", "ALTER TABLE s.t ADD COLUMN v DOUBLE"),
            ("ALTER TABLE s.t ALTER COLUMN id TYPE BIGINT",),
            ("ALTER TABLE s.t RENAME COLUMN id TO key", "ALTER TABLE s.t ADD COLUMN id INT"),
        ],
        ids=["dropped and added", "dropped", "renamed", "promoted", "another key"],
    )
    def test_the_position_is_looked_at_with_the_columns_that_it_had(
        self, seeded: Pair, later: tuple[str, ...], more: tuple[str, ...]
    ) -> None:
        position = seeded.head()
        for statement in (*later, *more):
            seeded.run(statement)
        verdict = seeded.verdict()
        assert (verdict.finding, verdict.proven_at, verdict.note) == (ComparisonResult.EQUAL, position, "")
        seeded.run("DELETE FROM d.t WHERE id = 4")
        assert seeded.verdict().differences.missing == 1

    def test_values_of_a_column_that_is_gone_are_different_at_a_position_after_it(self, seeded: Pair) -> None:
        seeded.run("ALTER TABLE s.t DROP COLUMN v")
        seeded.run("ALTER TABLE s.t ADD COLUMN v DOUBLE")
        seeded.caught_up()
        assert seeded.verdict().differences.changed == 20

    def test_a_routing_column_that_was_dropped_and_added_moves_nobody_before_it(self, seeded: Pair) -> None:
        seeded.run("ALTER TABLE s.t DROP COLUMN tenant")
        seeded.run("ALTER TABLE s.t ADD COLUMN tenant VARCHAR")
        assert seeded.verdict().finding is ComparisonResult.EQUAL

    def test_a_proof_behind_maintenance_says_so(self, seeded: Pair) -> None:
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.run("CALL ducklake_flush_inlined_data('s')")
        verdict = seeded.verdict()
        assert verdict.finding is ComparisonResult.EQUAL
        assert "behind maintenance" in verdict.note


class TestLayouts:
    """Files that DuckLake leaves out when it is asked by value (bucket partitions that came later) are read."""

    @pytest.fixture
    def bucketed(self, pair: Pair) -> Pair:
        pair.run("CALL s.set_option('data_inlining_row_limit', 0)")
        pair.run("INSERT INTO s.t SELECT i, 'a', i FROM range(100, 140) r(i)")
        pair.run("ALTER TABLE s.t SET PARTITIONED BY (bucket(8, tenant))")
        pair.run("INSERT INTO s.t SELECT i, 'a', i FROM range(200, 240) r(i)")
        return pair

    def test_a_destination_that_holds_everything_is_equal(self, bucketed: Pair) -> None:
        bucketed.seed("SELECT * FROM s.t WHERE tenant || '' = 'a'")
        verdict = bucketed.verdict()
        assert (verdict.finding, verdict.rows) == (ComparisonResult.EQUAL, 100)

    def test_one_that_lacks_what_was_left_out_is_different(self, bucketed: Pair) -> None:
        bucketed.seed("SELECT * FROM s.t WHERE id >= 200")
        assert bucketed.verdict().differences.missing == 60


class TestDifferent:
    def test_a_missing_row_is_found_and_shown(self, seeded: Pair) -> None:
        seeded.run("DELETE FROM d.t WHERE id = 4")
        verdict = seeded.verdict()
        assert (verdict.finding, verdict.differences.missing, verdict.differences.extra) == (
            ComparisonResult.DIFFERENT,
            1,
            0,
        )
        assert verdict.differences.shown[0].key == {"id": "4"}

    def test_an_extra_row_is_found_and_shown(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO d.t VALUES (5, 'b', 5)")
        assert seeded.verdict().differences.extra == 1

    def test_a_doubled_row_is_found(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO d.t SELECT * FROM d.t WHERE id = 4")
        assert seeded.verdict().differences.extra == 1

    def test_a_changed_value_is_shown_with_both_values(self, seeded: Pair) -> None:
        seeded.run("UPDATE d.t SET v = 9 WHERE id = 4")
        verdict = seeded.verdict()
        (shown,) = verdict.differences.shown
        assert verdict.differences.changed == 1
        assert (shown.expected, shown.found) == ({"v": "4.0"}, {"v": "9.0"})

    def test_null_is_not_a_value(self, seeded: Pair) -> None:
        seeded.run("UPDATE d.t SET v = NULL WHERE id = 0")
        assert seeded.verdict().differences.changed == 1

    def test_a_position_that_claims_too_much_is_found(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO s.t VALUES (102, 'a', 1)")
        seeded.caught_up()
        assert seeded.verdict().differences.missing == 1

    def test_a_type_of_its_own_is_a_difference(self, pair: Pair) -> None:
        pair.seed("SELECT id::BIGINT AS id, tenant, v FROM s.t WHERE tenant = 'a'")
        verdict = pair.verdict()
        assert verdict.finding is ComparisonResult.DIFFERENT
        assert verdict.problem is not None
        assert "id BIGINT" in verdict.problem.message

    def test_columns_in_another_order_are_a_difference(self, pair: Pair) -> None:
        pair.seed("SELECT tenant, id, v FROM s.t WHERE tenant = 'a'")
        assert pair.verdict().finding is ComparisonResult.DIFFERENT

    def test_a_source_that_was_dropped_and_created_again_is_a_difference(self, seeded: Pair) -> None:
        seeded.run("CREATE TABLE s.u AS SELECT * FROM s.t")
        seeded.run("DROP TABLE s.t")
        seeded.run("ALTER TABLE s.u RENAME TO t")
        verdict = seeded.verdict()
        assert verdict.finding is ComparisonResult.DIFFERENT
        assert verdict.problem is not None
        assert verdict.problem.type == "source_recreated"

    def test_a_source_whose_history_was_written_anew_is_a_difference(self, seeded: Pair) -> None:
        backup = Backup(seeded.con, "s", seeded.source)
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.caught_up()
        seeded.run("UPDATE d.t SET v = -1 WHERE id = 2")
        assert seeded.verdict().finding is ComparisonResult.EQUAL
        backup.restore()
        seeded.run("INSERT INTO s.t VALUES (101, 'b', 1)")
        verdict = seeded.verdict()
        assert verdict.problem is not None
        assert (verdict.finding, verdict.problem.type) == (ComparisonResult.DIFFERENT, "source_moved")

    def test_rows_of_another_routing_value_are_a_difference(self, seeded: Pair) -> None:
        verdict = seeded.verdict(value="b")
        assert verdict.problem is not None
        assert verdict.problem.type == "routing_value_changed"


class TestUnprovable:
    def test_a_lake_that_is_not_there_is_not_seeded(self, pair: Pair) -> None:
        assert pair.verdict().finding is ComparisonResult.NOT_SEEDED

    def test_an_expired_history_is_said_so(self, seeded: Pair) -> None:
        seeded.run("UPDATE s.t SET v = -1 WHERE id = 2")
        seeded.run("UPDATE s.t SET v = -2 WHERE id = 2")
        seeded.run(f"CALL ducklake_expire_snapshots('s', versions => [{seeded.head() - 1}])")
        verdict = seeded.verdict()
        assert verdict.problem is not None
        assert (verdict.finding, verdict.problem.type) == (ComparisonResult.FAILED, "history_expired")

    def test_a_cursor_without_its_row_is_damage(self, seeded: Pair) -> None:
        seeded.run(f"DELETE FROM {CURSOR}")
        verdict = seeded.verdict()
        assert verdict.problem is not None
        assert verdict.problem.type == "cursor_damaged"


class TestLatest:
    def test_it_may_hold_fewer_rows_than_the_source(self, pair: Pair) -> None:
        pair.seed("SELECT * FROM s.t WHERE false")
        assert pair.verdict(mode=SeedMode.LATEST).finding is ComparisonResult.EQUAL

    def test_a_row_touched_since_must_be_there(self, pair: Pair) -> None:
        pair.seed("SELECT * FROM s.t WHERE false")
        pair.run("UPDATE s.t SET v = -1 WHERE id = 2")
        pair.caught_up()
        assert pair.verdict(mode=SeedMode.LATEST).differences.missing == 1

    def test_each_of_its_rows_must_be_the_sources(self, pair: Pair) -> None:
        pair.seed("SELECT id, tenant, 99::DOUBLE AS v FROM s.t WHERE id = 2")
        assert pair.verdict(mode=SeedMode.LATEST).finding is ComparisonResult.DIFFERENT


class TestAppendOnly:
    def test_rows_deleted_at_the_source_stay(self, seeded: Pair) -> None:
        seeded.append("SELECT i, 'a', i FROM range(200, 250) r(i)")
        seeded.run("DELETE FROM s.t WHERE id < 225")
        seeded.caught_up()
        assert seeded.verdict(keys=()).finding is ComparisonResult.EQUAL

    def test_maintenance_inserts_nothing(self, seeded: Pair) -> None:
        seeded.append("SELECT i, 'a', i FROM range(200, 250) r(i)")
        seeded.run("DELETE FROM s.t WHERE id < 225")
        seeded.run("CALL ducklake_flush_inlined_data('s')")
        seeded.run("CALL ducklake_rewrite_data_files('s', 't', delete_threshold => 0)")
        seeded.caught_up()
        assert seeded.verdict(keys=()).finding is ComparisonResult.EQUAL

    def test_a_row_appended_twice_is_found(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO s.t VALUES (200, 'a', 1)")
        seeded.run("INSERT INTO d.t VALUES (200, 'a', 1), (200, 'a', 1)")
        seeded.caught_up()
        assert seeded.verdict(keys=()).differences.extra == 1

    def test_a_lost_row_is_found_even_if_the_source_has_deleted_it(self, seeded: Pair) -> None:
        seeded.run("INSERT INTO s.t SELECT i, 'a', i FROM range(200, 250) r(i)")
        seeded.run("DELETE FROM s.t WHERE id >= 200")
        seeded.caught_up()
        assert seeded.verdict(keys=()).differences.missing == 50


def test_a_shared_lake_holds_a_cursor_for_each_destination(seeded: Pair) -> None:
    other = cursor_name("p", "y")
    seeded.run(f"CREATE TABLE d._viaduck.{other} AS SELECT * FROM {CURSOR} WHERE false")
    assert seeded.verdict().finding is ComparisonResult.EQUAL


def test_an_unreadable_source_is_a_verdict_for_all(tmp_path: Path) -> None:
    origin = ComparedSource(ResolvedLake(f"sqlite:{tmp_path}/none.sqlite"), "main", "t", Routing(field="tenant"))
    subject = Subject("p", "x", "a", ResolvedLake(f"sqlite:{tmp_path}/d.sqlite"), "main", "t", SeedMode.SCAN)
    assert [verdict.finding for verdict in compare_all(origin, [subject])] == [ComparisonResult.FAILED]


def test_duckdb_errors_are_verdicts_with_a_reason(seeded: Pair) -> None:
    for file in Path(str(seeded.destination.data_path)).rglob("*.parquet"):
        file.unlink()
    verdict = seeded.verdict()
    assert verdict.finding is ComparisonResult.FAILED
    assert verdict.problem is not None
