"""Direct commits under rivals, lost acknowledgements and crashes; and what they leave to DuckLake's extension."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.applier.apply.direct.commit import OPEN_TRIES
from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker import worker_state
from services.applier.worker.spark_task import count_known
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.contracts.upkeep import TableWear
from shared.lake.connection import postgres as postgres_connections
from shared.lake.connection.engine import read_whole, release
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.direct import catalogs
from shared.lake.direct.batch import CommitBatch
from shared.lake.direct.catalogs import PostgresCatalog, SqliteCatalog
from shared.lake.direct.lakes import DirectInstance, KeysInUse
from shared.lake.sql import ident
from tests.fast.waiting import eventually
from tests.lake.batches import before_commit, fill_the_disk, lose_acknowledgements
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig
from tests.lake.test_upkeep import stock as read_by_stock
from tests.lake.twins import MAINTENANCE

DIRECT = Limits(commit="direct")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A tenant of ten rows, seeded; its changes are committed directly or not at all."""
    made = make_rig(limits=DIRECT)
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(10) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def changed(rig: ApplyRig, *statements: str) -> Progress:
    before = rig.head
    rig.sql(*statements or ("UPDATE src.main.t SET v = v || '!' WHERE id < 3",))
    (progress,) = rig.changes(before, "a")
    return progress


def files(rig: ApplyRig) -> set[str]:
    return {str(path) for path in (rig.folder / "a-data").rglob("*.parquet")}


def orphans(rig: ApplyRig) -> list[tuple[Any, ...]]:
    return rig.look_writing("a", "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)")


