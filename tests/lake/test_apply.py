"""One destination, one transaction: what the applier does and refuses on real lakes, on each kind of catalog."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest

from services.applier import worker
from services.applier.apply import Applied, Applier, Change
from services.applier.feed import Feed
from services.applier.partition import run_tasks
from services.applier.run import run_task
from services.applier.task import Limits, SourceTable, Task
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.errors import ViaduckError
from shared.lake.cursor import cursor_name
from shared.lake.pool import LakePool, OpenLake
from shared.messages import ItemKind, Outcome, Progress
from tests.fast.waiting import eventually
from tests.lake.bed import EVERY_CATALOG, Bed
from tests.lake.conftest import MakeBed


def outcomes(progress: list[Progress]) -> list[Outcome]:
    return [each.outcome for each in progress]


def problem(progress: Progress) -> str:
    assert progress.error is not None
    assert progress.error.hint
    return progress.error.type


@EVERY_CATALOG
def test_a_seed_makes_lake_table_and_cursor_and_fills_them(bed: Bed) -> None:
    assert [each.position for each in bed.run(ItemKind.PROBE)] == [-1, -1]
    assert outcomes(bed.seed()) == [Outcome.APPLIED] * 2
    assert [each.position for each in bed.run(ItemKind.PROBE)] == [bed.head] * 2
    for name in bed.destinations:
        assert bed.rows(name) == bed.expected(name)


def test_a_lake_without_a_place_for_its_files_keeps_them_beside_its_catalog(bed: Bed, tmp_path: Path) -> None:
    bed.add("a", lake=ResolvedLake(f"sqlite:{tmp_path}/placeless.sqlite"))
    bed.sql("INSERT INTO src.main.t SELECT 100 + i, 'a', 'many' FROM range(2000) r(i)")
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    worker.forget()
    assert outcomes(bed.seed("a")) == [Outcome.ALREADY_APPLIED], "opened anew"
    assert bed.rows("a") == bed.expected("a")
    assert list((tmp_path / "placeless.sqlite.files").rglob("*.parquet"))


def test_every_commit_says_what_it_holds(bed: Bed) -> None:
    bed.seed("a")
    seeded = bed.head
    head = bed.sql("UPDATE src.main.t SET v = 'new' WHERE id = 2", "DELETE FROM src.main.t WHERE id = 4")
    bed.changes(seeded, "a")
    stamps = bed.look("a", "SELECT author, commit_extra_info FROM dst.snapshots() WHERE snapshot_id > 0 ORDER BY 1")
    assert {author for author, _ in stamps} == {"viaduck"}
    seed, change = (json.loads(extra) for _, extra in stamps)
    assert (seed["kind"], seed["after"], seed["through"], seed["inserted"]) == ("seed", -1, seeded, 10)
    assert (change["kind"], change["after"], change["through"]) == ("changes", seeded, head)
    assert (change["deleted"], change["inserted"], change["generation"]) == (2, 1, 1)
    assert seed["token"] != change["token"]


@EVERY_CATALOG
def test_changes_end_equal_and_a_row_that_moves_leaves_its_old_tenant(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql(
        "UPDATE src.main.t SET v = v || '!' WHERE id < 6",
        "DELETE FROM src.main.t WHERE id IN (6, 7)",
        "INSERT INTO src.main.t VALUES (100, 'a', 'x'), (101, 'b', NULL)",
        "UPDATE src.main.t SET tenant = 'b' WHERE id = 8",
        "UPDATE src.main.t SET id = 900 WHERE id = 9",
    )
    assert outcomes(bed.changes(before)) == [Outcome.APPLIED] * 2
    for name in bed.destinations:
        assert bed.rows(name) == bed.expected(name)
    assert (8, "b", "v8") in bed.rows("b")


def test_a_second_delivery_writes_nothing(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("UPDATE src.main.t SET v = 'w' WHERE id < 4")
    again = bed.target("a", ItemKind.CHANGES, expected=before, after=before)
    assert outcomes(bed.run_targets(ItemKind.CHANGES, [again])) == [Outcome.APPLIED]
    commits = bed.commits("a")
    assert outcomes(bed.run_targets(ItemKind.CHANGES, [again])) == [Outcome.ALREADY_APPLIED]
    assert outcomes(bed.seed("a")) == [Outcome.ALREADY_APPLIED]
    assert bed.commits("a") == commits


def test_nothing_is_written_where_nothing_changed(bed: Bed) -> None:
    bed.seed()
    before, commits = bed.head, bed.commits("b")
    bed.sql("UPDATE src.main.t SET v = 'w' WHERE tenant = 'a'")
    answered = bed.changes(before, "b")
    assert outcomes(answered) == [Outcome.EMPTY]
    assert (answered[0].position, answered[0].through) == (before, bed.head)
    assert bed.commits("b") == commits


def test_an_item_of_an_older_life_is_fenced(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    late = bed.target("a", ItemKind.CHANGES, expected=before, after=before)
    bed.sql("UPDATE src.main.t SET v = 'w'")
    bed.add("a", generation=2)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    answered = bed.run_targets(ItemKind.CHANGES, [late])
    assert outcomes(answered) in ([Outcome.FENCED], [Outcome.EMPTY])
    assert bed.rows("a") == bed.expected("a")


def test_an_item_of_an_older_life_is_fenced_even_where_its_range_would_fit(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    late = bed.target("a", ItemKind.CHANGES, expected=seeded, after=seeded)
    bed.add("a", generation=2)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    bed.sql("UPDATE src.main.t SET v = 'w'")
    commits = bed.commits("a")
    answered = bed.run_targets(ItemKind.CHANGES, [late])
    assert (answered[0].outcome, answered[0].generation) == (Outcome.FENCED, 2)
    assert bed.commits("a") == commits


def test_null_is_a_key_like_any_other_and_equals_null(bed: Bed) -> None:
    bed.sql("INSERT INTO src.main.t VALUES (NULL, 'a', 'nothing'), (NULL, 'b', 'nothing')")
    bed.seed()
    before = bed.head
    bed.sql("UPDATE src.main.t SET v = 'something' WHERE id IS NULL AND tenant = 'a'",
            "DELETE FROM src.main.t WHERE id IS NULL AND tenant = 'b'")  # fmt: skip
    assert outcomes(bed.changes(before)) == [Outcome.APPLIED] * 2
    for name in bed.destinations:
        assert bed.rows(name) == bed.expected(name)


def test_a_reinserted_key_and_one_that_came_and_went_end_as_they_are(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql(
        "DELETE FROM src.main.t WHERE id = 2",
        "INSERT INTO src.main.t VALUES (2, 'a', 'again'), (50, 'a', 'short')",
        "UPDATE src.main.t SET v = v || '!' WHERE id IN (2, 50)",
        "DELETE FROM src.main.t WHERE id = 50",
    )
    assert outcomes(bed.changes(before, "a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


def test_changes_that_begin_elsewhere_are_a_gap_and_tell_the_position(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    bed.sql("UPDATE src.main.t SET v = 'w'", "UPDATE src.main.t SET v = 'x'")
    answered = bed.changes(seeded + 1, "a")
    assert (answered[0].outcome, answered[0].position) == (Outcome.GAP, seeded)


def test_a_cursor_that_is_gone_parks_its_destination_and_nothing_is_seeded_over_what_is_there(bed: Bed) -> None:
    bed.seed()
    seeded, rows = bed.head, bed.rows("a")
    bed.sql("UPDATE src.main.t SET v = 'w'")
    cursor = cursor_name("p", "a")
    bed.write("a", f'DROP TABLE dst._viaduck."{cursor}"')
    for kind in (ItemKind.CHANGES, ItemKind.ADVANCE):
        (gone,) = bed.run(kind, "a", expected=seeded, after=seeded)
        assert (gone.outcome, problem(gone)) == (Outcome.PARKED, "cursor_damaged")
    (again,) = bed.seed("a")
    assert (again.outcome, problem(again)) == (Outcome.PARKED, "table_not_empty")
    assert bed.rows("a") == rows


def test_an_advance_moves_the_position_and_no_row(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    head = bed.sql("CREATE TABLE src.main.other (x INTEGER)", "INSERT INTO src.main.other VALUES (1)")
    answered = bed.run(ItemKind.ADVANCE, "a", expected=seeded, after=head, through=head)
    assert (answered[0].outcome, answered[0].position) == (Outcome.APPLIED, head)
    assert bed.rows("a") == bed.expected("a")


def test_a_reseed_replaces_rows_and_columns(bed: Bed) -> None:
    bed.seed()
    bed.write("a", "DELETE FROM dst.main.t", "INSERT INTO dst.main.t VALUES (5, 'a', 'not ours')")
    bed.sql("ALTER TABLE src.main.t RENAME COLUMN v TO w")
    bed.add("a", generation=2, replace=True)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


def test_a_later_life_replaces_the_rows_of_the_one_before(bed: Bed) -> None:
    bed.seed()
    bed.sql("DELETE FROM src.main.t WHERE id < 4", "UPDATE src.main.t SET v = 'w'")
    bed.add("a", generation=2)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


@EVERY_CATALOG
def test_rows_of_others_are_refused_and_only_replaced_on_request(bed: Bed) -> None:
    bed.write("a", "CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
              "INSERT INTO dst.main.t VALUES (1, 'mine', 'precious')")  # fmt: skip
    refused = bed.seed("a", "b")
    assert (refused[0].outcome, problem(refused[0])) == (Outcome.PARKED, "table_not_empty")
    assert refused[1].outcome is Outcome.APPLIED
    assert bed.rows("a") == [(1, "mine", "precious")]
    bed.add("a", replace=True)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


def test_an_empty_table_of_the_same_columns_is_adopted(bed: Bed) -> None:
    bed.write("a", "CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


@pytest.mark.parametrize("columns", ["id BIGINT, tenant VARCHAR, v INTEGER", "id BIGINT, tenant VARCHAR, w VARCHAR",
                                     "tenant VARCHAR, id BIGINT, v VARCHAR", "id BIGINT, tenant VARCHAR",
                                     "id BIGINT, tenant VARCHAR, v VARCHAR, more INTEGER"])  # fmt: skip
def test_a_table_of_other_columns_parks_its_destination_alone(make_bed: MakeBed, columns: str) -> None:
    bed = make_bed()
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    bed.add("a")
    bed.add("b")
    bed.write("a", f"CREATE TABLE dst.main.t ({columns})")
    refused = bed.seed()
    assert (refused[0].outcome, problem(refused[0])) == (Outcome.PARKED, "table_mismatch")
    assert refused[1].outcome is Outcome.APPLIED


@EVERY_CATALOG
def test_an_added_column_arrives_with_the_next_changes_and_its_default_for_older_rows(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("ALTER TABLE src.main.t ADD COLUMN size INTEGER DEFAULT 7", "UPDATE src.main.t SET v = 'w' WHERE id < 2")
    assert outcomes(bed.changes(before)) == [Outcome.APPLIED] * 2
    for name in bed.destinations:
        assert bed.rows(name) == bed.expected(name)


def test_any_other_change_of_columns_parks_until_schema_evolution_is_there(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("ALTER TABLE src.main.t DROP COLUMN v", "UPDATE src.main.t SET tenant = 'b' WHERE id = 0")
    answered = bed.changes(before)
    assert [problem(each) for each in answered] == ["schema_change"] * 2


def test_a_key_that_names_two_rows_parks_that_tenant_and_shows_the_key(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("INSERT INTO src.main.t VALUES (4, 'a', 'second'), (5, 'b', 'fine?')",
            "DELETE FROM src.main.t WHERE id = 5", "INSERT INTO src.main.t VALUES (5, 'b', 'alone')")  # fmt: skip
    answered = bed.changes(before)
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "key_not_unique")
    assert answered[0].error is not None
    assert "(4)" in answered[0].error.message
    assert answered[1].outcome is Outcome.APPLIED


def test_a_second_row_for_a_key_is_noticed_even_where_the_range_only_inserted(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("INSERT INTO src.main.t VALUES (4, 'a', 'second'), (1000, 'b', 'fine')")
    answered = bed.changes(before)
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "key_not_unique")
    assert answered[1].outcome is Outcome.APPLIED


@EVERY_CATALOG
def test_history_that_was_expired_parks_with_the_oldest_snapshot(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    bed.sql("UPDATE src.main.t SET v = 'w'", "UPDATE src.main.t SET v = 'x'")
    bed.sql("CALL ducklake_expire_snapshots('src', older_than => now())")
    answered = bed.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "history_expired")
    bed.add("a", generation=2, replace=True)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


def test_a_table_that_was_dropped_and_created_again_parks(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    bed.sql("DROP TABLE src.main.t", "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
            "INSERT INTO src.main.t VALUES (1, 'a', 'another life')")  # fmt: skip
    answered = bed.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "source_recreated")
    assert problem(bed.run(ItemKind.PROBE, "b")[0]) == "source_recreated", "a quiet destination is found too"


def test_a_cursor_of_another_routing_value_parks(bed: Bed) -> None:
    bed.seed()
    seeded = bed.head
    bed.sql("UPDATE src.main.t SET v = 'w'")
    bed.add("a", routing_value="b")
    answered = bed.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "routing_value_changed")


def test_a_cursor_table_with_two_rows_parks(bed: Bed) -> None:
    bed.seed()
    table = bed.look("a", "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_viaduck'")[0][0]
    bed.write("a", f"INSERT INTO dst._viaduck.{table} SELECT * FROM dst._viaduck.{table}")
    assert problem(bed.run(ItemKind.PROBE, "a")[0]) == "cursor_damaged"


def test_a_transaction_past_its_deadline_is_rolled_back(make_bed: MakeBed) -> None:
    bed = make_bed(limits=Limits(deadline_s=0.0, seed_deadline_s=0.0))
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    bed.add("a")
    answered = bed.seed()
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.FAILED, "deadline_exceeded")
    assert bed.commits("a") == 0


def test_two_appliers_on_one_range_apply_it_once(bed: Bed) -> None:
    bed.seed()
    before, commits = bed.head, bed.commits("a")
    bed.sql("UPDATE src.main.t SET v = v || '+'")
    start = threading.Barrier(3, timeout=60)

    def rival(reading: tuple[Applier, Change]) -> Applied:
        applier, change = reading
        start.wait()
        return applier.apply(change)

    with ExitStack() as readings, ThreadPoolExecutor(3) as threads:
        ready = [readings.enter_context(_Reading(bed, "a", before)) for _ in range(3)]
        answered = list(threads.map(rival, ready))
    assert sorted(applied.outcome for applied in answered) == ["already_applied", "already_applied", "applied"]
    assert bed.commits("a") == commits + 1
    assert bed.rows("a") == bed.expected("a")


@EVERY_CATALOG
def test_a_lost_acknowledgement_is_resolved_by_the_token(bed: Bed) -> None:
    bed.seed()
    before, commits = bed.head, bed.commits("a")
    bed.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(bed, "a", before, lose="acknowledgement") as (applier, change):
        assert applier.apply(change).outcome is Outcome.APPLIED
    assert bed.commits("a") == commits + 1
    assert bed.rows("a") == bed.expected("a")


def test_a_commit_that_never_arrived_is_tried_again(bed: Bed) -> None:
    bed.seed()
    before, commits = bed.head, bed.commits("a")
    bed.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(bed, "a", before, lose="commit") as (applier, change):
        with pytest.raises(ViaduckError) as caught:
            applier.apply(change)
        assert caught.value.type == "commit_unknown"
    assert bed.commits("a") == commits
    assert outcomes(bed.changes(before, "a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


@EVERY_CATALOG
def test_a_destination_whose_committed_files_are_gone_is_found_damaged(bed: Bed) -> None:
    bed.seed()
    before = bed.head
    bed.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(bed, "a", before, lose="files") as (applier, change):
        with pytest.raises(ViaduckError) as caught:
            applier.apply(change)
        assert caught.value.type == "destination_damaged"
    # Whoever comes later, without knowing of the lost acknowledgement, finds it too.
    again = bed.changes(before, "a")
    assert (again[0].outcome, problem(again[0])) == (Outcome.PARKED, "destination_damaged")
    bed.add("a", generation=2, replace=True)
    assert outcomes(bed.seed("a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


@pytest.mark.parametrize("asked", ["a probe", "a gap", "changes that go on", "a seed"])
def test_damage_that_its_finder_did_not_live_to_tell_is_found_by_whoever_asks_next(bed: Bed, asked: str) -> None:
    """H7, and the applier dies before it has looked: the next answer must not bury the loss under a new position."""
    bed.seed()
    before = bed.head
    damaged = bed.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(bed, "a", before, lose="files") as (applier, change), pytest.raises(ViaduckError):
        applier.apply(change)
    bed.sql("UPDATE src.main.t SET v = 'x'")
    if asked == "a seed":
        bed.add("a", generation=2)
    answered = {
        "a probe": lambda: bed.run(ItemKind.PROBE, "a"),
        "a gap": lambda: bed.changes(before, "a"),
        "changes that go on": lambda: bed.changes(damaged, "a"),
        "a seed": lambda: bed.seed("a"),
    }[asked]()
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "destination_damaged")


class _Reading:
    """A range read for one destination, and an applier of its own that may lose what it sends or hears."""

    def __init__(self, bed: Bed, name: str, after: int, lose: str = "") -> None:
        self._bed, self._name, self._after, self._lose = bed, name, after, lose

    def __enter__(self) -> tuple[Applier, Change]:
        bed = self._bed
        folder = bed.folder / f"{self._name}-data"
        self._pool = _FlakyPool(self._lose, lambda: delete_all(folder))
        target = bed.target(self._name, ItemKind.CHANGES, expected=self._after, after=self._after)
        with self._pool.use(bed.source, read_only=True) as lake:
            reading = Feed(lake.cursor(), lake, SourceTable(bed.source, "main", "t", bed.routing)).read(
                ItemKind.CHANGES, [(0, target)]
            )
        applier = Applier(self._pool, Limits())
        return applier, Change(target, reading.through, reading.table, 0, reading, reading.counts[0])

    def __exit__(self, *_: object) -> None:
        self._pool.close()


def delete_all(folder: Path) -> None:
    for file in folder.rglob("*.parquet"):
        file.unlink()


class _FlakyPool(LakePool):
    """Whose lakes that are written to lose a COMMIT between them."""

    def __init__(self, lose: str, delete_files: Callable[[], None]) -> None:
        super().__init__(10)
        self._lose, self._delete_files = [lose] if lose else [], delete_files

    @contextmanager
    def use(
        self, lake: ResolvedLake, *, read_only: bool, create: bool = False, sure: bool = True
    ) -> Iterator[OpenLake]:
        with super().use(lake, read_only=read_only, create=create, sure=sure) as entry:
            con: object = entry.con
            if not read_only and not isinstance(con, _Flaky):
                entry.con = _Flaky(entry.con, self._lose, self._delete_files)  # type: ignore[assignment]
            yield entry


class _Flaky:
    """A DuckDB connection whose first COMMIT goes wrong the way a network makes it go wrong."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lose: list[str], delete_files: Callable[[], None]) -> None:
        self._con, self._lose, self._delete_files = con, lose, delete_files

    def cursor(self) -> _Flaky:
        return _Flaky(self._con.cursor(), self._lose, self._delete_files)

    def register(self, name: str, given: object) -> None:
        self._con.register(name, given)

    def unregister(self, name: str) -> None:
        self._con.unregister(name)

    def close(self) -> None:
        self._con.close()

    def execute(self, sql: str, *values: object) -> duckdb.DuckDBPyConnection:
        if sql != "COMMIT" or not self._lose:
            return self._con.execute(sql, *values)
        lost = self._lose.pop()
        self._con.execute("ROLLBACK" if lost == "commit" else "COMMIT")
        if lost == "files":
            self._delete_files()
        raise duckdb.IOException('Failed to execute query "COMMIT": server closed the connection unexpectedly')


