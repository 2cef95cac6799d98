from __future__ import annotations

from datetime import timedelta

from services.reader.planner.destination_state import DestinationState
from services.reader.planner.in_flight_limits import MOST_PROBES, MOST_SEEDS, Candidate, InFlightLimits
from services.reader.planner.scheduling import Draft, Rules
from services.reader.planner.waiting_queue import WaitingQueue
from shared.contracts.messages import ItemKind
from tests.fast.reader.simulation import EPOCH, spec

RULES = Rules(max_rows_in_flight=100, segment_rows=40)


def candidate(
    name: str, rows: int | None = 1, *, waits: int = 0, attempts: int = 0, kind: ItemKind = ItemKind.CHANGES
) -> Candidate:
    tracked = DestinationState(
        spec(name), 0.0, position=1, attempts=attempts, waits_since=EPOCH + timedelta(seconds=waits)
    )
    return tracked, Draft(kind, 1, 1, 9, rows)


def admitted(hold: InFlightLimits, *candidates: Candidate) -> list[str]:
    sent: list[str] = []

    def send(each: Candidate) -> None:
        hold.take("item", *each, 0.0)
        sent.append(each[0].name)

    waiting = WaitingQueue()
    for each in candidates:
        waiting.put(*each)
    hold.admit(waiting, {each[0].name: each for each in candidates}.get, send)
    return sent


def test_rows_in_flight_stay_below_the_bound() -> None:
    hold = InFlightLimits(RULES)
    assert admitted(hold, candidate("a", 60), candidate("b", 50)) == ["a"]
    assert hold.rows == 60


def test_what_is_larger_than_the_bound_goes_when_nothing_else_is_in_flight() -> None:
    hold = InFlightLimits(RULES)
    assert admitted(hold, candidate("a", 500)) == ["a"]
    assert admitted(hold, candidate("b", 1)) == []


def test_what_is_given_back_makes_room() -> None:
    hold = InFlightLimits(RULES)
    taken = hold.take("item", *candidate("a", 90), 0.0)
    assert admitted(hold, candidate("b", 20)) == []
    hold.give_back(taken)
    assert admitted(hold, candidate("b", 20)) == ["b"]


def test_whoever_waits_longest_goes_first_and_nobody_overtakes() -> None:
    """Else a large change could wait for ever behind a stream of small ones."""
    hold = InFlightLimits(RULES)
    hold.take("item", *candidate("z", 50), 0.0)
    young, large, old = candidate("a", 1, waits=9), candidate("b", 80, waits=5), candidate("c", 10, waits=1)
    assert admitted(hold, young, large, old) == ["c"]


def test_probes_go_first_and_changes_and_seeds_never_wait_for_each_other() -> None:
    hold = InFlightLimits(RULES)
    seed, changes, probe = (
        candidate("a", 60, kind=ItemKind.SEED),
        candidate("b", 60),
        candidate("c", None, kind=ItemKind.PROBE),
    )
    assert admitted(hold, seed, changes, probe) == ["c", "b", "a"]
    assert admitted(hold, candidate("d", 60), candidate("e", 60, kind=ItemKind.SEED)) == []


def test_those_who_failed_take_at_most_half_of_the_bound() -> None:
    hold = InFlightLimits(RULES)
    assert admitted(hold, candidate("a", 50, attempts=1), candidate("b", 10, attempts=2)) == ["a"]
    assert admitted(hold, candidate("c", 50)) == ["c"]


def test_a_failing_giant_delays_nobody_else() -> None:
    hold = InFlightLimits(RULES)
    assert admitted(hold, candidate("bad", 10_000, attempts=3), candidate("good", 50)) == ["good", "bad"]


def test_a_failing_destination_that_has_to_wait_holds_up_no_healthy_one() -> None:
    hold = InFlightLimits(RULES)
    hold.take("item", *candidate("x", 50, attempts=1), 0.0)
    assert admitted(hold, candidate("bad", 40, attempts=1), candidate("good", 50, waits=9)) == ["good"]


def test_a_seed_that_nobody_counted_takes_a_segment() -> None:
    hold = InFlightLimits(RULES)
    seeds = [candidate(name, None, kind=ItemKind.SEED) for name in "abc"]
    assert admitted(hold, *seeds) == ["a", "b"]
    assert hold.rows == 80


def test_probes_take_no_rows_but_only_so_many_go_at_once() -> None:
    hold = InFlightLimits(RULES)
    probes = [candidate(f"d{number}", None, kind=ItemKind.PROBE) for number in range(MOST_PROBES + 5)]
    assert len(admitted(hold, *probes)) == MOST_PROBES
    assert hold.rows == 0
    assert admitted(hold, candidate("a")) == ["a"]


def test_of_seeds_only_so_many_go_at_once_and_changes_find_their_way() -> None:
    hold = InFlightLimits(RULES)
    seeds = [candidate(f"d{number:03d}", 0, kind=ItemKind.SEED) for number in range(MOST_SEEDS + 5)]
    taken = [hold.take("item", *each, 0.0) for each in seeds[:MOST_SEEDS]]
    assert admitted(hold, *seeds[MOST_SEEDS:], candidate("a", 1)) == ["a"]
    hold.give_back(taken[0])
    assert admitted(hold, *seeds[MOST_SEEDS:]) == [f"d{MOST_SEEDS:03d}"]


def test_seeds_that_failed_before_leave_half_of_the_places_to_others() -> None:
    hold = InFlightLimits(RULES)
    broken = [candidate(f"d{number:03d}", 0, attempts=1, kind=ItemKind.SEED) for number in range(MOST_SEEDS)]
    assert len(admitted(hold, *broken)) == MOST_SEEDS // 2
    assert admitted(hold, candidate("new", 0, kind=ItemKind.SEED)) == ["new"]
