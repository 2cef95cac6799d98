"""Ten thousand destinations come and go beside one that is away, for a day: nothing of them stays."""

from __future__ import annotations

from services.reader.messaging.status_repetition import StatusRepetition
from services.reader.messaging.status_reporter import StatusReporter
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.change_index import MOST_COUNTS, MOST_STEPS
from services.reader.planner.timers import SPARE
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.reports import Share
from shared.kafka.topics import Topics
from shared.runtime.metrics import Metrics
from tests.fast.growth import sizes
from tests.fast.reader.fakes import ReaderSender
from tests.fast.reader.planner.test_plan import Reader
from tests.fast.reader.simulation import spec

LIVES, DAY_S = 10_000, 86_400.0


class Day:
    """A reader's parts that know of destinations by name."""

    def __init__(self) -> None:
        self.reader = Reader(spec("away"))
        self.metrics, self.sender = Metrics("p"), ReaderSender(refuses=True)
        outlet = WorkPublisher(self.sender, Topics("v"), "p", "viaduck-0", Share(), lambda _: None)
        self.teller, self.repeater = StatusReporter(outlet, self.metrics, 1), StatusRepetition(outlet, 0.0)
        self.reader.observe(1)
        self.reader.probed(away=1)
        self.head = 1

    def life(self, name: str) -> None:
        """Of a destination that is seeded, gets a change, fails at last, and is removed."""
        reader = self.reader
        reader.planner.destination(spec(name), reader.now_s)
        self.metrics.errors_total.labels(type="gap", destination=name).inc()
        self.answer(name)
        self.head += 1
        reader.observe(self.head)
        reader.count(self.head - 1, self.head, {name: 1, "away": 1, "nobody": 1, f"nobody {name}": 1})
        self.answer(name, Outcome.FAILED)
        self.repeater.all(reader.planner.tracked)
        self.repeater.tell(reader.planner.tracked, reader.now_s)
        reader.planner.forget(name)
        self.teller.forget([name])
        self.repeater.forget(name)
        reader.now_s += DAY_S / LIVES

    def answer(self, name: str, last: Outcome = Outcome.APPLIED) -> None:
        """Everything that is asked of it; nobody answers for the one that is away."""
        reader = self.reader
        if reader.planner.wants_sizes:
            reader.planner.sized({})
        while sent := [each for each in reader.plan() if each.destination == name]:
            for send in sent:
                if send.draft.kind is ItemKind.PROBE:
                    reader.hear(send, Outcome.ALREADY_APPLIED, -1)
                elif send.draft.kind is ItemKind.SEED:
                    reader.hear(send, Outcome.APPLIED, send.draft.through, through=send.draft.through)
                else:
                    reader.hear(send, last)
            if reader.planner.wants_sizes:
                reader.planner.sized({})

    @property
    def sizes(self) -> dict[str, int]:
        return sizes(self.reader.planner) | sizes(self.repeater) | sizes(self.teller)


def test_a_day_of_lives_leaves_nothing_in_the_reader() -> None:
    day = Day()
    for number in range(LIVES):
        day.life(f"life-{number}")
    held = day.reader.planner.index
    assert held is not None
    assert held.counts <= MOST_COUNTS
    bounds = {"_steps": MOST_STEPS, "_ends": MOST_STEPS, "_heap": 2 * 2 + SPARE + 1}
    for path, size in day.sizes.items():
        assert size <= bounds.get(path.rpartition(".")[2], 10), path
    assert "life" not in day.metrics.exposition()
    assert day.reader.planner.tracked.keys() == {"away"}
