"""Requests that no broker answers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from shared.contracts.errors import DependencyError
from shared.kafka import admin
from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics

ANSWERED_WITHIN_S = -0.95
"""``Broker`` gives librdkafka a second more to give up by itself."""


class Silent:
    """An admin client whose machine stands still: no request ends, not even by its own timeout."""

    def list_topics(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(topics={})

    def create_topics(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
        return {topic.topic: Future() for topic in topics}

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[None]]:
        return dict.fromkeys(topics.topic_names, Future())

    def poll(self, _: float) -> int:
        return 0


class Outdated(Silent):
    """As librdkafka is with a node that went: it asks that one, until the metadata of all topics name another."""

    is_current = False

    def list_topics(self, **_: object) -> SimpleNamespace:
        self.is_current = True
        return SimpleNamespace(topics={})

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for answer in answers.values():
            if self.is_current:
                answer.set_result(SimpleNamespace(topic_id="one", partitions=[0, 1]))
            else:
                answer.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
        return answers


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(admin, "AdminClient", lambda _: Silent())
    return Broker(KafkaSettings("127.0.0.1:1"))


def test_topics_whose_creation_nobody_answers_are_a_dependency_that_is_missing(broker: Broker) -> None:
    with pytest.raises(DependencyError, match="_TIMED_OUT"):
        broker.ensure(Topics().kept, ANSWERED_WITHIN_S)


def test_so_are_topics_that_nobody_describes(broker: Broker) -> None:
    with pytest.raises(DependencyError, match="_TIMED_OUT"):
        broker.identities(Topics().all, ANSWERED_WITHIN_S)


def test_topics_are_known_again_after_the_node_that_was_asked_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "AdminClient", lambda _: Outdated())
    broker = Broker(KafkaSettings("127.0.0.1:1"))
    with pytest.raises(DependencyError, match="_TRANSPORT"):
        broker.identities(["topic"])
    assert set(broker.identities(["topic"])) == {"topic"}
