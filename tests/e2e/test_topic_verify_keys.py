"""``viaduck verify`` of tables whose rows have keys: each key's newest record has its row, and no other one has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.applier.model.topic import form_of
from services.cli.verify.comparison import ComparisonResult, Subject, Verdict
from services.cli.verify.topic_proof import proofs
from shared.config.deployment import load_all
from shared.config.model import Config
from shared.contracts.messages import SeedMode
from tests.e2e.topics import Landing, Topic
from tests.fast.control.files import write

CLICKS = "dst.main.clicks"
ALL = ["partition", "offset"]


class Keyed:
    """A destination with keys, landed, and what is said of it. Its broker is a user's: it keeps rejected records."""

    def __init__(self, topic: Topic, folder: Path, landing: Callable[..., Landing], **source: Any) -> None:
        self._config = configured(topic, folder, source)
        assert self._config.topic is not None
        self._landed = landing(form=form_of(self._config, self._config.topic))

    def land(self, **offsets: int) -> None:
        said = self._landed.land(**offsets)
        assert said.error is None, said.error

    def write(self, *statements: str) -> None:
        self._landed.write(*statements)

    def verdict(self) -> Verdict:
        (found,) = proofs(self._config, [Subject("p", "d", "", self._landed.lake, "main", "clicks", SeedMode.REPLAY)])
        return found

    def differing(self) -> tuple[ComparisonResult, int, int]:
        found = self.verdict()
        assert found.problem is None, found.problem
        return found.finding, found.differences.missing, found.differences.extra


def configured(topic: Topic, folder: Path, source: dict[str, Any]) -> Config:
    declared = {
        "kind": "kafka",
        "topic": topic.name,
        "columns": [{"name": "id", "path": "$.id", "type": "BIGINT"}],
        "format": {"value": "json", "key": "json"},
        "metadata": ALL,
    }
    kafka = {"bootstrap_servers": topic.kafka.bootstrap, "topic_prefix": topic.name}
    file = write(
        folder, pipeline="p", source={**declared, **source}, routing={"key_columns": ["id"]}, kafka=kafka,
        state_dir=str(folder / "state"),
    )  # fmt: skip
    return load_all([file]).configs[0]


@pytest.fixture
def keyed(topic: Topic, tmp_path: Path, landing: Callable[..., Landing]) -> Keyed:
    """Of ids 1 to 4, the first of which was changed, the last of which was deleted."""
    made = Keyed(topic, tmp_path, landing)
    topic.send({"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 1, "v": "c"}, {"id": 4, "v": "d"})
    topic.send(None, key='{"id": 4}')
    topic.send({"id": 3, "v": "e"}, partition=1)
    made.land(p0=5, p1=1)
    return made


def test_a_table_that_holds_the_newest_records_alone_is_equal_and_nothing_is_left_open(keyed: Keyed) -> None:
    found = keyed.verdict()
    assert (found.finding, found.rows, found.note) == (ComparisonResult.EQUAL, 3, "")


@pytest.mark.parametrize(
    ("tampered", "missing", "extra"),
    [
        ("DELETE FROM {} WHERE id = 2", 1, 0),
        ("UPDATE {} SET _kafka_offset = 0 WHERE id = 1", 1, 1),
        ("INSERT INTO {} (id, v, _kafka_partition, _kafka_offset) VALUES (4, 'd', 0, 3)", 0, 1),
        ("INSERT INTO {0} SELECT * FROM {0} WHERE id = 3", 0, 1),
    ],
    ids=["a row is missing", "an older record's row", "the row of a key that was deleted", "a row twice"],
)
def test_a_table_that_holds_anything_else_is_different(keyed: Keyed, tampered: str, missing: int, extra: int) -> None:
    keyed.write(tampered.format(CLICKS))
    assert keyed.differing() == (ComparisonResult.DIFFERENT, missing, extra)


def test_of_a_key_in_several_partitions_any_of_the_newest_records_may_be_the_row(topic: Topic, keyed: Keyed) -> None:
    """Offsets don't tell which came last, such as after partitions were added."""
    topic.send({"id": 3, "v": "in another partition"})
    keyed.land(p0=6, p1=1)
    found = keyed.verdict()
    assert (found.finding, found.rows) == (ComparisonResult.EQUAL, 3)
    assert "several partitions" in found.note
    keyed.write(f"UPDATE {CLICKS} SET _kafka_partition = 1, _kafka_offset = 0 WHERE id = 3")
    assert keyed.differing() == (ComparisonResult.EQUAL, 0, 0)
    keyed.write(f"UPDATE {CLICKS} SET _kafka_partition = 0, _kafka_offset = 4 WHERE id = 3")
    assert keyed.differing() == (ComparisonResult.DIFFERENT, 0, 1)


def test_the_rows_of_change_events_are_those_of_the_newest_events(
    topic: Topic, tmp_path: Path, landing: Callable[..., Landing]
) -> None:
    made = Keyed(topic, tmp_path, landing, format={"value": "debezium", "key": "json"})
    topic.send(*(event("c", {"id": each, "v": "a"}) for each in range(1, 5)))
    topic.send(event("u", {"id": 2, "v": "__debezium_unavailable_value"}, {"id": 2}))
    topic.send(event("u", {"id": 9, "v": "b"}, {"id": 3, "v": "a"}), event("d", None, {"id": 4, "v": "a"}))
    topic.send(None, key='{"id": 4}')
    made.land(p0=8)
    found = made.verdict()
    assert (found.finding, found.rows, found.note) == (ComparisonResult.EQUAL, 3, "")
    made.write(f"INSERT INTO {CLICKS} (id, v, _kafka_partition, _kafka_offset) VALUES (3, 'a', 0, 2)")
    assert made.differing() == (ComparisonResult.DIFFERENT, 0, 1)


def event(op: str, after: dict[str, Any] | None, before: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


def test_without_places_rows_are_counted(topic: Topic, tmp_path: Path, landing: Callable[..., Landing]) -> None:
    made = Keyed(topic, tmp_path, landing, metadata=[])
    topic.send({"id": 1}, {"id": 2}, {"id": 1})
    made.land(p0=3)
    found = made.verdict()
    assert (found.finding, found.rows) == (ComparisonResult.EQUAL, 2)
    assert "counted" in found.note
    made.write(f"DELETE FROM {CLICKS} WHERE id = 2")
    assert made.differing() == (ComparisonResult.DIFFERENT, 1, 0)


def test_rows_whose_records_retention_took_are_none_too_many_where_rows_are_counted(
    topic: Topic, tmp_path: Path, landing: Callable[..., Landing]
) -> None:
    made = Keyed(topic, tmp_path, landing, metadata=[])
    topic.send({"id": 1}, {"id": 2}, {"id": 3})
    made.land(p0=3)
    topic.forget_before(p0=2)
    assert made.differing() == (ComparisonResult.EQUAL, 0, 0)
