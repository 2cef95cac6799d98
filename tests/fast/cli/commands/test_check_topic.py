"""What ``viaduck check`` says of a sample of a topic's records, and which records that are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.applier.worker.topic_sample import MOST, TopicSample, span
from services.cli.commands.check_topic import faults_of_start, layouts_that_wait, registry_answer, routed_of, said_of
from services.cli.output.findings import MOST_COLUMNS, CheckFinding, show
from shared.config.model import Config, TopicSource
from shared.contracts.positions import Vector
from tests.fast.control.files import config
from tests.servers.ports import free_port
from tests.servers.registry import running_registry


def test_a_sample_is_told_in_one_sentence() -> None:
    assert said_of(TopicSample(0, 0, 0, (), {}, "", {})) == "no record yet; these columns come first"
    assert said_of(TopicSample(3, 3, 0, (), {}, "", {})) == "of the newest 3 records 3 would be rows"
    rejected = dict.fromkeys("abcdef", 1) | {"not_json": 2}
    said = said_of(TopicSample(12, 3, 1, (), rejected, "offset 1 of partition 0: why", {"": 1, "amount": 2}))
    assert said == (
        "of the newest 12 records 3 would be rows, 1 would delete their key,"
        " 8 would be rejected (not_json: 2, a: 1, b: 1, c: 1, d: 1, …),"
        " 3 values would go to _rescued (amount: 2, fields without a column: 1);"
        " first rejected: offset 1 of partition 0: why"
    )


@pytest.mark.parametrize("partitions", [1, 3, 100, 1_000])
def test_a_sample_is_of_the_end_of_each_partition_and_bounded(partitions: int) -> None:
    oldest = Vector.of(dict.fromkeys(range(partitions), 7))
    newest = Vector.of({each: 7 if each == 0 and partitions > 1 else 1_000 for each in range(partitions)})
    begin, end = span(oldest, newest)
    assert 0 < end.records - begin.records <= MOST
    assert all(newest.by_partition[each] == offset for each, offset in end.offsets)


def test_nothing_is_read_of_an_empty_topic() -> None:
    assert span(Vector.of({0: 5}), Vector.of({0: 5})) == (Vector(), Vector())


def test_a_wide_table_is_cut_and_names_can_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (("\x1b[2J", "BIGINT"), *((f"c{number}", "BIGINT") for number in range(MOST_COLUMNS + 1)))
    show([CheckFinding("sample", True, "", columns=columns)])
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said
    assert "… and 2 more columns" in said


def test_of_a_topic_that_is_routed_it_is_counted_what_goes_where_and_no_value_is_shown() -> None:
    found = TopicSample(9, 9, 0, (), {}, "", {}, {"acme": 4, "hooli": 2, "secret": 1}, unrouted=2)
    said = routed_of(found, frozenset({"acme", "globex"}))
    assert said == "; 4 go to the file's destinations, 3 are of 2 values that none of them has, 2 have none"


def landing(folder: Path, source: Mapping[str, Any], **sections: Any) -> tuple[Config, TopicSource]:
    """The file of a topic, and its source."""
    entry = {"id": "clicks", "catalog": "sqlite:lakes/clicks.sqlite", **sections.pop("entry", {})}
    topic = {"kind": "kafka", "topic": "clicks", "bootstrap_servers": "nowhere:9092", **source}
    made = config(folder, [entry], source=topic, routing={}, **sections)
    assert made.topic is not None
    return made, made.topic


def test_a_start_at_an_offset_that_is_not_there_is_told(tmp_path: Path) -> None:
    _, topic = landing(tmp_path, {"start": {"offsets": {"0": 30, "1": 41, "7": 0}}})
    assert faults_of_start(topic, 3, Vector.of({0: 30, 1: 40})) == [
        "source.start.offsets.1: is 41, and the partition ends at offset 40; write at most that",
        "source.start.offsets.7: is no partition of the topic, which has 3: 0 to 2; remove it",
    ]


def test_a_start_at_offsets_that_are_there_is_fine(tmp_path: Path) -> None:
    _, topic = landing(tmp_path, {"start": {"offsets": {"0": 30, "2": 0}}})
    assert faults_of_start(topic, 3, Vector.of({0: 30})) == []


def test_a_registry_that_is_down_is_told_whatever_the_topic_holds(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    _, topic = landing(tmp_path, {"format": {"value": "avro", "registry": {"url": f"http://{place}"}}})
    found = registry_answer(topic)
    assert found is not None
    assert (found.what, found.fine) == (f"schema registry {place}", False)
    assert "source.format.registry" in found.hint


def test_a_registry_is_asked_once(tmp_path: Path) -> None:
    with running_registry() as registry:
        _, topic = landing(tmp_path, {"format": {"value": "avro", "registry": {"url": registry.url}}})
        found = registry_answer(topic)
        assert found is not None
        assert found.fine
        assert len(registry.asked) == 1
        registry.status = 401
        refused = registry_answer(topic)
    assert refused is not None
    assert not refused.fine
    assert "401" in refused.said


def test_without_a_registry_there_is_none_to_ask(tmp_path: Path) -> None:
    assert registry_answer(landing(tmp_path, {})[1]) is None


def test_a_layout_by_a_column_that_only_records_bring_is_told(tmp_path: Path) -> None:
    """A life begins with the declared columns and those of metadata: it parks before it takes a record."""
    declared = {"columns": [{"name": "Id", "path": "$.id", "type": "BIGINT"}]}
    entry = {"layout": {"sorted_by": "id, amount DESC"}}
    layout = {"partitioned_by": "year(at), month(at), day(_kafka_timestamp)"}
    (found,) = layouts_that_wait(*landing(tmp_path, declared, layout=layout, entry=entry))
    assert (found.what, found.fine) == ("layout of clicks", False)
    assert "amount, at" in found.said
    assert "source.columns" in found.hint


@pytest.mark.parametrize(
    "layout", [{}, {"partitioned_by": "same", "sorted_by": "same"}, {"sorted_by": "_kafka_offset"}]
)
def test_a_layout_by_columns_that_are_there_from_the_first_is_fine(tmp_path: Path, layout: dict[str, str]) -> None:
    assert list(layouts_that_wait(*landing(tmp_path, {}, layout=layout))) == []


def test_a_layout_of_the_template_is_looked_at_too(tmp_path: Path) -> None:
    source = {"columns": [{"name": "tenant", "path": "$.tenant", "type": "VARCHAR"}]}
    topic = {"kind": "kafka", "topic": "clicks", "bootstrap_servers": "nowhere:9092", **source}
    place = {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "lakes/{routing_value}"}
    template = {**place, "layout": {"sorted_by": "amount"}}
    made = config(tmp_path, source=topic, routing={"field": "tenant"}, template=template)
    assert made.topic is not None
    (found,) = layouts_that_wait(made, made.topic)
    assert found.what == "layout of the template"
