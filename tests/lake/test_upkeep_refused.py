"""Upkeep of a lake that can't be written, is away or is of another format: it says why, and leaves nothing half done.

Once the lake is what it was, the next run does everything.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from shared.contracts.messages import Outcome, Progress
from shared.contracts.upkeep import StepOutcome, StepResult, UpkeepStep
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_upkeep_steps import (
    METADATA,
    age_snapshots,
    age_waiting,
    change,
    files,
    orphan,
    run,
    seeded,
    snapshots,
)

OPEN = pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
"""Whether the worker has the lake open from before."""

READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = {}"
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """A tenant whose lake has something to do for each step."""
    made = seeded(make_rig)
    change(made, 3)
    run(made, UpkeepStep.COMPACT)
    change(made, 3)
    age_snapshots(made)
    age_waiting(made)
    orphan(made, "o.parquet", 3)
    return made


def all_steps(rig: ApplyRig) -> tuple[Progress, list[StepResult]]:
    return run(rig, *UpkeepStep)


def shown(rig: ApplyRig) -> dict[int, list[tuple[object, ...]]]:
    """The rows of every snapshot since the seed, each read from its files."""
    with rig.opened("a") as con:
        at = {number: f"SELECT * FROM dst.main.t AT (VERSION => {number})" for number in snapshots(rig)[1:]}
        return {number: sorted(con.execute(query).fetchall()) for number, query in at.items()}


def assert_all_is_done(rig: ApplyRig) -> None:
    answer, steps = all_steps(rig)
    assert (answer.outcome, {step.outcome for step in steps}) == (Outcome.ALREADY_APPLIED, {StepOutcome.DONE}), steps
    assert not (rig.folder / "a-data" / "o.parquet").exists()
    assert rig.rows("a") == rig.expected("a")


def assert_untouched_then_done(rig: ApplyRig, before: tuple[object, ...]) -> None:
    assert (shown(rig), files(rig)) == before
    assert_all_is_done(rig)


def make_read_only(rig: ApplyRig, on: str) -> None:
    dsn = rig.lake("a").catalog.removeprefix("postgres:")
    with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=off") as con:
        con.execute(READ_ONLY.format(f'"{con.info.dbname}"', on).encode())
        con.execute(END_OTHERS)


@OPEN
@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_catalog_that_can_not_be_written_is_told_by_each_step_that_has_to(rig: ApplyRig, is_open: bool) -> None:
    before = shown(rig)
    make_read_only(rig, "on")
    if not is_open:
        rig.forget()
    answer, steps = all_steps(rig)
    assert answer.outcome is Outcome.ALREADY_APPLIED
    *writing, orphans = steps
    assert {step.outcome for step in writing} == {StepOutcome.FAILED}
    assert all("read-only transaction" in (step.reason or "") for step in writing), writing
    assert (orphans.step, orphans.outcome, orphans.files_removed) == (UpkeepStep.ORPHANS, StepOutcome.DONE, 1)
    assert shown(rig) == before
    make_read_only(rig, "off")
    assert_all_is_done(rig)


@OPEN
@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_catalog_whose_file_is_gone_parks(rig: ApplyRig, is_open: bool) -> None:
    before, found = (shown(rig), files(rig)), [*rig.folder.glob("a.sqlite*")]
    if not is_open:
        rig.forget()
    for each in found:
        each.rename(f"{each}.away")
    answer, steps = all_steps(rig)
    assert (answer.outcome, answer.error and answer.error.type, steps) == (Outcome.PARKED, "lake_missing", [])
    assert not [*rig.folder.glob("a.sqlite")], "and no empty one is made"
    for each in found:
        Path(f"{each}.away").rename(each)
    assert_untouched_then_done(rig, before)


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_server_that_does_not_answer_is_tried_again(rig: ApplyRig) -> None:
    before, lake = (shown(rig), files(rig)), rig.lake("a")
    rig.add("a", lake=replace(lake, catalog="postgres:host=127.0.0.1 port=1 dbname=away"))
    answer, steps = all_steps(rig)
    assert (answer.outcome, steps) == (Outcome.FAILED, [])
    assert answer.error is not None
    assert (answer.error.type, answer.error.retryable) == ("destination_unreachable", True)
    rig.add("a", lake=lake)
    assert_untouched_then_done(rig, before)


def test_a_lake_of_another_format_parks(rig: ApplyRig) -> None:
    before = shown(rig), files(rig)
    format_is = f"UPDATE {METADATA}.ducklake_metadata SET value = '{{}}' WHERE key = 'version'"
    ((version,),) = rig.look("a", f"SELECT value FROM {METADATA}.ducklake_metadata WHERE key = 'version'")
    with closing(connect()) as con:
        attach(con, "dst", rig.lake("a"), read_only=False)
        con.execute(format_is.format("9.9"))
        rig.forget()
        answer, steps = all_steps(rig)
        assert (answer.outcome, answer.error and answer.error.type, steps) == (Outcome.PARKED, "lake_incompatible", [])
        assert "9.9" in str(answer.error)
        con.execute(format_is.format(version))  # DuckLake opens it for nobody else
    assert_untouched_then_done(rig, before)
