"""Expiry, clean-up and orphans: what goes, what never does, and what a transaction from before it is refused for."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest

from services.applier.apply.maintenance import content, fenced_expiry
from services.applier.model.task import Target, UpkeepTask
from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, compare_all
from shared.config.upkeep_rules import Policy
from shared.contracts.layout import TableLayout
from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode
from shared.contracts.upkeep import StepOutcome, StepResult, UpkeepOrder, UpkeepStep
from shared.lake.catalog.reader import CatalogReader, Head
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect, release
from shared.lake.cursor import cursor_name
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, MakeLake
from tests.lake.test_upkeep import stock
from tests.servers.s3 import S3

APPLIES = 6
DAYS = 40
POLICY = Policy(clean_after_s=86_400.0, expire_after_s=30 * 86_400.0, keep_snapshots=1, orphans_after_s=86_400.0)
METADATA = "__ducklake_metadata_dst"


def seeded(make_rig: MakeRig) -> ApplyRig:
    """One tenant with 200 rows."""
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(200) r(i)",
    )
    made.add("a")
    made.seed()
    return made


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """One tenant with some applies, all of its snapshots 40 days old but the newest."""
    made = seeded(make_rig)
    change(made, APPLIES)
    age_snapshots(made)
    return made


def change(rig: ApplyRig, times: int, name: str = "a") -> None:
    for number in range(times):
        position = rig.head
        rig.sql(f"UPDATE src.main.t SET v = v + {number + 1} WHERE id >= {number * 10} AND id <= {number * 10 + 10}")
        rig.changes(position, name)


def older(days: int) -> str:
    return f"CAST(now() - INTERVAL '{days} days' AS VARCHAR)"


def age_snapshots(rig: ApplyRig, name: str = "a", *, keep: int = 0) -> None:
    """Make all snapshots but the ``keep`` newest 40 days older than they are."""
    newest = rig.commits(name) - keep
    cast = older(DAYS) if rig.lake(name).sqlite_file is not None else f"{older(DAYS)}::TIMESTAMPTZ"
    rig.write(name, f"UPDATE {METADATA}.ducklake_snapshot SET snapshot_time = {cast} WHERE snapshot_id <= {newest}")


def age_waiting(rig: ApplyRig, days: int = DAYS) -> None:
    cast = older(days) if rig.lake("a").sqlite_file is not None else f"{older(days)}::TIMESTAMPTZ"
    rig.write("a", f"UPDATE {METADATA}.ducklake_files_scheduled_for_deletion SET schedule_start = {cast}")


def ordered(rig: ApplyRig, task: UpkeepTask, name: str = "a") -> Target:
    order = UpkeepOrder(steps=task.steps, dry_run=task.dry_run)
    return replace(rig.target(name, ItemKind.UPKEEP, through=0, upkeep=order), upkeep=task)


def run(rig: ApplyRig, *steps: UpkeepStep, policy: Policy = POLICY, **task: Any) -> tuple[Progress, list[StepResult]]:
    made = UpkeepTask(steps=steps, policy=policy, ours=frozenset({("main", "t")}), **task)
    (answer,) = rig.run_targets(ItemKind.UPKEEP, [ordered(rig, made)])
    return answer, [] if answer.upkeep is None else list(answer.upkeep.steps)


def snapshots(rig: ApplyRig, name: str = "a") -> list[int]:
    found = rig.look(name, f"SELECT snapshot_id FROM {METADATA}.ducklake_snapshot ORDER BY snapshot_id")
    return [int(number) for (number,) in found]


def files(rig: ApplyRig) -> set[Path]:
    return set((rig.folder / "a-data").rglob("*.parquet"))


def test_expiry_takes_old_snapshots_and_leaves_the_newest_stamp_and_the_head(rig: ApplyRig) -> None:
    before = snapshots(rig)
    answer, (step,) = run(rig, UpkeepStep.EXPIRE)
    left = snapshots(rig)
    assert answer.outcome is Outcome.ALREADY_APPLIED
    assert (step.outcome, step.snapshots_expired, step.left) == (StepOutcome.DONE, len(before) - 1, 0)
    assert left == [before[-1], before[-1] + 1], "the newest apply, and the expiry itself"
    assert answer.upkeep is not None
    assert (answer.upkeep.before.snapshots, answer.upkeep.after.snapshots) == (len(before), 2)  # type: ignore[union-attr]
    assert rig.rows("a") == rig.expected("a")
    change(rig, 1)
    assert rig.rows("a") == rig.expected("a"), "and applies go on"


def test_expiry_carries_a_stamp_at_the_position_and_the_cursor_stays_where_it_was(rig: ApplyRig) -> None:
    run(rig, UpkeepStep.EXPIRE)
    (said,) = rig.look("a", "SELECT commit_extra_info FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")[0]
    assert f'"kind": "maintenance", "generation": 1, "after": {rig.head}, "through": {rig.head}' in said
    (probe,) = rig.run(ItemKind.PROBE, "a", expected=-1, after=-1)
    assert (probe.outcome, probe.position) == (Outcome.ALREADY_APPLIED, rig.head)


def test_what_is_younger_than_ten_deadlines_stays_whatever_the_policy_says(rig: ApplyRig) -> None:
    age_s = 3_600.0 * 9.9
    lowered = replace(POLICY, expire_after_s=1.0, clean_after_s=1.0, orphans_after_s=1.0)
    cast = f"CAST(now() - INTERVAL '{int(age_s)} seconds' AS VARCHAR)"
    cast = cast if rig.lake("a").sqlite_file is not None else f"{cast}::TIMESTAMPTZ"
    rig.write("a", f"UPDATE {METADATA}.ducklake_snapshot SET snapshot_time = {cast} WHERE snapshot_id > 3")
    before = snapshots(rig)
    run(rig, UpkeepStep.EXPIRE, policy=lowered)
    assert [each for each in before if each > 3] == [each for each in snapshots(rig) if each <= before[-1]]


def test_the_newest_snapshots_that_are_to_be_kept_are(rig: ApplyRig) -> None:
    before = snapshots(rig)
    run(rig, UpkeepStep.EXPIRE, policy=replace(POLICY, keep_snapshots=4))
    assert snapshots(rig) == [*before[-4:], before[-1] + 1]


def test_no_more_snapshots_go_than_one_run_may_take_the_oldest_first(rig: ApplyRig) -> None:
    before = snapshots(rig)
    _, (step,) = run(rig, UpkeepStep.EXPIRE, policy=replace(POLICY, most_snapshots=3))
    assert (step.snapshots_expired, step.left) == (3, len(before) - 4)
    assert snapshots(rig)[0] == before[3]


def test_the_stamps_of_other_destinations_and_of_drops_in_the_lake_stay(make_rig: MakeRig) -> None:
    """A drop's stamp fences the items of the life that it ended; a quiet neighbour's newest is its proof."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, chr(CAST(97 + i % 3 AS INTEGER)), 0 FROM range(60) r(i)",
    )
    rig.add("a")
    for name in ("b", "c"):
        rig.add(name, lake=rig.lake("a"), table=f"t_{name}")
    rig.seed()
    rig.add("c", generation=2, drop=True)
    rig.run(ItemKind.DROP, "c", generation=2)
    kept = [rig.commits("a")]
    change(rig, 3)
    kept.append(rig.commits("a"))
    stamped = rig.look("a", "SELECT snapshot_id, commit_extra_info FROM dst.snapshots() WHERE author = 'viaduck'")
    neighbours = [number for number, said in stamped if '"destination": "b"' in said]
    age_snapshots(rig)
    ours = frozenset({("main", "t"), ("main", "t_b")})
    made = UpkeepTask(steps=(UpkeepStep.EXPIRE,), policy=POLICY, ours=ours)
    (answer,) = rig.run_targets(ItemKind.UPKEEP, [ordered(rig, made)])
    assert answer.upkeep is not None
    assert answer.upkeep.steps[0].outcome is StepOutcome.DONE
    assert {*kept, neighbours[-1]} <= set(snapshots(rig))
    (fenced,) = rig.run(ItemKind.SEED, "c", generation=1)
    assert fenced.outcome is Outcome.FENCED


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expiry takes the newest stamps, too, by which DuckLake would find the conflict."""
    monkeypatch.setattr("shared.lake.upkeep.facts.kept_stamps", lambda *_, **__: frozenset())
    monkeypatch.setattr("services.applier.apply.maintenance.content.require_unchanged", lambda *_: None)


@pytest.mark.usefixtures("nothing_kept")
def test_a_transaction_from_before_an_expiry_is_refused(rig: ApplyRig) -> None:
    """H6: DuckLake finds conflicts by snapshots that expiry removes. The write to the cursor stays."""
    with held_open(rig, "a", "t") as (zombie, cursor):
        change(rig, 2)
        expire_all(rig)
        with pytest.raises(duckdb.Error):
            zombie.execute("COMMIT")
    assert rig.rows("a") == rig.expected("a")
    assert len(rig.look("a", f"SELECT 1 FROM {cursor}")) == 1


@pytest.mark.usefixtures("nothing_kept")
def test_a_transaction_of_a_neighbour_from_before_an_expiry_is_refused_too(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, chr(CAST(97 + i % 2 AS INTEGER)), 0 FROM range(60) r(i)",
    )
    rig.add("a")
    rig.add("b", lake=rig.lake("a"), table="t_b")
    rig.seed()
    with held_open(rig, "b", "t_b") as (zombie, _):
        position = rig.head
        rig.sql("UPDATE src.main.t SET v = 9")
        rig.changes(position)
        expire_all(rig)
        with pytest.raises(duckdb.Error):
            zombie.execute("COMMIT")
    assert {v for (v,) in rig.look("a", "SELECT v FROM dst.main.t_b")} == {9}


@contextmanager
def held_open(rig: ApplyRig, name: str, table: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """A transaction that has set the cursor and inserted a row, and the path of the cursor."""
    zombie, cursor = connect(), f"dst._viaduck.{cursor_name('p', name)}"
    attach(zombie, "dst", rig.lake(name), read_only=False)
    zombie.execute("BEGIN")
    moved = zombie.execute(f"UPDATE {cursor} SET position = position + 1000 WHERE position = {rig.head}").fetchall()
    assert moved == [(1,)]
    zombie.execute(f"INSERT INTO dst.main.{table} SELECT * REPLACE (-1 AS id) FROM dst.main.{table} LIMIT 1")
    try:
        yield zombie, cursor
    finally:
        with suppress(duckdb.Error):
            zombie.execute("ROLLBACK")
        release(zombie)


def expire_all(rig: ApplyRig) -> None:
    """Expire everything but the head, which another program has committed."""
    rig.write("a", "CREATE TABLE dst.main.bystander (i INTEGER)")
    age_snapshots(rig)
    before = len(snapshots(rig))
    policy = replace(POLICY, whole_lake=True)
    run(rig, UpkeepStep.EXPIRE, policy=policy)
    assert len(snapshots(rig)) <= 2 < before


def test_files_that_were_let_go_are_deleted_after_their_time_and_not_before(rig: ApplyRig) -> None:
    run(rig, UpkeepStep.COMPACT)
    before = files(rig)
    _, (early,) = run(rig, UpkeepStep.CLEAN)
    assert (early.outcome, early.files_removed, files(rig)) == (StepOutcome.DONE, 0, before)
    age_waiting(rig)
    sizes = sum(file.stat().st_size for file in before)
    answer, (step,) = run(rig, UpkeepStep.CLEAN)
    gone = before - files(rig)
    assert (step.outcome, step.files_removed) == (StepOutcome.DONE, len(gone))
    assert gone
    assert 0 < step.bytes_freed < sizes
    assert answer.upkeep is not None
    assert answer.upkeep.after is not None
    assert answer.upkeep.after.waiting_files == 0
    assert rig.rows("a") == rig.expected("a")


def test_files_of_the_cutoffs_own_date_stay(rig: ApplyRig) -> None:
    """DuckLake's ``older_than`` compares texts on SQLite catalogs, by which all of that date were older."""
    run(rig, UpkeepStep.COMPACT)
    age_waiting(rig, 1)
    cast = older(DAYS) if rig.lake("a").sqlite_file is not None else f"{older(DAYS)}::TIMESTAMPTZ"
    waiting = f"{METADATA}.ducklake_files_scheduled_for_deletion"
    first = f"(SELECT min(data_file_id) FROM {waiting})"
    rig.write("a", f"UPDATE {waiting} SET schedule_start = {cast} WHERE data_file_id = {first}")
    before = files(rig)
    policy = replace(POLICY, clean_after_s=86_400.0 + 3_600.0)
    run(rig, UpkeepStep.CLEAN, policy=policy)
    assert len(before - files(rig)) == 1


