"""The owner of a destination commits to it while we do: neither's rows are lost, and neither keeps the other waiting.

``make soak`` plays 200 commits and 100, on each kind of catalog, and a hundred zombies.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from statistics import median

import duckdb
import pytest

from services.applier.apply.direct.commit import RIVAL_TRIES
from shared.contracts.messages import CommitPath, Outcome, Progress
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.lake.batches import before_commit
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.twins import CLEAN_UP, EXPIRE
from tests.world.replay import SOAK

COMMITS = 200 if SOAK else 12
RIVALS = (
    ("INSERT INTO dst.main.theirs VALUES (1)",),
    ("INSERT INTO dst.main.theirs SELECT 1 FROM range(100)", "DELETE FROM dst.main.theirs WHERE rowid % 2 = 0"),
    ("COMMENT ON TABLE dst.main.t IS 'rows of ours'",),
    ("ALTER TABLE dst.main.t ADD COLUMN theirs INTEGER", "ALTER TABLE dst.main.t DROP COLUMN theirs"),
    ("ALTER TABLE dst.main.t ALTER v SET DEFAULT 'a default'", "ALTER TABLE dst.main.t ALTER v DROP DEFAULT"),
    ("CALL ducklake_flush_inlined_data('dst')",),
    ("CALL ducklake_merge_adjacent_files('dst')",),
    ("CALL ducklake_rewrite_data_files('dst', 't', delete_threshold => 0.01)",),
    (EXPIRE, CLEAN_UP),
)
"""What an owner does between our look and our commit, each statement in a transaction of its own."""

ZOMBIES = 100 if SOAK else 6
ALL_EXPIRE = "CALL ducklake_expire_snapshots('dst', older_than => now() + INTERVAL 1 HOUR)"

MOST_TRIES = 10
OFTEN_S = 0.05
"""Between two commits of an owner who writes twenty times a second."""

THEIRS = "SELECT count(*) FROM dst.main.theirs"


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A tenant of ten rows, seeded, in a lake with a table of its owner's."""
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(10) r(i)",
    )
    made.add("a")
    made.seed()
    made.write("a", "CREATE TABLE dst.main.theirs (i INTEGER)")
    return made


def run_all(owner: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> None:
    for statement in statements:
        owner.execute(statement)


def changed(rig: ApplyRig, number: int) -> Progress:
    before = rig.head
    rig.sql(f"UPDATE src.main.t SET v = 'v{number}-' || id WHERE id % 5 = {number % 5}")
    (progress,) = rig.changes(before, "a")
    return progress


def applied_after(rig: ApplyRig, number: int) -> tuple[int, CommitPath | None]:
    """How many tries it took, and by which path: what fails for a while is sent again, as the reader would."""
    before = rig.head
    progress = changed(rig, number)
    for again in range(1, MOST_TRIES):
        if progress.outcome is Outcome.APPLIED:
            return again, progress.commit
        assert progress.error is not None, progress
        assert progress.error.retryable, progress
        (progress,) = rig.changes(before, "a")
    raise AssertionError(f"the owner starves us: {progress}")


@pytest.mark.timeout(3_600)
def test_what_an_owner_commits_between_our_look_and_our_commit_is_not_lost(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, paths = random.Random(COMMITS), Counter[CommitPath]()
    with closing(connect()) as owner:
        attach(owner, "dst", rig.lake("a"), read_only=False)
        for number in range(COMMITS):
            drawn = RIVALS[number] if number < len(RIVALS) else rng.choice(RIVALS)
            ((before,),) = owner.execute(THEIRS).fetchall()
            with monkeypatch.context() as patched:
                before_commit(patched, partial(run_all, owner, drawn))
                progress = changed(rig, number)
            assert progress.outcome is Outcome.APPLIED, (drawn, progress)
            assert progress.commit is not None
            paths[progress.commit] += 1
            ((after,),) = owner.execute(THEIRS).fetchall()
            assert (after > before) is ("INSERT" in drawn[0]), drawn
            if EXPIRE in drawn:  # what was the newest snapshot then, and ours
                assert owner.execute("SELECT count(*) FROM dst.snapshots()").fetchall() == [(2,)]
    assert rig.rows("a") == rig.expected("a")
    assert paths[CommitPath.DIRECT] >= COMMITS // 2, paths


@pytest.mark.parametrize(
    ("make_lake", "pause_s"),
    [("sqlite", 0.0), ("sqlite", OFTEN_S), ("postgres", 0.0), ("postgres", OFTEN_S), ("postgres-schema", OFTEN_S)],
    indirect=["make_lake"],
)
@pytest.mark.timeout(3_600)
def test_an_owner_who_commits_all_the_time_neither_starves_us_nor_is_starved(rig: ApplyRig, pause_s: float) -> None:
    ended, theirs = threading.Event(), Counter[str]()

    def commit_on() -> None:
        with closing(connect()) as owner:
            attach(owner, "dst", rig.lake("a"), read_only=False)
            while not ended.is_set():
                try:
                    owner.execute("INSERT INTO dst.main.theirs VALUES (1)")
                    theirs["committed"] += 1
                except (duckdb.TransactionException, duckdb.IOException):
                    theirs["refused"] += 1
                ended.wait(pause_s)

    rival = threading.Thread(target=commit_on)
    rival.start()
    try:
        done = [applied_after(rig, number) for number in range(COMMITS // 2)]
    finally:
        ended.set()
        rival.join()
    assert median(tries for tries, _ in done) == 1
    assert done == [(1, CommitPath.DIRECT)] * len(done)
    assert rig.rows("a") == rig.expected("a")
    assert rig.look("a", THEIRS) == [(theirs["committed"],)]
    assert theirs["committed"] >= COMMITS // RIVAL_TRIES


@pytest.mark.timeout(3_600)
def test_zombies_wake_up_after_all_that_was_committed_meanwhile_has_expired(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H6: each has written its files and is about to commit; another applies the same range, or the owner commits to a
    table of theirs, and nothing of that is left in the catalog."""
    rng, said = random.Random(ZOMBIES), Counter[tuple[bool, Outcome]]()
    with closing(connect()) as owner:
        attach(owner, "dst", rig.lake("a"), read_only=False)
        while said.total() < ZOMBIES:
            number, before, overtaken = said.total(), rig.head, list[bool]()
            rig.sql(f"UPDATE src.main.t SET v = 'v{number}-' || id WHERE id % 5 = {number % 5}")

            def others(since: int = before, number: int = number, overtaken: list[bool] = overtaken) -> None:
                overtaken.append(number % 3 != 2)
                if overtaken[0]:
                    (taken,) = rig.changes(since, "a")
                    assert taken.outcome is Outcome.APPLIED, taken
                run_all(owner, (*rng.choice(RIVALS), ALL_EXPIRE, CLEAN_UP))

            with monkeypatch.context() as patched:
                before_commit(patched, others)
                (woken,) = rig.changes(before, "a")
            assert rig.rows("a") == rig.expected("a"), (number, woken)
            if overtaken:  # the extension committed where an owner had just altered the table
                said[overtaken[0], woken.outcome] += 1
    assert said.keys() == {(True, Outcome.ALREADY_APPLIED), (False, Outcome.APPLIED)}, said
