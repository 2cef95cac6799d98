"""A rejected record of a real broker is shown, sent to its topic again, and becomes a row once its cause is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from services.applier.records.record_format import RecordFormat, ValueFormat
from services.control.operations.rejections import Destined, Rejections
from services.control.operations.work_items import ReplayCall
from services.control.store.audit_log import AuditLog
from services.control.store.database import Database
from services.control.store.redriven import Redriven
from shared.config.model import Config
from shared.kafka.exact_producer import ExactProducer
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicLog
from shared.kafka.topic_part import TopicPart
from shared.kafka.topics import Topics
from tests.e2e.test_topics_up import TopicDeployment
from tests.e2e.topics import WITHIN_S, Landing, Topic, messages_of, read_all
from tests.fast.control.files import config
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    return Topic(kafka, 3)


@pytest.fixture
def landing(topic: Topic, tmp_path: Path) -> Iterator[Landing]:
    made = Landing(topic, tmp_path)
    made.seed()
    yield made
    made.close()


@pytest.fixture
def rejections(topic: Topic, landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rejections]:
    settings = KafkaSettings(topic.kafka.bootstrap)
    file = config(tmp_path, source={"kind": "kafka", "topic": topic.name}, routing={},
                  kafka={"bootstrap_servers": topic.kafka.bootstrap})  # fmt: skip
    monkeypatch.setattr(Topics, "rejected", lambda _, __: landing.rejected)

    def reach(_: Config) -> Destined:
        partitions = TopicLog(settings, topic.name, "test").identity().partitions
        return Destined(partitions, ExactProducer(settings, topic.name, "test"))

    with closing(Database.open(file)) as database:
        trail = AuditLog(database, "events")
        yield Rejections(lambda: file, TopicPart(settings, "test"), reach, Redriven(database, "events"), trail)


def test_a_rejected_record_goes_back_and_lands(topic: Topic, landing: Landing, rejections: Rejections) -> None:
    topic.send(b"\xff\x00bad", partition=1, key=b"k\xff")
    topic.send({"id": 1}, b"[1]")
    landing.land(p0=2, p1=1)
    found, rest = rejections.page(10, None, None, None)
    assert rest is None
    assert sorted((record.origin.partition, record.origin.offset, mark) for record, mark in found if record.origin) == [
        (0, 1, None), (1, 0, None)
    ]  # fmt: skip
    sent = rejections.redrive(None, None, "olga", ReplayCall(), again=False)
    assert (sent.matched, sent.sent, sent.refused, sent.rest) == (2, 2, 0, None)
    assert rejections.redrive(None, None, "olga", ReplayCall(), again=False).matched == 0
    (first, again) = (each for each in messages_of(topic.kafka, topic.name) if each.partition() == 1)
    assert (again.key(), again.value()) == (first.key(), first.value()) == (b"k\xff", b"\xff\x00bad")
    landing.form = RecordFormat(value=ValueFormat.BYTES)
    landing.generation = 2
    landing.seed(landing.position)
    assert landing.land(p0=3, p1=2).outcome == "applied"
    rows = landing.rows_of("SELECT _kafka_partition, _kafka_offset, value FROM dst.main.clicks")
    assert rows == [(0, 2, b"[1]"), (1, 1, b"\xff\x00bad")]


def test_a_topic_that_is_missing_is_told_from_an_empty_one(topic: Topic, rejections: Rejections) -> None:
    part = TopicPart(KafkaSettings(topic.kafka.bootstrap), "test")
    assert part.spans(topic.name) == {}
    assert part.spans("no-such-topic") is None


@pytest.fixture
def elsewhere() -> Iterator[Kafka]:
    """Another cluster than the deployment's."""
    with Kafka() as other:
        yield other


def offsets_of(kafka: Kafka, group: str, topic: str) -> dict[int, int]:
    """What is committed, by partition."""
    admin, asked = AdminClient({"bootstrap.servers": kafka.bootstrap}), ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([asked])[group].result(WITHIN_S)
    return {each.partition: each.offset for each in answer.topic_partitions or () if each.topic == topic}


@pytest.mark.timeout(300)
def test_of_a_topic_on_another_cluster_control_shows_rejected_records_and_sends_them_once(
    kafka: Kafka, elsewhere: Kafka, tmp_path: Path
) -> None:
    topic = Topic(elsewhere, 3)
    decoy = Topic(kafka, 3, name=topic.name)
    topic.send({"id": 1}, b"bad", partition=1)
    decoy.send(*({"id": 90 + number} for number in range(9)), partition=1)
    deployment = TopicDeployment(tmp_path, topic, kafka)
    group = f"{deployment.prefix}.clicks"
    with deployment.run() as viaduck:
        deployment.wait_until_landed(viaduck)
        url = f"{viaduck.url}/v1/pipelines/clicks/rejected"
        (one,) = httpx.get(url, timeout=30.0).json()["items"]
        assert (one["reason"], one["source_partition"], one["source_offset"]) == ("not_json", 1, 1)
        assert (one["value"]["text"], one["redriven"]) == ("bad", None)
        sent = httpx.post(f"{url}:redrive", json={"partition": one["partition"], "offset": one["offset"]}, timeout=60.0)
        assert (sent.status_code, sent.json()["sent"]) == (200, 1)
        deployment.wait_until_landed(viaduck)
        (newest, first) = httpx.get(url, timeout=30.0).json()["items"]
        assert (newest["source_offset"], newest["redriven"]) == (2, None)
        assert first["redriven"]["confirmed"] is True
        assert httpx.post(f"{url}:redrive", json={}, timeout=60.0).json()["sent"] == 1
        assert [each.value() for each in messages_of(elsewhere, topic.name)] == [b'{"id": 1}', b"bad", b"bad", b"bad"]
        deployment.wait_until_landed(viaduck)
        eventually(lambda: offsets_of(elsewhere, group, topic.name) == {0: 0, 1: 4, 2: 0})
        shown = [json.loads(line) for line in deployment.said("work", "rejected", "--json").splitlines()]
        assert [each["source_offset"] for each in shown] == [3, 2, 1]
        (status,) = map(json.loads, deployment.said("status", "--json").splitlines())
        assert (status["topic"]["lag_records"], status["rows_applied"]) == (0, 1)
    proof = deployment.verdict(0)
    assert (proof["result"], proof["rows"], proof["position"]) == ("equal", 1, 4)
    assert {value for _, value, _ in read_all(kafka, f"{deployment.prefix}.rejected.clicks")} == {b"bad"}
    assert len(messages_of(kafka, topic.name)) == 9
    assert offsets_of(kafka, group, topic.name) == {}
    known = topic.admin.list_topics(timeout=WITHIN_S).topics
    assert [name for name in known if name.startswith("v-")] == []
