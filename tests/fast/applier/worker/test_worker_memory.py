"""The instance of a worker for rows that come from no lake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.applier.worker.worker_memory import WorkerMemory
from shared.lake.connection.engine import memory_of

LIMIT = "123MB"


@pytest.fixture
def memory() -> Iterator[WorkerMemory]:
    made = WorkerMemory(LIMIT)
    yield made
    made.close()


def test_giving_back_changes_neither_the_limit_nor_what_is_there(memory: WorkerMemory) -> None:
    con = memory.cursor()
    con.execute("CREATE TABLE memory.main.rows AS SELECT range AS n FROM range(1000)")
    for _ in range(3):
        memory.give_back()
    limit = con.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()
    assert limit[0][0] == memory_of(LIMIT)
    assert con.execute("SELECT sum(n) FROM memory.main.rows").fetchall() == [(499_500,)]
    con.close()


WIDE = ", ".join(f"n + {number} AS c{number}" for number in range(40))
"""So that some 20 MB are added at once, after which DuckDB looks for what it can compress."""


def test_rows_are_not_compressed_on_their_way(memory: WorkerMemory) -> None:
    """They are dropped a moment later; to compress them takes their size once more, and time."""
    con = memory.cursor()
    con.execute(f"CREATE TABLE memory.main.staged AS SELECT {WIDE} FROM range(0) AS r(n)")
    for _ in range(3):
        con.execute(f"INSERT INTO memory.main.staged SELECT {WIDE} FROM range(60_000) AS r(n)")
    found = con.execute("SELECT DISTINCT compression FROM pragma_storage_info('memory.main.staged')").fetchall()
    assert found == [("Uncompressed",)]
    con.close()
