"""The loop on a thread of its own, over a source and a broker in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.reader import loop
from services.reader.loop import Loop, offers, rules, sharing
from services.reader.messaging import status_repetition, status_reporter
from services.reader.messaging.message_decoder import (
    Answered,
    EventQueue,
    FrontierReached,
    Proposed,
    Removed,
    Renewed,
    Unrouted,
    Wanted,
    Woken,
)
from services.reader.messaging.partitioner import Partitioner
from services.reader.messaging.work_publisher import WorkPublisher
from services.reader.planner.frontier import CatalogTime, ShareState, standing
from services.reader.planner.plan import Planner
from services.reader.planner.sharing import SILENT_AFTER_S
from services.reader.source import source_poller
from shared.contracts.digest import value_digest
from shared.contracts.messages import ItemKind, Outcome, Problem, Progress, WorkItem, now
from shared.contracts.reports import Frontier, Offer, Offered, Share, UnroutedRecords
from shared.kafka.topics import Topics
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import UNREACHABLE, FakeSource, ReaderSender, sample
from tests.fast.reader.lakes import config
from tests.fast.reader.simulation import spec
from tests.fast.waiting import eventually


class Spread(Partitioner):
    """How many destinations had a place after each turn, and how many items had been sent by then."""

    def __init__(self, sender: ReaderSender) -> None:
        super().__init__()
        self._sender = sender
        self.turns: list[tuple[int, int]] = []

    def place_some(self, partitions: int, most: int) -> bool:
        done = super().place_some(partitions, most)
        self.turns.append((len(self._places), len(self._sender.items)))
        return done


class Reader:
    """A loop, and an applier that answers every item at once as if it had done it."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.source, self.sender, self.inbox, self.metrics = FakeSource(), ReaderSender(), EventQueue(), Metrics("p")
        self.caught_up = threading.Event()
        made = config(folder, **{"poll": {"interval_seconds": 0.05}, **sections})
        outlet = WorkPublisher(self.sender, Topics("v"), "p", made.instance.id, Share(), self.inbox.put)
        self.spread = Spread(self.sender)
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


def test_what_is_found_is_counted_though_each_look_takes_longer_than_the_pause_between_two(
    make_reader: Callable[..., Reader],
) -> None:
    """A source that never rested was looked at again and again, and nothing of it was counted until it did."""
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)

    def moves_on() -> None:
        if reader.source.calls[-1] == "head":
            time.sleep(0.06)
            reader.source.commit(a=1)

    reader.source.on_call = moves_on
    eventually(lambda: reader.sender.items[-1].kind is ItemKind.CHANGES)


