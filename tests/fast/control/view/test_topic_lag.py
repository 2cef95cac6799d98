"""How far a destination is behind its topic, by partition."""

from __future__ import annotations

from typing import Any

import pytest

from services.control.view.destination_status import status
from services.control.view.frontier import UNHEARD_AFTER_S
from services.control.view.status_store import StatusStore
from services.control.view.topic_lag import MOST_SHOWN, TopicLag
from shared.contracts.messages import Outcome, Progress
from shared.contracts.positions import Vector
from shared.contracts.reports import Frontier
from tests.fast.control.examples import PIPELINE, by_id, frontier, progress, registered

A = registered("a")


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def seen(head_at: str, waits: dict[int, float] | None = None) -> Frontier:
    return frontier([A], head=Vector.parse(head_at).records, head_at=head_at, waits=waits)


def lag(*said: Progress | Frontier, silent_s: float = 0.0) -> TopicLag | None:
    clock = Clock()
    store = StatusStore(PIPELINE, clock)
    store.file_in_force = True
    store.hold(by_id([A]))
    for each in said:
        store.note(each)
    clock.s = silent_s
    return status(store.view(), "a").topic


def applied(position_at: str, **changes: Any) -> Progress:
    return progress(position=Vector.parse(position_at).records, position_at=position_at, **changes)


def test_each_partition_tells_both_offsets_and_what_lies_between_them() -> None:
    found = lag(applied('{"0":100,"1":98}'), seen('{"0":105,"1":98,"2":7}', {0: 2.5, 2: 1.0}))
    assert found is not None
    assert found.model_dump() == {
        "lag_records": 12,
        "partitions": [
            {"partition": 0, "head": 105, "position": 100, "lag_records": 5, "lag_seconds": 2.5},
            {"partition": 1, "head": 98, "position": 98, "lag_records": 0, "lag_seconds": 0.0},
            {"partition": 2, "head": 7, "position": 0, "lag_records": 7, "lag_seconds": 1.0},
        ],
    }


def test_a_lake_has_no_partitions() -> None:
    assert lag(progress(position=5), frontier([A], head=9)) is None


def test_before_the_seed_only_the_heads_are_known() -> None:
    found = lag(seen('{"0":5}'))
    assert found is not None
    assert found.lag_records is None
    assert [(each.head, each.position, each.lag_seconds) for each in found.partitions] == [(5, None, None)]


def test_of_a_silent_reader_no_lag_is_believed() -> None:
    found = lag(applied('{"0":5}'), seen('{"0":5}'), silent_s=UNHEARD_AFTER_S + 1)
    assert found is not None
    assert (found.lag_records, found.partitions[0].lag_records, found.partitions[0].lag_seconds) == (None, None, None)


def test_a_commit_that_the_reader_has_not_heard_of_counts_at_once() -> None:
    found = lag(seen('{"0":5}', {0: 9.0}), applied('{"0":6}'))
    assert found is not None
    assert (found.lag_records, found.partitions[0].lag_seconds) == (0, 0.0)


def test_of_many_partitions_those_that_are_furthest_behind_are_shown_and_all_are_counted() -> None:
    heads = Vector.of({each: 10 + each for each in range(100)}).text
    found = lag(applied(Vector.of(dict.fromkeys(range(100), 10)).text), seen(heads))
    assert found is not None
    assert [each.partition for each in found.partitions] == list(range(100 - MOST_SHOWN, 100))
    assert found.lag_records == sum(range(100))


@pytest.mark.parametrize("position_at", [None, '{"0":3}'])
def test_an_answer_that_does_not_move_the_position_leaves_its_spelling(position_at: str | None) -> None:
    parked = progress(Outcome.PARKED, position=3, position_at=position_at)
    found = lag(applied('{"0":3}'), parked, seen('{"0":4}'))
    assert found is not None
    assert found.partitions[0].position == 3


def test_what_an_applier_read_without_finding_a_record_of_the_destination_is_no_lag() -> None:
    """Of a topic that is routed; a commit that came later counts again by itself."""
    empty = applied('{"0":3}', outcome=Outcome.EMPTY, through=9, through_at='{"0":5,"1":4}')
    found = lag(applied('{"0":3}'), empty, seen('{"0":6,"1":4}'))
    assert found is not None
    assert (found.lag_records, [each.position for each in found.partitions]) == (1, [5, 4])
    later = lag(applied('{"0":3}'), empty, applied('{"0":6,"1":4}'), seen('{"0":6,"1":4}'))
    assert later is not None
    assert later.lag_records == 0