def test_everything_together_leaves_what_a_stock_reader_sees_at_each_snapshot_that_stays(rig: ApplyRig) -> None:
    run(rig, UpkeepStep.COMPACT, UpkeepStep.EXPIRE)
    queries = [f"SELECT * FROM dst.main.t AT (VERSION => {each}) ORDER BY id" for each in snapshots(rig)]
    before = stock(rig, queries)
    age_waiting(rig)
    _, steps = run(rig, *UpkeepStep)
    assert [step.outcome for step in steps] == [StepOutcome.DONE] * 4
    assert stock(rig, queries) == before
    change(rig, 1)
    run(rig, UpkeepStep.COMPACT)
    age_snapshots(rig)
    run(rig, UpkeepStep.EXPIRE)
    age_waiting(rig)
    run(rig, UpkeepStep.CLEAN)
    assert len(files(rig)) <= 5, "what the newest apply shows, and the table as it is"
    assert rig.rows("a") == rig.expected("a")


def orphan(rig: ApplyRig, name: str, days: float) -> Path:
    file = rig.folder / "a-data" / "main" / name
    file.write_bytes(b"PAR1")
    os.utime(file, (time.time() - days * 86_400,) * 2)
    return file


def test_orphans_go_when_they_are_old_enough_and_nothing_else_does(rig: ApplyRig) -> None:
    old, young, other = orphan(rig, "o.parquet", 3), orphan(rig, "y.parquet", 0.9), orphan(rig, "notes.txt", 9)
    before = files(rig)
    _, (step,) = run(rig, UpkeepStep.ORPHANS)
    assert (step.outcome, step.files_removed, step.bytes_freed) == (StepOutcome.DONE, 1, 4)
    assert before - files(rig) == {old}
    assert young.exists()
    assert other.exists()