def test_a_change_is_committed_directly_and_its_stamp_says_so(rig: ApplyRig) -> None:
    progress = changed(rig)
    assert (progress.outcome, progress.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert rig.rows("a") == rig.expected("a")
    (said,) = rig.look("a", "SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert '"commit": "direct"' in said[0]


def test_a_commit_tells_what_a_compaction_would_replace(rig: ApplyRig) -> None:
    told = [
        changed(rig).wear,  # three of the ten rows move to a file of their own
        changed(rig).wear,  # which ends, and so again
        changed(rig, "INSERT INTO src.main.t VALUES (100, 'a', 'new')").wear,
        changed(rig, "DELETE FROM src.main.t WHERE id = 9").wear,
    ]
    expected = [(1, 10, 3), (1, 10, 3), (3, 11, 3), (3, 10, 4)]
    assert [each and (each.files, each.rows, each.dead_rows) for each in told] == expected
    rig.run(ItemKind.UPKEEP, "a", expected=rig.head, after=rig.head, through=rig.head)
    assert changed(rig, "INSERT INTO src.main.t VALUES (101, 'a', 'new')").wear == TableWear(
        files=2, rows=11, dead_rows=0
    ), "what upkeep merged, and the commit's own file"


def test_a_worker_prefers_destinations_to_which_it_has_committed_directly(rig: ApplyRig) -> None:
    """It remembers their files, and has attached none of their lakes."""
    worker_state.forget()
    before = rig.target("a", ItemKind.PROBE)
    rig.sql("UPDATE src.main.t SET v = v || '!'")
    task = Task(ItemKind.CHANGES, SourceTable(rig.source, "main", "t", rig.routing), (before,), rig.limits)
    assert count_known(task) == 0
    rig.changes(before.item.through, "a")
    assert not worker_state.worker(rig.limits).pool.has_open(rig.lake("a"))
    assert count_known(task) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make_lake", ["postgres", "postgres-schema"], indirect=True)
def test_a_process_that_freezes_within_its_batch_holds_a_tenant_no_longer_than_a_batch_may_last(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server waits for the rest of the batch: it is neither idle in transaction nor within a statement."""
    monkeypatch.setattr(postgres_connections, "BATCH_S", 3)
    monkeypatch.setattr(postgres_connections, "COMMIT_STATEMENT_S", 2)
    worker_state.forget()
    lake = rig.lake("a")
    with closing(PostgresConnections(1)) as connections, connections.use(lake.conninfo) as frozen:
        snapshot = rig.look("a", "FROM ducklake_current_snapshot('dst')")[0][0] + 1
        frozen.pgconn.enter_pipeline_mode()
        claim = f"INSERT INTO {ident(lake.schema)}.ducklake_snapshot (snapshot_id) VALUES ($1)"
        frozen.pgconn.send_query_params(claim.encode(), [str(snapshot).encode()])
        frozen.pgconn.send_flush_request()
        frozen.pgconn.flush()
        eventually(lambda: claims(frozen, lake) == 1)
        before = rig.head
        rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
        outcomes = [rig.changes(before, "a")[0].outcome for _ in range(2)]
        assert Outcome.APPLIED in outcomes
        frozen.close()
    assert rig.rows("a") == rig.expected("a")


def claims(frozen: psycopg.Connection[Any], lake: ResolvedLake) -> int:
    """How many transactions of a connection have written."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND backend_xid IS NOT NULL"
    with psycopg.connect(lake.conninfo) as con:
        return int(con.execute(sql, [frozen.pgconn.backend_pid]).fetchall()[0][0])


def test_an_advance_moves_the_cursor_alone(rig: ApplyRig) -> None:
    before = rig.head
    rig.sql("INSERT INTO src.main.t VALUES (100, 'other', 'v')")
    (progress,) = rig.run(ItemKind.ADVANCE, "a", expected=before, after=rig.head)
    assert (progress.outcome, progress.commit, progress.position) == (Outcome.APPLIED, CommitPath.DIRECT, rig.head)
    assert rig.rows("a") == rig.expected("a")


def probed(rig: ApplyRig, **item: Any) -> tuple[Progress, bool]:
    """The answer to a probe by a worker that has nothing open, and whether it attached the lake for it."""
    worker_state.forget()
    (answer,) = rig.run(ItemKind.PROBE, "a", through=0, **item)
    return answer, worker_state.worker(rig.limits).pool.has_open(rig.lake("a"))


def test_a_probe_attaches_a_postgres_lake_only_where_the_extension_committed_last(rig: ApplyRig) -> None:
    """Files of its commits can be lost (H7), so they are looked at before a position is told."""
    on_file = rig.lake("a").sqlite_file is not None
    seeded, attached = probed(rig)
    assert (seeded.outcome, seeded.position, attached) == (Outcome.ALREADY_APPLIED, rig.head, on_file)
    direct, rig.limits = rig.limits, replace(rig.limits, commit="extension")
    assert changed(rig).commit is CommitPath.EXTENSION
    rig.limits = direct
    assert probed(rig)[1], "by the extension"
    changed(rig)
    moved, attached = probed(rig)
    assert (moved.outcome, moved.position, attached) == (Outcome.ALREADY_APPLIED, rig.head, on_file)
    assert moved.rows_applied == 16
    later, attached = probed(rig, generation=2)
    assert (later.outcome, later.generation, attached) == (Outcome.FENCED, 1, on_file)
    rig.sql("DROP TABLE src.main.t", "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    other, attached = probed(rig)
    assert (other.outcome, other.error and other.error.type) == (Outcome.PARKED, "source_recreated")


def test_a_range_that_begins_before_the_position_is_a_gap_however_the_cursor_is_read(rig: ApplyRig) -> None:
    """It was taken for applied, up to the position: a repeated look at the cursor answered as if it was a probe."""
    before = rig.head
    changed(rig)
    position = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '?' WHERE id > 5")
    target = replace(rig.target("a", ItemKind.CHANGES, expected=before, after=before), looks_first=True)
    (answer,) = rig.run_targets(ItemKind.CHANGES, [target])
    assert (answer.outcome, answer.position) == (Outcome.GAP, position)
    (again,) = rig.changes(position, "a")
    assert again.outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


def test_keys_with_a_nul_or_a_word_in_braces_are_values(make_rig: MakeRig) -> None:
    rig = make_rig(limits=DIRECT)
    rig.sql(
        "CREATE TABLE src.main.t (id VARCHAR, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT 'k' || chr(0) || i, 'a', 'v' FROM range(10) r(i)",
        "INSERT INTO src.main.t VALUES ('quo''te', 'a', 'v'), ('$$--;', 'a', 'v'), ('brace {} }', 'a', 'v')",
    )
    rig.add("a")
    rig.seed()
    read_whole(rig.con)  # the source's owner meets H16, too
    progress = changed(
        rig, "UPDATE src.main.t SET v = id || '!' WHERE v = 'v'", "DELETE FROM src.main.t WHERE id = 'k' || chr(0) || 3"
    )
    assert progress.commit is CommitPath.DIRECT, progress.error
    assert rig.rows("a") == rig.expected("a")
    assert len(rig.rows("a")) == 12


def test_a_rivals_commit_makes_the_batch_fail_as_a_whole_and_is_not_lost(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = "CREATE TABLE dst.main.rival (i INTEGER)"
    before_commit(monkeypatch, lambda: rig.write("a", rival, "INSERT INTO dst.main.rival VALUES (1)"))
    assert changed(rig).commit is CommitPath.DIRECT
    assert rig.rows("a") == rig.expected("a")
    assert rig.look("a", "SELECT * FROM dst.main.rival") == [(1,)]
    assert orphans(rig) == []


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_batch_that_the_catalogs_file_could_not_take_is_told_and_leaves_no_file(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = rig.head
    with monkeypatch.context() as patched:
        fill_the_disk(patched)
        progress = changed(rig)
    assert (progress.outcome, progress.error and progress.error.type) == (Outcome.FAILED, "storage_failed")
    assert orphans(rig) == []
    (again,) = rig.changes(position, "a")
    assert again.commit is CommitPath.DIRECT
    assert rig.rows("a") == rig.expected("a")


def test_a_connection_on_which_batches_failed_one_after_the_other_is_as_good_as_before(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client prepares in a batch that fails is not there, and the client believes it is."""
    rig.write("a", "CREATE TABLE dst.main.rival (i INTEGER)")
    for _ in range(4):
        with monkeypatch.context() as patched:
            before_commit(patched, lambda: rig.write("a", "INSERT INTO dst.main.rival VALUES (1)"), OPEN_TRIES)
            done = changed(rig)
        assert (done.outcome, done.commit) == (Outcome.APPLIED, CommitPath.DIRECT), done.error
    assert rig.rows("a") == rig.expected("a")


def test_a_commit_that_was_frozen_past_the_expiry_of_its_rivals_is_refused(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: nothing of the rivals is left to conflict with, but the newest snapshot is another one."""
    before = rig.head

    def rivals() -> None:
        (progress,) = rig.changes(before, "a")
        assert progress.outcome is Outcome.APPLIED
        rig.write(
            "a",
            "CREATE TABLE dst.main.later (i INTEGER)",
            "CALL ducklake_expire_snapshots('dst', older_than => now() + INTERVAL 1 HOUR)",
        )

    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    before_commit(monkeypatch, rivals)
    (progress,) = rig.changes(before, "a")
    assert progress.outcome is Outcome.ALREADY_APPLIED
    assert rig.rows("a") == rig.expected("a")
    cursor = "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_viaduck'"
    ((name,),) = rig.look("a", cursor)
    assert rig.look("a", f"SELECT count(*) FROM dst._viaduck.{name}") == [(1,)]


def test_an_advance_that_was_frozen_past_the_expiry_of_others_commits_comes_after_them(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes no file, so nothing but the condition stands between it and a number below the newest snapshot."""

    def others() -> None:
        rig.write(
            "a",
            "CREATE TABLE dst.main.other (i INTEGER)",
            "DROP TABLE dst.main.other",
            "CALL ducklake_expire_snapshots('dst', older_than => now() + INTERVAL 1 HOUR)",
        )

    before = rig.head
    rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    before_commit(monkeypatch, others)
    (progress,) = rig.run(ItemKind.ADVANCE, "a", expected=before, after=before)
    assert (progress.outcome, progress.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    ((newest,),) = rig.look("a", "SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert '"kind": "advance"' in newest


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_lost_acknowledgement_is_found_by_its_token_and_no_file_is_lost(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: the extension would delete the files that it has just committed."""
    lose_acknowledgements(monkeypatch)
    assert (done := changed(rig)).commit is CommitPath.DIRECT, done.error
    assert rig.rows("a") == rig.expected("a")
    assert rig.commits("a") == 2


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_connection_that_the_server_ended_while_it_was_idle_is_replaced(rig: ApplyRig) -> None:
    """As each is when Postgres restarts: no change fails for it."""
    assert changed(rig).commit is CommitPath.DIRECT
    end_connections(rig.lake("a"))
    again = changed(rig)
    assert (again.outcome, again.commit) == (Outcome.APPLIED, CommitPath.DIRECT), again.error
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
@EITHER_PATH
def test_a_source_whose_connections_the_server_ended_while_they_were_idle_is_opened_again(rig: ApplyRig) -> None:
    """Each process of Spark's that has it open would else fail once, and after each failure the next is waited for
    longer: a change came a minute after a restart of Postgres."""
    rig.seed("a")
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    expected = rig.expected("a")
    end_connections(rig.source)
    (progress,) = rig.changes(before, "a")
    assert progress.outcome is Outcome.APPLIED, progress.error
    assert rig.rows("a") == expected


def end_connections(lake: ResolvedLake) -> None:
    """As a server that restarts ends them."""
    with psycopg.connect(lake.conninfo, autocommit=True) as con:
        others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
        con.execute(f"{others} AND pid <> pg_backend_pid() AND backend_type = 'client backend'")


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_batch_that_may_still_come_keeps_its_files_and_comes_once(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token is not there, nor a later snapshot: it is tried again, and then the first one is refused."""
    late: list[CommitBatch] = []
    real = PostgresCatalog.commit

    def cut(catalog: PostgresCatalog, commit: CommitBatch) -> None:
        late.append(commit)
        raise psycopg.OperationalError("connection timed out")

    monkeypatch.setattr(PostgresCatalog, "commit", cut)
    before, known = rig.head, files(rig)
    failed = changed(rig)
    assert failed.error is not None
    assert failed.error.type == "commit_unknown"
    assert len(files(rig) - known) == 2
    monkeypatch.setattr(PostgresCatalog, "commit", real)
    (again,) = rig.changes(before, "a")
    assert (again.outcome, again.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    with psycopg.connect(rig.lake("a").conninfo, autocommit=True) as con, pytest.raises(catalogs.RivalCommitted):
        real(PostgresCatalog(con, "public"), late[0])
    assert rig.rows("a") == rig.expected("a")


def test_a_crash_before_the_batch_leaves_orphans_that_the_owner_finds(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise SystemExit

    before, known = rig.head, files(rig)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresCatalog, "commit", crash)
        patched.setattr(SqliteCatalog, "commit", crash)
        with pytest.raises(SystemExit):
            changed(rig)
    left = files(rig) - known
    (again,) = rig.changes(before, "a")
    assert again.commit is CommitPath.DIRECT
    assert rig.rows("a") == rig.expected("a")
    assert {Path(path).name for (path,) in orphans(rig)} == {Path(path).name for path in left}


def test_two_writers_of_one_range_apply_it_once(rig: ApplyRig) -> None:
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    done: list[Progress] = []
    target = rig.target("a", ItemKind.CHANGES, expected=before, after=before)
    threads = [
        threading.Thread(target=lambda: done.extend(rig.run_targets(ItemKind.CHANGES, [target]))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.outcome for each in done) == [Outcome.ALREADY_APPLIED, Outcome.ALREADY_APPLIED, Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")
    assert rig.commits("a") == 2


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ("ALTER TABLE dst.main.t SET PARTITIONED BY (v)", "partitioned"),
        ("ALTER TABLE dst.main.t SET SORTED BY (v ASC)", "sorted"),
        ("CALL dst.set_option('parquet_compression', 'zstd')", "option"),
        ("CALL ducklake_flush_inlined_data('dst')", "cursor_in_file"),
    ],
)
def test_what_is_not_written_directly_is_the_extensions(rig: ApplyRig, shape: str, reason: str) -> None:
    rig.write("a", shape)
    refused = changed(rig)
    assert refused.error is not None
    assert refused.error.type == "not_direct"
    assert reason in refused.error.message
    before = int(refused.through or 0) if refused.through else rig.head - 1
    rig.limits = Limits(commit="auto")
    (done,) = rig.changes(before, "a")
    assert (done.commit, done.commit_reason) == (CommitPath.EXTENSION, reason), done.error
    assert rig.rows("a") == rig.expected("a")


def test_a_column_that_allows_no_null_is_written_directly_until_a_row_has_one(rig: ApplyRig) -> None:
    """It was the lake's owner who said so: the source allows it."""
    rig.limits = replace(rig.limits, commit="auto")
    rig.write("a", "ALTER TABLE dst.main.t ALTER COLUMN v SET NOT NULL")
    assert changed(rig, "UPDATE src.main.t SET v = 'x' WHERE id < 3").commit is CommitPath.DIRECT
    lacking = changed(rig, "UPDATE src.main.t SET v = NULL WHERE id = 4")
    assert (lacking.commit, lacking.commit_reason) == (CommitPath.EXTENSION, "not_null"), lacking.error
    assert changed(rig, "UPDATE src.main.t SET v = NULL WHERE id = 5").commit is CommitPath.DIRECT
    assert rig.rows("a") == rig.expected("a")


def test_of_a_hundred_commits_under_an_owners_maintenance_one_is_the_extensions(rig: ApplyRig) -> None:
    """The first after a flush, which brings the cursor's row to a file."""
    rig.limits = replace(rig.limits, commit="auto")
    paths = Counter[tuple[CommitPath | None, str | None]]()
    for number in range(20 * len(MAINTENANCE)):
        if number % 20 == 10:
            rig.write("a", MAINTENANCE[number // 20])
        progress = changed(
            rig,
            (
                f"UPDATE src.main.t SET v = v || '!' WHERE id % 4 = {number % 4}",
                f"INSERT INTO src.main.t SELECT {1_000 + number} + i, 'a', 'new' FROM range(2) r(i)",
                f"DELETE FROM src.main.t WHERE id = {1_000 + number - 1}",
            )[number % 3],
        )
        assert progress.outcome is Outcome.APPLIED, progress.error
        paths[progress.commit, progress.commit_reason] += 1
    assert paths == {(CommitPath.DIRECT, None): paths.total() - 1, (CommitPath.EXTENSION, "cursor_in_file"): 1}
    assert rig.rows("a") == rig.expected("a")


def test_after_the_extension_widened_a_column_commits_are_direct_again(make_rig: MakeRig) -> None:
    rig = make_rig(limits=DIRECT)
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, w INTEGER)", "INSERT INTO src.main.t VALUES (1, 'a', 1)"
    )
    rig.add("a")
    rig.seed()
    assert changed(rig, "UPDATE src.main.t SET w = 2").commit is CommitPath.DIRECT
    wide = changed(rig, "ALTER TABLE src.main.t ALTER w SET DATA TYPE BIGINT", "UPDATE src.main.t SET w = 5000000000")
    assert (wide.commit, wide.commit_reason) == (CommitPath.EXTENSION, "schema_change"), wide.error
    assert changed(rig, "UPDATE src.main.t SET w = 2").commit is CommitPath.DIRECT
    assert rig.rows("a") == rig.expected("a")


def test_a_catalog_of_another_version_is_left_to_the_extension(rig: ApplyRig) -> None:
    rig.write("a", "UPDATE __ducklake_metadata_dst.ducklake_metadata SET value = '1.1' WHERE key = 'version'")
    refused = changed(rig)
    assert refused.error is not None
    assert "catalog_version" in refused.error.message


def test_files_elsewhere_are_not_read(rig: ApplyRig) -> None:
    rig.write("a", "UPDATE __ducklake_metadata_dst.ducklake_data_file SET path = '../../b-data/x.parquet'")
    refused = changed(rig)
    assert refused.error is not None
    assert refused.error.type in ("not_direct", "foreign_files")


def test_a_restored_lake_with_the_same_schema_version_is_looked_at_anew(rig: ApplyRig) -> None:
    """H20: what a worker remembers of a table is known by its columns, not only by a number.

    The extension then commits where the lake is attached since before; on Postgres it has looked anew, for the limits
    that the seed wrote, and refuses the table.
    """
    assert changed(rig).commit is CommitPath.DIRECT
    rig.write("a", "UPDATE __ducklake_metadata_dst.ducklake_column SET column_name = 'w' WHERE column_name = 'v'")
    progress = changed(rig)
    if rig.lake("a").sqlite_file is not None:
        assert (progress.commit, progress.commit_reason) == (CommitPath.EXTENSION, "schema_change")
    else:
        assert (progress.outcome, progress.error and progress.error.type) == (Outcome.PARKED, "table_mismatch")


def test_two_lakes_never_have_keys_for_the_same_files_at_once() -> None:
    """An instance would use either's: that of the longer path, or any of two for the same."""
    old, new = (ResolvedLake("sqlite:x", None, "s3://bucket/a/", {"s3.access-key-id": key}) for key in ("OLD", "NEW"))
    instance = DirectInstance(None, 10)
    try:
        with instance.keys(old, "s3://bucket/a/"), pytest.raises(KeysInUse), instance.keys(new, "s3://bucket/a/sub/"):
            pass
        with instance.keys(new, "s3://bucket/a/sub/"), instance.keys(new, "s3://bucket/other/"):
            scopes = instance.con.execute("SELECT unnest(scope) FROM duckdb_secrets() ORDER BY 1").fetchall()
        assert scopes == [("s3://bucket/a/sub/",), ("s3://bucket/other/",)]
    finally:
        release(instance.con)


UNUSUAL_BOUNDS = {
    "nothing but NULL, then values": ("INTEGER", ("NULL",), ("5",), ("3",)),
    "infinite moments": ("TIMESTAMP", ("'-infinity'", "'infinity'"), ("'2024-02-29'",), ("'2024-03-01'",)),
    "years before Christ": ("DATE", ("'0044-03-15 (BC)'", "'12024-01-01'"), ("'2024-02-29'",), ("'2024-03-01'",)),
    "NaN beside numbers": ("DOUBLE", ("1", "2"), ("'nan'",), ("7",)),
    "texts with a NUL": ("VARCHAR", ("'b'", "'y'"), ("'a' || chr(0)", "'z' || chr(0)"), ("'m'",)),
    "nothing but a text with a NUL": ("VARCHAR", ("'z' || chr(0)",), ("'m'",), ("'n'",)),
}


@pytest.mark.parametrize("shape", UNUSUAL_BOUNDS)
def test_no_filter_loses_a_row_once_the_extension_has_gone_on(make_rig: MakeRig, shape: str) -> None:
    """Absent bounds say to the extension that a column had no value so far (H24). The owner's goes on first: before a
    commit of ours by it, bounds that are absent are looked for."""
    declared, seeded, came, late = UNUSUAL_BOUNDS[shape]
    rig = make_rig(limits=DIRECT)
    rig.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v {declared})")
    rig.sql(f"INSERT INTO src.main.t VALUES {rows_of(0, seeded)}")
    rig.add("a")
    rig.seed()
    assert changed(rig, f"INSERT INTO src.main.t VALUES {rows_of(10, came)}").commit is CommitPath.DIRECT
    rig.write("a", f"INSERT INTO dst.main.t VALUES {rows_of(30, late)}")
    rig.limits = Limits(commit="extension")
    assert changed(rig, f"INSERT INTO src.main.t VALUES {rows_of(20, late)}").commit is CommitPath.EXTENSION
    values = [value for value in (*seeded, *came, *late) if value != "NULL" and "chr(0)" not in value]
    asked = [f"SELECT count(*) FROM dst.main.t WHERE v = CAST({value} AS {declared})" for value in values]
    wanted = [2 if value in late else 1 for value in values]
    assert [count for ((count,),) in read_by_stock(rig, asked)] == wanted
    if "chr(0)" in repr(came):
        assert read_by_stock(rig, ["SELECT count(*) FROM dst.main.t WHERE v > 'y'"]) == [[[1]]]


def rows_of(first: int, values: tuple[str, ...]) -> str:
    return ", ".join(f"({first + number}, 'a', {value})" for number, value in enumerate(values))


def test_a_catalog_that_was_migrated_is_parked_with_its_version(make_rig: MakeRig) -> None:
    """The extension refuses it as well, so nothing is written by guess."""
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a')")
    rig.add("a")
    rig.seed()
    migrated = "UPDATE __ducklake_metadata_dst.ducklake_metadata SET value = '{}' WHERE key = 'version'"
    rig.write("a", migrated.format("1.1"))
    worker_state.forget()
    refused = changed(rig, "INSERT INTO src.main.t VALUES (2, 'a')")
    assert (refused.outcome, refused.commit) == (Outcome.PARKED, None)
    assert refused.error is not None
    assert refused.error.type == "lake_incompatible"
    assert "catalog version is 1.1" in refused.error.message
