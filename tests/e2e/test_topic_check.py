"""``viaduck check`` of a topic on a real broker: what table would come of it, and what speaks against it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from services.cli.commands import check
from shared.config.deployment import Deployment, load_all
from shared.contracts.errors import ConfigError, SourceError
from shared.contracts.positions import Vector
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from tests.e2e.topics import Topic
from tests.fast.applier.records.encoded_events import ENCODINGS, EVENT, FIELDS, envelope
from tests.fast.control.files import write
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.registry import running_registry


def deployment(
    folder: Path, topic: Topic, routing: dict[str, object] | None = None, prefix: str = "viaduck", **source: object
) -> Deployment:
    broker = topic.kafka.bootstrap
    file = write(
        folder, source={"kind": "kafka", "topic": topic.name, **source}, routing=routing or {},
        state_dir=str(folder / "state"), kafka={"bootstrap_servers": broker, "topic_prefix": prefix},
    )  # fmt: skip
    return load_all([file])


def wait_until_led(topic: Topic, partitions: int) -> None:
    """A partition of a new topic has no leader for a moment."""

    def is_led() -> bool:
        with contextlib.suppress(SourceError):
            return TopicLog(KafkaSettings(topic.kafka.bootstrap), topic.name, "test").newest(partitions) == Vector()
        return False

    eventually(is_led)


def wait_until_gone(topic: Topic) -> None:
    """A broker hears of a deletion a moment after the controller has confirmed it."""

    def is_gone() -> bool:
        try:
            TopicLog(KafkaSettings(topic.kafka.bootstrap), topic.name, "test").identity()
        except SourceError as error:
            return error.type == "source_gone"
        return False

    eventually(is_gone)


def test_the_newest_records_are_shown_as_the_table_that_would_come_of_them(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(kafka, 3)
    wait_until_led(topic, 3)
    columns = [{"name": "id", "path": "$.id", "type": "BIGINT", "required": True}]
    assert check.main(deployment(tmp_path, topic, columns=columns)) == check.DONE
    assert "no record yet" in capsys.readouterr().out
    topic.send(*({"id": number, "old": True} for number in range(200)), partition=1)
    topic.send({"id": 1, "name": "n", "\x1b[2J": 1}, b"bad", {"id": "x"}, {"id": 2, "name": [1]})
    assert check.main(deployment(tmp_path, topic, columns=columns)) == check.DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "of the newest 54 records 52 would be rows, 2 would be rejected (not_json: 1, type_mismatch: 1)" in said
    assert "offset 1 of partition 0: the value is not JSON" in said
    assert "id BIGINT" in said
    assert "name VARCHAR" in said or "name JSON" in said
    assert "\\x1b[2J BIGINT" in said


def test_what_the_file_must_say_otherwise_is_a_mistake(kafka: Kafka, tmp_path: Path) -> None:
    missing = Topic(kafka)
    missing.drop()
    wait_until_gone(missing)
    with pytest.raises(ConfigError, match="has no topic"):
        check.main(deployment(tmp_path, missing))
    prefix = missing.name
    own = Topic(kafka, name=f"{prefix}.work")
    wait_until_led(own, 2)
    host, _, port = kafka.bootstrap.rpartition(":")
    elsewhere = f"{'localhost' if host == '127.0.0.1' else '127.0.0.1'}:{port}"
    with pytest.raises(ConfigError, match="as Viaduck's own topics on this cluster do"):
        check.main(deployment(tmp_path, own, prefix=prefix, bootstrap_servers=elsewhere))


def test_a_sample_is_read_with_the_schemas_of_the_registry(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(kafka)
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    topic.send(b"\x00\x00\x00\x00\x07\x02", b"\x00\x00\x00\x00\x08\x02")
    with running_registry() as registry:
        registry.add(7, schema)
        file = deployment(tmp_path, topic, format={"value": "avro", "registry": {"url": registry.url}})
        assert check.main(file) == check.DONE
        said = " ".join(capsys.readouterr().out.split())
        assert "of the newest 2 records 1 would be rows, 1 would be rejected (schema_unknown: 1)" in said
        assert "id BIGINT" in said
        registry.add(EVENT, envelope(FIELDS))
        event = {"op": "c", "after": {"id": 1, "big": "x"}}
        topic.send(ENCODINGS["avro"].write_value(event))
        form = {"value": "debezium", "encoding": "avro", "key": "avro", "registry": {"url": registry.url}}
        columns = [{"name": "id", "path": "$.id", "type": "BIGINT"}]
        events = deployment(tmp_path, topic, {"key_columns": ["id"]}, format=form, columns=columns)
        assert check.main(events) == check.DONE
        said = " ".join(capsys.readouterr().out.split())
        assert "1 would be rows, 2 would be rejected (not_event: 1, schema_unknown: 1)" in said
        assert "big VARCHAR" in said
        registry.status = 503
        assert check.main(file) != check.DONE
    assert "registry" in capsys.readouterr().out


def test_a_registry_is_asked_even_where_no_record_names_a_schema(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(kafka, 1)
    wait_until_led(topic, 1)
    with running_registry() as registry:
        file = deployment(tmp_path, topic, format={"value": "avro", "registry": {"url": registry.url}})
        assert check.main(file) == check.DONE
        registry.status = 503
        assert check.main(file) != check.DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "it answers 503" in said
    assert "no record yet" in said


def test_a_start_at_offsets_that_the_topic_does_not_have_is_a_mistake(kafka: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka, 2)
    topic.send({"id": 1}, {"id": 2})
    offsets = {"0": 2, "1": 0}
    assert check.main(deployment(tmp_path, topic, start={"offsets": offsets})) == check.DONE
    with pytest.raises(ConfigError) as refused:
        check.main(deployment(tmp_path, topic, start={"offsets": {"0": 3, "1": 1, "2": 0}}))
    assert [line.partition(":")[0] for line in refused.value.mistakes] == [
        f"source.start.offsets.{partition}" for partition in range(3)
    ]


def test_an_event_whose_row_has_no_key_is_told_with_its_place(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(kafka)
    topic.send({"op": "t"})
    columns = [{"name": "id", "path": "$.id", "type": "BIGINT"}]
    form = {"value": "debezium", "key": "json"}
    file = deployment(tmp_path, topic, {"key_columns": ["id"]}, format=form, columns=columns)
    assert check.main(file) != check.DONE
    assert "offset 0 of partition 0" in " ".join(capsys.readouterr().out.split())
