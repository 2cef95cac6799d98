"""The query by which docs/how-to/land-a-topic.md finds the offsets of a time in a destination's lake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Message

from services.applier.records.record_format import Metadata
from services.applier.worker import worker_state
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.positions import Vector
from tests.lake.rig import MakeLake
from tests.lake.topic_rig import APPENDED, TopicRig

PAGE = (Path(__file__).parents[2] / "docs/how-to/land-a-topic.md").read_text()
FORM = replace(APPENDED, metadata=(Metadata.PARTITION, Metadata.OFFSET, Metadata.TIMESTAMP))
PLACES = "SELECT _kafka_partition, _kafka_offset FROM dst.main.t ORDER BY ALL"


@pytest.fixture
def topic(tmp_path: Path, make_lake: MakeLake) -> Iterator[TopicRig]:
    yield TopicRig(tmp_path, make_lake, FORM)
    worker_state.forget()


def query() -> str:
    (block,) = re.findall(r"### Rewind to a time\n.*?```sql\n(.*?)```", PAGE, re.DOTALL)
    assert block.count("clicks") == 1, "the page's table"
    return str(block).replace("clicks", "dst.main.t")


def moment() -> datetime:
    (text,) = re.findall(r"TIMESTAMPTZ '(.*?)'", query())
    return datetime.fromisoformat(text)


def send(topic: TopicRig, partition: int, *minutes: int) -> None:
    """Records of so many minutes after the query's moment."""
    for each in minutes:
        at = moment().astimezone(UTC) + timedelta(minutes=each)
        sent = topic.broker.sent[partition]
        sent.append(
            Message(
                topic="clicks", partition=partition, offset=len(sent), value=b'{"id": 1}',
                timestamp=(1, round(at.timestamp() * 1000)),
            )
        )  # fmt: skip


def test_records_of_the_time_and_later_are_read_again_also_where_times_go_back(topic: TopicRig) -> None:
    topic.add("a")
    send(topic, 0, -2, -1, 0, -1, 5)
    send(topic, 1, -9, 1)
    assert topic.land("a").outcome == Outcome.APPLIED
    found = topic.look("a", query())
    assert found == [(0, 2), (1, 1)]
    topic.generations["a"] += 1
    said = topic.run(topic.target("a", ItemKind.SEED, None, Vector.of(dict(found)), keeps=True))
    assert (said.outcome, said.deleted) == (Outcome.APPLIED, 4), said.error
    assert topic.look("a", PLACES) == [(0, 0), (0, 1), (1, 0)]
    topic.land("a")
    assert topic.look("a", PLACES) == [*((0, each) for each in range(5)), (1, 0), (1, 1)]


def test_a_partition_without_a_record_of_that_time_is_not_named_and_stays(topic: TopicRig) -> None:
    topic.add("a")
    send(topic, 0, -2, 3)
    send(topic, 1, -9, -8)
    topic.land("a")
    assert topic.look("a", query()) == [(0, 1)]
