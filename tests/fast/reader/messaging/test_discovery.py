"""Offers: when something is new, and now and then again; never before everything was looked at."""

from __future__ import annotations

from services.reader.messaging.discovery import AGAIN_S, PAUSE_S, OfferPublisher
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.counted_changes import CountedStep
from services.reader.source.unrouted_values import UnroutedValues
from shared.contracts.ranges import Range
from shared.contracts.reports import Share
from shared.kafka.topics import Topics
from tests.fast.reader.fakes import ReaderSender


class Setup:
    def __init__(self) -> None:
        self.unknown, self.sender = UnroutedValues(), ReaderSender()
        self.offering = OfferPublisher(
            self.unknown, WorkPublisher(self.sender, Topics("v"), "p", "i", Share(), lambda _: None)
        )

    def tell(self, now_s: float, *routed: str) -> int:
        """How many offers were made by then."""
        self.offering.tell(routed, now_s)
        return len(self.sender.offers)

    def seen(self, snapshot: int, *values: str) -> None:
        self.unknown.note(CountedStep(Range(snapshot - 1, snapshot), dict.fromkeys(values, 1)), [])


def test_nothing_is_offered_before_everything_was_looked_at_and_then_even_nothing() -> None:
    setup = Setup()
    assert setup.tell(0.0) == 0
    setup.unknown.looked([], False, 0.0)
    assert setup.tell(1.0) == 1
    assert setup.sender.offers[0].values == ()
    assert setup.tell(AGAIN_S + 2) == 1


def test_what_is_new_is_offered_at_once_and_what_follows_after_a_pause() -> None:
    setup = Setup()
    setup.unknown.looked([], False, 0.0)
    setup.tell(0.0)
    setup.seen(1, "a")
    assert setup.tell(PAUSE_S) == 2
    setup.seen(2, "b")
    assert setup.tell(PAUSE_S + 0.1) == 2
    assert setup.tell(2 * PAUSE_S) == 3
    assert [each.value for each in setup.sender.offers[-1].values] == ["a", "b"]


def test_what_still_has_no_destination_is_offered_again() -> None:
    setup = Setup()
    setup.unknown.looked([], False, 0.0)
    setup.seen(1, "a")
    assert [setup.tell(now_s) for now_s in (0.0, 10.0, AGAIN_S - PAUSE_S, AGAIN_S)] == [1, 1, 1, 2]
    assert setup.tell(AGAIN_S + PAUSE_S, "a") == 3
    assert setup.sender.offers[-1].values == ()


def test_another_broker_is_told_at_once() -> None:
    setup = Setup()
    setup.unknown.looked([], False, 0.0)
    setup.seen(1, "a")
    setup.tell(0.0)
    setup.offering.renewed()
    assert setup.tell(PAUSE_S) == 2
