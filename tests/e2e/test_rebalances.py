"""Appliers come and go on a real broker: what stays with the others goes on there as if nothing had happened.

Their consumers, lanes and answers are real; an apply is a moment's sleep, so that a pause is the consumer's own.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs
from structlog.typing import EventDict

from services.applier.destination_cache import DestinationCache
from services.applier.model.task import Task
from services.applier.pipeline_consumer import FINISH_WITHIN_S, PipelineConsumer
from shared.config.deployment import load_all
from shared.kafka.publisher import Publisher
from shared.kafka.scan import Scan
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.runtime.metrics import Metrics
from tests.fast.applier.consumers import camp, item, wanted
from tests.fast.shared.config.test_deployment import write
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka

PIPELINE = "events"
FIRST, ALONE = "first", "alone"
PARTITIONS = frozenset(range(12))
DESTINATIONS = tuple(f"tenant-{number}" for number in range(60))
ROUND_S = 0.25
"""Every destination gets an item that often."""

APPLY_S = 0.02
AFTER_S = 2.0

PROTOCOLS = {
    ConsumerGroupType.CLASSIC: {"session.timeout.ms": "10000"},
    ConsumerGroupType.CONSUMER: {},
}
"""Properties of the user's with which a group comes to its protocol."""


def tolerated(beside_s: float) -> float:
    """No rebalance is a reason to wait longer than those wait meanwhile whose group does not change; but on a busy
    machine two do not wait equally long."""
    return 2 * beside_s + 1.0


class Appliers:
    """Appliers of one group, by name, and what each of them was given and did; items of everybody come all the time."""

    def __init__(self, folder: Path, settings: KafkaSettings, logged: list[EventDict], closing: ExitStack) -> None:
        self._settings, self._logged = settings, logged
        self._topics = Topics(settings.prefix)
        ensure(settings)
        self._file = write(folder, f"{PIPELINE}.yaml")
        self._directory = DestinationCache()
        for destination in DESTINATIONS:
            self._directory.put(wanted(PIPELINE, destination))
        self._publisher = Publisher(settings, "test")
        closing.callback(self._publisher.close)
        self._applied: list[tuple[float, str, str]] = []
        self._consumers: dict[str, PipelineConsumer] = {}
        self.broken: list[Exception] = []
        self._ended = threading.Event()
        closing.callback(self._end)
        self._items = threading.Thread(target=self._send_items, daemon=True)
        self._items.start()

    def join(self, name: str) -> None:
        (config,) = load_all([self._file], {}).configs
        shared = camp(
            name, self._settings, self._publisher, self._directory, self._apply(name), self.broken.append,
            lambda *told: self.broken.append(AssertionError(told)),
        )  # fmt: skip
        consumer = self._consumers[name] = PipelineConsumer(config, shared, Metrics(PIPELINE))
        consumer.start()

    def leave(self, name: str) -> None:
        """As when a deployment is scaled down; returns at once."""
        self._consumers[name].tell_to_stop()

    def owned(self, name: str) -> set[int]:
        """The partitions that an applier has, as its log tells."""
        owned: set[int] = set()
        for event, partitions in self._told(name, 0):
            owned = owned | partitions if event == "partitions_assigned" else owned - partitions
        return owned

    def share_all(self, *names: str) -> bool:
        """Whether each of them has partitions, nobody else has any, and none is without an applier."""
        owned = [self.owned(name) for name in names]
        return all(owned) and sum(map(len, owned)) == len(PARTITIONS) == len(set().union(*owned))

    def told_so_far(self) -> int:
        return len(self._logged)

    def revoked(self, name: str, since: int) -> set[int]:
        """Partitions that were taken from an applier since so much had been logged, even for a moment."""
        told = [partitions for event, partitions in self._told(name, since) if event == "partitions_revoked"]
        return set().union(*told)

    def longest_wait(self, name: str, partitions: Iterable[int], began: float, ended: float) -> float:
        """The longest that a destination of these partitions waited for its next item to be applied by that applier."""
        return max(self._wait(name, destination, began, ended) for destination in self._living_in(partitions))

    def group_type(self) -> ConsumerGroupType:
        group = f"{self._settings.prefix}.appliers.{PIPELINE}"
        admin = AdminClient({"bootstrap.servers": self._settings.bootstrap})
        found = admin.describe_consumer_groups([group])[group].result(30.0).type
        assert isinstance(found, ConsumerGroupType)
        return found

    def has_applied(self, name: str, partitions: Iterable[int]) -> bool:
        """Whether an applier has done something for every destination of these partitions."""
        return self._living_in(partitions) <= {
            destination for _, who, destination in list(self._applied) if who == name
        }

    def _wait(self, name: str, destination: str, began: float, ended: float) -> float:
        mine = [at for at, *whose in list(self._applied) if whose == [name, destination] and began < at < ended]
        return max(after - before for before, after in itertools.pairwise([began, *mine, ended]))

    def _living_in(self, partitions: Iterable[int]) -> set[str]:
        there = set(partitions)
        records = Scan(self._settings, "test").all(self._topics.work)
        return {(record.key or "").partition("/")[2] for record in records if record.partition in there}

    def _told(self, name: str, since: int) -> Iterator[tuple[str, set[int]]]:
        for entry in self._logged[since:]:
            if entry.get("client") == f"viaduck-applier-{name}-{PIPELINE}" and "partitions" in entry:
                yield entry["event"], set(entry["partitions"])

    def _apply(self, name: str) -> Callable[[Task], int]:
        def apply(task: Task) -> int:
            time.sleep(APPLY_S)
            now = time.monotonic()
            self._applied.extend((now, name, target.item.destination) for target in task.targets)
            return len(task.targets)

        return apply

    def _send_items(self) -> None:
        for number in itertools.count(1):
            for destination in DESTINATIONS:
                sent = item(PIPELINE, destination, number)
                self._publisher.send(self._topics.work, sent.key, sent.to_bytes())
                if self._ended.wait(ROUND_S / len(DESTINATIONS)):
                    return

    def _end(self) -> None:
        self._ended.set()
        self._items.join()
        for consumer in self._consumers.values():
            consumer.tell_to_stop()
        for consumer in self._consumers.values():
            consumer.stop(FINISH_WITHIN_S)


