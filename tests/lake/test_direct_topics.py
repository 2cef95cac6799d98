"""Direct commits to a topic's destination: equal to the extension's, by vector, and after what is rejected."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.applier.records.record_format import DeclaredColumn, RecordFormat
from services.applier.worker import worker_state
from shared.config.model import CommitChoice
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.contracts.positions import Vector
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import path
from tests.lake.batches import before_commit, lose_acknowledgements
from tests.lake.rig import MakeLake
from tests.lake.topic_rig import APPENDED, EVENTS, KEYED, TopicRig
from tests.lake.twins import EXPIRE, MAINTENANCE
from tests.servers.postgres import Postgres

MakeTopicRig = Callable[..., TopicRig]
ON_POSTGRES = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)

WAYS: dict[str, tuple[CommitChoice, ...]] = {
    "direct": ("auto",), "extension": ("extension",), "mixed": ("auto", "extension")
}  # fmt: skip
OF_ONE_TRY = ("token", "destination", "commit")

APPLY = 4
"""Statements to a destination's catalog of an apply: what columns the table has, the look, and a batch of two."""


@pytest.fixture
def make_topic(tmp_path: Path, make_lake: MakeLake) -> Iterator[MakeTopicRig]:
    def make(form: RecordFormat = APPENDED) -> TopicRig:
        return TopicRig(tmp_path, make_lake, form)

    yield make
    worker_state.forget()


@pytest.fixture
def topic(make_topic: MakeTopicRig) -> TopicRig:
    """A destination at (1, 1) whose table has all the columns that records ask for."""
    made = make_topic()
    made.add("a")
    made.broker.send({"id": 1, "v": "x"})
    made.broker.send({"id": 2, "v": "y"}, partition=1)
    said = made.land("a")
    assert (said.outcome, said.commit, said.commit_reason) == (Outcome.APPLIED, CommitPath.DIRECT, None), said.error
    return made


def send_some(topic: TopicRig, rng: random.Random, fields: list[str]) -> None:
    for _ in range(rng.randrange(1, 12)):
        number, partition = rng.randrange(30), rng.randrange(2)
        if rng.random() < 0.15:
            topic.broker.send(None, partition, key={"id": number})
            continue
        row = {"id": number, "v": rng.choice(["", "é", "a" * 300, "{AUTHOR", None])}
        row |= {name: rng.choice([1, None]) for name in fields if rng.random() < 0.5}
        topic.broker.send(b"no JSON" if rng.random() < 0.1 else row, partition, key={"id": number})


@pytest.mark.parametrize("form", [APPENDED, KEYED], ids=["appended", "keyed"])
def test_twins_of_a_topic_are_equal_row_by_row_cursor_by_cursor_and_stamp_by_stamp(
    make_topic: MakeTopicRig, form: RecordFormat, request: pytest.FixtureRequest
) -> None:
    topic, rng, said = make_topic(form), random.Random(request.node.name), Counter[str]()
    fields = list[str]()
    for name in WAYS:
        topic.add(name)
    for step in range(6):
        if step == 3:
            fields.append("later")  # a column more
        send_some(topic, rng, fields)
        cut = Vector.of({each: rng.randrange(last + 1) for each, last in topic.broker.end.offsets})
        for end in (cut.joined(topic.positions["direct"]), topic.broker.end):
            if end == topic.positions["direct"]:
                continue
            for name, ways in WAYS.items():
                progress = topic.land(name, end, rng.choice(ways), item=f"through {end.text}")
                assert (progress.outcome, progress.position_at) == (Outcome.APPLIED, end.text), progress.error
                said[f"{name} {progress.commit} {progress.commit_reason}"] += 1
        if step in (1, 4):
            require_same(topic)  # while all snapshots are retained
            for name in WAYS:
                topic.write(name, *MAINTENANCE)
    require_same(topic)
    assert said["direct direct None"] > said.total() / 6, said
    reasons = {each.rpartition(" ")[2] for each in said if each.startswith("direct extension")}
    assert reasons == {"schema_change", "cursor_in_file"}, said


def require_same(topic: TopicRig) -> None:
    assert topic.rows("direct") == topic.rows("mixed") == topic.rows("extension")
    assert topic.cursor("direct") == topic.cursor("mixed") == topic.cursor("extension")
    assert told(topic, "direct") == told(topic, "mixed") == told(topic, "extension")


def told(topic: TopicRig, name: str) -> list[dict[str, Any]]:
    """Of all retained commits but the seed, whose item is another one for each."""
    said = [each for each in topic.stamps(name) if each["kind"] != "seed"]
    return [{key: each[key] for key in each if key not in OF_ONE_TRY} for each in said]


