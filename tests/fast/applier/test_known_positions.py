"""What is noted of cursors, in whatever order the answers come; ``test_replayed`` tells what it is good for."""

from __future__ import annotations

from typing import Any

import pytest

from services.applier.known_positions import KnownPositions
from services.applier.model.immediate_answers import answer
from shared.contracts.messages import Destination, ItemKind, Outcome, WorkItem
from shared.kafka.work_consumer import PartitionId
from tests.fast.applier.consumers import item, wanted
from tests.fast.applier.driven_consumer import changes, probe

AT = PartitionId("work", 0)


def destination(name: str = "a", **changed: Any) -> Destination:
    said = wanted("fine", name).value
    assert said is not None
    return Destination.from_bytes(said).model_copy(update=changed)


class Notes:
    """``tells``: an answer of a look that began at ``begun``, or now."""

    def __init__(self, **bounds: int) -> None:
        self.known = KnownPositions(**bounds)

    def tells(
        self, about: WorkItem, outcome: Outcome, position: int | None, begun: int | None = None, **more: Any
    ) -> None:
        said = answer(about, outcome, "test").model_copy(update={"position": position, **more})
        moment = self.known.begin() if begun is None else begun
        self.known.note(about, destination(about.destination), said, AT, moment)

    def has_passed(self, through: int, name: str = "a") -> bool:
        return self.known.answer(changes(name, 0, through), destination(name), "test") is not None


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.mark.parametrize("outcome", [Outcome.APPLIED, Outcome.ALREADY_APPLIED, Outcome.GAP])
def test_a_position_that_was_looked_at_is_known(notes: Notes, outcome: Outcome) -> None:
    notes.tells(changes("a", 9, 10), outcome, 10)
    assert (notes.has_passed(10), notes.has_passed(11), notes.has_passed(10, "b")) == (True, False, False)


def test_the_end_of_an_empty_range_is_no_position(notes: Notes) -> None:
    notes.tells(changes("a", 9, 10), Outcome.EMPTY, 9, through=20)
    assert not notes.has_passed(9)
    notes.tells(changes("a", 4, 5), Outcome.APPLIED, 5)
    notes.tells(changes("a", 9, 10), Outcome.EMPTY, 9, through=20)
    assert (notes.has_passed(5), notes.has_passed(6)) == (True, False)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.PARKED, Outcome.FENCED])
def test_after_trouble_the_lake_is_asked_again(notes: Notes, outcome: Outcome) -> None:
    notes.tells(changes("a", 9, 10), Outcome.APPLIED, 10)
    notes.tells(changes("a", 10, 11), outcome, 10)
    assert not notes.has_passed(10)


def test_a_drop_leaves_nothing_known(notes: Notes) -> None:
    notes.tells(changes("a", 9, 10), Outcome.APPLIED, 10)
    notes.tells(item("fine", "a", kind=ItemKind.DROP), Outcome.APPLIED, 10)
    assert not notes.has_passed(10)


def test_an_earlier_look_that_is_told_of_later_raises_nothing(notes: Notes) -> None:
    """It may be of before the lake was restored."""
    began = notes.known.begin()
    notes.tells(probe("a", 1), Outcome.ALREADY_APPLIED, 50)
    notes.tells(changes("a", 99, 100), Outcome.ALREADY_APPLIED, 100, begun=began)
    assert (notes.has_passed(50), notes.has_passed(51)) == (True, False)


def test_a_lower_position_counts_whenever_it_is_told(notes: Notes) -> None:
    began = notes.known.begin()
    notes.tells(changes("a", 99, 100), Outcome.APPLIED, 100)
    notes.tells(changes("a", 50, 60), Outcome.GAP, 50, begun=began)
    assert (notes.has_passed(50), notes.has_passed(51)) == (True, False)


def test_what_was_looked_at_before_a_partition_was_lost_is_not_known_after(notes: Notes) -> None:
    began = notes.known.begin()
    notes.known.forget([AT])
    notes.tells(changes("a", 99, 100), Outcome.APPLIED, 100, begun=began)
    assert not notes.has_passed(100)
    notes.tells(changes("a", 100, 101), Outcome.APPLIED, 101)
    assert notes.has_passed(101)


def test_what_is_remembered_has_a_bound() -> None:
    notes = Notes(most=10, most_answered=10)
    for number in range(1_000):
        name = f"t{number}"
        notes.tells(changes(name, 9, 10), Outcome.APPLIED, 10)
        notes.tells(changes(name, 10, 11), Outcome.FAILED, None)
        notes.tells(changes(name, 9, 10), Outcome.APPLIED, 10)
        notes.known.delivered(answer(changes(name, 9, 10), Outcome.APPLIED, "test"))
    known = notes.known
    assert (len(known), len(known._answered), len(known._failing)) == (10, 10, 0)
    for number in range(1_000):
        notes.tells(changes(f"t{number}", 10, 11), Outcome.FAILED, None)
    assert (len(known), len(known._failing)) == (0, 10)
    assert known.was_answered(changes("t999", 9, 10))


@pytest.mark.parametrize(("outcome", "is_final"), [(each, each.value in ("applied", "already_applied", "empty"))
                                                   for each in Outcome])  # fmt: skip
def test_an_item_whose_answer_may_change_is_never_taken_for_answered(
    notes: Notes, outcome: Outcome, *, is_final: bool
) -> None:
    notes.known.delivered(answer(changes("a", 9, 10), outcome, "test"))
    assert notes.known.was_answered(changes("a", 9, 10)) is is_final