def test_who_has_nothing_new_to_tell_goes_through_all_destinations_for_no_poll(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def counted(planner: Planner, catalog: CatalogTime | None, **known: bool) -> ShareState:
        looks.append(planner.revision)
        return standing(planner, catalog, **known)

    def looks_during(polls: int) -> int:
        began, before = sample(reader.metrics, "polls_total"), len(looks)
        eventually(lambda: sample(reader.metrics, "polls_total") >= began + polls)
        return len(looks) - before

    monkeypatch.setattr(status_reporter, "standing", counted)
    monkeypatch.setattr(status_reporter, "AT_LEAST_EVERY_S", 3600.0)
    monkeypatch.setattr(status_reporter, "PAUSE_S", 0.0)
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
    for event in (Wanted(spec("a")), Answered(old), FrontierReached(line), FrontierReached(other)):
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


def test_nothing_is_sent_before_all_have_their_partition_and_each_turn_places_few(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A destination whose items move to another partition costs another applier an open lake."""
    monkeypatch.setattr(loop, "PLACED_A_TURN", 10)
    reader = make_reader()
    for number in range(45):
        reader.inbox.put(Wanted(spec(f"d{number}")))
    reader.start()
    reader.settles(1)
    assert reader.spread.turns[:6] == [(10, 0), (20, 0), (30, 0), (40, 0), (45, 0), (45, 45)]


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
    counting = [sharing(config(tmp_path, instance={"partition": share})).counts(0.0) for share in shares]
    assert counting == [True, False, False]
    assert sharing(config(tmp_path)).counts(0.0)


def listing(instance: str) -> dict[str, Any]:
    return {"id": instance, "partition": {"mode": "explicit", "include": ["a"]}}


def frontier(instance: str, at: datetime | None = None) -> Frontier:
    share = Share(mode="explicit", include=("b",))
    return Frontier(
        pipeline="p", instance=instance, cycle=1, page=0, pages=1, head=1, share=share, settled=True, at=at or now()
    )


def test_of_readers_of_explicit_lists_the_first_that_lives_counts_what_is_nobodys(tmp_path: Path) -> None:
    second = sharing(config(tmp_path, instance=listing("r2")))
    assert second.counts(0.0)
    second.heard(frontier("r3"), 0.0)
    assert second.counts(0.0)
    second.heard(frontier("r1"), 0.0)
    assert not second.counts(SILENT_AFTER_S - 1)
    assert second.counts(SILENT_AFTER_S)


def test_a_frontier_that_has_lain_on_the_topic_is_as_old_as_it_says(tmp_path: Path) -> None:
    second = sharing(config(tmp_path, instance=listing("r2")))
    said = now()
    second.heard(frontier("r1", said - timedelta(hours=1)), 0.0, said)
    assert second.counts(0.0)
    second.heard(frontier("r1", said - timedelta(seconds=10)), 0.0, said)
    assert not second.counts(SILENT_AFTER_S - 11)
    assert second.counts(SILENT_AFTER_S - 10)


@pytest.mark.parametrize("recalled", [True, False])
def test_two_readers_of_explicit_lists_count_a_row_of_nobody_once(
    make_reader: Callable[..., Reader], recalled: bool
) -> None:
    first, second = make_reader(instance=listing("r1")), make_reader(instance=listing("r2"))
    for reader, other in ((first, "r2"), (second, "r1")):
        reader.inbox.put(Wanted(spec("a")))
        if recalled:
            reader.inbox.put(FrontierReached(frontier(other)))
        reader.start()
        reader.settles(1)
        if not recalled:
            reader.inbox.put(FrontierReached(frontier(other)))
    for reader in (first, second):
        reader.settles(reader.source.commit(stranger=5, a=1))
    assert [sample(reader.metrics, "unrouted_rows_total") for reader in (first, second)] == [5, 0]


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


def test_values_that_appliers_find_in_a_topic_are_offered_beside_those_of_an_earlier_life(tmp_path: Path) -> None:
    topic = {"topic": {"kind": "kafka", "topic": "t"}}
    reader = Reader(tmp_path, appear={"policy": "propose"}, **topic)
    value, earlier, others = (
        Offered(value=each, digest=value_digest(each), rows=3, first_seen=7) for each in ("new", "earlier", "others")
    )
    offer = Offer(pipeline="p", instance="viaduck-0", values=(earlier,))
    found = UnroutedRecords(
        pipeline="p", topic_id="table", after_at="{}", through_at='{"0":7}', rows=4, values=(value,)
    )
    try:
        reader.inbox.put(Wanted(spec("a")))
        reader.inbox.put(Proposed(offer))
        reader.inbox.put(Proposed(Offer(pipeline="p", instance="viaduck-1", values=(others,))))
        reader.start()
        eventually(lambda: reader.loop.source_problem is None)
        reader.inbox.put(Unrouted(found))
        reader.inbox.put(Unrouted(found))
        eventually(lambda: [each for each in reader.sender.offers if value in each.values])
        assert reader.sender.offers[-1].values == (earlier, value)
        assert sample(reader.metrics, "unrouted_rows_total") == 4
    finally:
        reader.stop()


def test_of_several_readers_only_one_offers_values_and_none_where_the_policy_is_off(tmp_path: Path) -> None:
    asks = {"policy": "propose"}
    second = {"id": "b", "partition": {"mode": "hash", "total": 2, "ordinal": 1}}
    assert offers(config(tmp_path, appear=asks))
    assert not offers(config(tmp_path, appear=asks, instance=second))
    assert not offers(config(tmp_path))


def test_a_park_whose_message_was_lost_is_said_again(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_repetition, "TROUBLE_EVERY_S", 0.1)
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    eventually(lambda: reader.sender.items)
    reader.inbox.put(Answered(parked(reader.sender.items[0])))
    eventually(lambda: [said.outcome for said in reader.sender.parks][-2:] == [Outcome.PARKED] * 2)
    assert reader.sender.parks[-1].error == DAMAGED


def test_everybody_shows_where_he_is_again_after_the_broker_was_wiped(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    for name in "ab":
        reader.inbox.put(Wanted(spec(name)))
    reader.start()
    reader.settles(1)
    before = reader.sender.parks
    reader.inbox.put(Renewed())
    eventually(lambda: {said.destination for said in reader.sender.parks[len(before) :]} == {"a", "b"})
    assert {said.position for said in reader.sender.parks[len(before) :]} == {1}


DAMAGED = Problem(type="destination_damaged", message="a file is gone", hint="it is seeded anew", retryable=False)


def parked(item: WorkItem) -> Progress:
    return Progress(
        pipeline="p", destination=item.destination, item=item.item, kind=item.kind, outcome=Outcome.PARKED,
        generation=item.generation, error=DAMAGED,
    )  # fmt: skip


@pytest.mark.slow
def test_while_the_source_does_not_answer_no_metric_tells_a_lag(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said 0.0 for as long as the source's catalog was locked."""
    monkeypatch.setattr(source_poller, "LOOK_WITHIN_S", 0.05)
    monkeypatch.setattr(status_reporter, "AT_LEAST_EVERY_S", 0.1)
    reader, released = make_reader(), threading.Event()

    def wait() -> None:
        released.wait(30.0)

    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)
    eventually(lambda: 'dest_lag_seconds{destination="a"' in reader.loop.exposition())
    reader.source.on_call = wait
    try:
        eventually(lambda: LAGS.isdisjoint(series(reader.loop.exposition())))
        assert (reader.loop.look_age_s or 0.0) > 0.05
        assert sample(reader.metrics, "source_look_age_seconds") > 0.05
        assert reader.loop.source_problem is not None
    finally:
        released.set()
    eventually(lambda: series(reader.loop.exposition()) >= LAGS)


@pytest.mark.slow
def test_a_reader_that_stood_still_tells_no_lag_of_before_until_it_has_looked_again(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page answers at once after a freeze, and before its loop has turned."""
    monkeypatch.setattr(source_poller, "LOOK_WITHIN_S", 0.05)
    monkeypatch.setattr(status_reporter, "AT_LEAST_EVERY_S", 0.1)
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)
    eventually(lambda: series(reader.loop.exposition()) >= LAGS)
    reader.loop.stop()
    reader.inbox.put(Woken())
    eventually(lambda: LAGS.isdisjoint(series(reader.loop.exposition())))
    assert (reader.loop.source_problem or "").startswith("the source was last looked at")


LAGS = {"viaduck_dest_lag_seconds", "viaduck_dest_lag_snapshots"}


def series(exposition: str) -> set[str]:
    """The names of what is told of any destination."""
    return {line.partition("{")[0] for line in exposition.splitlines() if "destination=" in line}


@pytest.mark.slow
def test_a_source_that_fails_for_too_long_makes_every_lag_unknown(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_poller, "LOOK_WITHIN_S", 0.2)
    monkeypatch.setattr(status_reporter, "AT_LEAST_EVERY_S", 0.1)
    reader = make_reader()
    reader.inbox.put(Wanted(spec("a")))
    reader.start()
    reader.settles(1)
    assert not reader.sender.frontiers[-1].overdue
    reader.source.fails = UNREACHABLE
    eventually(lambda: reader.sender.frontiers[-1].overdue)
    assert reader.sender.frontiers[-1].look_age_seconds is not None
    eventually(lambda: 'dest_lag_seconds{destination="a"' not in reader.loop.exposition())
    reader.source.fails = None
    eventually(lambda: not reader.sender.frontiers[-1].overdue)


def test_planning_follows_what_the_configuration_says(tmp_path: Path) -> None:
    said = config(tmp_path, evolution={"at_once": 7}, reader={"segment_rows": 11, "max_rows_in_flight": 30})
    followed = rules(said)
    assert (followed.advances_at_once, followed.segment_rows, followed.max_rows_in_flight) == (7, 11, 30)
