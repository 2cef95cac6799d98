"""What the fault `source-topic`, and the topic of every site, look for is found where it is played to them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.torture.clicks import NOTHING, RECREATED, Clicks
from tests.torture.faults import source_topic
from tests.torture.faults.all import FAULTS
from tests.torture.faults.processes import pass_point
from tests.torture.points import Deed, Passed, Point
from tests.world.topic_truth import TopicRecord, TopicTruth


def rig_of(**clicks: Any) -> Any:
    """Stands for a rig whose topic says this."""
    begun: list[str] = []
    told = {
        "wait_until_parked": lambda *_: parked("source_recreated"),
        "newest": dict,
        "begin_again": lambda: begun.append(""),
    }
    site = SimpleNamespace(clicks=SimpleNamespace(id="clicks"), is_held=lambda *_: False)
    fleet = SimpleNamespace(wait_until=lambda *_: 0.0, appliers=[])
    points = SimpleNamespace(arm=lambda *_: None, taken=lambda _: None, wait_until_taken=lambda *_: None)
    return SimpleNamespace(
        clicks=SimpleNamespace(**(told | clicks)), begun=begun, rng=Random(1), site=site, fleet=fleet, points=points,
        wait_until_exact=lambda: begun.append("exact"), go_on_until=lambda *_: False,
    )  # fmt: skip


def parked(error: str, message: str = "", generation: int = 1) -> dict[str, Any]:
    return {"state": "parked", "generation": generation, "error": {"type": error, "message": message}}


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_topic, "_write_for_a_while", lambda _: None)


def test_every_deed_has_its_turn_and_every_point_and_the_topic_has_landed_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [deed.__name__ for deed in source_topic.DEEDS]
    monkeypatch.setattr(source_topic, "DEEDS", tuple(lambda _, name=name: name for name in names))
    killed: list[Point] = []
    monkeypatch.setattr(source_topic, "pass_point", lambda _, point, *rest: killed.append(point))
    rig = rig_of()
    a_round = len(names) + len(Point)
    done = source_topic.landed(rig, 2 * a_round)
    assert done == dict.fromkeys([*names, *(f"killed {point}" for point in Point)], 2)
    assert killed[: len(Point)] == killed[len(Point) :]
    assert rig.begun == ["exact"] * 2 * a_round


def test_a_brief_run_has_a_kill_and_every_deed() -> None:
    assert FAULTS["source-topic"].brief == 1 + len(source_topic.DEEDS)


def test_a_full_run_has_fifty_kills_at_each_point() -> None:
    assert FAULTS["source-topic"].full == 50 * (len(Point) + len(source_topic.DEEDS))


def test_a_destination_that_moves_while_it_is_parked_is_a_finding() -> None:
    assert source_topic._stays_parked(rig_of()) == ""
    moves = itertools.count()
    with pytest.raises(AssertionError, match="parked for source_recreated, and its lake went"):
        source_topic._stays_parked(rig_of(newest=lambda: {"through": next(moves)}))


def outlived(message: str) -> str:
    return source_topic._outlived(
        rig_of(
            act=lambda _: None, partitions=1, write_to=lambda _: None, forget=lambda _: 7,
            wait_until_parked=lambda *_: parked("history_expired", message),
        )
    )  # fmt: skip


def test_a_loss_that_names_no_partition_is_a_finding() -> None:
    assert outlived("partition 0: offsets 3 to 6") == "retention past a paused destination"
    with pytest.raises(AssertionError, match="offsets up to 7 of partition 0 are gone, and it is said: some are"):
        outlived("some are")


def test_a_zombie_that_died_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = itertools.chain([101], itertools.repeat(None))

    class Member:
        name = "applier-1"
        pid = property(lambda _: next(pids))

    monkeypatch.setattr(source_topic, "pass_point", lambda *_: Passed(101, "clicks"))
    rig = rig_of(settle=lambda _: 0.0)
    rig.fleet.appliers = [Member()]
    with pytest.raises(AssertionError, match="no zombie"):
        source_topic._zombie(rig)


def test_a_point_that_no_one_passes_is_told() -> None:
    with pytest.raises(TimeoutError, match="after-read"):
        pass_point(rig_of(), Point.AFTER_READ, Deed.KILL_ALL, lambda: None)


class Told:
    """Stands for control: what it says of the destination, and how often that was reseeded."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.said, self.reseeded = status, 0

    def destination(self, *_: str) -> Mapping[str, Any]:
        return self.said

    def reseed(self, *_: str) -> None:
        self.reseeded += 1


