"""Frontiers in pages, one a turn: what is told of many who lag, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.reader.messaging.status_reporter import StatusReporter
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner import frontier
from services.reader.planner.frontier import CatalogTime, SourceObservation
from shared.contracts.reports import Frontier, Share
from shared.kafka.topics import Topics
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import ReaderSender
from tests.fast.reader.planner.test_plan import Reader, reader_at
from tests.fast.reader.simulation import EPOCH

NAMES = tuple("abcde")


class ReporterRig:
    """A reporter beside a reader; ``tell`` is what the loop does in each turn."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.now_s, self.sender = reader, 0.0, ReaderSender()
        outlet = WorkPublisher(self.sender, Topics("v"), "p", "i", Share(), lambda _: None)
        self.reporter = StatusReporter(outlet, Metrics("p"), 1)

    def tell(self) -> list[Frontier]:
        """What one turn publishes."""
        before = len(self.sender.frontiers)
        look = SourceObservation(CatalogTime(EPOCH, EPOCH + timedelta(hours=1)), None, 0.5, is_late=False)
        self.reporter.tell(self.reader.planner, self.now_s, look)
        return self.sender.frontiers[before:]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> ReporterRig:
    """Five destinations lag, two a page."""
    monkeypatch.setattr(frontier, "MOST_PER_PAGE", 2)
    reader = reader_at(5, *NAMES)
    reader.count(5, 8, dict.fromkeys(NAMES, 1))
    return ReporterRig(reader)


def test_a_turn_publishes_one_page_and_the_next_is_due_at_once(rig: ReporterRig) -> None:
    turns = [rig.tell() for _ in range(4)]
    assert [len(pages) for pages in turns] == [0, 1, 1, 1], "to go through all of them is a turn of its own"
    told = [page for pages in turns for page in pages]
    assert [(page.page, page.pages, page.cycle) for page in told] == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
    assert sorted(name for page in told for name in page.lagging) == list(NAMES)
    assert rig.tell() == []
    assert rig.reporter.due_s() > rig.now_s


def test_a_cycle_is_told_to_its_end_before_news_begin_another(rig: ReporterRig) -> None:
    """Control takes up whole cycles: if news cut each of them off, it would never hear of anybody."""
    rig.tell()
    assert len(rig.tell()) == 1
    rig.reader.count(8, 9, {"a": 1})
    rig.reporter.note()
    assert rig.reporter.due_s() < rig.now_s
    assert [page.head for _ in range(2) for page in rig.tell()] == [8, 8]
    rig.now_s = rig.reporter.due_s()
    assert [(page.cycle, page.head) for _ in range(4) for page in rig.tell()] == [(2, 9)] * 3


def test_who_goes_while_a_cycle_is_told_is_not_taken_for_exact(rig: ReporterRig) -> None:
    rig.tell()
    rig.reader.planner.forget("e")
    told = {name: state for _ in range(3) for page in rig.tell() for name, state in page.lagging.items()}
    assert told["e"].known_through == -1


def test_where_nobody_lags_one_page_says_so_and_is_repeated_only_after_a_while(rig: ReporterRig) -> None:
    rig.reader = reader_at(5, *NAMES)
    (page,) = rig.tell()
    assert (page.pages, page.lagging) == (1, {})
    rig.reporter.note()
    rig.now_s = 1.0
    assert rig.tell() == []
    rig.now_s = 6.0
    assert len(rig.tell()) == 1
