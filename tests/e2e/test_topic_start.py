"""``source.start`` on a real broker: which of a topic's records a destination gets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.reader.source.topic_source import KafkaSource
from shared.contracts.positions import Vector
from shared.kafka.topic_log import TopicLog
from tests.e2e.test_topic_check import deployment
from tests.e2e.topics import Landing, Topic, values
from tests.fast.waiting import eventually

NOW = datetime.now(UTC).replace(microsecond=0)


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def fill(topic: Topic) -> None:
    """Ids are times 10 the hours since then; the first record is gone."""
    for partition, times in enumerate([(4, 3, 2), (2.5, 1)]):
        for hours in times:
            topic.send({"id": int(10 * hours)}, partition=partition, at_ms=int(ago(hours).timestamp() * 1000))
    topic.forget_before(p0=1)


@pytest.mark.parametrize(
    ("start", "ids"),
    [
        ("earliest", [30, 25, 20, 10]),
        ("latest", []),
        ({"offsets": {"0": 2, "1": 1}}, [20, 10]),
        ({"offsets": {"1": 1}}, [30, 20, 10]),
        ({"timestamp": ago(2.5).isoformat()}, [25, 20, 10]),
        ({"timestamp": ago(1.5).isoformat()}, [10]),
        ({"timestamp": ago(0.5).isoformat()}, []),
    ],
    ids=["earliest", "latest", "offsets", "the offset of one partition", "a time", "a later time", "behind all times"],
)
def test_a_destination_gets_the_records_from_where_the_file_says(
    topic: Topic, landing: Callable[..., Landing], tmp_path: Path, start: Any, ids: list[int]
) -> None:
    fill(topic)
    landed = landing()
    (config,) = deployment(tmp_path, topic, start=start).configs
    log = TopicLog(landed.settings, topic.name, "test")
    eventually(lambda: log.oldest(2) == Vector.of({0: 1}))
    source = KafkaSource(config, log)
    state = source.observe(source.head())
    assert state.log is not None
    landed.generation = 2
    landed.seed(state.log.spelled[state.first])
    topic.send({"id": 0}, {"id": -1})
    assert landed.land(p0=5, p1=2).outcome == "applied"
    assert sorted(values(landed.rows_of("SELECT id FROM dst.main.clicks"))) == sorted([*ids, 0, -1])
