"""What the case ``evolve`` makes of its figures, and that its writers go on when columns change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import duckdb
import pytest

from bench.cases.changes import Batch
from bench.cases.evolve import QUICK, Followed, Pair, batch_check, fleet_checks, followed_after
from bench.freshness import Stream, write_stream
from bench.workload import SCHEMA, SOURCE, TABLE, Columns, SourceWriter, Workload

TINY = Workload("tiny", tenants=4, seeded=40, commits=1, inserts=8, updates=4, deletes=2, touched_tenants=4)


@pytest.fixture
def source() -> Iterator[duckdb.DuckDBPyConnection]:
    """A plain database for a lake: what is written is the same SQL."""
    with closing(duckdb.connect()) as con:
        con.execute(f"ATTACH ':memory:' AS {SOURCE}")
        con.execute(f"CREATE MACRO {SOURCE}.current_snapshot() AS TABLE SELECT 1 AS id")
        SourceWriter(con, SOURCE, TINY).seed()
        yield con


def test_a_batch_is_written_whatever_columns_there_are_beside_its_own(source: duckdb.DuckDBPyConnection) -> None:
    writer, columns = SourceWriter(source, SOURCE, TINY), Columns(source, SOURCE)
    columns.add()
    for _ in range(2):
        columns.change()
        writer.run()
    names = [column for column, *_ in source.execute(f"DESCRIBE {SOURCE}.{SCHEMA}.{TABLE}").fetchall()]
    assert names[5:] == ["renamed_0", "renamed_1", "extra_2"]


def test_so_is_a_stream(source: duckdb.DuckDBPyConnection) -> None:
    Columns(source, SOURCE).add()
    touched = write_stream(source, Stream(3, 1_000.0, 0.002), ["a", "b", "c"])
    assert touched == {1: {"a", "b", "c"}}


def test_batches_are_held_against_those_without() -> None:
    check = batch_check("what", [paired(2.0, 2.4), paired(9.0, 2.4), paired(1.0, 9.0)])
    assert (check.met, check.found) == (True, "1.2 x")
    assert not batch_check("what", [paired(2.0, 2.6)]).met


def paired(plain_s: float, evolved_s: float) -> Pair:
    return Pair(Batch(plain_s, {}), Batch(evolved_s, {}))


def test_a_destination_is_followed_when_it_shows_the_snapshot_or_a_later_one() -> None:
    arrived = {"a": [(3, 100.0), (7, 104.0), (8, 109.0)], "b": [(9, 111.5)], "c": [(3, 100.0)]}
    assert list(followed_after(7, {7: 101.0}, arrived, "ab")) == [3.0, 10.5]
    with pytest.raises(AssertionError, match="c never got the columns of snapshot 7"):
        list(followed_after(7, {7: 101.0}, arrived, "c"))


@pytest.mark.parametrize(("after_s", "last_s", "met"), [(1.2, 59.0, [True, True]), (1.4, 61.0, [False, False])])
def test_idle_ones_have_a_minute_and_busy_ones_pay_three_tenths(after_s: float, last_s: float, met: list[bool]) -> None:
    found = Followed([1.0] * 50, [after_s] * 50, [0.5, last_s], 70)
    assert [check.met for check in fleet_checks(QUICK, found)] == met
    assert found.figures()["idle_last_s"] == last_s
