"""What the benchmarks of topics make of records, requests and times."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Message

from bench import plain_consumer
from bench.cases.topic import memory_checks
from bench.plain_consumer import ALIAS, TABLE, PlainLoop, command, fastest_json, table_of
from bench.records import SCHEMA, record
from bench.topic import RequestCounter, ages_of
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect


def messages(count: int) -> list[Message]:
    rng = random.Random(1)
    values = [json.dumps(record(number, rng)).encode() for number in range(count)]
    return [
        Message(topic="records", partition=0, offset=number, value=value, timestamp=(1, 1_764_000_000_000))
        for number, value in enumerate(values)
    ]


class FakeConsumer:
    """Hands out at most three records at once; what was landed when offsets were committed stands in ``committed``."""

    def __init__(self, waiting: Sequence[Message], con: duckdb.DuckDBPyConnection) -> None:
        self._waiting, self._con = list(waiting), con
        self.committed: list[int] = []

    def consume(self, most: int, timeout: float) -> list[Message]:
        assert timeout > 0
        handed, self._waiting = self._waiting[: min(3, most)], self._waiting[min(3, most) :]
        return handed

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        self.committed.append(self._con.execute(f"SELECT count(*) FROM {TABLE}").fetchall()[0][0])


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect()) as con:
        lake = ResolvedLake(f"sqlite:{tmp_path}/lake.sqlite", None, f"{tmp_path}/data")
        attach(con, ALIAS, lake, read_only=False, create=True)
        yield con


def test_the_plain_loop_commits_offsets_once_the_rows_are_there(con: duckdb.DuckDBPyConnection) -> None:
    consumer = FakeConsumer(messages(10), con)
    assert PlainLoop(consumer, con, 4, fastest_json()).run(10) == 10  # type: ignore[arg-type]
    assert consumer.committed == [4, 8, 10]
    rows = con.execute(f"SELECT event_id, device, tags FROM {TABLE} ORDER BY _kafka_offset").fetchall()
    assert [row[0] for row in rows] == list(range(10))
    assert json.loads(rows[0][1])["os"] == "linux"
    assert json.loads(rows[0][2]) == ["a", "b"]


def test_records_that_do_not_come_are_told(con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_consumer, "PATIENCE_S", -1.0)
    with pytest.raises(TimeoutError, match="0 of 5"):
        PlainLoop(FakeConsumer([], con), con, 5, fastest_json()).run(5)  # type: ignore[arg-type]


def test_a_chunk_has_the_schema_of_the_table() -> None:
    table = table_of(messages(3), fastest_json())
    assert table.schema == SCHEMA
    assert table.num_rows == 3


def test_the_command_names_the_lake_and_no_password() -> None:
    words = command("broker:9092", "records", ResolvedLake("postgres:dbname=p", None, "/data"), 7, 3)
    assert words[words.index("--catalog") + 1] == "postgres:dbname=p"
    assert words[words.index("--records") + 1] == "7"


def test_requests_are_counted_wherever_chunks_end() -> None:
    def request(kind: int, body: bytes) -> bytes:
        rest = kind.to_bytes(2, "big") + body
        return len(rest).to_bytes(4, "big") + rest

    said = request(2, b"heads") + request(3, b"") + request(2, b"x" * 300)
    whole, split = RequestCounter(), RequestCounter()
    whole("a", said)
    for place in range(len(said)):
        split("a", said[place : place + 1])
        split("b", b"")
    assert whole.by_kind == split.by_kind == {2: 2, 3: 1}


def test_a_record_is_as_old_as_the_first_commit_that_reached_it() -> None:
    arrivals = [({0: 2}, 10.0), ({0: 2, 1: 1}, 11.0), ({0: 3, 1: 1}, 12.5)]
    assert ages_of([(0, 0, 9.0), (0, 2, 12.0), (1, 0, 9.5)], arrivals) == [0.5, 1.0, 1.5]
    with pytest.raises(AssertionError, match="in no commit"):
        ages_of([(1, 1, 9.0)], arrivals)


def test_an_applier_s_memory_is_its_driver_s_and_its_worker_s() -> None:
    share, worker = memory_checks({"applier": 200.0, "worker": 400.0, "jvm": 900.0, "reader": 90.0}, 500.0)
    assert (share.found, share.met, worker.met) == ("1.2 x", True, True)
    share, worker = memory_checks({"applier": 200.0, "worker": 513.0}, 500.0)
    assert (share.met, worker.met) == (False, False)
