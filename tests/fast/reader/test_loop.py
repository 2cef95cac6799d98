"""The loop on a thread of its own, over a source and a broker in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.reader import tell
from services.reader.frontier import CatalogTime, Standing, standing
from services.reader.inbox import Answered, Inbox, Reached, Removed, Wanted, Woken
from services.reader.loop import Loop, counts_unrouted, offers
from services.reader.plan import Planner
from services.reader.publish import Outlet
from services.reader.spread import Spread
from shared.kafka.topics import Topics
from shared.messages import Frontier, ItemKind, Outcome, Progress, Share, WorkItem
from shared.metrics import Metrics
from tests.fast.reader.fakes import UNREACHABLE, FakeSender, FakeSource, sample
from tests.fast.reader.lakes import config
from tests.fast.reader.world import spec
from tests.fast.waiting import eventually


class Reader:
    """A loop, and an applier that answers every item at once as if it had done it."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.source, self.sender, self.inbox, self.metrics = FakeSource(), FakeSender(), Inbox(), Metrics("p")
        self.caught_up = threading.Event()
        made = config(folder, **{"poll": {"interval_seconds": 0.05}, **sections})
        outlet = Outlet(self.sender, Topics("v"), "p", made.instance.id, Share(), self.inbox.put)
        self.spread = Spread()
        self.loop = Loop(made, self.source, self.inbox, outlet, self.spread, self.metrics, self.caught_up)
        self.positions: dict[str, int] = {}
        self._answered = 0
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()

    def start(self) -> None:
        """The topics have been read."""
        self.caught_up.set()

    def stop(self) -> None:
        self.loop.stop()
        self.inbox.put(Woken())
        self._thread.join(10)
        assert not self._thread.is_alive()

    def settles(self, head: int) -> None:
        """Answer items until the reader says that everybody is exact at ``head``."""
        eventually(lambda: self._answer_all() and self._told(head))

    def _told(self, head: int) -> bool:
        frontiers = self.sender.frontiers
        return bool(frontiers) and frontiers[-1].settled and frontiers[-1].head == head and not frontiers[-1].lagging

    def _answer_all(self) -> bool:
        items = self.sender.items
        for item in items[self._answered :]:
            self.inbox.put(Answered(self._done(item)))
        self._answered = len(items)
        return True

    def _done(self, item: WorkItem) -> Progress:
        if item.kind is not ItemKind.PROBE:
            self.positions[item.destination] = item.through
        position = self.positions.get(item.destination, -1)
        return Progress(
            pipeline="p",
            destination=item.destination,
            item=item.item,
            kind=item.kind,
            outcome=Outcome.ALREADY_APPLIED if item.kind is ItemKind.PROBE else Outcome.APPLIED,
            generation=item.generation,
            position=position,
            through=max(position, 0),
        )