def test_an_item_of_another_vector_of_the_same_sum_is_a_gap_and_writes_nothing(topic: TopicRig) -> None:
    topic.broker.send({"id": 3, "v": "z"})
    before = topic.stamps("a")
    said = topic.run(topic.target("a", ItemKind.CHANGES, Vector.of({0: 2}), Vector.of({0: 2, 1: 1})))
    assert (said.outcome, said.position_at) == (Outcome.GAP, '{"0":1,"1":1}')
    assert topic.stamps("a") == before


def test_an_advance_moves_the_vector_alone(topic: TopicRig) -> None:
    rows, end = topic.rows("a"), Vector.of({0: 7, 1: 1})
    said = topic.run(topic.target("a", ItemKind.ADVANCE, topic.positions["a"], end))
    assert (said.outcome, said.commit, said.position_at) == (Outcome.APPLIED, CommitPath.DIRECT, end.text)
    assert topic.rows("a") == rows
    assert topic.stamps("a")[-1]["through_at"] == end.text


def test_a_late_batch_is_refused_where_another_one_has_reached_the_same_sum(
    topic: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie's: both begin at (1, 1), and end at (2, 1) and at (1, 2)."""
    topic.broker.send({"id": 3, "v": "of the zombie"})
    topic.broker.send({"id": 4, "v": "of the other"}, partition=1)
    begin = topic.positions["a"]

    def other() -> None:
        done = topic.run(topic.target("a", ItemKind.CHANGES, begin, Vector.of({0: 1, 1: 2})))
        assert (done.outcome, done.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
        topic.write("a", "CREATE TABLE dst.main.later (i INTEGER)", EXPIRE)

    before_commit(monkeypatch, other)
    said = topic.run(topic.target("a", ItemKind.CHANGES, begin, Vector.of({0: 2, 1: 1})))
    assert (said.outcome, said.position_at) == (Outcome.GAP, '{"0":1,"1":2}')
    assert [row[1] for row in topic.look("a", "SELECT id, v FROM dst.main.t ORDER BY id")] == ["x", "y", "of the other"]


def test_rejected_records_are_delivered_once_and_before_the_batch(
    topic: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.broker.send(b"no JSON")
    topic.broker.send({"id": 3, "v": "z"})
    at_batches = list[int]()

    def rival() -> None:
        at_batches.append(len(topic.broker.delivered))
        topic.write("a", f"CREATE TABLE dst.main.rival{len(at_batches)} (i INTEGER)")

    before_commit(monkeypatch, rival, times=2)
    said = topic.land("a")
    assert (said.outcome, said.commit, said.inserted) == (Outcome.APPLIED, CommitPath.DIRECT, 1), said.error
    assert at_batches == [1, 1]
    assert topic.broker.delivered == [(0, 1)]
    assert topic.stamps("a")[-1]["rejected"] == 1


def test_nothing_is_committed_or_left_where_rejected_records_can_not_be_delivered(topic: TopicRig) -> None:
    topic.broker.send(b"no JSON")
    topic.broker.send({"id": 3, "v": "z"})
    known, stamps = topic.files("a"), topic.stamps("a")
    topic.broker.is_away = True
    said = topic.land("a")
    assert (said.outcome, said.error and said.error.type) == (Outcome.FAILED, "source_unreachable")
    assert (topic.files("a"), topic.stamps("a")) == (known, stamps)
    topic.broker.is_away = False
    assert topic.land("a").commit is CommitPath.DIRECT


def test_rejected_records_of_an_item_that_does_not_fit_are_not_delivered(topic: TopicRig) -> None:
    topic.broker.send(b"no JSON")
    said = topic.run(topic.target("a", ItemKind.CHANGES, Vector.of({0: 2}), Vector.of({0: 2, 1: 1})))
    assert said.outcome is Outcome.GAP
    assert topic.broker.delivered == []


def test_values_that_only_the_tables_rows_tell_are_the_extensions(make_topic: MakeTopicRig) -> None:
    topic = make_topic(EVENTS)
    topic.add("a")
    left_out = {"id": 1, "v": "__debezium_unavailable_value"}
    for number, event in enumerate((
        {"op": "c", "after": {"id": 1, "v": "large"}},
        {"op": "u", "after": left_out},
        {"op": "d", "before": {"id": 1, "v": None}},
    )):  # fmt: skip
        topic.broker.send({"before": None, "after": None, "source": {}, **event}, key={"id": 1})
        said = topic.land("a")
        expected = ("extension", "left_out") if number == 1 else ("direct", None)
        assert (said.outcome, said.commit, said.commit_reason) == (Outcome.APPLIED, *expected), said.error
        assert [row[:2] for row in topic.rows("a")] == ([] if number == 2 else [(1, "large")])


def test_a_cursor_without_a_spelling_is_judged_by_the_extension(topic: TopicRig) -> None:
    topic.write("a", f"ALTER TABLE {path('dst', SCHEMA, cursor_name('p', 'a'))} DROP COLUMN source_position")
    topic.broker.send({"id": 3, "v": "z"})
    said = topic.land("a")
    assert (said.outcome, said.commit) == (Outcome.GAP, None)


@pytest.mark.parametrize("said", ['{"0":3}', "{}", "x"])
def test_a_cursor_whose_spelling_contradicts_its_position_is_damaged(topic: TopicRig, said: str) -> None:
    topic.write("a", f"UPDATE {path('dst', SCHEMA, cursor_name('p', 'a'))} SET source_position = '{said}'")
    topic.broker.send({"id": 3, "v": "z"})
    progress = topic.land("a")
    assert (progress.outcome, progress.error and progress.error.type) == (Outcome.PARKED, "cursor_damaged")


def test_a_stranger_s_column_is_seen_before_the_records_are_read(topic: TopicRig) -> None:
    """By a worker that remembers the table without it."""
    topic.write("a", "ALTER TABLE dst.main.t ADD COLUMN n BIGINT")
    topic.broker.send({"id": 3, "v": "z", "n": 3})
    said = topic.land("a")
    assert (said.outcome, said.commit) == (Outcome.APPLIED, CommitPath.DIRECT), said.error
    assert topic.look("a", "SELECT id, n FROM dst.main.t ORDER BY id") == [(1, None), (2, None), (3, 3)]


@ON_POSTGRES
def test_an_apply_takes_so_many_statements_and_no_attached_lake(topic: TopicRig, postgres: Postgres) -> None:
    worker_state.forget()  # which had it attached for the seed
    for number in range(2):
        topic.broker.send({"id": 3 + number, "v": "z"})
        postgres.count_statements()
        said = topic.land("a")
        assert said.commit is CommitPath.DIRECT, said.error
    assert postgres.statements(database_of(topic)) <= APPLY
    assert len(worker_state.worker(worker_state._worker.limits).pool) == 0  # type: ignore[union-attr]


@ON_POSTGRES
def test_a_lost_acknowledgement_costs_no_file_and_the_answer_tells_what_was_skipped(
    topic: TopicRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H7: DuckLake's extension deletes what it has just committed."""
    topic.broker.send({"id": 3, "v": "gone"})
    topic.broker.send({"id": 4, "v": "z"})
    topic.broker.gone = Vector.of({0: 2})
    after, skipped = Vector.of({0: 2, 1: 1}), {"item": "skips", "offsets": {0: (1, 2)}}
    lose_acknowledgements(monkeypatch)
    said = topic.land("a", item="skips", after=after.records, after_at=after.text)
    assert (said.outcome, said.commit, said.position_at) == (Outcome.APPLIED, CommitPath.DIRECT, '{"0":3,"1":1}')
    assert [row[0] for row in topic.rows("a")] == [1, 2, 4]
    for answer in (said, probed(topic)):
        assert answer.skipped is not None
        assert answer.skipped.model_dump() == skipped
    assert len(worker_state._worker.pool) == 0, "no lake stays attached"  # type: ignore[union-attr]


def probed(topic: TopicRig) -> Progress:
    said = topic.run(topic.target("a", ItemKind.PROBE, None, Vector()))
    assert (said.outcome, said.position_at) == (Outcome.ALREADY_APPLIED, topic.positions["a"].text)
    return said


def database_of(topic: TopicRig) -> str:
    with closing(psycopg.connect(topic.lakes["a"].conninfo)) as con:
        return con.info.dbname


MOMENTS = {
    "2024-01-01 10:00:00": "2024-01-01 10:00:00+00",
    "2024-01-01T10:00:00Z": "2024-01-01 10:00:00+00",
    "2024-01-01T10:00:00+13:45": "2023-12-31 20:15:00+00",
    "2024-06-30": "2024-06-30 00:00:00+00",
}


def test_a_moment_without_a_zone_is_in_utc_wherever_the_worker_runs(make_topic: MakeTopicRig) -> None:
    assert time.localtime().tm_gmtoff != 0  # by tests/__init__.py
    topic = make_topic(RecordFormat(columns=(DeclaredColumn("moment", "$.at", "TIMESTAMP WITH TIME ZONE"),)))
    topic.add("a")
    for text in MOMENTS:
        topic.broker.send({"at": text})
    assert topic.land("a").outcome == "applied"
    found = topic.look("a", "SELECT CAST(moment AS VARCHAR) FROM dst.main.t ORDER BY rowid")
    assert [text for (text,) in found] == list(MOMENTS.values())
