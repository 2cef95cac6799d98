"""Fifty thousand destinations: what a turn of the reader costs, in lines of Python that run, which are as many on every
machine. A line takes 0.1 to 0.2 µs: what must not happen is that a turn does something large for each destination."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import FrameType

import pytest

from services.reader.loop import PLACED_A_TURN
from services.reader.messaging.partitioner import Partitioner
from services.reader.messaging.status_reporter import StatusReporter
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.actions import Send
from services.reader.planner.frontier import CatalogTime, SourceObservation, standing
from services.reader.planner.plan import MOST_A_TURN, Planner
from services.reader.planner.scheduling import Rules
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.reports import Share
from shared.kafka.topics import Topics
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import ReaderSender
from tests.fast.reader.simulation import EPOCH, answer, source_state, spec, step

MANY = 50_000
TURNS = 3

pytestmark = pytest.mark.slow


class Crowd:
    """Seeds that come all at once; each item is answered in the turn after it was sent."""

    def __init__(self, many: int) -> None:
        numbers = iter(range(10**9))
        self.planner = Planner(Rules(), lambda: f"item-{next(numbers)}", lambda: 0.0)
        self.now_s, self.head, self.seeded, self.many = 0.0, 5, 0, many
        for number in range(many):
            self.planner.destination(spec(f"d{number:05d}"), 0.0)
        self.planner.observe(source_state(self.head), 0.0)

    def turn(self) -> None:
        self.now_s += 0.01
        for send in self.planner.plan(self.now_s):
            assert isinstance(send, Send)
            position = NOT_SEEDED if send.draft.kind is ItemKind.PROBE else max(send.draft.through, self.head)
            self.seeded += send.draft.kind is ItemKind.SEED
            outcome = Outcome.ALREADY_APPLIED if send.draft.kind is ItemKind.PROBE else Outcome.APPLIED
            self.planner.progress(answer(send, outcome, position, through=max(position, 0)), self.now_s)
        if self.planner.wants_sizes:
            self.planner.sized({})

    def look_and_count(self) -> None:
        """A commit with rows of three of them."""
        self.head += 1
        self.planner.observe(source_state(self.head), self.now_s)
        self.planner.counted(step(self.head - 1, self.head, {"d00001": 1, "d00002": 3, "d00003": 2}))
        standing(self.planner, None, readable=True)

    def seed_all(self) -> None:
        while self.seeded < self.many:
            self.turn()
        self.turn()


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """The reader tells the collector that destinations stay (``Loop``)."""
    gc.disable()
    yield
    gc.enable()


def lines_each(work: Callable[[], object]) -> float:
    """How many lines of Python ``work`` runs, for each of the fifty thousand."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return lines / MANY


def test_a_turn_beside_fifty_thousand_costs_little_its_look_and_its_count_included() -> None:
    crowd = Crowd(MANY)
    crowd.seed_all()
    assert all(each.is_seeded for each in crowd.planner.tracked.values())
    for _ in range(TURNS):
        assert lines_each(crowd.look_and_count) <= 28
        assert lines_each(crowd.turn) + lines_each(crowd.turn) <= 0.05


def test_each_turn_costs_little_while_all_fifty_thousand_lag() -> None:
    """The appliers are away. A frontier of all of them took 214 ms, a count beside them 130 ms."""
    crowd = Crowd(MANY)
    crowd.seed_all()
    planner, everybody = crowd.planner, {f"d{number:05d}": 1 for number in range(MANY)}
    seen = SourceObservation(CatalogTime(EPOCH, EPOCH + timedelta(hours=1)), None, 0.0, is_late=False)

    def look() -> None:
        crowd.head += 1
        planner.observe(source_state(crowd.head), crowd.now_s)

    def count(rows: dict[str, int]) -> None:
        planner.counted(step(crowd.head - 1, crowd.head, rows))

    def plan() -> None:
        planner.plan(crowd.now_s)

    look()
    count(everybody)
    for _ in range(TURNS):
        assert lines_each(look) <= 7.5
        assert lines_each(partial(count, {"d00001": 1})) <= 7
        assert lines_each(plan) <= 5
        sender, outlet = recorded()
        reporter = StatusReporter(outlet, Metrics("p"), 1)
        tell = partial(reporter.tell, planner, crowd.now_s, seen)
        assert lines_each(tell) <= 15, "it begins to tell"
        assert lines_each(tell) <= 5, "it goes on telling"
    while reporter.due_s() < crowd.now_s:
        reporter.tell(planner, crowd.now_s, seen)
    assert len({name for page in sender.frontiers for name in page.lagging}) == MANY


@pytest.mark.parametrize("partitions", [12, 200])
def test_no_turn_in_which_fifty_thousand_get_their_partition_costs_much(partitions: int) -> None:
    """In one turn it took 60 ms on a quiet machine, and a second on a busy one."""
    partitioner, turns = Partitioner(), list[float]()
    for number in range(MANY):
        partitioner.add(f"p/d{number:05d}")
    for count in (partitions, partitions + 1):
        place = partial(partitioner.place_some, count, PLACED_A_TURN)
        turns += [lines_each(place) for _ in range(MANY // PLACED_A_TURN)]
        assert place()
    assert max(turns) <= 2


def test_a_commit_of_all_fifty_thousand_costs_little_a_turn() -> None:
    """It is counted in one turn, and planned from the next one on."""
    crowd = Crowd(MANY)
    crowd.seed_all()
    everybody = {f"d{number:05d}": 1 for number in range(MANY)}
    for _ in range(TURNS):
        crowd.head += 1
        crowd.planner.observe(source_state(crowd.head), crowd.now_s)
        counted = step(crowd.head - 1, crowd.head, everybody)
        assert lines_each(partial(crowd.planner.counted, counted)) <= 6.5
        assert lines_each(crowd.turn) <= 5
        for _ in range(MANY // MOST_A_TURN):
            crowd.turn()
        assert all(each.exact == crowd.head for each in crowd.planner.tracked.values())


def recorded() -> tuple[ReaderSender, WorkPublisher]:
    sender = ReaderSender()
    return sender, WorkPublisher(sender, Topics("v"), "p", "i", Share(), lambda _: None)


def cpu_s(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


def test_seeds_that_come_all_at_once_cost_each_as_much_as_among_a_fifth_as_many() -> None:
    few, many = cpu_s(Crowd(MANY // 5).seed_all), cpu_s(Crowd(MANY).seed_all)
    assert many / MANY < 2 * few / (MANY // 5), f"{few:.2f} s for {MANY // 5}, {many:.2f} s for {MANY}"