def test_no_more_orphans_go_than_one_run_may_take_the_oldest_first(rig: ApplyRig) -> None:
    found = [orphan(rig, f"o{number}.parquet", 10 - number) for number in range(5)]
    _, (step,) = run(rig, UpkeepStep.ORPHANS, policy=replace(POLICY, most_files=2))
    assert (step.files_removed, step.left) == (2, 3)
    assert [file.exists() for file in found] == [False, False, True, True, True]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_lake_on_s3_is_kept_small_too(
    make_rig: MakeRig, make_lake: MakeLake, s3: S3, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    made, bucket = make_rig(), f"upkeep-{uuid.uuid4().hex}"
    s3.create_bucket(bucket)
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v DOUBLE)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(200) r(i)",
    )
    catalog = make_lake("on_s3", Path("unused"))
    lake = replace(catalog, data_path=f"s3://{bucket}/a/", properties=s3.properties(s3.admin))
    made.add("a", lake=lake, layout=TableLayout(encrypted=encrypted))
    made.seed()
    change(made, APPLIES)
    keys = made.look("a", "SELECT DISTINCT encryption_key IS NOT NULL FROM __ducklake_metadata_dst.ducklake_data_file")
    assert keys == [(encrypted,)]
    store = f"s3://{bucket}/a/**"
    made.write("a", f"COPY (SELECT 1 AS nobodys) TO 's3://{bucket}/a/main/orphan.parquet'")
    before = {file for (file,) in made.look("a", f"SELECT file FROM glob('{store}')")}
    later(monkeypatch, DAYS)
    _, steps = run(made, *UpkeepStep)
    left = {file for (file,) in made.look("a", f"SELECT file FROM glob('{store}')")}
    assert [step.outcome for step in steps] == [StepOutcome.DONE] * 4
    assert steps[2].files_removed > 0
    assert steps[2].bytes_freed > 0
    assert steps[3].files_removed == 1
    assert not any("orphan" in file for file in left)
    assert len(left) < len(before)
    (probed,) = made.run(ItemKind.PROBE, "a")
    assert probed.error is None
    change(made, 1)
    assert made.rows("a") == made.expected("a")
    subject = Subject("p", "a", "a", made.lake("a"), "main", "t", SeedMode.SCAN)
    (verdict,) = compare_all(ComparedSource(made.source, "main", "t", made.routing), [subject])
    assert verdict.finding is ComparisonResult.EQUAL, verdict


