"""Who stalls and who only waits, by clocks of our own."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from services.applier.model.task import Target, TargetResult
from services.applier.worker.in_flight import SPINS_TIMES, Doing, TargetsInFlight, crowded_out, unanswered
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import POLICY, Action
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, SeedMode, WorkItem

STALL_S = 10.0
DEADLINE_S = 120.0
LOOK_AFTER_S = 0.01


class Watch:
    """Wall clock, CPU clock and bytes. Looking at the second makes time pass, with a ``share`` of a core used."""

    def __init__(self) -> None:
        self.wall = self.cpu = self.share = 0.0
        self.bytes: int | None = 0
        self.rate = 0
        """Bytes that are moved between two looks."""

    def used(self) -> float:
        self.wall += 0.5
        self.cpu += self.share * LOOK_AFTER_S
        return self.cpu

    def moved(self) -> int | None:
        if self.bytes is not None:
            self.bytes += self.rate
        return self.bytes

    def begin(self) -> TargetsInFlight:
        return TargetsInFlight(lambda: self.wall, self.used, LOOK_AFTER_S, self.moved)


def target(catalog: str = "postgres:dbname=x") -> Target:
    item = WorkItem(item="i", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=1, through=3)
    destination = Destination(
        pipeline="p", destination="d", generation=1, routing_value="d", state=DesiredState.RUNNING,
        lake=LakeRef(catalog=catalog), table="t", seed_mode=SeedMode.SCAN, revision="1",
    )  # fmt: skip
    return Target(item, destination, ResolvedLake(catalog))


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def in_flight(watch: Watch) -> TargetsInFlight:
    return watch.begin()


def begin(in_flight: TargetsInFlight, number: int = 0) -> Doing:
    doing: Future[TargetResult | None] = Future()
    in_flight.begin(doing, (number, target()))
    return doing


def seconds_until_stalled(in_flight: TargetsInFlight, watch: Watch) -> float:
    began = watch.wall
    while not in_flight.has_stalled(STALL_S, DEADLINE_S):
        assert in_flight.wait() == []
    return watch.wall - began


def test_who_waits_while_nothing_is_done_takes_nobodys_place(in_flight: TargetsInFlight) -> None:
    stuck, other = begin(in_flight, 0), begin(in_flight, 1)
    assert in_flight.silent == 0
    assert in_flight.wait() == []
    assert in_flight.silent == 2
    other.set_result(None)
    assert in_flight.wait() == [(1, None)]
    assert (in_flight.silent, len(in_flight)) == (1, 1)
    stuck.set_result(None)
    assert in_flight.wait() == [(0, None)]
    assert (in_flight.silent, len(in_flight)) == (0, 0)


def test_who_is_at_work_keeps_its_place(in_flight: TargetsInFlight, watch: Watch) -> None:
    watch.share = 0.9
    begin(in_flight)
    assert in_flight.wait() == []
    assert in_flight.silent == 0


@pytest.mark.parametrize(
    ("share", "rate", "given_up_after"),
    [
        pytest.param(0.0, 0, STALL_S, id="nothing is done"),
        pytest.param(0.9, 1_000_000, DEADLINE_S, id="it is at work"),
        pytest.param(0.0, 1, DEADLINE_S, id="it waits for a slow network"),
        pytest.param(0.9, 0, SPINS_TIMES * STALL_S, id="it spins"),
    ],
)
def test_who_moves_bytes_has_until_the_deadline(watch: Watch, share: float, rate: int, given_up_after: float) -> None:
    watch.share, watch.rate = share, rate
    in_flight = watch.begin()
    begin(in_flight)
    assert seconds_until_stalled(in_flight, watch) == pytest.approx(given_up_after, abs=1.0)


@pytest.mark.parametrize(("share", "given_up_after"), [(0.0, STALL_S), (0.9, DEADLINE_S)])
def test_where_nobody_can_tell_bytes_cpu_tells(watch: Watch, share: float, given_up_after: float) -> None:
    watch.share, watch.bytes = share, None
    in_flight = watch.begin()
    begin(in_flight)
    assert seconds_until_stalled(in_flight, watch) == pytest.approx(given_up_after, abs=1.0)


def test_who_spun_and_then_moves_bytes_is_at_work_again(watch: Watch) -> None:
    watch.share = 0.9
    in_flight = watch.begin()
    begin(in_flight)
    while watch.wall < SPINS_TIMES * STALL_S - 5.0:
        assert in_flight.wait() == []
    watch.rate, spun_s = 1, watch.wall
    assert seconds_until_stalled(in_flight, watch) == pytest.approx(DEADLINE_S - spun_s, abs=1.0)


def test_one_that_stalls_has_done_so_since_it_was_begun(in_flight: TargetsInFlight, watch: Watch) -> None:
    """Others that came back meanwhile make it wait no longer."""
    begin(in_flight, 0)
    while watch.wall < STALL_S:
        begin(in_flight, 1).set_result(None)
        assert in_flight.wait() == [(1, None)]
    assert seconds_until_stalled(in_flight, watch) <= 1.5 * STALL_S - STALL_S + 1.0
    ((number, _, seconds),) = in_flight.left()
    assert number == 0
    assert seconds == pytest.approx(1.5 * STALL_S, abs=1.0)


@pytest.mark.parametrize(
    ("catalog", "look_at"), [("postgres:dbname=x", "pg_locks"), ("sqlite:/lakes/x.sqlite", "file")]
)
def test_a_reason_says_for_how_long_and_where_to_look(catalog: str, look_at: str) -> None:
    told = unanswered(target(catalog), 12.3)
    assert "changes of p/d" in told.message
    assert "12 s" in told.message
    assert look_at in told.hint


def test_neither_reason_parks() -> None:
    for told in (unanswered(target(), 12.3), crowded_out(target(), 32, STALL_S)):
        assert POLICY[told.type] is Action.RETRY
        assert told.hint
