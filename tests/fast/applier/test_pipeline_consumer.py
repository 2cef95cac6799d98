"""The consumers of an applier: what one pipeline's source does holds up nobody else's items. On the embedded broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from services.applier.destination_cache import DestinationCache
from services.applier.lane import LaneThread
from services.applier.metrics_recorder import OpenLakes
from services.applier.model.task import Task, WorkerReport
from services.applier.pipeline_consumer import PipelineConsumer
from services.applier.worker.answer_files import write as write_answers
from shared.config.deployment import load_all
from shared.config.model import Poll
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.contracts.reports import parse_progress
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics, ensure
from shared.runtime.metrics import Metrics
from tests.fast.applier.consumers import camp, item, nothing_changed, wanted
from tests.fast.control.files import config
from tests.fast.shared.config.test_deployment import write
from tests.fast.waiting import eventually
from tests.signed import SIGNING

WITHIN_S = 30.0


class Sources:
    """What tasks read; the table ``hung`` makes them wait until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.read: list[str] = []
        self.taken: list[str] = []
        """Items, in the order in which tasks had them."""
        self.turns = 1_000
        """How many items of a task have their turn."""
        self.quick: set[str] = set()
        """Destinations that are answered for while their task still waits."""
        self.others_came = threading.Event()
        """What the destination ``first`` waits for, so that all who come meanwhile are in one job."""
        self.breaks: set[str] = set()
        """Destinations whose task ends with an error once it is released."""

    def take(self, task: Task) -> int:
        self.read.append(task.source.table)
        turns = self.turns
        self.taken += [target.item.item for target in task.targets[:turns]]
        quick = [nothing_changed(target) for target in task.targets if target.destination.destination in self.quick]
        if any(target.destination.destination == "first" for target in task.targets):
            assert self.others_came.wait(WITHIN_S)
            return turns
        if quick and task.answers is not None:
            write_answers(Path(task.answers), quick)
        if task.source.table == "hung":
            assert self.released.wait(WITHIN_S)
        if self.breaks & {target.destination.destination for target in task.targets}:
            raise RuntimeError("a worker died")
        return turns


