"""Random histories of tables with nested columns, whose columns and fields change two deep while rows do."""

from __future__ import annotations

from random import Random

import pytest

from services.applier.worker import worker_state
from shared.config.model import Routing
from shared.contracts.messages import Outcome
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, looking
from tests.lake.test_terms import terms
from tests.world.nested import NestedTable
from tests.world.replay import SOAK

STEPS = 12 if SOAK else 8
TABLE = "src.main.t"
MAINTENANCE = (
    "CALL ducklake_flush_inlined_data('src')",
    "CALL ducklake_merge_adjacent_files('src')",
    "CALL ducklake_rewrite_data_files('src', delete_threshold => 0)",
    "CHECKPOINT src",
)


def altering(rng: Random, table: NestedTable, number: int, *, inlined: int) -> list[str]:
    """A transaction that changes columns, in half of all cases between rows that change.

    DuckLake refuses other columns after rows that it has inlined in the same transaction, and shows NULL in older rows
    once something is wider (H26): then rows only come.
    """
    before = rng.choice([[], [table.delete()], [table.delete() if inlined else table.update()]])
    changes = table.changes(rng.choice([1, 1, 2, 4]))
    new = table.insert(ids_of(rng, number))
    wider = any("SET DATA TYPE" in each for each in changes)
    after = new if wider else rng.choice([new, table.delete(), table.update()])
    return rng.choice([changes, [*before, *changes, after]])


def ids_of(rng: Random, number: int) -> range:
    return range(100 * number, 100 * number + rng.choice([2, 15]))


def step(rig: ApplyRig, rng: Random, table: NestedTable, number: int, *, inlined: int) -> None:
    kind = rng.random()
    if kind < 0.15:
        rig.sql("CALL ducklake_flush_inlined_data('src')", rng.choice(MAINTENANCE))
    elif kind < 0.25:
        rig.sql(table.describe())
    elif kind < 0.6:
        rig.sql("BEGIN", *altering(rng, table, number, inlined=inlined), "COMMIT")
    elif kind < 0.75:
        rig.sql(table.insert(ids_of(rng, number)))
    else:
        rig.sql(table.delete() if kind < 0.85 else table.update())


def require_terms(rig: ApplyRig, name: str) -> None:
    """Defaults and comments are the source's; NOT NULL is where the source has it, unless DuckLake has refused it."""
    own, theirs = terms(rig.lake(name)), terms(rig.source)
    assert own.pop(None) == theirs.pop(None)
    assert list(own) == list(theirs)
    for column, (asked, comment) in own.items():
        wanted, said = theirs[column]
        assert (asked.default, comment) == (wanted.default, said), column
        assert wanted.required or not asked.required, column


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("inlined", [0, 10])
def test_every_snapshot_of_a_destination_is_the_source_s_slice(make_rig: MakeRig, part: int, inlined: int) -> None:
    rng = Random(f"{part} {inlined}")
    rig = make_rig(routing=Routing(field="tenant", key_columns=("id",)))
    table = NestedTable(rng, TABLE)
    rig.sql(f"CALL src.set_option('data_inlining_row_limit', {inlined})", table.create(), table.insert(range(30)))
    positions, shown = dict.fromkeys(("a", "b"), rig.head), dict[tuple[str, int], list[tuple[object, ...]]]()
    for name in positions:
        rig.add(name)
    rig.seed()
    for number in range(1, STEPS + 1):
        step(rig, rng, table, number, inlined=inlined)
        name, position = rng.choice(list(positions.items()))
        if rig.head > position and (rng.random() < 0.5 or number == STEPS):
            (answer,) = rig.changes(position, name)
            assert answer.outcome in (Outcome.APPLIED, Outcome.EMPTY), answer.error
            if answer.outcome is Outcome.APPLIED:
                positions[name] = rig.head
                ((newest,),) = rig.look(name, "SELECT max(snapshot_id) FROM dst.snapshots()")
                shown[name, newest] = rig.expected(name)
                require_terms(rig, name)
            assert rig.rows(name) == rig.expected(name)
        if rng.random() < 0.2:
            worker_state.forget()
    for name in positions:
        with looking(rig.lake(name)) as con:
            for snapshot, expected in ((at, rows) for (whose, at), rows in shown.items() if whose == name):
                found = con.execute(f"SELECT * FROM dst.main.t AT (VERSION => {snapshot})").fetchall()
                assert sorted(found, key=repr) == expected