def test_a_destination_that_stalls_does_not_hold_up_the_others(make_bed: MakeBed) -> None:
    bed = make_bed(limits=Limits(stall_s=4.0))
    bed.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    bed.add("a")
    with _Deaf() as port:
        bed.add(
            "deaf",
            lake=bed.lake("a").__class__(f"postgres:host=127.0.0.1 port={port} dbname=x user=x", None, "/nowhere"),
        )
        answered = bed.seed()
    assert answered[0].outcome is Outcome.APPLIED
    assert (answered[1].outcome, problem(answered[1])) == (Outcome.FAILED, "destination_unreachable")
    assert answered[1].error is not None
    assert "seed of p/deaf has been under way for 4 s" in answered[1].error.message
    assert "pg_locks" in answered[1].error.hint


def test_more_that_stall_than_a_worker_has_threads_hold_up_nobody(make_bed: MakeBed) -> None:
    bed = make_bed(limits=Limits(threads=2, stall_s=8.0))
    bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    with _Deaf() as port:
        for number in range(3):
            lake = ResolvedLake(f"postgres:host=127.0.0.1 port={port} dbname=x{number} user=x", None, "/nowhere")
            bed.add(f"deaf-{number}", lake=lake)
        for name in "abcde":
            bed.add(name)
        answered = bed.seed()
    assert outcomes(answered) == [Outcome.FAILED] * 3 + [Outcome.APPLIED] * 5


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_lock_on_one_catalog_is_told_and_holds_up_nobody_else(make_bed: MakeBed) -> None:
    """Not even the next task in the same process: DuckDB would not close what somebody still waits in."""
    bed = make_bed(limits=Limits(stall_s=6.0))
    bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    bed.add("locked")
    bed.add("other")
    bed.seed()
    first = bed.head
    bed.sql("INSERT INTO src.main.t VALUES (1, 'locked', 'x'), (2, 'other', 'x')")
    with psycopg.connect(bed.lake("locked").catalog.removeprefix("postgres:")) as con, con.transaction():
        con.execute("LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE")
        answered = bed.changes(first)
        assert (answered[0].outcome, problem(answered[0])) == (Outcome.FAILED, "destination_unreachable")
        assert answered[1].outcome is Outcome.APPLIED
        second = bed.head
        bed.sql("INSERT INTO src.main.t VALUES (3, 'other', 'x')")
        later: list[Progress] = []
        going_on = threading.Thread(target=lambda: later.extend(bed.changes(second, "other")))
        going_on.start()
        going_on.join(60.0)
        went_on = outcomes(later)
    going_on.join()
    assert went_on == [Outcome.APPLIED], "while the lock was held"
    assert bed.changes(first, "locked")[0].outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    for name in bed.destinations:
        assert bed.rows(name) == bed.expected(name)