@pytest.fixture(params=PROTOCOLS, ids=lambda protocol: protocol.name.lower())
def groups(request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path) -> Iterator[Sequence[Appliers]]:
    """Two, of the appliers ``FIRST`` and ``ALONE``."""
    made = list[Appliers]()
    with capture_logs() as logged, ExitStack() as closing:
        for name in (FIRST, ALONE):
            settings = KafkaSettings(
                kafka.bootstrap, f"r{uuid.uuid4().hex[:8]}", partitions=len(PARTITIONS),
                properties=PROTOCOLS[request.param],
            )  # fmt: skip
            folder = tmp_path / name
            folder.mkdir()
            made.append(Appliers(folder, settings, logged, closing))
            made[-1].join(name)
        for name, one in zip((FIRST, ALONE), made, strict=True):
            eventually(partial(one.share_all, name))
            eventually(partial(one.has_applied, name, PARTITIONS))
            assert one.group_type() is request.param
        yield made
    assert [one.broken for one in made] == [[], []]


def test_destinations_that_stay_where_they_are_go_on_while_an_applier_joins_and_leaves(
    groups: Sequence[Appliers],
) -> None:
    appliers, alone = groups
    told, joins = appliers.told_so_far(), time.monotonic()
    appliers.join("second")
    eventually(lambda: appliers.share_all(FIRST, "second"))
    eventually(lambda: appliers.has_applied("second", appliers.owned("second")))
    time.sleep(AFTER_S)
    joined, stayed = time.monotonic(), appliers.owned(FIRST)
    assert appliers.revoked(FIRST, told) == PARTITIONS - stayed, "only what moves is taken away"
    beside_s = alone.longest_wait(ALONE, PARTITIONS, joins, joined)
    assert appliers.longest_wait(FIRST, stayed, joins, joined) < tolerated(beside_s)

    told, leaves = appliers.told_so_far(), time.monotonic()
    appliers.leave("second")
    eventually(lambda: appliers.share_all(FIRST))
    time.sleep(AFTER_S)
    left = time.monotonic()
    assert appliers.revoked(FIRST, told) == set()
    beside_s = alone.longest_wait(ALONE, PARTITIONS, leaves, left)
    assert appliers.longest_wait(FIRST, stayed, leaves, left) < tolerated(beside_s)