def later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """So many days go by, for the catalog and for us; a store's own times can't be set."""
    ahead, known = timedelta(days=days), CatalogReader.head

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + ahead

    def head(reader: CatalogReader) -> Head:
        found = known(reader)
        return replace(found, catalog_now=found.catalog_now + ahead)

    monkeypatch.setattr(fenced_expiry, "datetime", Clock)
    monkeypatch.setattr(CatalogReader, "head", head)


def test_a_dry_run_tells_and_changes_nothing(rig: ApplyRig) -> None:
    run(rig, UpkeepStep.COMPACT)
    age_waiting(rig)
    age_snapshots(rig)
    orphan(rig, "o.parquet", 3)
    rig.forget()
    before = files(rig), snapshots(rig)
    answer, steps = run(rig, *UpkeepStep, dry_run=True)
    assert (files(rig), snapshots(rig)) == before
    assert answer.upkeep is not None
    assert answer.upkeep.dry_run
    done = {step.step: step for step in steps}
    assert done[UpkeepStep.EXPIRE].snapshots_expired == len(before[1]) - 3, (
        "the newest apply, the newest stamp, and the head stay"
    )
    assert done[UpkeepStep.CLEAN].files_removed > 0
    assert done[UpkeepStep.ORPHANS].files_removed == 1


