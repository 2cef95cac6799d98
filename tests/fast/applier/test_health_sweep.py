"""A sweep over the catalogs: which lakes are asked, in which order, and what is told of each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from services.applier.health_sweep import HealthSweep
from services.applier.model.health_plan import LakeWanted, TableWanted, by_lake, in_order, is_ours
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, ViaduckError
from shared.contracts.reports import LakeHealth, parse_progress
from shared.kafka.record import Record
from shared.lake.upkeep.health import TableHealth
from tests.fast.fake_sender import FakeSender

FIGURES = TableHealth("1.0", 1, 2, 3, 4, 5, 6, 1, 8, 9, 10, 11, 0, datetime(2026, 1, 1, tzinfo=UTC), 60.0)
EVERY_S = 900.0


def table(name: str | None = "a", pipeline: str = "p") -> TableWanted:
    return TableWanted(pipeline, name, None if name is None else 1, "main", "t")


def lake(database: str = "one", schema: str = "s") -> ResolvedLake:
    return ResolvedLake(f"postgres:dbname={database}", schema)


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeConsumer:
    wanted: list[tuple[TableWanted, ResolvedLake | ViaduckError]] = field(default_factory=list)
    busy: Callable[[], bool] = lambda: False

    @property
    def is_busy(self) -> bool:
        return self.busy()

    def tables(self) -> Iterator[tuple[TableWanted, ResolvedLake | ViaduckError]]:
        yield from self.wanted


@dataclass
class Reader:
    """Lakes that answer, after ``takes_s`` each, unless ``errors`` has something for them."""

    clock: Clock
    takes_s: float = 0.0
    errors: Mapping[str, ViaduckError] = field(default_factory=dict)
    figures: TableHealth = FIGURES
    asked: list[str] = field(default_factory=list)

    def look(self, lake: ResolvedLake, tables: Sequence[tuple[str, str]]) -> list[TableHealth]:
        self.asked.append(f"{lake.catalog.removeprefix('postgres:dbname=')}.{lake.schema}")
        self.clock.now += self.takes_s
        if (error := self.errors.get(self.asked[-1])) is not None:
            raise error
        return [replace(self.figures, files=number) for number, _ in enumerate(tables)]


class Sent(FakeSender):
    @property
    def told(self) -> list[LakeHealth]:
        return [_health(record) for record in self.sent]


def _health(record: Record) -> LakeHealth:
    message = parse_progress(record.value or b"")
    assert isinstance(message, LakeHealth)
    assert (record.topic, record.key) == ("viaduck.progress", message.key)
    return message


class SweepRig:
    """A sweep that is driven by hand."""

    def __init__(self, *wanted: tuple[TableWanted, ResolvedLake | ViaduckError]) -> None:
        self.clock, self.sent = Clock(), Sent()
        self.consumer = FakeConsumer(list(wanted))
        self.reader = Reader(self.clock)
        self.sweep = HealthSweep(
            lambda: EVERY_S,
            lambda: [self.consumer],
            self.sent,
            "viaduck.progress",
            "applier-1",
            self._opened,
            self.clock,
        )

    def _opened(self) -> AbstractContextManager[Reader]:
        return nullcontext(self.reader)

    def run(self, every_s: float = EVERY_S) -> dict[str, LakeHealth]:
        self.sent.sent.clear()
        self.reader.asked.clear()
        self.sweep.sweep(every_s)
        return {each.key: each for each in self.sent.told}


def refused(type: str = "access_denied") -> DestinationError:
    return DestinationError(type, f"it is {type}", "do something")


def test_every_table_is_told_with_the_figures_of_its_own() -> None:
    rig = SweepRig((table("a"), lake()), (table(None), lake("two")), (table("b"), lake()))
    told = rig.run()
    assert told.keys() == {"p/a/@health", "p/b/@health", "p/@source/@health"}
    assert [told[f"p/{name}/@health"].figures.files for name in ("a", "b")] == [0, 1]  # type: ignore[union-attr]
    source = told["p/@source/@health"]
    assert (source.destination, source.generation, source.applier) == (None, None, "applier-1")
    assert told["p/a/@health"].generation == 1
    assert told["p/a/@health"].figures is not None
    assert told["p/a/@health"].figures.oldest_age_seconds == 60.0


def test_a_lake_that_several_destinations_share_is_asked_once() -> None:
    rig = SweepRig(*((table(f"d{number}"), lake()) for number in range(10)))
    assert len(rig.run()) == 10
    assert rig.reader.asked == ["one.s"]


def test_lakes_of_one_database_follow_one_another() -> None:
    rig = SweepRig(*((table(f"d{n}"), lake(("one", "two", "three")[n % 3], f"s{n}")) for n in range(9)))
    rig.run()
    databases = [each.split(".")[0] for each in rig.reader.asked]
    assert len(databases) == 9
    assert sum(one != other for one, other in itertools.pairwise(databases)) == 2


def test_one_that_refuses_is_told_with_the_reason_and_holds_up_nobody() -> None:
    rig = SweepRig((table("a"), lake("one", "a")), (table("b"), lake("one", "b")), (table("c"), lake("one", "c")))
    rig.reader.errors = {"one.b": refused()}
    told = rig.run()
    error = told["p/b/@health"].error
    assert error is not None
    assert (error.type, error.hint) == ("access_denied", "do something")
    assert told["p/b/@health"].figures is None
    assert told["p/a/@health"].error is told["p/c/@health"].error is None
    assert len(rig.reader.asked) == 3


def test_a_database_that_is_silent_is_waited_for_once_and_told_of_all_its_lakes() -> None:
    rig = SweepRig(*((table(f"d{n}"), lake("gone", f"s{n}")) for n in range(5)), (table("z"), lake("there")))
    rig.reader.errors = {f"gone.s{n}": refused("destination_unreachable") for n in range(5)}
    told = rig.run()
    assert rig.reader.asked == ["gone.s0", "there.s"]
    assert [told[f"p/d{n}/@health"].error is None for n in range(5)] == [False] * 5
    assert told["p/z/@health"].figures is not None
    rig.run()
    assert "gone.s0" in rig.reader.asked, "it is asked again in the next sweep"


def test_a_lake_that_can_t_be_resolved_is_told_and_never_asked() -> None:
    rig = SweepRig((table("a"), refused("secret_missing")))
    told = rig.run()
    assert told["p/a/@health"].error is not None
    assert told["p/a/@health"].error.type == "secret_missing"
    assert rig.reader.asked == []


def test_a_sweep_that_runs_out_of_time_goes_on_with_the_others_the_next_time() -> None:
    rig = SweepRig(*((table(f"d{n}"), lake("one", f"s{n}")) for n in range(10)))
    rig.reader.takes_s = 10.0
    rig.run(every_s=30.0)
    first = list(rig.reader.asked)
    rig.run(every_s=30.0)
    second = list(rig.reader.asked)
    assert (len(first), len(second)) == (3, 3)
    assert not {*first} & {*second}
    for _ in range(2):
        rig.run(every_s=30.0)
    assert rig.sweep._asked_at.keys() == {(("postgres:dbname=one", False), f"s{n}") for n in range(10)}


def test_changes_come_first_but_not_for_ever() -> None:
    rig = SweepRig((table("a"), lake("one", "a")), (table("b"), lake("one", "b")))
    waited: list[float] = []

    def busy() -> bool:
        waited.append(rig.clock.now)
        rig.clock.now += 1.0
        return True

    rig.consumer.busy = busy
    assert len(rig.run(every_s=40.0)) == 2, "a source that never rests does not keep its lakes from being seen"
    assert 9 <= waited[-1] - waited[0] <= 14


def test_what_is_idle_is_looked_at_without_waiting() -> None:
    rig = SweepRig((table("a"), lake()))
    before = rig.clock.now
    rig.run()
    assert rig.clock.now == before


@pytest.mark.parametrize("wrong", [{"bytes": 2**63}, {"format_version": "x" * 41}, {"oldest_age_s": float("nan")}])
def test_figures_that_no_message_can_carry_are_told_as_an_error(wrong: dict[str, object]) -> None:
    rig = SweepRig((table("a"), lake()))
    rig.reader.figures = replace(FIGURES, **wrong)  # type: ignore[arg-type]
    error = rig.run()["p/a/@health"].error
    assert error is not None
    assert error.type == "lake_incompatible"


def test_a_lake_that_is_gone_is_forgotten() -> None:
    rig = SweepRig((table("a"), lake("one", "a")), (table("b"), lake("one", "b")))
    rig.run()
    rig.consumer.wanted.pop()
    rig.run()
    assert [key[1] for key in rig.sweep._asked_at] == ["a"]


def test_each_key_is_one_member_s_whatever_is_assigned_to_whom() -> None:
    keys = [f"p/d{number}" for number in range(200)]
    for partitions in (1, 4, 12):
        members = [frozenset(range(first, partitions, 3)) for first in range(3)]
        owners = [[is_ours(key, member, partitions) for member in members] for key in keys]
        assert all(sum(each) == 1 for each in owners)


def test_lakes_are_told_apart_by_database_schema_and_surroundings() -> None:
    strange = replace(lake(), untrusted=True)
    found = by_lake([(table("a"), lake()), (table("b"), lake("one", "x")), (table("c"), strange), (table("d"), lake())])
    assert [len(each.tables) for each in found] == [2, 1, 1]


def test_the_order_begins_with_what_was_never_asked() -> None:
    lakes = [LakeWanted(lake(name), (table(),)) for name in ("a", "b", "c")]
    asked_at = {lakes[0].key: 5.0, lakes[2].key: 3.0}
    assert [each.lake.catalog[-1] for each in in_order(lakes, asked_at)] == ["b", "c", "a"]
