from __future__ import annotations

from dataclasses import replace

import pytest

from services.reader.messaging.message_decoder import (
    ROOM_WITHIN_S,
    Answered,
    Event,
    EventQueue,
    FrontierReached,
    Intake,
    Proposed,
    Removed,
    Undelivered,
    Unrouted,
    Wanted,
    Woken,
)
from services.reader.messaging.work_publisher import WorkPublisher, new_item_id
from services.reader.planner.actions import Park, Send
from services.reader.planner.frontier import FrontierPage, ShareState, pages
from services.reader.planner.scheduling import Draft
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.reports import Frontier, Lagging, LakeHealth, Offer, Share, UnroutedRecords
from shared.contracts.routed_by import RoutedBy
from shared.kafka.record import Record
from shared.kafka.topics import Topics
from tests.fast.reader.fakes import ReaderSender
from tests.fast.reader.planner.test_plan import PROBLEM
from tests.fast.reader.simulation import EPOCH, answer, spec

TOPICS = Topics("v")
SEND = Send(new_item_id(), "a", 2, Draft(ItemKind.CHANGES, 3, 5, 9, 70, pinned=True), 4)

GONE = spec("a").model_copy(update={"removed": True, "version": 1}).to_bytes()


class Setup:
    def __init__(self) -> None:
        self.inbox = EventQueue()
        self.unreadable: list[str] = []
        self.intake = Intake("p", TOPICS, self.inbox, lambda _, reason: self.unreadable.append(reason))

    def read(self, topic: str, key: str | None, value: bytes | None) -> list[Event]:
        self.intake(Record(topic, 0, 0, key, value))
        return self.inbox.take(0)


def outlet(sender: ReaderSender, inbox: EventQueue) -> WorkPublisher:
    return WorkPublisher(sender, TOPICS, "p", "i-1", Share(mode="hash", total=2), inbox.put)


def test_destinations_answers_and_frontiers_become_events() -> None:
    setup = Setup()
    progress = answer(SEND, Outcome.APPLIED, 9)
    frontier = Frontier(pipeline="p", instance="i", cycle=1, page=0, pages=1, head=3, settled=True)
    assert setup.read(TOPICS.destinations, "p/a", spec("a").to_bytes()) == [Wanted(spec("a"))]
    assert setup.read(TOPICS.destinations, "p/a", GONE) == [Removed("a")]
    assert setup.read(TOPICS.destinations, "p/a", None) == []
    assert setup.read(TOPICS.progress, "p/a", progress.to_bytes()) == [Answered(progress)]
    assert setup.read(TOPICS.progress, "p/@i/0", frontier.to_bytes()) == [FrontierReached(frontier)]
    assert setup.unreadable == []


def test_what_no_destination_takes_of_a_topic_becomes_an_event_of_its_own_pipeline() -> None:
    setup = Setup()
    found = UnroutedRecords(pipeline="p", topic_id="t", after_at="{}", through_at='{"0":5}', rows=3)
    assert setup.read(TOPICS.progress, found.key, found.to_bytes()) == [Unrouted(found)]
    other = found.model_copy(update={"pipeline": "q"})
    assert setup.read(TOPICS.progress, other.key, other.to_bytes()) == []
    assert setup.unreadable == []


def test_what_a_reader_offered_becomes_an_event_for_its_next_life() -> None:
    setup, offer = Setup(), Offer(pipeline="p", instance="i")
    assert setup.read(TOPICS.progress, offer.key, offer.to_bytes()) == [Proposed(offer)]


def test_the_health_of_a_lake_is_no_event_and_nothing_that_a_reader_can_t_read() -> None:
    setup = Setup()
    for destination in ("a", None):
        health = LakeHealth(pipeline="p", destination=destination, error=PROBLEM)
        assert setup.read(TOPICS.progress, health.key, health.to_bytes()) == []
    assert setup.unreadable == []


def test_messages_of_other_pipelines_are_none_of_ours() -> None:
    setup = Setup()
    other = spec("a").model_copy(update={"pipeline": "q"})
    assert setup.read(TOPICS.destinations, "q/a", other.to_bytes()) == []
    assert setup.read(TOPICS.destinations, "q/a", None) == []
    progress = answer(SEND, Outcome.APPLIED, 9).model_copy(update={"pipeline": "q"})
    assert setup.read(TOPICS.progress, "q/a", progress.to_bytes()) == []
    assert setup.read(TOPICS.progress, "q/a", None) == []
    assert setup.unreadable == []


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (TOPICS.destinations, "p/a", b"garbage"),
        (TOPICS.destinations, "p/b", spec("a").to_bytes()),
        (TOPICS.destinations, None, spec("a").to_bytes()),
        (TOPICS.destinations, None, None),
        (TOPICS.destinations, "p/a", b"\xff\x00"),
        (TOPICS.progress, "p/a", b"{}"),
        (TOPICS.progress, "p/a", b'{"record":"frontier"}'),
        (TOPICS.progress, "p/a", b'"record":"frontier"'),
    ],
)
def test_what_nobody_can_read_is_put_aside_and_stops_nothing(topic: str, key: str | None, value: bytes | None) -> None:
    setup = Setup()
    assert setup.read(topic, key, value) == []
    assert len(setup.unreadable) == 1
    assert setup.read(TOPICS.destinations, "p/a", GONE) == [Removed("a")]


