"""The broker as a whole: does it answer, which cluster is it, are our topics there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.cimpl import NewTopic

from shared.contracts.errors import DependencyError
from shared.kafka.admin import Admin
from shared.kafka.failure import describe
from shared.kafka.settings import KafkaSettings

log = structlog.get_logger(__name__)

Answer = TypeVar("Answer")

ANSWER_WITHIN_S = 10.0
LEARNT_WITHIN_S = 2.0


class DescribedTopic(NamedTuple):
    """What tells a topic from a former one of its name."""

    topic_id: str
    partitions: int


class Broker:
    """One cluster, asked by one client."""

    def __init__(self, settings: KafkaSettings, client_id: str = "viaduck-admin") -> None:
        self._settings = settings
        self._admin = Admin(settings, client_id)
        self._controller_is_doubtful = False

    def problem(self, timeout_s: float = 2.0) -> str | None:
        """None if the broker answers now, else what is wrong."""
        try:
            self.cluster_id(timeout_s)
        except DependencyError as error:
            return error.message
        return None

    def cluster_id(self, timeout_s: float = ANSWER_WITHIN_S) -> str:
        """The cluster's identity: another one behind the same address means that everything was wiped.

        Raises ``DependencyError``.
        """
        try:
            found = self._admin.client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        self._admin.works()
        return found.cluster_id or ""

    def identities(self, names: Iterable[str], timeout_s: float = ANSWER_WITHIN_S) -> Mapping[str, DescribedTopic]:
        """Which topics stand behind ``names``, without those that are missing. Raises ``DependencyError``.

        A topic that was deleted and created again, also with the whole cluster, has another identity. Asking creates
        nothing. The mock cluster can't answer.

        librdkafka asks the node that was the controller in the last metadata of all topics. While that one does not
        listen, it connects again and again without a pause, which takes a core for ``timeout_s``.
        """
        if self._controller_is_doubtful:
            self._names(LEARNT_WITHIN_S)
        self._controller_is_doubtful = True
        asked = self._admin.client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        found = {}
        for name, future in asked.items():
            try:
                described = self._answer(future, timeout_s + 1.0)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._unreachable(error.args[0]) from None
            else:
                found[name] = DescribedTopic(str(described.topic_id), len(described.partitions))
        self._controller_is_doubtful = False
        self._admin.works()
        return found

    def ensure(self, topics: Mapping[str, Mapping[str, str]], timeout_s: float) -> None:
        """Create those of ``topics`` (configuration by name) that are missing. Raises ``DependencyError``."""
        if self._settings.embedded:
            self._touch(topics, timeout_s)
            return
        there = self._names(timeout_s)
        missing = [self._new_topic(name, kept) for name, kept in topics.items() if name not in there]
        if missing:
            self._await_created(self._admin.client.create_topics(missing, operation_timeout=timeout_s), timeout_s)

    def _touch(self, names: Iterable[str], timeout_s: float) -> None:
        """The mock cluster creates topics only when a client asks for them by name."""
        for name in names:
            try:
                self._admin.client.list_topics(name, timeout=timeout_s)
            except KafkaException as error:
                raise self._unreachable(error.args[0]) from None

    def _names(self, timeout_s: float) -> frozenset[str]:
        try:
            return frozenset(self._admin.client.list_topics(timeout=timeout_s).topics)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def _new_topic(self, name: str, kept: Mapping[str, str]) -> NewTopic:
        settings = self._settings
        return NewTopic(
            name, num_partitions=settings.partitions, replication_factor=settings.replication_factor, config=dict(kept)
        )

    def _await_created(self, created: Mapping[str, Future[None]], timeout_s: float) -> None:
        for name, future in created.items():
            try:
                self._answer(future, timeout_s + 1.0)
                log.info("topic_created", topic=name, partitions=self._settings.partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another service was quicker
                    hint = (
                        "create the topic by hand as docs/how-to/connect-to-kafka.md shows, or let this principal"
                        " create topics"
                    )
                    raise DependencyError(
                        "kafka", f"can't create topic {name}: {describe(error.args[0])}", hint
                    ) from None

    def _answer(self, future: Future[Answer], within_s: float) -> Answer:
        """What a request brought. librdkafka ends it by itself in time, unless it, or the machine, stands still.

        Raises ``KafkaException``, and ``DependencyError`` where nothing came.
        """
        try:
            return future.result(within_s)
        except TimeoutError:
            raise self._unreachable(KafkaError(KafkaError._TIMED_OUT)) from None

    def _unreachable(self, error: KafkaError) -> DependencyError:
        """``error`` itself only says that nothing came back."""
        said = self._admin.problem() or describe(error)
        return DependencyError(
            "kafka",
            f"{self._settings.bootstrap} can't be used: {said}",
            "check kafka.bootstrap_servers, that the broker runs, and the credentials in kafka.properties",
        )
