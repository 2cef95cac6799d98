"""A transaction past its deadline can be ended from outside, and never in its COMMIT."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import duckdb
import pytest

from services.applier.apply.attempts import Attempts
from shared.contracts.errors import POLICY, Action, DestinationError

ENDLESS = "SELECT count(*) FROM range(100_000_000) a, range(100_000_000) b WHERE a.range + b.range = -1"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect(":memory:")) as con:
        yield con


def test_what_spins_past_its_deadline_is_interrupted(con: duckdb.DuckDBPyConnection) -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    ended: list[type[Exception]] = []

    def spin() -> None:
        with attempts.begun(con, 10.0):
            under_way.set()
            try:
                con.execute(ENDLESS)
            except duckdb.Error as error:
                ended.append(type(error))

    under_way = threading.Event()
    spinning = threading.Thread(target=spin, daemon=True)
    spinning.start()
    assert under_way.wait(10.0)
    assert attempts.end_overdue() == 0, "it is not past its deadline"
    now[0] = 11.0
    while spinning.is_alive():  # once may be before the statement has begun
        assert attempts.end_overdue() <= 1
        spinning.join(0.1)
    assert ended == [duckdb.InterruptException]
    assert attempts.end_overdue() == 0


def test_a_commit_is_not_interrupted(con: duckdb.DuckDBPyConnection) -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    with attempts.begun(con, 10.0) as attempt:
        attempt.commits()
        now[0] = 11.0
        assert attempts.end_overdue() == 0


def test_what_was_ended_does_not_commit(con: duckdb.DuckDBPyConnection) -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    with attempts.begun(con, 10.0) as attempt:
        now[0] = 11.0
        assert attempts.end_overdue() == 1
        with pytest.raises(DestinationError) as caught:
            attempt.commits()
    assert caught.value.type == "deadline_exceeded"
    assert POLICY[caught.value.type] is Action.RETRY
