"""An apply that is left behind goes on in its instance while the next task spills in others of the same process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from services.applier.apply import transaction
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.source import carry
from services.applier.model.task import Limits
from services.applier.worker.in_flight import TargetsInFlight
from shared.contracts.messages import ItemKind, Outcome
from shared.lake.attached.pool import OpenLake
from tests.fast.waiting import eventually
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

ROWS = 300_000
KEY = "repeat(md5({} || i::VARCHAR), 6) || i"
"""Of some 200 characters."""

PATIENT_S = 100.0
SMALL = "48MB"
"""Of a destination's instance, which the keys of one change do not fit into."""
LIMITS = Limits(memory_limit="200MB", deadline_s=PATIENT_S, seed_deadline_s=PATIENT_S, stall_s=PATIENT_S)


class Turnstile:
    """Holds an apply once its keys are in its own instance, until it is let through."""

    def __init__(self) -> None:
        self.holds: dict[str, threading.Event] = {}
        self.held: dict[str, Path] = {}
        """Where the instance of each apply that is held puts what does not fit into memory."""
        self.ended: dict[str, Applied | Exception] = {}

    def stop(self, name: str, folder: Path) -> None:
        self.held[name] = folder
        assert self.holds[name].wait(PATIENT_S)


@pytest.fixture
def turnstile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turnstile]:
    made, move, apply = Turnstile(), carry.carry_touched, transaction.DestinationApplier.apply
    made.holds = {"a": threading.Event(), "b": threading.Event()}

    def held(con: duckdb.DuckDBPyConnection, reading: Any, number: int, count: int) -> str:
        carried = move(con, reading, number, count)
        folder = Path(str(con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]))
        made.stop("a" if not made.held else "b", folder)
        return carried

    def told(applier: transaction.DestinationApplier, change: DestinationChange) -> Applied:
        name = change.target.destination.destination
        try:
            applied = apply(applier, change)
        except Exception as error:
            made.ended[name] = error
            raise
        made.ended[name] = applied
        return applied

    monkeypatch.setattr(transaction, "carry_touched", held)
    monkeypatch.setattr(transaction.DestinationApplier, "apply", told)
    yield made
    for hold in made.holds.values():
        hold.set()


@pytest.fixture
def rig(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> ApplyRig:
    opens, made = OpenLake.open, make_rig()

    def cramped(lake: OpenLake, memory_limit: str | None, *, read_only: bool, create: bool) -> None:
        opens(lake, memory_limit if read_only else SMALL, read_only=read_only, create=create)

    made.sql("CREATE TABLE src.main.t (id VARCHAR, tenant VARCHAR, v INTEGER)", small_groups("src"))
    for name in "ab":
        made.add(name)
        made.write(name, small_groups("dst"))
        key = KEY.format(f"'{name}'")
        made.sql(f"INSERT INTO src.main.t SELECT {key}, '{name}', i FROM range({ROWS}) r(i)")
    assert {answer.outcome for answer in made.seed()} == {Outcome.APPLIED}
    made.limits = LIMITS
    monkeypatch.setattr(OpenLake, "open", cramped)
    return made


def small_groups(alias: str) -> str:
    """DuckDB reads and writes a group of rows as a whole, so a group has to fit into memory."""
    return f"CALL {alias}.set_option('parquet_row_group_size', 4096)"


def spilled(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def same(rig: ApplyRig, name: str) -> bool:
    found = "SELECT count(*), count(DISTINCT id), sum(v), bit_xor(hash(id, tenant, v))::VARCHAR FROM "
    there = rig.look(name, f"{found} dst.main.t")
    return there == rig.con.execute(f"{found} src.main.t WHERE tenant = '{name}'").fetchall()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_an_apply_that_was_left_behind_and_the_task_after_it_keep_their_own_keys(
    rig: ApplyRig, turnstile: Turnstile, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = rig.head
    rig.sql("DELETE FROM src.main.t WHERE v % 10 > 0")
    with monkeypatch.context() as impatient:
        impatient.setattr(TargetsInFlight, "has_stalled", lambda *_: "a" in turnstile.held)
        (left,) = rig.changes(position, "a")
    assert (left.outcome, left.error and left.error.type) == (Outcome.FAILED, "destination_unreachable")
    later: list[Outcome] = []
    task = threading.Thread(target=lambda: later.extend(each.outcome for each in rig.changes(position, "b")))
    task.start()
    eventually(lambda: "b" in turnstile.held or turnstile.ended, PATIENT_S)
    assert not turnstile.ended
    assert all(map(spilled, turnstile.held.values())), "else it shows nothing"
    turnstile.holds["a"].set()
    eventually(lambda: "a" in turnstile.ended, PATIENT_S)
    turnstile.holds["b"].set()
    task.join()
    assert later == [Outcome.APPLIED], turnstile.ended
    assert same(rig, "a"), "it went on, in its own instance"
    assert same(rig, "b")
    assert [each.outcome for each in rig.run(ItemKind.PROBE, through=0)] == [Outcome.ALREADY_APPLIED] * 2
