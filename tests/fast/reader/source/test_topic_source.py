"""A topic as the reader sees it: what it asks a broker for, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from services.reader.planner.frontier import TopicEnds
from services.reader.source.topic_source import KafkaSource
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import SourceError
from shared.contracts.positions import SpelledPosition, Vector
from shared.contracts.ranges import Range
from shared.kafka.topic_log import TopicIdentity
from shared.runtime.metrics import Metrics

Answer = TypeVar("Answer")

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def vector(*offsets: int) -> Vector:
    return Vector.of(dict(enumerate(offsets)))


class FakeLog:
    """A topic in memory."""

    topic = "clicks"

    def __init__(self, *offsets: int) -> None:
        self.ends = vector(*offsets)
        self.low = Vector()
        self.id = TopicIdentity("cluster", "topic id", len(offsets))
        self.at = Vector()
        self.fails: SourceError | None = None
        self.calls: list[str] = []

    def identity(self) -> TopicIdentity:
        return self._said("identity", self.id)

    def newest(self, partitions: int) -> Vector:
        return self._said(f"newest {partitions}", self.ends)

    def oldest(self, partitions: int) -> Vector:
        return self._said(f"oldest {partitions}", self.low)

    def since(self, partitions: int, timestamp_ms: int) -> Vector:
        return self._said(f"since {timestamp_ms}", self.at)

    def _said(self, call: str, answer: Answer) -> Answer:
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails
        return answer


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def config(folder: Path, source: Mapping[str, Any]) -> Config:
    file = folder / "viaduck.yaml"
    file.write_text(yaml.safe_dump({
        "source": {"kind": "kafka", "topic": "clicks", **source},
        "flush": {"rows": 10, "seconds": 5},
        "kafka": {"bootstrap_servers": "nowhere:9092"},
        "destinations": [{"id": "d", "catalog": "sqlite:d.sqlite", "data_path": "d"}],
    }))  # fmt: skip
    return load(file)


def opened(folder: Path, log: FakeLog, clock: Clock, **source: Any) -> KafkaSource:
    return KafkaSource(config(folder, source), log, clock, clock.now)


def test_an_idle_poll_costs_one_request_whatever_the_number_of_partitions(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(*range(50))
    source = opened(tmp_path, log, clock)
    first = source.head()
    source.observe(first)
    log.calls.clear()
    for _ in range(3):
        clock.s += 60
        assert (source.head().snapshot, source.head().time) == (first.snapshot, first.time)
    assert set(log.calls) == {"newest 50"}
    assert len(log.calls) == 6


def test_the_head_is_the_number_of_records_and_moves_with_a_flush(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(3, 4)
    source = opened(tmp_path, log, clock)
    assert source.head().snapshot == 7
    log.ends = vector(3, 6)
    clock.s += 1
    assert source.head().snapshot == 7
    clock.s += 5
    assert source.head().snapshot == 9


def test_a_look_tells_where_a_life_begins_and_which_vectors_the_heads_are(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(30, 40)
    log.low = vector(5, 1)
    source = opened(tmp_path, log, clock)
    source.head()
    log.ends = vector(45, 40)
    state = source.observe(source.head())
    assert (state.head, state.first, state.oldest, state.born) == (85, 6, 0, 0)
    assert (state.lake, state.table) == ("cluster", "topic id")
    assert state.log is not None
    assert (state.log.oldest, state.log.head, state.log.newest) == (vector(5, 1), vector(45, 40), vector(45, 40))
    assert dict(state.log.spelled) == {70: vector(30, 40), 85: vector(45, 40), 6: vector(5, 1)}


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ("earliest", vector(2, 2)),
        ("latest", vector(9, 9)),
        ({"offsets": {"0": 4}}, vector(4, 2)),
        ({"timestamp": "2026-11-01T00:00:00Z"}, vector(6, 7)),
    ],
)
def test_a_life_begins_where_the_file_says(tmp_path: Path, clock: Clock, start: Any, begins: Vector) -> None:
    log = FakeLog(9, 9)
    log.low, log.at = vector(2, 2), vector(6, 7)
    source = opened(tmp_path, log, clock, start=start)
    state = source.observe(source.head())
    assert state.log is not None
    assert state.log.spelled[state.first] == begins
    assert [each for each in log.calls if each.startswith("since")] == ["since 1793491200000"] * ("timestamp" in start)


def test_what_was_flushed_is_one_step_that_may_be_of_any_destination(tmp_path: Path, clock: Clock) -> None:
    """Also while no destination is known yet: it is not forgotten for a destination that comes later."""
    log = FakeLog(3, 4)
    source = opened(tmp_path, log, clock)
    source.head()
    clock.s += 50
    source.head()
    log.ends = vector(13, 4)
    flushed = source.head()
    (cut,) = source.cuts(Range(7, 17))
    step = source.count(cut, ())
    assert (dict(step.rows), step.total, step.pinned, step.unrouted) == ({}, 10, True, 0)
    assert [(step.touches(value), step.rows_of(value)) for value in ("", "unknown yet")] == [(True, 10)] * 2
    assert source.count(cut, ("a", "b", "c")).rows_of("b") == 4
    assert step.oldest_touch == flushed.time == clock.now() - timedelta(seconds=0)


def test_a_new_partition_is_counted_once_a_look_has_seen_it(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(3, 4)
    source = opened(tmp_path, log, clock)
    source.observe(source.head())
    log.id, log.ends = TopicIdentity("cluster", "topic id", 3), vector(3, 4, 20)
    source.observe(source.head())
    source.head()
    assert log.calls[-1] == "newest 3"


def test_a_topic_that_was_created_again_is_looked_at_anew(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(30, 40)
    source = opened(tmp_path, log, clock)
    source.observe(source.head())
    log.id, log.ends = TopicIdentity("cluster", "another", 1), vector(2)
    state = source.observe(source.head())
    assert (state.table, state.head) == ("another", 2)
    assert state.log is not None
    assert 70 not in state.log.spelled


def test_a_topic_with_fewer_partitions_is_asked_for_after_the_failure_that_this_is(
    tmp_path: Path, clock: Clock
) -> None:
    log = FakeLog(30, 40)
    source = opened(tmp_path, log, clock)
    source.head()
    log.fails = SourceError("source_gone", "no such partition", "")
    with pytest.raises(SourceError):
        source.head()
    log.fails, log.id, log.ends = None, TopicIdentity("cluster", "another", 1), vector(2)
    source.head()
    assert log.calls[-1] == "newest 1"


def test_what_is_measured_is_how_far_the_destination_is_behind_the_newest_records(tmp_path: Path, clock: Clock) -> None:
    log, metrics = FakeLog(30, 40), Metrics("clicks")
    source = KafkaSource(config(tmp_path, {}), log, clock, clock.now, metrics)
    source.head()
    source.measure([SpelledPosition(70, vector(30, 40).text), SpelledPosition(-1)])
    clock.s += 7
    log.ends = vector(30, 41)
    source.head()
    source.measure([SpelledPosition(70, vector(30, 40).text), SpelledPosition(-1)])
    shown = metrics.exposition()
    assert 'viaduck_topic_head_offset{partition="1",pipeline="clicks"} 41.0' in shown
    assert 'viaduck_topic_lag_records{pipeline="clicks"} 1.0' in shown
    assert 'viaduck_topic_lag_seconds{pipeline="clicks"} 7.0' in shown
    assert 'viaduck_flushes_total{pipeline="clicks",trigger="caught_up"} 1.0' in shown


def test_the_ends_of_partitions_are_told_beside_how_long_their_records_wait(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(30, 40)
    source = opened(tmp_path, log, clock)
    source.head()
    source.measure([SpelledPosition(70, vector(30, 40).text)])
    clock.s += 7
    log.ends = vector(30, 45)
    source.head()
    source.measure([SpelledPosition(70, vector(30, 40).text)])
    assert source.ends() == TopicEnds('{"0":30,"1":45}', {1: 7.0})


def test_records_are_planned_by_the_size_that_appliers_found(tmp_path: Path, clock: Clock) -> None:
    log, metrics = FakeLog(30), Metrics("clicks")
    source = KafkaSource(config(tmp_path, {}), log, clock, clock.now, metrics)
    source.head()
    log.ends = vector(35)
    assert source.head().snapshot == 30
    source.weigh(20_000_000)
    assert source.head().snapshot == 35
    assert 'viaduck_flushes_total{pipeline="clicks",trigger="bytes"} 1.0' in metrics.exposition()