@pytest.mark.parametrize("step", [UpkeepStep.EXPIRE, UpkeepStep.ORPHANS])
def test_a_lake_with_tables_of_others_is_left_alone_unless_all_of_it_is_meant(rig: ApplyRig, step: UpkeepStep) -> None:
    rig.write("a", "CREATE TABLE dst.main.theirs (i INTEGER)")
    age_snapshots(rig)
    orphan(rig, "o.parquet", 3)
    before = snapshots(rig), files(rig)
    _, (refused,) = run(rig, step)
    assert refused.outcome is StepOutcome.REFUSED
    assert "main.theirs" in (refused.reason or "")
    assert (snapshots(rig), files(rig)) == before
    _, (done,) = run(rig, step, policy=replace(POLICY, whole_lake=True))
    assert done.outcome is StepOutcome.DONE
    assert (snapshots(rig), files(rig)) != before


def test_a_step_that_is_off_or_refused_does_nothing_and_the_others_are_done(rig: ApplyRig) -> None:
    orphan(rig, "o.parquet", 3)
    before = files(rig)
    refused = ((UpkeepStep.ORPHANS, "the lake of p/b keeps its files below"),)
    _, steps = run(rig, *UpkeepStep, policy=replace(POLICY, clean_after_s=None), refused=refused)
    told = [(step.step, step.outcome) for step in steps]
    assert told == [
        (UpkeepStep.COMPACT, StepOutcome.DONE), (UpkeepStep.EXPIRE, StepOutcome.DONE),
        (UpkeepStep.CLEAN, StepOutcome.OFF), (UpkeepStep.ORPHANS, StepOutcome.REFUSED),
    ]  # fmt: skip
    assert steps[-1].reason == "the lake of p/b keeps its files below"
    assert before < files(rig)


def test_a_compaction_can_be_refused_too(rig: ApplyRig) -> None:
    before = files(rig), snapshots(rig)
    _, steps = run(rig, UpkeepStep.COMPACT, refused=((UpkeepStep.COMPACT, "upkeep has damaged p/b"),))
    assert [(step.outcome, step.reason) for step in steps] == [(StepOutcome.REFUSED, "upkeep has damaged p/b")]
    assert (files(rig), snapshots(rig)) == before


def test_an_order_of_another_life_does_nothing(rig: ApplyRig) -> None:
    before = snapshots(rig)
    task = UpkeepTask(steps=(UpkeepStep.EXPIRE,), policy=POLICY)
    target = ordered(rig, task)
    other = replace(target, item=target.item.model_copy(update={"generation": 2}))
    (answer,) = rig.run_targets(ItemKind.UPKEEP, [other])
    assert (answer.outcome, answer.upkeep, snapshots(rig)) == (Outcome.FENCED, None, before)