@pytest.mark.parametrize(("declared", "told"), [("tenant", None), (None, None), ("region", RoutedBy(field="tenant"))])
def test_an_item_tells_by_what_its_rows_were_counted_only_where_that_is_not_what_was_declared(
    declared: str | None, told: RoutedBy | None
) -> None:
    """Appliers of an earlier version can't read an item that tells."""
    sender = ReaderSender()
    publisher = WorkPublisher(sender, TOPICS, "p", "i-1", Share(), lambda _: None, RoutedBy(field="tenant"))
    publisher.publish(replace(SEND, routed_by=None if declared is None else RoutedBy(field=declared)))
    assert [item.routed_by for item in sender.items] == [told]


def test_an_older_word_about_a_destination_is_not_heard_whenever_it_comes() -> None:
    """It lies in another partition since some were added."""
    setup = Setup()
    now = spec("a").model_copy(update={"generation": 2, "version": 7})
    assert setup.read(TOPICS.destinations, "p/a", now.to_bytes()) == [Wanted(now)]
    assert setup.read(TOPICS.destinations, "p/a", spec("a").to_bytes()) == []
    assert setup.read(TOPICS.destinations, "p/a", GONE) == []
    assert setup.read(TOPICS.destinations, "p/a", now.to_bytes()) == [Wanted(now)], "what is repeated is heard again"


@pytest.mark.parametrize("topic", [TOPICS.destinations, TOPICS.progress])
def test_what_a_stranger_sent_is_put_aside(topic: str) -> None:
    setup = Setup()
    for value in (spec("a").to_bytes(), GONE, None, answer(SEND, Outcome.APPLIED, 9).to_bytes()):
        setup.intake(Record(topic, 0, 0, "p/a", value, distrust="it was forged"))
    assert setup.inbox.take(0) == []
    assert setup.unreadable == ["it was forged"] * 4


def test_an_inbox_gives_all_there_is_in_order() -> None:
    inbox = EventQueue()
    assert inbox.take(0) == []
    assert inbox.take(0.01) == []
    inbox.put(Woken())
    inbox.put(Removed("a"))
    assert inbox.take(9) == [Woken(), Removed("a")]


def test_an_item_says_what_was_planned_and_carries_its_trace() -> None:
    sender = ReaderSender()
    outlet(sender, EventQueue()).publish(SEND)
    (item,) = sender.items
    assert (item.key, item.item, item.kind, item.generation, item.attempt) == ("p/a", SEND.item, "changes", 2, 4)
    assert (item.expected, item.after, item.through, item.rows, item.pinned) == (3, 5, 9, 70, True)
    (record,) = sender.sent
    assert (record.topic, record.key) == (TOPICS.work, "p/a")
    assert record.headers["viaduck-item"] == SEND.item
    version, trace, parent, flags = record.headers["traceparent"].split("-")
    assert (version, trace, len(parent), flags) == ("00", SEND.item, 16, "01")


def test_an_item_that_the_broker_refuses_comes_back_as_an_event() -> None:
    inbox = EventQueue()
    outlet(ReaderSender(refuses=True), inbox).publish(SEND)
    assert inbox.take(0) == [Undelivered("a", SEND.item)]


def test_a_park_is_published_as_progress_that_everybody_understands() -> None:
    sender = ReaderSender()
    outlet(sender, EventQueue()).publish(Park("a", 2, 7, PROBLEM))
    (progress,) = sender.parks
    assert (progress.key, progress.outcome, progress.generation, progress.position) == ("p/a", Outcome.PARKED, 2, 7)
    assert progress.error == PROBLEM


def test_a_frontier_goes_out_in_pages_with_keys_of_their_own() -> None:
    sender = ReaderSender()
    names = tuple(f"d{number}" for number in range(4_001))
    standing, parts = ShareState(9, EPOCH, names, settled=False, revision="r", notice="n"), pages(names)
    for number, part in enumerate(parts):
        lagging = {name: Lagging(known_through=1, lag_seconds=2.0) for name in part}
        outlet(sender, EventQueue()).frontier(FrontierPage(standing, PROBLEM, number, len(parts), lagging), 42)
    told = sender.frontiers
    assert [page.key for page in told] == ["p/@i-1/0", "p/@i-1/1", "p/@i-1/2"]
    assert {(page.cycle, page.pages, page.head, page.revision, page.settled) for page in told} == {
        (42, 3, 9, "r", False)
    }
    assert told[0].share == Share(mode="hash", total=2)
    assert told[0].error == PROBLEM
    assert {page.notice for page in told} == {"n"}
    assert {name for page in told for name in page.lagging} == set(names)
    assert max(len(record.value or b"") for record in sender.sent) < 900_000


def test_what_topics_say_waits_for_room_while_the_reader_is_busy_and_is_never_lost() -> None:
    waited: list[float] = []
    inbox = EventQueue(most=3, wait=waited.append)
    intake = Intake("p", TOPICS, inbox, lambda *_: None)
    for _ in range(5):
        intake(Record(TOPICS.destinations, 0, 0, "p/a", spec("a").to_bytes()))
    assert waited == [ROOM_WITHIN_S] * 2, "its thread turns meanwhile, and goes on"
    assert inbox.take(0) == [Wanted(spec("a"))] * 5
    intake(Record(TOPICS.destinations, 0, 0, "p/a", spec("a").to_bytes()))
    assert len(waited) == 2


def test_signals_and_deliveries_never_wait() -> None:
    waited: list[float] = []
    inbox = EventQueue(most=1, wait=waited.append)
    for _ in range(5):
        inbox.put(Woken())
    assert waited == []
