"""``viaduck verify`` of a topic beside the embedded broker, which is asked for rejected records while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from services.cli.runtime.lock import BROKER_ADDRESS, StateLock
from services.cli.verify.comparison import ComparisonResult, Subject, Verdict
from services.cli.verify.topic_proof import proofs
from shared.config.deployment import load_all
from shared.config.model import Config
from shared.contracts.messages import SeedMode
from shared.kafka.embedded import EmbeddedBroker, tell
from shared.kafka.rejected import RejectedOrigin, reason_headers
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure_rejected
from tests.e2e.topics import Landing, Topic
from tests.fast.control.files import write

Land = Callable[..., Landing]


@pytest.fixture
def config(topic: Topic, tmp_path: Path) -> Config:
    """Of a deployment that names no broker."""
    source = {"kind": "kafka", "topic": topic.name, "bootstrap_servers": topic.kafka.bootstrap}
    file = write(tmp_path, pipeline="p", source=source, routing={}, state_dir=str(tmp_path / "state"))
    return load_all([file]).configs[0]


def verdict(config: Config, landed: Landing) -> Verdict:
    subject = Subject("p", "d", "", landed.lake, "main", "clicks", SeedMode.REPLAY)
    (found,) = proofs(config, [subject])
    return found


@contextmanager
def running(config: Config, *origins: RejectedOrigin) -> Iterator[None]:
    """What `viaduck up` leaves in the folder while it runs, and a broker that holds these rejected records."""
    with StateLock(config.state_dir) as lock:
        broker = EmbeddedBroker()
        tell(broker.bootstrap, config.state_dir / BROKER_ADDRESS)
        lock.tell({"pid": 1, "url": "http://127.0.0.1:1"})
        settings = KafkaSettings(broker.bootstrap, embedded=True)
        ensure_rejected(settings, config.pipeline)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for origin in origins:
            producer.produce(Topics(settings.prefix).rejected(config.pipeline), b"bad", headers=reason_headers(origin))
        assert producer.flush(30) == 0
        yield


def test_rejected_records_are_no_difference_while_the_broker_runs(topic: Topic, landing: Land, config: Config) -> None:
    landed = landing()
    topic.send({"id": 1}, b"bad", {"id": 2})
    landed.land(p0=3)
    with running(config, RejectedOrigin("not_json", "said", topic.name, 0, 1, "")):
        found = verdict(config, landed)
    assert (found.finding, found.rows, found.note, found.problem) == (ComparisonResult.EQUAL, 2, "", None)


@pytest.mark.parametrize("runs", [False, True], ids=["it does not run", "it has forgotten"])
def test_a_missing_row_is_no_difference_where_its_record_may_have_been_rejected(
    topic: Topic, landing: Land, config: Config, *, runs: bool
) -> None:
    landed = landing()
    topic.send({"id": 1}, b"bad", {"id": 2})
    landed.land(p0=3)
    if runs:
        with running(config):
            found = verdict(config, landed)
    else:
        found = verdict(config, landed)
    assert found.finding is ComparisonResult.FAILED
    assert found.problem is not None
    assert "1 records have no row" in found.problem.message
    assert "kafka.bootstrap_servers" in (found.problem.hint or "")


def test_a_row_too_many_is_one_whatever_was_rejected(topic: Topic, landing: Land, config: Config) -> None:
    landed = landing()
    topic.send({"id": 1}, b"bad")
    landed.land(p0=2)
    landed.write("INSERT INTO dst.main.clicks SELECT * FROM dst.main.clicks")
    found = verdict(config, landed)
    assert (found.finding, found.differences.extra) == (ComparisonResult.DIFFERENT, 1)


def test_where_each_record_has_its_row_no_broker_is_needed(topic: Topic, landing: Land, config: Config) -> None:
    landed = landing()
    topic.send({"id": 1}, {"id": 2})
    landed.land(p0=2)
    found = verdict(config, landed)
    assert (found.finding, found.rows) == (ComparisonResult.EQUAL, 2)
    assert "rejected" in found.note