def test_rows_that_an_upkeep_changes_park_the_destination(rig: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def harmful(con: duckdb.DuckDBPyConnection, lake: Any, target: Target, *_: object) -> StepResult:
        lake.begin(con)
        con.execute("DELETE FROM lake.main.t WHERE id = 1")
        said = '{"kind": "maintenance"}'
        con.execute("CALL lake.set_commit_message('viaduck', 'x', extra_info => ?)", [said]).fetchall()
        con.execute("COMMIT")
        return StepResult(step=UpkeepStep.EXPIRE, outcome=StepOutcome.DONE)

    monkeypatch.setattr("services.applier.apply.upkeep.expire", harmful)
    answer, _ = run(rig, UpkeepStep.EXPIRE)
    assert answer.outcome is Outcome.PARKED
    assert answer.error is not None
    assert answer.error.type == "upkeep_damaged"
    assert "200 rows before and 199 after" in answer.error.message


@pytest.mark.parametrize("step", [UpkeepStep.COMPACT, UpkeepStep.EXPIRE])
def test_a_large_table_is_read_for_what_deletes_and_not_for_each_compaction(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch, step: UpkeepStep
) -> None:
    read = list[int]()
    whole = content.content

    def counted(con: Any, lake: Any, target: Any, snapshot: int) -> Any:
        read.append(snapshot)
        return whole(con, lake, target, snapshot)

    monkeypatch.setattr(content, "content", counted)
    monkeypatch.setattr("services.applier.apply.upkeep.PROVEN_BYTES", 0)
    answer, _ = run(rig, step)
    assert answer.upkeep is not None
    assert (len(read) > 0) == (step is UpkeepStep.EXPIRE)


def test_rows_that_somebody_else_changes_meanwhile_are_no_damage(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire = fenced_expiry.expire

    def beside(*given: Any) -> StepResult:
        done = expire(*given)
        rig.write("a", "INSERT INTO dst.main.t SELECT 9999, 'a', 1")
        return done

    monkeypatch.setattr("services.applier.apply.upkeep.expire", beside)
    answer, (step,) = run(rig, UpkeepStep.EXPIRE)
    assert (answer.error, step.outcome) == (None, StepOutcome.DONE)


def test_an_expiry_that_meets_another_writer_is_told_and_done_by_the_next_run(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> StepResult:
        raise duckdb.TransactionException("Transaction conflict - attempting to update")

    before = snapshots(rig)
    monkeypatch.setattr("services.applier.apply.upkeep.expire", busy)
    answer, (step,) = run(rig, UpkeepStep.EXPIRE)
    assert (answer.outcome, step.outcome) == (Outcome.ALREADY_APPLIED, StepOutcome.FAILED)
    assert "conflict" in (step.reason or "")
    monkeypatch.undo()
    assert run(rig, UpkeepStep.EXPIRE)[1][0].outcome is StepOutcome.DONE
    assert len(snapshots(rig)) < len(before)


def test_content_tells_rows_apart_whatever_their_order(rig: ApplyRig) -> None:
    target = rig.target("a", ItemKind.UPKEEP)
    con = connect()
    attach(con, "dst", rig.lake("a"), read_only=True)
    by_order = _contents(con, ("ORDER BY id", "ORDER BY id DESC", "WHERE id <> 3", "WHERE id <> 4"))
    con.close()
    assert target.destination.table == "t"
    assert by_order[0] == by_order[1]
    assert len(set(by_order)) == 3


def _contents(con: duckdb.DuckDBPyConnection, queries: Iterable[str]) -> list[tuple[Any, ...]]:
    hashed = f"count(*), bit_xor(hash({content.ROW})), sum(hash({content.ROW})::HUGEINT)"
    return [
        con.execute(f"SELECT {hashed} FROM (SELECT * FROM dst.main.t {each}) {content.ROW}").fetchall()[0]
        for each in queries
    ]


def test_the_figures_are_the_catalogs(rig: ApplyRig) -> None:
    answer, _ = run(rig, UpkeepStep.COMPACT)
    assert answer.upkeep is not None
    assert answer.upkeep.before is not None
    assert answer.upkeep.after is not None
    before, after = answer.upkeep.before, answer.upkeep.after
    assert before.files > after.files == 1
    assert (before.delete_files > 0, after.delete_files) == (True, 0)
    with closing(CatalogReader(rig.lake("a"))) as catalog:
        assert after.snapshots == len(snapshots(rig)) == len(catalog.times_of(snapshots(rig)))