@pytest.fixture
def make_reader(tmp_path: Path) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def make(**sections: Any) -> Reader:
        readers.append(Reader(tmp_path, **sections))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def test_destinations_are_probed_seeded_and_kept_at_the_head(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    for name in "ab":
        reader.inbox.put(Wanted(spec(name)))
    reader.start()
    reader.settles(1)
    assert [item.kind for item in reader.sender.items] == ["probe"] * 2 + ["seed"] * 2
    head = reader.source.commit(a=3)
    reader.settles(head)
    last = reader.sender.items[-1]
    assert (last.destination, last.kind, last.after, last.through, last.rows) == ("a", "changes", 1, head, 3)
    assert len(reader.sender.items) == 5


def test_the_next_item_goes_out_with_the_answer_and_waits_for_no_poll(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader(poll={"interval_seconds": 3600.0})
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)
    assert sample(reader.metrics, "polls_total") == 1


def test_who_has_nothing_new_to_tell_goes_through_all_destinations_for_no_poll(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def counted(planner: Planner, now_s: float, catalog: CatalogTime | None, *, readable: bool) -> Standing:
        looks.append(now_s)
        return standing(planner, now_s, catalog, readable=readable)

    def looks_during(polls: int) -> int:
        began, before = sample(reader.metrics, "polls_total"), len(looks)
        eventually(lambda: sample(reader.metrics, "polls_total") >= began + polls)
        return len(looks) - before

    monkeypatch.setattr(tell, "standing", counted)
    monkeypatch.setattr(tell, "AT_LEAST_EVERY_S", 3600.0)
    monkeypatch.setattr(tell, "PAUSE_S", 0.0)
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)
    looks_during(2)
    assert looks_during(10) == 0
    reader.source.commit(a=3)
    looks_during(2)
    assert looks_during(10) >= 10, "whoever lags grows older, and nobody answers here"


def test_what_topics_remember_counts_for_nothing_but_our_own_line(make_reader: Callable[..., Reader]) -> None:
    """A parked destination is tried again at each start; positions are asked of the cursors."""
    reader = make_reader()
    reader.source.history += [{"nobody": 5}, {"nobody": 7}]
    old = Progress(pipeline="p", destination="a", item="x", kind=ItemKind.CHANGES, outcome=Outcome.PARKED, generation=1)
    line = Frontier(pipeline="p", instance="viaduck-0", cycle=9, page=0, pages=1, head=2, settled=True)
    other = line.model_copy(update={"instance": "viaduck-1", "cycle": 99, "head": 1})
    for event in (Wanted(spec("a")), Answered(old), Reached(line), Reached(other)):
        reader.inbox.put(event)
    reader.start()
    reader.settles(3)
    assert reader.sender.items[0].kind is ItemKind.PROBE
    assert sample(reader.metrics, "unrouted_rows_total") == 7
    assert reader.sender.frontiers[0].cycle > 9


def test_only_destinations_of_its_share_are_planned_but_all_are_routed(make_reader: Callable[..., Reader]) -> None:
    partition = {"mode": "explicit", "include": ("a",)}
    reader = make_reader(instance={"partition": partition})
    for name in "ab":
        reader.inbox.put(Wanted(spec(name)))
    reader.start()
    reader.settles(1)
    head = reader.source.commit(b=5, nobody=2)
    reader.settles(head)
    assert {item.destination for item in reader.sender.items} == {"a"}
    assert sample(reader.metrics, "unrouted_rows_total") == 2


def test_destinations_are_spread_while_they_are_wanted(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    for name in "abcd":
        reader.inbox.put(Wanted(spec(name)))
    reader.start()
    reader.settles(1)
    places = {name: reader.spread.place(f"p/{name}", 2) for name in "abcd"}
    assert sorted(places.values()) == [0, 0, 1, 1]
    reader.inbox.put(Removed("a"))
    reader.inbox.put(Wanted(spec("e")))
    eventually(lambda: any(item.destination == "e" for item in reader.sender.items))
    assert reader.spread.place("p/e", 2) == places["a"]


def test_a_removed_destination_is_forgotten_with_its_gauges(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    for name in "ab":
        reader.inbox.put(Wanted(spec(name)))
    reader.start()
    reader.settles(1)
    eventually(lambda: 'destination="a"' in reader.metrics.exposition())
    reader.inbox.put(Removed("a"))
    eventually(lambda: 'destination="a"' not in reader.metrics.exposition())
    assert 'destination="b"' in reader.metrics.exposition()
    reader.source.commit(a=5)
    eventually(lambda: sample(reader.metrics, "unrouted_rows_total") == 5)


def test_an_unreachable_source_shows_and_harms_no_destination(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    assert reader.loop.source_problem == "not seen yet"
    reader.start()
    reader.settles(1)
    problems = [reader.loop.source_problem]
    reader.source.fails = UNREACHABLE
    eventually(lambda: reader.sender.frontiers[-1].error is not None)
    assert reader.sender.frontiers[-1].error == UNREACHABLE.problem()
    assert not reader.sender.frontiers[-1].settled
    problems.append(reader.loop.source_problem)
    assert problems == [None, "nobody answers"]
    reader.source.fails = None
    reader.settles(1)
    assert not reader.sender.parks


def test_a_broker_that_refuses_items_is_asked_again(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    reader.sender.refuses = True
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    eventually(lambda: sample(reader.metrics, "work_items_total", kind="probe") >= 1)
    reader.sender.refuses = False
    reader.settles(1)


def test_a_loop_that_still_waits_for_its_topics_ends_at_once(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    reader.stop()
    assert reader.source.calls == []


def test_of_readers_that_share_by_hash_the_first_counts_what_is_nobodys(tmp_path: Path) -> None:
    shares = [{"mode": "hash", "total": 3, "ordinal": ordinal} for ordinal in range(3)]
    counting = [counts_unrouted(config(tmp_path, instance={"partition": share})) for share in shares]
    assert counting == [True, False, False]
    assert counts_unrouted(config(tmp_path))


def test_values_without_a_destination_are_offered_where_the_policy_wants_them(tmp_path: Path) -> None:
    reader = Reader(tmp_path, appear={"policy": "propose"})
    try:
        reader.source.commit(a=1, stranger=3)
        reader.inbox.put(Wanted(spec("a")))
        reader.start()
        eventually(lambda: reader.sender.offers)
        (offered,) = reader.sender.offers[-1].values
        assert (offered.value, offered.rows) == ("stranger", 3)
        assert reader.sender.offers[-1].key == "p/@viaduck-0/offer"
    finally:
        reader.stop()


def test_of_several_readers_only_one_offers_values_and_none_where_the_policy_is_off(tmp_path: Path) -> None:
    asks = {"policy": "propose"}
    second = {"id": "b", "partition": {"mode": "hash", "total": 2, "ordinal": 1}}
    assert offers(config(tmp_path, appear=asks))
    assert not offers(config(tmp_path, appear=asks, instance=second))
    assert not offers(config(tmp_path))
