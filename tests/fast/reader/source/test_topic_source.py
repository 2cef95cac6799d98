"""A topic as the reader sees it: what it asks a broker for, and what it makes of the answers."""

from __future__ import annotations

import re
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
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.kafka.topic_log import TopicIdentity
from shared.runtime.metrics import MOST_PARTITIONS, Metrics

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


def series(metrics: Metrics, name: str) -> dict[str, float]:
    """The values of a metric by the label that tells its series apart."""
    sample = rf'^viaduck_{name}{{.*(?:partition|trigger)="(\w+)".*}} (.+)$'
    shown = re.findall(sample, metrics.exposition(), re.MULTILINE)
    return {label: float(value) for label, value in shown}


class Measured:
    """A source whose topic is looked at, and whose metrics are shown."""

    def __init__(self, folder: Path, log: FakeLog, clock: Clock, **source: Any) -> None:
        self.metrics, self.log = Metrics("clicks"), log
        self.source = KafkaSource(config(folder, source), log, clock, clock.now, self.metrics)
        self._clock = clock

    def look(self, *reached: Vector, after_s: float = 0.0) -> None:
        """``reached``: where destinations are that have their tables; there is another one, which has none yet."""
        self._clock.s += after_s
        self.source.observe(self.source.head())
        self.source.head()
        known = [SpelledPosition(each.records, each.text) for each in reached]
        self.source.measure([*known, SpelledPosition(NOT_SEEDED)])

    def become(self, identity: str, *offsets: int) -> None:
        self.log.id, self.log.ends = TopicIdentity("cluster", identity, len(offsets)), vector(*offsets)


def test_each_partition_has_its_offsets_and_one_without_records_has_zeros(tmp_path: Path, clock: Clock) -> None:
    measured = Measured(tmp_path, FakeLog(30, 0, 40), clock)
    measured.look(vector(20, 0, 40), vector(30, 0, 10))
    assert series(measured.metrics, "topic_head_offset") == {"0": 30, "1": 0, "2": 40}
    assert series(measured.metrics, "topic_position_offset") == {"0": 20, "1": 0, "2": 10}


def test_a_position_that_went_back_to_the_first_record_is_shown_there(tmp_path: Path, clock: Clock) -> None:
    measured = Measured(tmp_path, FakeLog(30, 40), clock)
    measured.look(vector(30, 40))
    measured.look(vector(30, 0))
    assert series(measured.metrics, "topic_position_offset") == {"0": 30, "1": 0}


def test_partitions_have_series_of_their_own_up_to_64_and_more_have_none(tmp_path: Path, clock: Clock) -> None:
    measured = Measured(tmp_path, FakeLog(*range(64)), clock)
    measured.look(vector(*range(64)))
    assert MOST_PARTITIONS == 64
    assert len(series(measured.metrics, "topic_head_offset")) == 64
    assert len(series(measured.metrics, "topic_position_offset")) == 64
    measured.become("topic id", *range(65))
    measured.look(vector(*range(64)))
    assert series(measured.metrics, "topic_head_offset") == {}
    assert series(measured.metrics, "topic_position_offset") == {}


def test_a_topic_made_again_with_fewer_partitions_leaves_no_series_of_the_others(tmp_path: Path, clock: Clock) -> None:
    measured = Measured(tmp_path, FakeLog(*range(1, 65)), clock)
    measured.look(vector(*range(1, 65)))
    measured.become("another", 5, 0)
    measured.look(vector(3))
    assert series(measured.metrics, "topic_head_offset") == {"0": 5, "1": 0}
    assert series(measured.metrics, "topic_position_offset") == {"0": 3, "1": 0}


def test_before_the_first_seed_all_records_wait_from_where_a_life_begins(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(30, 40)
    log.low = vector(5, 1)
    measured = Measured(tmp_path, log, clock)
    measured.look()
    measured.look(after_s=7)
    shown = measured.metrics.exposition()
    assert 'viaduck_topic_lag_records{pipeline="clicks"} 64.0' in shown
    assert 'viaduck_topic_lag_seconds{pipeline="clicks"} 7.0' in shown
    assert series(measured.metrics, "topic_position_offset") == {}


def test_without_a_destination_that_was_seeded_no_position_is_shown_any_more(tmp_path: Path, clock: Clock) -> None:
    measured = Measured(tmp_path, FakeLog(30, 40), clock)
    measured.look(vector(30, 40))
    measured.look()
    assert series(measured.metrics, "topic_position_offset") == {}


def test_a_topic_that_was_never_looked_at_has_no_lag(tmp_path: Path, clock: Clock) -> None:
    """Zero would say that nothing waits."""
    measured = Measured(tmp_path, FakeLog(30), clock)
    measured.source.measure([])
    assert "viaduck_topic_lag_records{" not in measured.metrics.exposition()
    assert "viaduck_topic_lag_seconds{" not in measured.metrics.exposition()


def test_what_made_records_due_is_counted(tmp_path: Path, clock: Clock) -> None:
    log = FakeLog(30)
    measured = Measured(tmp_path, log, clock)
    measured.look()
    log.ends = vector(41)
    measured.look()
    log.ends = vector(42)
    measured.look(after_s=1)
    assert series(measured.metrics, "flushes_total") == {"caught_up": 1, "rows": 1}
    measured.look(after_s=6)
    assert series(measured.metrics, "flushes_total") == {"caught_up": 1, "rows": 1, "seconds": 1}
