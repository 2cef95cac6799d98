"""What a broker says of a topic without its records: its identity, and its offsets by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin._listoffsets import OffsetSpec

from shared.contracts.errors import SourceError
from shared.contracts.positions import Vector
from shared.kafka.admin import Admin
from shared.kafka.failure import describe
from shared.kafka.settings import KafkaSettings

ANSWER_WITHIN_S = 10.0

Answer = TypeVar("Answer")

NO_RECORD = -1
"""What a broker answers where no record is of the time that was asked for."""

NOT_SAID = "no offset came for some partitions"
"""While a broker starts, librdkafka hands out its own mark for "none" (-1001) as the answer, without an error."""

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


@dataclass(frozen=True)
class TopicIdentity:
    """What tells a topic from a former one of its name, and from one of another cluster."""

    cluster: str
    topic_id: str
    partitions: int


class TopicLog:
    """One topic of one cluster. Every method raises ``SourceError``: ``source_gone`` where there is no such topic,
    ``source_unreachable`` where the broker does not answer or refuses."""

    def __init__(self, settings: KafkaSettings, topic: str, client_id: str) -> None:
        self.topic = topic
        self._settings = settings
        self._admin = Admin(settings, client_id)

    def identity(self) -> TopicIdentity:
        """Asking creates no topic."""
        with self._asking():
            cluster = self._admin.client.describe_cluster(request_timeout=ANSWER_WITHIN_S)
            described = self._admin.client.describe_topics(
                TopicCollection([self.topic]), request_timeout=ANSWER_WITHIN_S
            )
            found = self._answer(described[self.topic])
            known = self._answer(cluster)
        return TopicIdentity(known.cluster_id or "", str(found.topic_id), len(found.partitions))

    def newest(self, partitions: int) -> Vector:
        """The offsets behind the last stable records: one request to each broker that leads partitions."""
        return Vector.of(self._offsets(partitions, OffsetSpec.latest()))  # type: ignore[no-untyped-call]

    def oldest(self, partitions: int) -> Vector:
        """The offsets of the oldest records that are retained."""
        return Vector.of(self._offsets(partitions, OffsetSpec.earliest()))  # type: ignore[no-untyped-call]

    def since(self, partitions: int, timestamp_ms: int) -> Vector:
        """The offsets of the first records of that time or later; those behind the last records where none are."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        newest = self.newest(partitions).by_partition
        return Vector.of({each: offset if offset >= 0 else newest.get(each, 0) for each, offset in found.items()})

    def commit(self, group: str, offsets: Mapping[int, int]) -> Future[ConsumerGroupTopicPartitions]:
        """Have the broker note these next offsets for a consumer group that has no members.

        The future raises, or names an error by partition. Raises ``KafkaException`` where nothing can be sent.
        """
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        asked = self._admin.client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=ANSWER_WITHIN_S
        )
        return asked[group]

    def _offsets(self, partitions: int, spec: OffsetSpec) -> Mapping[int, int]:
        wanted = {TopicPartition(self.topic, number): spec for number in range(partitions)}
        if not wanted:
            return {}
        with self._asking():
            futures = self._admin.client.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_WITHIN_S
            )
            found = {place.partition: self._answer(future).offset for place, future in futures.items()}
            if any(offset < NO_RECORD for offset in found.values()):
                raise KafkaException(KafkaError(KafkaError._PARTIAL, NOT_SAID))
            return found

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._failed(error.args[0]) from None
        except TimeoutError:
            raise self._failed(KafkaError(KafkaError._TIMED_OUT)) from None
        self._admin.works()

    def _answer(self, future: Future[Answer]) -> Answer:
        return future.result(ANSWER_WITHIN_S + 1.0)

    def _failed(self, error: KafkaError) -> SourceError:
        return source_error(self._settings, self.topic, error, self._admin.problem())


def source_error(settings: KafkaSettings, topic: str, error: KafkaError, problem: str | None = None) -> SourceError:
    """``problem``: what the client knows beyond it."""
    if error.code() in MISSING:
        return SourceError(
            "source_gone", f"{settings.bootstrap} has no topic {topic}", "create it, or correct source.topic"
        )
    if error.code() in REFUSED:
        return SourceError(
            "source_unreachable",
            f"{settings.bootstrap} does not let this client use the topic {topic}: {describe(error)}",
            "grant Read and Describe on the topic to this principal",
        )
    return SourceError(
        "source_unreachable",
        f"the topic {topic} of {settings.bootstrap} can't be read: {problem or describe(error)}",
        "check source.bootstrap_servers, that the broker runs, and the credentials in source.properties",
    )