def test_a_process_with_somebody_stuck_in_it_for_good_is_not_used_again(make_bed: MakeBed) -> None:
    """Spark ends a Python worker that leaves its input unread, and with it what nothing else can end."""
    eventually(lambda: not worker.has_stuck(0.0))  # of the tests before
    bed = make_bed()
    bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    bed.add("a")
    source = SourceTable(bed.source, "main", "t", bed.routing)
    read_to_the_end: list[str] = []

    def one_task(name: str, limits: Limits) -> Iterator[Task]:
        yield Task(ItemKind.SEED, source, (bed.target(name, ItemKind.SEED),), limits)
        read_to_the_end.append(name)

    with _Deaf() as port:
        words = f"postgres:host=127.0.0.1 port={port} dbname=x user=x connect_timeout=600"
        bed.add("deaf", lake=ResolvedLake(words, None, "/nowhere"))
        fine = run_tasks(one_task("a", bed.limits))
        ended = [*fine, *run_tasks(one_task("deaf", Limits(stall_s=2.0, deadline_s=1.0)))]
    assert outcomes([each.results[0].progress for each in ended]) == [Outcome.APPLIED, Outcome.FAILED]
    assert read_to_the_end == ["a"]


class _Deaf:
    """A server that accepts connections and never says a word."""

    def __enter__(self) -> int:
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        return int(self._socket.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.parametrize("kind", [ItemKind.PROBE, ItemKind.SEED, ItemKind.CHANGES])
@pytest.mark.parametrize("breaks", [False, True], ids=["goes", "breaks"])
def test_a_source_whose_catalog_goes_or_breaks_parks_nobody(
    bed: Bed, tmp_path: Path, kind: ItemKind, breaks: bool
) -> None:
    """It is tried again by itself: no destination is to blame, and nobody should have to resume a thousand of them."""
    catalog = tmp_path / "broken.sqlite"
    if breaks:
        catalog.write_bytes(b"no database" * 500)
    if kind is not ItemKind.SEED:
        bed.seed("a")
    source = SourceTable(ResolvedLake(f"sqlite:{catalog}"), "main", "t", bed.routing)
    expected = {} if kind is ItemKind.SEED else {"expected": bed.head, "after": bed.head}
    (result,) = run_task(Task(kind, source, (bed.target("a", kind, **expected),), bed.limits)).results
    assert (result.progress.outcome, problem(result.progress)) == (Outcome.FAILED, "source_unreachable")


@EVERY_CATALOG
def test_a_source_that_was_flushed_after_it_got_a_column_is_read_at_once(bed: Bed) -> None:
    """H12: the flush drops a table that the lake, attached since before, still means to read."""
    bed.seed()
    for statements in (
        ("INSERT INTO src.main.t VALUES (50, 'a', 'inlined')",),
        (
            "ALTER TABLE src.main.t ADD COLUMN extra INTEGER DEFAULT 5",
            "INSERT INTO src.main.t VALUES (51, 'a', 'x', 6)",
        ),
        ("CALL ducklake_flush_inlined_data('src')", "INSERT INTO src.main.t VALUES (52, 'a', 'y', 7)"),
    ):
        before = bed.head
        bed.sql(*statements)
        assert outcomes(bed.changes(before, "a")) == [Outcome.APPLIED]
    assert bed.rows("a") == bed.expected("a")


class TestAppendOnly:
    """A pipeline without key columns: every inserted row once, and nothing that maintenance shows."""

    @staticmethod
    def bed(make_bed: MakeBed, **routing: str) -> Bed:
        bed = make_bed(routing=Routing.model_validate({"field": "tenant", "key_columns": ()} | routing))
        bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
                "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(20) r(i)")  # fmt: skip
        bed.add("a")
        bed.seed()
        return bed

    def test_inserted_rows_are_appended_once_equal_ones_too(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("INSERT INTO src.main.t VALUES (1, 'a', 'v'), (1, 'a', 'v')")
        item = bed.target("a", ItemKind.CHANGES, expected=before, after=before, pinned=True)
        assert outcomes(bed.run_targets(ItemKind.CHANGES, [item])) == [Outcome.APPLIED]
        assert outcomes(bed.run_targets(ItemKind.CHANGES, [item])) == [Outcome.ALREADY_APPLIED]
        assert bed.rows("a") == bed.expected("a")

    @EVERY_CATALOG
    def test_compaction_appends_nothing(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("DELETE FROM src.main.t WHERE id < 15", "CALL ducklake_flush_inlined_data('src')",
                "CALL ducklake_rewrite_data_files('src', 't', delete_threshold => 0)",
                "INSERT INTO src.main.t VALUES (99, 'a', 'new')",
                "CALL ducklake_merge_adjacent_files('src', 't')")  # fmt: skip
        answered = bed.changes(before, "a", pinned=True)
        assert (answered[0].outcome, answered[0].inserted) == (Outcome.APPLIED, 1)

    def test_what_may_be_an_update_parks(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("UPDATE src.main.t SET v = 'w' WHERE id = 3")
        assert problem(bed.changes(before, "a", pinned=True)[0]) == "update_in_append_only"

    @pytest.mark.parametrize(
        "second", ["UPDATE src.main.t SET v = 'w' WHERE id = 50", "DELETE FROM src.main.t WHERE id = 50"]
    )
    def test_so_does_a_transaction_that_takes_back_what_it_inserted(self, make_bed: MakeBed, second: str) -> None:
        """DuckLake marks it as a plain insert, and its feed shows rows that nobody ever saw."""
        bed = self.bed(make_bed)
        bed.sql("CALL src.set_option('data_inlining_row_limit', 0)")
        before = bed.head
        bed.sql("BEGIN", "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(50, 55) r(i)", second, "COMMIT")
        assert problem(bed.changes(before, "a", pinned=True)[0]) == "update_in_append_only"

    @EVERY_CATALOG
    def test_flushed_rows_that_were_deleted_later_are_none_of_that(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(50, 55) r(i)",
                "DELETE FROM src.main.t WHERE id = 50", "CALL ducklake_flush_inlined_data('src')")  # fmt: skip
        assert bed.changes(before, "a", pinned=True)[0].inserted == 5

    def test_an_update_is_appended_on_request(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed, on_update="append")
        before = bed.head
        bed.sql("UPDATE src.main.t SET v = 'w' WHERE id = 3")
        assert bed.changes(before, "a", pinned=True)[0].inserted == 1
        assert (3, "a", "v") in bed.rows("a")
        assert (3, "a", "w") in bed.rows("a")

    def test_a_delete_is_ignored_or_parks(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("DELETE FROM src.main.t WHERE id = 3")
        assert outcomes(bed.changes(before, "a", pinned=True)) == [Outcome.EMPTY]
        bed.routing = bed.routing.model_copy(update={"on_delete": "park"})
        assert problem(bed.changes(before, "a", pinned=True)[0]) == "delete_in_append_only"

    def test_a_column_that_comes_later_shows_its_default_in_earlier_rows(self, make_bed: MakeBed) -> None:
        bed = self.bed(make_bed)
        before = bed.head
        bed.sql("INSERT INTO src.main.t VALUES (50, 'a', 'before')", "CALL ducklake_merge_adjacent_files('src', 't')",
                "ALTER TABLE src.main.t ADD COLUMN size INTEGER DEFAULT 7",
                "INSERT INTO src.main.t VALUES (51, 'a', 'after', 1)")  # fmt: skip
        assert outcomes(bed.changes(before, "a", pinned=True)) == [Outcome.APPLIED]
        assert bed.rows("a") == bed.expected("a")
