"""What control says of pipelines that came over REST, into a service's own copies. On the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.config.pipeline_files import Copy, PipelineFiles
from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import PipelineDocument
from shared.kafka.follower import Follower
from shared.kafka.pipeline_cache import PipelineCache
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from tests.fast.waiting import eventually

TOPIC = "viaduck.pipelines"


@pytest.fixture
def copies(tmp_path: Path) -> PipelineFiles:
    return PipelineFiles(tmp_path)


def said(pipeline: str, version: int, document: dict[str, Any] | None = None) -> Record:
    message = PipelineDocument(pipeline=pipeline, version=version, document=document)
    return Record(TOPIC, 0, version, pipeline, message.to_bytes())


class Level:
    """Whether the topic has been read up; a test says so."""

    def __init__(self) -> None:
        self.is_level = True

    def __call__(self) -> bool:
        return self.is_level


@pytest.fixture
def level() -> Level:
    return Level()


@pytest.fixture
def copying(copies: PipelineFiles, level: Level) -> PipelineCache:
    return PipelineCache(copies, level)


def test_the_last_word_of_each_is_copied_and_what_went_goes(copying: PipelineCache, copies: PipelineFiles) -> None:
    for record in (said("a", 1, {"n": 1}), said("a", 2, {"n": 2}), said("b", 3, {"n": 3}), said("c", 4)):
        copying.note(record)
    copying.refresh()
    assert {name: copies.read(name) for name in copies.names()} == {"a": Copy({"n": 2}, 2), "b": Copy({"n": 3}, 3)}
    copying.note(said("a", 5))
    copying.refresh()
    assert copies.names() == ["b"]


def test_words_that_may_be_long_past_wait_until_everything_was_read(
    copying: PipelineCache, copies: PipelineFiles, level: Level
) -> None:
    copies.write("a", {"n": 3}, 3)
    level.is_level = False
    for record in (said("a", 1, {"n": 1}), said("a", 2)):
        copying.note(record)
        copying.refresh()
        assert copies.read("a") == Copy({"n": 3}, 3)
    copying.note(said("a", 3, {"n": 3}))
    level.is_level = True
    before = copies.fingerprint()
    copying.refresh()
    assert copies.fingerprint() == before


def test_a_removal_from_before_the_copy_takes_nothing_away(copying: PipelineCache, copies: PipelineFiles) -> None:
    copies.write("a", {"n": 3}, 3)
    copying.note(said("a", 2))
    copying.refresh()
    assert copies.names() == ["a"]


def test_a_topic_that_was_wiped_takes_nothing_away(copying: PipelineCache, copies: PipelineFiles) -> None:
    copies.write("a", {"n": 1}, 1)
    copying.note(Record(TOPIC, 0, 0, "a", None))
    copying.refresh()
    assert copies.names() == ["a"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", b"garbage"),
        ("a", b'{"v": 2, "pipeline": "a", "version": 1}'),
        ("a", b'{"v": 1, "pipeline": "../../x", "version": 1, "document": {}}'),
        ("b", b'{"v": 1, "pipeline": "a", "version": 1, "document": {}}'),
        (None, b'{"v": 1, "pipeline": "a", "version": 1, "document": {}}'),
    ],
)
def test_what_is_no_such_message_is_unreadable_and_changes_nothing(
    copying: PipelineCache, copies: PipelineFiles, key: str | None, value: bytes
) -> None:
    with pytest.raises(UnreadableMessage):
        copying.note(Record(TOPIC, 0, 0, key, value))
    copying.refresh()
    assert copies.fingerprint() == ()


def test_what_can_not_be_written_now_is_written_later(copying: PipelineCache, copies: PipelineFiles) -> None:
    copies.folder.write_text("in the way")
    copying.note(said("a", 1, {"n": 1}))
    copying.refresh()
    copies.folder.unlink()
    copying.refresh()
    assert copies.read("a") == Copy({"n": 1}, 1)


@pytest.fixture
def following(settings: KafkaSettings, topics: Topics, copies: PipelineFiles) -> Iterator[PipelineCache]:
    follower = Follower(settings, "test-copying", [topics.pipelines])
    copying = PipelineCache(copies, lambda: follower.level)
    follower.start(copying.note)
    yield copying
    follower.stop()


def test_over_the_broker(following: PipelineCache, topics: Topics, publisher: Publisher, copies: PipelineFiles) -> None:
    def settled(holds: object) -> bool:
        following.refresh()
        return copies.read("a") == holds

    publisher.send(topics.pipelines, "a", said("a", 1, {"n": 1}).value)
    eventually(lambda: settled(Copy({"n": 1}, 1)))
    publisher.send(topics.pipelines, "a", said("a", 2).value)
    eventually(lambda: settled(None))