class Applier:
    """Two consumers, of the pipelines ``fine`` and ``hung``, and what they said."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        for name in ("fine.yaml", "hung.yaml"):
            write(folder, name, destinations=[])  # they come over REST
        self.broker = EmbeddedBroker()
        self.settings, self.topics = KafkaSettings(self.broker.bootstrap, embedded=True, signing=SIGNING), Topics()
        ensure(self.settings)
        self.publisher = Publisher(self.settings, "test")
        closing.callback(self.publisher.close)
        self.said: list[Progress] = []
        follower = Follower(self.settings, "test", [self.topics.progress])
        follower.start(self._hear)
        closing.callback(follower.stop)
        self.sources, self.directory = Sources(), DestinationCache()
        self.unreadable: list[tuple[str, str]] = []
        self.broken: list[Exception] = []
        self.consumers = self._consumers(folder)
        for consumer in self.consumers:
            consumer.start()

    def _consumers(self, folder: Path) -> list[PipelineConsumer]:
        deployment = load_all([folder], {})
        shared = camp(
            "test", self.settings, self.publisher, self.directory, self.sources.take, self.broken.append,
            lambda pipeline, record, _: self.unreadable.append((pipeline, record.key or "")),
        )  # fmt: skip
        return [PipelineConsumer(config, shared, Metrics(config.pipeline)) for config in deployment.configs]

    def _hear(self, record: Record) -> None:
        message = parse_progress(record.value or b"")
        assert isinstance(message, Progress)
        self.said.append(message)

    def wants(self, pipeline: str, destination: str) -> None:
        self.directory.put(wanted(pipeline, destination))

    def sends(self, pipeline: str, destination: str, number: int = 0, **fields: Any) -> None:
        sent = item(pipeline, destination, number, **fields)
        self.publisher.send(self.topics.work, sent.key, sent.to_bytes())

    @property
    def in_hand(self) -> int:
        return sum(consumer._ledger.in_hand for consumer in self.consumers)

    @property
    def waiting(self) -> list[str]:
        """Items that were not taken yet."""
        return [waiting.item.item for lane in self._lanes() for waiting in lane._waiting]

    @property
    def repeated(self) -> list[str]:
        """Items that wait for what they repeat."""
        return [waiting.item.item for lane in self._lanes() for waiting in lane._repeated.values()]

    def _lanes(self) -> list[LaneThread]:
        return [lane for consumer in self.consumers for lane in consumer._lanes.values()]

    @property
    def received(self) -> int:
        """By each of the consumers, of all pipelines."""
        return sum(following for consumer in self.consumers for following in consumer._ledger._next.values())

    def answered(self, *items: str) -> Callable[[], bool]:
        return lambda: set(items) <= {each.item for each in self.said}

    def close(self) -> None:
        self.sources.released.set()
        for consumer in self.consumers:
            consumer.tell_to_stop()
        for consumer in self.consumers:
            consumer.stop(WITHIN_S)


@pytest.fixture
def applier(tmp_path: Path) -> Iterator[Applier]:
    with ExitStack() as closing:
        made = Applier(tmp_path, closing)
        closing.callback(made.close)
        yield made


def test_a_source_that_hangs_holds_up_no_other_pipelines_items(applier: Applier) -> None:
    for pipeline in ("fine", "hung"):
        applier.wants(pipeline, "d")
    applier.sends("hung", "d")
    eventually(lambda: "hung" in applier.sources.read, WITHIN_S)
    for number in range(3):
        applier.sends("fine", "d", number)
        eventually(applier.answered(f"fine-d-{number}"), WITHIN_S)
    assert {each.pipeline for each in applier.said} == {"fine"}
    applier.sources.released.set()
    eventually(applier.answered("hung-d-0"), WITHIN_S)
    assert applier.broken == []


def test_each_pipelines_items_are_read_from_its_own_source(applier: Applier) -> None:
    applier.sources.released.set()
    for pipeline in ("fine", "hung"):
        applier.wants(pipeline, "d")
        applier.sends(pipeline, "d")
    eventually(applier.answered("fine-d-0", "hung-d-0"), WITHIN_S)
    assert sorted(applier.sources.read) == ["fine", "hung"]


def test_items_of_a_pipeline_of_another_deployment_are_left_to_it_and_block_nobody(applier: Applier) -> None:
    applier.wants("fine", "d")
    applier.wants("strange", "d")
    applier.sends("strange", "d")
    applier.sends("fine", "d")
    eventually(applier.answered("fine-d-0"), WITHIN_S)
    assert [each.pipeline for each in applier.said] == ["fine"]


def test_what_is_no_item_is_told_of_and_blocks_nobody(applier: Applier) -> None:
    applier.wants("fine", "d")
    applier.publisher.send(applier.topics.work, "fine/d", b"garbage")
    applier.sends("fine", "d")
    eventually(applier.answered("fine-d-0"), WITHIN_S)
    eventually(lambda: set(applier.unreadable) == {("fine", "fine/d"), ("hung", "fine/d")}, WITHIN_S)


def test_items_whose_turn_did_not_come_are_done_next(applier: Applier) -> None:
    applier.sources.turns = 1
    for name in "abc":
        applier.wants("fine", name)
    for name in "abc":
        applier.sends("fine", name)
    eventually(applier.answered("fine-a-0", "fine-b-0", "fine-c-0"), WITHIN_S)
    assert sorted(applier.sources.taken) == ["fine-a-0", "fine-b-0", "fine-c-0"], "each once"
    eventually(lambda: applier.in_hand == 0, WITHIN_S)


@pytest.mark.parametrize(
    ("fields", "is_replaced"),
    [({"attempt": 2}, True), ({"attempt": 1}, False), ({"attempt": 2, "expected": 1, "after": 1}, False)],
)
def test_what_is_sent_again_takes_the_place_of_what_still_waits(
    applier: Applier, fields: dict[str, int], *, is_replaced: bool
) -> None:
    for name in "de":
        applier.wants("hung", name)
    applier.sends("hung", "d")
    eventually(lambda: applier.sources.taken == ["hung-d-0"], WITHIN_S)
    applier.sends("hung", "e", 1)
    eventually(lambda: applier.received == 2 * 2, WITHIN_S)
    applier.sends("hung", "e", 2, **fields)
    eventually(lambda: applier.received == 2 * 3, WITHIN_S)
    eventually(lambda: ("hung-e-1" in applier.waiting) is not is_replaced, WITHIN_S)
    applier.sources.released.set()
    eventually(lambda: applier.in_hand == 0, WITHIN_S)
    assert ("hung-e-1" in applier.sources.taken) is not is_replaced
    eventually(applier.answered("hung-e-2"), WITHIN_S)


def test_what_is_sent_again_while_it_is_under_way_is_answered_with_it(applier: Applier) -> None:
    applier.wants("hung", "d")
    applier.sends("hung", "d")
    eventually(lambda: applier.sources.taken == ["hung-d-0"], WITHIN_S)
    for attempt in (2, 3):
        applier.sends("hung", "d", 0, attempt=attempt, item=f"hung-d-{attempt}")
    eventually(lambda: applier.repeated == ["hung-d-3"], WITHIN_S)
    applier.sources.released.set()
    eventually(applier.answered("hung-d-0", "hung-d-3"), WITHIN_S)
    eventually(lambda: applier.in_hand == 0, WITHIN_S)
    assert applier.sources.taken == ["hung-d-0"], "it is done once"
    assert {each.item for each in applier.said} == {"hung-d-0", "hung-d-3"}, "nobody waits for the second any more"


@pytest.mark.parametrize("breaks", [False, True])
def test_who_is_done_is_answered_for_while_others_of_the_job_go_on_and_once(applier: Applier, *, breaks: bool) -> None:
    applier.sources.quick, applier.sources.breaks = {"small"}, {"large"} if breaks else set()
    for name in ("first", "large", "small"):
        applier.wants("hung", name)
        applier.sends("hung", name, kind=ItemKind.SEED)
        eventually(lambda: "hung-first-0" in applier.sources.taken, WITHIN_S)
    eventually(lambda: applier.received == 2 * 3, WITHIN_S)
    eventually(lambda: len(applier.waiting) == 2, WITHIN_S)
    applier.sources.others_came.set()
    eventually(applier.answered("hung-small-0"), WITHIN_S)
    assert [each.item for each in applier.said] == ["hung-first-0", "hung-small-0"], "the large seed has not ended"
    applier.sends("hung", "small", 1, attempt=1)
    eventually(lambda: "hung-small-1" in applier.sources.taken, WITHIN_S)
    applier.sources.released.set()
    eventually(applier.answered("hung-large-0", "hung-small-1"), WITHIN_S)
    eventually(lambda: applier.in_hand == 0, WITHIN_S)
    assert sorted(each.item for each in applier.said) == [
        "hung-first-0", "hung-large-0", "hung-small-0", "hung-small-1",
    ]  # fmt: skip
    large = next(each for each in applier.said if each.item == "hung-large-0")
    assert large.outcome is (Outcome.FAILED if breaks else Outcome.EMPTY)


def test_what_is_sent_again_while_its_turn_does_not_come_has_the_next(applier: Applier) -> None:
    applier.sources.turns = 0
    applier.wants("hung", "d")
    applier.sends("hung", "d")
    eventually(lambda: applier.sources.read == ["hung"], WITHIN_S)
    applier.sends("hung", "d", 0, attempt=2, item="hung-d-2")
    eventually(lambda: applier.repeated == ["hung-d-2"], WITHIN_S)
    applier.sources.turns = 1
    applier.sources.released.set()
    eventually(applier.answered("hung-d-2"), WITHIN_S)
    eventually(lambda: applier.in_hand == 0, WITHIN_S)
    assert applier.sources.taken == ["hung-d-2"]


def test_another_source_takes_another_crew_where_it_came_over_rest_and_a_restart_where_a_file_says_it(
    applier: Applier, tmp_path: Path
) -> None:
    consumer, config = applier.consumers[0], applier.consumers[0]._config
    polled = config.model_copy(update={"poll": Poll(interval_seconds=9)})
    elsewhere = config.model_copy(update={"source": config.source.model_copy(update={"table": "elsewhere"})})
    assert (consumer.take(polled), consumer._config) == (True, polled)
    assert (consumer.take(elsewhere), consumer._config) == (True, polled)
    put = elsewhere.model_copy(update={"path": config.state_dir / "pipelines" / "fine.yaml"})
    assert (consumer.take(put), consumer._config) == (False, polled)


def test_open_lakes_of_a_worker_count_once_for_the_pipeline_that_it_worked_for_last() -> None:
    fine, hung, lakes = Metrics("fine"), Metrics("hung"), OpenLakes(local=False)
    lakes.note(fine, WorkerReport(pid=1, open_lakes=3))
    lakes.note(hung, WorkerReport(pid=2, open_lakes=5))
    lakes.note(hung, WorkerReport(pid=1, open_lakes=4))
    assert [_open(fine), _open(hung)] == [0, 9]


def _open(metrics: Metrics) -> float | None:
    labels = {"pipeline": "fine" if 'pipeline="fine"' in metrics.exposition() else "hung"}
    return metrics.registry.get_sample_value("viaduck_pool_open_connections", labels)


class Defective(list[tuple[str, str]]):
    """Fails where it is told of an unreadable record."""

    def append(self, _: tuple[str, str]) -> None:
        raise ZeroDivisionError


def test_a_defect_on_a_crews_thread_ends_the_applier_and_is_named(applier: Applier) -> None:
    applier.unreadable = Defective()
    applier.publisher.send(applier.topics.work, "fine/d", b"{")
    eventually(lambda: any(isinstance(each, ZeroDivisionError) for each in applier.broken), WITHIN_S)


def test_the_topic_of_rejected_records_is_made_again_with_the_others(tmp_path: Path) -> None:
    """A wiped broker had all topics again but this one, and no transaction beside a rejected record could commit."""
    broker = EmbeddedBroker()
    source = {"kind": "kafka", "topic": "clicks"}
    clicks = config(tmp_path, pipeline="clicks", source=source, routing={},
                    kafka={"bootstrap_servers": broker.bootstrap})  # fmt: skip
    settings = KafkaSettings(broker.bootstrap, embedded=True, signing=SIGNING)
    with closing(Publisher(settings, "test")) as publisher:
        shared = camp(
            "test", settings, publisher, DestinationCache(), Sources().take, lambda _: None, lambda *_: None
        )  # fmt: skip
        PipelineConsumer(clicks, shared, Metrics("clicks")).renew()
    known = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WITHIN_S).topics
    assert Topics().rejected("clicks") in known
