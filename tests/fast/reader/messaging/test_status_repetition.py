"""What a reader says again of its destinations, until control has heard it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from services.reader.messaging.message_decoder import Undelivered, Unsaid
from services.reader.messaging.status_repetition import ALL_EVERY_S, MOST_A_TURN, TROUBLE_EVERY_S, StatusRepetition
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.destination_state import DestinationState, ItemInFlight
from shared.contracts.messages import DesiredState, ItemKind, Outcome, Problem, Progress
from shared.contracts.reports import Share
from shared.kafka.topics import Topics
from tests.fast.reader.fakes import ReaderSender
from tests.fast.reader.simulation import spec

GAP = Problem(type="gap", message="its snapshot is gone", hint="reseed it", retryable=False)
EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


class Mouth:
    """A repeater at second 0, and what it says."""

    def __init__(self, *tracked: DestinationState) -> None:
        self.tracked = {each.name: each for each in tracked}
        self.sender = ReaderSender()
        self.refused: list[Undelivered | Unsaid] = []
        outlet = WorkPublisher(self.sender, Topics("v"), "p", "viaduck-0", Share(), self.refused.append)
        self.repeater = StatusRepetition(outlet, 0.0)

    def says(self, at_s: float) -> list[Progress]:
        """In one turn."""
        self.sender.sent.clear()
        self.repeater.tell(self.tracked, at_s)
        return self.sender.parks


def tracked(name: str = "a", **fields: object) -> DestinationState:
    made = DestinationState(spec(name), 0.0, position=7, exact=7, rows_applied=70)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_a_park_is_said_again_every_half_minute_with_the_time_when_it_was_told_first() -> None:
    mouth = Mouth(tracked(parked=GAP, told_at=EARLIER))
    assert mouth.says(TROUBLE_EVERY_S - 1) == []
    for round_ in (1, 2, 3):
        (said,) = mouth.says(round_ * TROUBLE_EVERY_S)
        assert (said.outcome, said.error, said.since, said.position) == (Outcome.PARKED, GAP, EARLIER, 7)
        assert said.at > EARLIER
        assert mouth.says(round_ * TROUBLE_EVERY_S + 1) == []


def test_who_is_well_is_said_to_be_where_it_is_now_and_then() -> None:
    mouth = Mouth(tracked())
    assert mouth.says(ALL_EVERY_S - 1) == []
    (said,) = mouth.says(ALL_EVERY_S)
    assert (said.outcome, said.position, said.rows_applied, said.error) == (Outcome.ALREADY_APPLIED, 7, 70, None)
    assert said.kind is not ItemKind.PROBE  # which may take a position back


def test_everything_is_said_at_once_where_the_topics_are_others() -> None:
    mouth = Mouth(tracked("a"), tracked("b", parked=GAP))
    mouth.repeater.all(mouth.tracked)
    assert [(said.destination, said.outcome) for said in mouth.says(1.0)] == [
        ("a", Outcome.ALREADY_APPLIED),
        ("b", Outcome.PARKED),
    ]


def test_a_failure_keeps_its_time_so_that_the_next_try_is_not_put_off() -> None:
    mouth = Mouth(tracked(trouble=GAP, told_at=EARLIER, attempts=3))
    (said,) = mouth.says(TROUBLE_EVERY_S)
    assert (said.outcome, said.at, said.error) == (Outcome.FAILED, EARLIER, GAP)


def test_that_data_was_dropped_is_said_again() -> None:
    mouth = Mouth(tracked(spec=spec("a", state=DesiredState.STOPPED, drop=True), dropped=True))
    (said,) = mouth.says(TROUBLE_EVERY_S)
    assert (said.kind, said.outcome) == (ItemKind.DROP, Outcome.ALREADY_APPLIED)


@pytest.mark.parametrize(
    "silent",
    [
        lambda: tracked(in_flight=ItemInFlight("i", ItemKind.CHANGES, 7, 8, 100.0)),
        lambda: tracked(position=None),
        lambda: tracked(spec=spec("a", state=DesiredState.STOPPED, drop=True)),
    ],
    ids=["an answer is on its way", "its cursor has not told", "its data is to be dropped"],
)
def test_of_whom_nobody_knows_anything_nothing_is_said(silent: Callable[[], DestinationState]) -> None:
    mouth = Mouth(silent())
    mouth.repeater.all(mouth.tracked)
    assert mouth.says(1.0) == []


def test_what_the_broker_does_not_take_is_said_with_the_next_round() -> None:
    mouth = Mouth(tracked())
    mouth.repeater.all(mouth.tracked)
    mouth.sender.refuses = True
    mouth.says(1.0)
    assert mouth.refused == [Unsaid("a")]
    mouth.repeater.undelivered("a")
    mouth.sender.refuses = False
    assert mouth.says(2.0) == []
    assert [said.destination for said in mouth.says(TROUBLE_EVERY_S)] == ["a"]


def test_thousands_are_said_again_in_many_turns_and_those_that_are_gone_are_not() -> None:
    mouth = Mouth(*(tracked(f"d{number}") for number in range(2 * MOST_A_TURN + 1)))
    mouth.repeater.all(mouth.tracked)
    assert len(mouth.says(1.0)) == MOST_A_TURN
    assert mouth.repeater.due_s() <= 1.0
    mouth.tracked.pop("d300")
    mouth.repeater.forget("d300")
    assert len(mouth.says(1.0)) == MOST_A_TURN
    assert mouth.says(1.0) == []
    assert mouth.repeater.due_s() == TROUBLE_EVERY_S