@pytest.fixture
def clicks() -> Clicks:
    made = Clicks.__new__(Clicks)
    made.expected_park, made.reseeds, made._reseeded, made._left = NOTHING, 0, 0, 0
    made._site = SimpleNamespace(is_routed=False, is_keyed=False)  # type: ignore[assignment]
    return made


def test_a_park_for_which_nothing_happened_is_a_finding(clicks: Clicks) -> None:
    clicks._control = Told(parked("source_moved"))  # type: ignore[assignment]
    for expected in (NOTHING, RECREATED):
        clicks.expected_park = expected
        with pytest.raises(AssertionError, match="nothing happened for which it should be"):
            clicks.begin_again()


def test_what_lost_its_topic_is_reseeded_once_a_life(clicks: Clicks) -> None:
    told = Told(parked("source_recreated"))
    clicks._control, clicks.expected_park = told, RECREATED  # type: ignore[assignment]
    for _ in range(3):
        clicks.begin_again()
    assert (told.reseeded, clicks.reseeds) == (1, 1)
    told.said = parked("source_recreated", generation=2)
    clicks.begin_again()
    assert told.reseeded == 2


@pytest.mark.parametrize(
    ("stamp", "level"),
    [
        ({}, False),
        ({"generation": 2, "through_at": '{"0":3}'}, False),
        ({"generation": 2, "through_at": '{"0":3,"1":1}'}, True),
        ({"generation": 1, "through_at": '{"0":3,"1":1}'}, False),
    ],
    ids=["never seeded", "behind", "there", "of the life before"],
)
def test_a_destination_is_level_in_a_later_life_than_its_former_topic_s(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, stamp: dict[str, Any], level: bool
) -> None:
    clicks._left = 1
    monkeypatch.setattr(clicks, "newest", lambda: stamp)
    assert clicks.is_level(TopicTruth("t", newest={0: 3, 1: 1})) is level


@pytest.mark.parametrize(("offset", "level"), [(1, True), (0, False)])
def test_where_the_topic_is_routed_it_is_level_behind_the_last_of_its_own_records(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, offset: int, level: bool
) -> None:
    clicks._site = SimpleNamespace(is_routed=True, is_keyed=False)  # type: ignore[assignment]
    truth = TopicTruth("t")
    values = [b'{"to": "ours"}', b'{"to": "others"}', b"{}"]
    truth.add([TopicRecord(0, number, value) for number, value in enumerate(values)], {0: 3})
    monkeypatch.setattr(clicks, "newest", lambda: {"generation": 1, "through_at": f'{{"0":{offset}}}'})
    assert clicks.is_level(truth) is level


@pytest.mark.parametrize(("offset", "level"), [(0, True), (1, False), (2, True), (3, True)])
def test_with_keys_it_is_level_once_its_rows_are_those_of_the_end(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, offset: int, level: bool
) -> None:
    clicks._site = SimpleNamespace(is_routed=True, is_keyed=True)  # type: ignore[assignment]
    truth = TopicTruth("t", keyed=True)
    records = [(b"1", b'{"to": "ours"}'), (b"1", None), (b"2", b'{"to": "others"}')]
    truth.add([TopicRecord(0, number, value, key) for number, (key, value) in enumerate(records)], {0: 3})
    monkeypatch.setattr(clicks, "newest", lambda: {"generation": 1, "through_at": f'{{"0":{offset}}}'})
    assert clicks.is_level(truth) is level
