from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.destination_state import DestinationState, ItemInFlight
from services.reader.planner.scheduling import Draft, Rules, SourceState, choose
from shared.contracts.messages import DesiredState, ItemKind, Problem, SeedMode
from shared.contracts.ranges import NOT_SEEDED
from tests.fast.reader.simulation import source_state, spec, step

RULES = Rules(advance_after_s=3600.0)
HEAD = source_state(20, oldest=3, born=5)


def ledger(*steps: CountedStep) -> ChangeIndex:
    made = ChangeIndex(steps[0].range.after if steps else 20, RULES.segment_rows)
    for each in steps:
        made.extend(each)
    return made


def at(position: int | None, exact: int | None = None, *, mode: SeedMode = SeedMode.SCAN) -> DestinationState:
    known = position if position is not None else NOT_SEEDED
    return DestinationState(spec("a", mode=mode), 0.0, position=position, exact=known if exact is None else exact)


def test_an_unknown_position_is_asked_for_first() -> None:
    assert choose(at(None), HEAD, ledger(), RULES, 0.0) == Draft(ItemKind.PROBE, through=20)
    assert choose(at(None), None, None, RULES, 0.0) == Draft(ItemKind.PROBE)


def test_changes_begin_at_the_known_empty_frontier_and_expect_the_stored_position() -> None:
    made = ledger(step(9, 12, {"b": 4}), step(12, 20, {"a": 3}))
    assert choose(at(7, 9), HEAD, made, RULES, 0.0) == Draft(ItemKind.CHANGES, 7, 12, 20, 3)


def test_a_destination_at_the_head_gets_nothing() -> None:
    assert choose(at(20), HEAD, ledger(step(9, 20, {"a": 3})), RULES, 9.0) is None


def test_a_destination_under_the_floor_waits_for_its_count() -> None:
    assert choose(at(6), HEAD, ledger(step(9, 20, {"a": 3})), RULES, 1e9) is None


@pytest.mark.parametrize(
    "held_back",
    [
        {"spec": spec("a", state=DesiredState.PAUSED)},
        {"spec": spec("a", state=DesiredState.STOPPED)},
        {"parked": Problem(type="table_mismatch", message="", hint="", retryable=False)},
        {"in_flight": ItemInFlight("i", ItemKind.CHANGES, 7, 9, 99.0)},
        {"not_before_s": 1.5},
    ],
    ids=lambda held_back: next(iter(held_back)),
)
@pytest.mark.parametrize("position", [None, NOT_SEEDED, 9])
def test_nothing_is_planned_for_who_must_not_or_has_to_wait(held_back: dict[str, Any], position: int | None) -> None:
    tracked = replace(at(position), seed_rows=None, **held_back)
    assert choose(tracked, HEAD, ledger(step(9, 20, {"a": 3})), RULES, 1.0) is None


def test_a_scan_seeds_at_the_head_with_the_rows_it_will_bring() -> None:
    assert choose(at(NOT_SEEDED), HEAD, ledger(), RULES, 0.0) is None
    sized = replace(at(NOT_SEEDED), seed_rows=77)
    assert choose(sized, HEAD, ledger(), RULES, 0.0) == Draft(ItemKind.SEED, through=20, rows=77)


def test_a_replay_seeds_at_the_oldest_retained_snapshot_that_has_the_table() -> None:
    for oldest, first in ((3, 5), (11, 11)):
        seen = source_state(20, oldest=oldest, born=5)
        draft = choose(at(NOT_SEEDED, mode=SeedMode.REPLAY), seen, ledger(), RULES, 0.0)
        assert draft == Draft(ItemKind.SEED, through=first, pinned=True)


def test_latest_seeds_nothing_at_the_head() -> None:
    draft = choose(at(NOT_SEEDED, mode=SeedMode.LATEST), HEAD, ledger(), RULES, 0.0)
    assert draft == Draft(ItemKind.SEED, through=20, rows=0)


def test_nothing_but_a_probe_is_planned_before_the_source_was_seen() -> None:
    assert choose(at(9), None, None, RULES, 1e9) is None
    assert choose(at(NOT_SEEDED, mode=SeedMode.LATEST), None, None, RULES, 0.0) is None


def test_a_quiet_position_moves_on_after_an_hour() -> None:
    assert choose(at(9, 20), HEAD, ledger(), RULES, 3599.0) is None
    assert choose(at(9, 20), HEAD, ledger(), RULES, 3600.0) == Draft(ItemKind.ADVANCE, 9, 20, 20, 0)


@pytest.mark.parametrize(
    ("position", "seen", "moves"),
    [
        (110, source_state(200, oldest=100), False),
        (109, source_state(200, oldest=100), True),
        (90, source_state(200, oldest=100), True),
        (1, source_state(200, oldest=0), False),
    ],
)
def test_a_quiet_position_moves_on_before_expiry_reaches_it(position: int, seen: SourceState, moves: bool) -> None:
    draft = choose(at(position, 200), seen, ChangeIndex(200, 10), RULES, 60.0)
    assert (draft is not None) == moves


def test_a_source_that_keeps_nothing_makes_quiet_destinations_move_once_a_minute_at_most() -> None:
    seen = source_state(200, oldest=199)
    assert choose(at(150, 200), seen, ChangeIndex(200, 10), RULES, 59.0) is None
    assert choose(at(150, 200), seen, ChangeIndex(200, 10), RULES, 60.0) is not None
