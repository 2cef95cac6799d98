"""A compacted topic of a real broker: the log cleaner takes records before Viaduck reads them, and while it waits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.phases import phase
from tests.e2e.topic_pipelines import WITHIN_S, TopicPipelines
from tests.e2e.topics import Topic, committed_places
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "1000",
    "min_cleanable_dirty_ratio": "0.0",
    "min_compaction_lag_ms": "0",
    "max_compaction_lag_ms": "1000",
}
SECTIONS: dict[str, dict[str, Any]] = {
    "keyed": {
        "source": {"format": {"key": "text"}, "metadata": ["partition", "offset", "timestamp", "key"]},
        "routing": {"key_columns": ["_kafka_key"]},
    },
    "appended": {"source": {}, "routing": {}},
}
"""Of two pipelines that land one topic."""

ROWS = {
    "keyed": "SELECT _kafka_key, v, _kafka_offset FROM dst.main.t",
    "appended": "SELECT _kafka_partition, _kafka_offset FROM dst.main.t",
}


class Compacted:
    """A topic whose records each begin a segment, so that all but the newest record of each partition are cleaned."""

    def __init__(self, kafka: Kafka) -> None:
        self.topic = Topic(kafka, 2, **COMPACTED)
        self._at_ms = int(time.time() * 1000) - 36_000_000

    def send(self, key: str, value: Any, partition: int = 0) -> None:
        """A broker rolls a segment by the times of its records, so nobody waits for it."""
        self._at_ms += 10_000
        self.topic.send(value, partition=partition, key=key, at_ms=self._at_ms)

    def places(self) -> set[tuple[int, int]]:
        return committed_places(self.topic.kafka, self.topic.name)

    def wait_until_cleaned(self, *left: tuple[int, int]) -> None:
        """Until a consumer sees these records alone."""
        eventually(lambda: self.places() == set(left), WITHIN_S)


def deployment(folder: Path, topic: Topic) -> TopicPipelines:
    return TopicPipelines(folder, topic.kafka, {
        name: {**sections, "source": {"topic": topic.name, **sections["source"]}} for name, sections in SECTIONS.items()
    })  # fmt: skip


@pytest.mark.timeout(600)
def test_of_a_compacted_topic_a_key_has_its_newest_record_and_holes_are_no_gap(kafka: Kafka, tmp_path: Path) -> None:
    compacted = Compacted(kafka)
    for version in range(3):
        for key in ("a", "b", "c"):
            compacted.send(key, {"v": f"{key}{version}"})
        compacted.send("d", {"v": f"d{version}"}, partition=1)
    compacted.send("c", None)
    compacted.send("x", {"v": "x"})
    compacted.send("y", {"v": "y"}, partition=1)
    compacted.wait_until_cleaned((0, 6), (0, 7), (0, 9), (0, 10), (1, 2), (1, 3))
    pipelines, others = deployment(tmp_path, compacted.topic), [("x", "x", 10), ("y", "y", 3)]
    with pipelines.run() as viaduck:
        with phase("what compaction left is landed"):
            viaduck.wait_until("what compaction left", lambda: pipelines.are_at(15), WITHIN_S)
            pipelines.ask_each("pause")
            assert pipelines.rows("keyed", ROWS["keyed"]) == [("a", "a2", 6), ("b", "b2", 7), ("d", "d2", 2), *others]
            assert sorted(pipelines.rows("appended", ROWS["appended"])) == sorted(compacted.places())
            proofs = pipelines.proofs()
            assert {name: (each["result"], each["rows"]) for name, each in proofs.items()} == {
                "keyed": ("equal", 5), "appended": ("equal", 6),
            }  # fmt: skip

        with phase("compaction goes on behind the position, and past it"):
            for value in ("a3", "a4", "a5"):
                compacted.send("a", {"v": value})
            compacted.send("b", None)
            compacted.send("e", {"v": "e"})
            compacted.wait_until_cleaned((0, 9), (0, 10), (0, 13), (0, 14), (0, 15), (1, 2), (1, 3))
            pipelines.ask_each("resume")
            viaduck.wait_until("what compaction left then", lambda: pipelines.are_at(20), WITHIN_S)
    assert pipelines.rows("keyed", ROWS["keyed"]) == [("a", "a5", 13), ("d", "d2", 2), ("e", "e", 15), *others]
    landed = sorted(pipelines.rows("appended", ROWS["appended"]))
    assert landed == [*((0, each) for each in (6, 7, 9, 10, 13, 14, 15)), (1, 2), (1, 3)]
    proofs = pipelines.proofs()
    assert (proofs["keyed"]["result"], proofs["keyed"]["rows"]) == ("equal", 5)
    since = (proofs["appended"]["missing"], proofs["appended"]["extra"])
    assert since == (0, 2), "the records of two rows were taken after they had landed"
