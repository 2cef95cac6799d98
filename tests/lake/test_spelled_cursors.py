"""Cursors of sources that spell their positions: integer and spelling are compared and set together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor
from services.applier.apply.cursor.fence import CursorMoved, Move
from shared.contracts.errors import DestinationError
from shared.contracts.messages import ItemKind, WorkItem
from shared.contracts.positions import Vector
from shared.lake.attached.pool import LakePool
from shared.lake.catalog.reader import TableInfo
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import path
from tests.lake.rig import ApplyRig

TOPIC = TableInfo("", "clicks", 0, "topic id", "cluster id", 0, ())
CURSOR = path("dst", SCHEMA, cursor_name("p", "a"))

Run = Callable[[duckdb.DuckDBPyConnection, str], Any]


@pytest.fixture
def pool() -> Iterator[LakePool]:
    with closing(LakePool(4, "1GB")) as made:
        yield made


def transact(pool: LakePool, rig: ApplyRig, run: Run) -> Any:
    with pool.use(rig.lake("a"), read_only=False, create=True) as lake, closing(lake.cursor()) as con:
        lake.begin(con)
        try:
            done = run(con, lake.alias)
        except BaseException:
            con.execute("ROLLBACK")
            raise
        con.execute("COMMIT")
        return done


def vector(*offsets: int) -> Vector:
    return Vector.of(dict(enumerate(offsets)))


def move(rig: ApplyRig, begin: Vector | None, end: Vector) -> Move:
    item = WorkItem(
        item="i", kind=ItemKind.CHANGES, pipeline="p", destination="a", generation=1,
        expected=-1 if begin is None else begin.records, expected_at=None if begin is None else begin.text,
        through=end.records, through_at=end.text,
    )  # fmt: skip
    return Move(rig.destinations["a"], item, end.records, TOPIC, 5, through_at=end.text)


def stored(pool: LakePool, rig: ApplyRig, *, spelled: bool = True) -> Cursor | None:
    def read(con: duckdb.DuckDBPyConnection, alias: str) -> Cursor | None:
        return fence.read_cursor(con, alias, rig.destinations["a"], spelled=spelled)

    found: Cursor | None = transact(pool, rig, read)
    return found


@pytest.fixture
def begun(rig: ApplyRig, pool: LakePool) -> ApplyRig:
    """At (1, 2)."""
    transact(pool, rig, lambda con, alias: fence.create_cursor(con, alias, move(rig, None, vector(1, 2))))
    return rig


def test_a_cursor_moves_with_its_spelling(begun: ApplyRig, pool: LakePool) -> None:
    step = move(begun, vector(1, 2), vector(4, 2))
    transact(pool, begun, lambda con, alias: fence.move_cursor(con, alias, step))
    cursor = stored(pool, begun)
    assert cursor is not None
    assert (cursor.position, cursor.source_position, cursor.rows_applied) == (6, '{"0":4,"1":2}', 10)
    assert (cursor.source_lake, cursor.table_uuid) == ("cluster id", "topic id")


@pytest.mark.parametrize("expected", [vector(2, 1), vector(3), vector(1, 1), vector(1, 2, 1)])
def test_no_item_that_expects_another_vector_moves_it(begun: ApplyRig, pool: LakePool, expected: Vector) -> None:
    """Of which two have the same sum."""
    step = move(begun, expected, vector(9, 9, 9))
    with pytest.raises(CursorMoved):
        transact(pool, begun, lambda con, alias: fence.move_cursor(con, alias, step))
    cursor = stored(pool, begun)
    assert cursor is not None
    assert cursor.source_position == '{"0":1,"1":2}'


def test_a_new_generation_replaces_the_vector_that_was_seen(begun: ApplyRig, pool: LakePool) -> None:
    seen = stored(pool, begun)
    assert seen is not None
    stale = replace(seen, source_position='{"0":3}')
    step = move(begun, None, vector(0, 1))
    with pytest.raises(CursorMoved):
        transact(pool, begun, lambda con, alias: fence.replace_cursor(con, alias, step, stale))
    transact(pool, begun, lambda con, alias: fence.replace_cursor(con, alias, step, seen))
    cursor = stored(pool, begun)
    assert cursor is not None
    assert (cursor.position, cursor.source_position, cursor.rows_applied) == (1, '{"1":1}', 5)


def test_a_cursor_of_before_gets_the_column_in_the_first_transaction_that_needs_it(
    rig: ApplyRig, pool: LakePool
) -> None:
    """Filled from a lake, it is seeded from a topic as a new generation."""
    rig.seed("a")
    before = stored(pool, rig)
    assert before is not None
    assert before.source_position == ""
    assert "source_position" not in columns(rig)
    step = move(rig, None, vector(0, 7))
    transact(pool, rig, lambda con, alias: fence.replace_cursor(con, alias, step, before))
    assert columns(rig)[-1] == "source_position"
    after = stored(pool, rig)
    assert after is not None
    assert (after.position, after.source_position) == (7, '{"1":7}')
    again = move(rig, vector(0, 7), vector(1, 7))
    transact(pool, rig, lambda con, alias: fence.move_cursor(con, alias, again))
    assert rig.look("a", f"SELECT position, source_position FROM {CURSOR}") == [(8, '{"0":1,"1":7}')]


def test_a_lake_that_takes_the_place_of_a_topic_commits_by_the_extension(begun: ApplyRig, pool: LakePool) -> None:
    begun.add("a", generation=2)
    assert begun.seed("a")[0].outcome == "applied"
    head = begun.head
    begun.sql("INSERT INTO src.main.t VALUES (100, 'a', 'new')")
    (said,) = begun.changes(head, "a")
    assert (said.outcome, said.commit, said.commit_reason) == ("applied", "extension", "other_cursor")
    assert begun.rows("a") == begun.expected("a")


@pytest.mark.parametrize("said", ["{}", '{"0":4}', "three", '{"0": 3}', "x" * 300_000])
def test_a_cursor_whose_spelling_contradicts_its_position_is_damaged(
    begun: ApplyRig, pool: LakePool, said: str
) -> None:
    begun.write("a", f"UPDATE {CURSOR} SET source_position = '{said}'")
    with pytest.raises(DestinationError) as refused:
        stored(pool, begun)
    assert refused.value.type == "cursor_damaged"


def test_the_cursor_of_a_lake_has_the_columns_that_it_always_had(rig: ApplyRig) -> None:
    rig.seed("a")
    assert columns(rig) == [
        "pipeline", "destination", "generation", "position", "source_lake", "source_table_id", "source_table_uuid",
        "routing_value", "item", "rows_applied", "updated_at",
    ]  # fmt: skip


def columns(rig: ApplyRig) -> list[str]:
    return [name for (name,) in rig.look("a", f"SELECT column_name FROM (DESCRIBE {CURSOR})")]
