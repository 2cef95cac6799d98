from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from shared.kafka import follower as module
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from tests.fast.waiting import eventually


def test_a_follower_has_handled_what_was_there_once_it_caught_up(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    for number in range(100):
        publisher.send(topics.destinations, f"p/{number}", b"state")
    publisher.flush(30)
    seen: list[Record] = []
    follower = Follower(settings, "test", [topics.destinations, topics.progress])
    follower.start(seen.append)
    assert follower.caught_up.wait(30)
    assert {record.key for record in seen} == {f"p/{number}" for number in range(100)}
    follower.stop()


def test_a_follower_of_empty_topics_has_caught_up(settings: KafkaSettings, topics: Topics) -> None:
    follower = Follower(settings, "test", [topics.destinations])
    follower.start(lambda _: None)
    assert follower.caught_up.wait(30)
    follower.stop()


class BusyConsumer:
    """Of one partition that held ``held`` records when it was first read, and gets more before each fetch."""

    def __init__(self, topic: str, held: int) -> None:
        self._topic, self._held, self._read = topic, held, 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def assign(self, partitions: object) -> None:
        self._read = 0

    def get_watermark_offsets(self, place: object, *, cached: bool) -> tuple[int, int]:
        assert cached, "a request for each partition takes as long as a broker takes to answer"
        return 0, self._held + self._read

    def poll(self, timeout: float) -> Any:
        self._read += 1
        offset = self._read - 1
        return SimpleNamespace(
            error=lambda: None, topic=lambda: self._topic, partition=lambda: 0, offset=lambda: offset,
            key=lambda: b"p/d", value=lambda: b"answer", headers=lambda: None, timestamp=lambda: (1, 1),
        )  # fmt: skip

    def consume(self, count: int, timeout: float) -> list[Any]:
        return []

    def close(self) -> None: ...


def test_a_follower_catches_up_with_a_topic_that_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker tells of a partition's end only in answer to a fetch that finds nothing: on a busy one never."""
    monkeypatch.setattr(module, "build", lambda *_: BusyConsumer("busy", held=100))
    follower, seen = Follower(KafkaSettings(bootstrap="nowhere:1"), "test", ["busy"]), []

    def handle(record: Record) -> None:
        if not follower.caught_up.is_set():
            seen.append(record.offset)

    follower.start(handle)
    assert follower.caught_up.wait(10)
    follower.stop()
    assert seen == list(range(101)), "what was there at the first fetch, and not a record less"


def test_a_follower_sees_key_value_headers_tombstones_and_order(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    seen: list[Record] = []
    follower = Follower(settings, "test", [topics.progress])
    follower.start(seen.append)
    assert follower.caught_up.wait(30)
    publisher.send(topics.progress, "p/d", "Füße".encode(), headers={"traceparent": "00-ä"})
    publisher.send(topics.progress, "p/d", None)
    eventually(lambda: len(seen) == 2)
    follower.stop()
    first, second = seen
    assert (first.topic, first.key, first.value) == (topics.progress, "p/d", "Füße".encode())
    assert first.headers == {"traceparent": "00-ä"}
    assert (second.value, second.offset) == (None, first.offset + 1)


def test_bytes_that_are_no_text_reach_the_handler(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    seen: list[Record] = []
    publisher.send(topics.work, b"\xff\xfe".decode("latin-1"), b"\xff\x00\xfe")
    publisher.flush(30)
    follower = Follower(settings, "test", [topics.work])
    follower.start(seen.append)
    assert follower.caught_up.wait(30)
    follower.stop()
    assert seen[0].value == b"\xff\x00\xfe"


def test_what_a_handler_raises_ends_the_following_and_is_told(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    def fail(record: Record) -> None:
        raise RuntimeError(f"planted for {record.key}")

    failures: list[Exception] = []
    publisher.send(topics.work, "p/d", b"x")
    publisher.flush(30)
    follower = Follower(settings, "test", [topics.work])
    follower.start(fail, on_failure=failures.append)
    eventually(lambda: failures)
    assert str(failures[0]) == "planted for p/d"
    assert not follower.caught_up.is_set()


def test_a_follower_waits_for_a_broker_that_is_not_there_yet(topics: Topics) -> None:
    follower = Follower(KafkaSettings(bootstrap="127.0.0.1:1"), "test", [topics.work])
    follower.start(lambda _: None)
    eventually(lambda: follower.problem is not None)
    assert not follower.caught_up.is_set()
    follower.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "follower test" and thread.is_alive()]


def test_a_follower_is_level_only_when_all_that_there_was_is_handled_also_when_it_reads_again(
    settings: KafkaSettings, topics: Topics, publisher: Publisher
) -> None:
    publisher.send(topics.pipelines, "p", b"state")
    publisher.flush(30)
    follower = Follower(settings, "test", [topics.pipelines])
    seen: list[bool] = []
    follower.start(lambda _: seen.append(follower.level))
    assert follower.caught_up.wait(30)
    assert follower.level
    follower.renew()
    eventually(lambda: len(seen) == 2 and follower.level)
    assert seen == [False, False]
    publisher.send(topics.pipelines, "p", b"news")
    eventually(lambda: len(seen) == 3)
    assert seen[2]
    follower.stop()
