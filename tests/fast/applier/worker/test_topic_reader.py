"""What a task reads of a topic that is routed: once for its destinations, and each one's by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Message

from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.destination.foreign_keys import KeysOfRange
from services.applier.model.task import SourceTopic, Target
from services.applier.records.parse import RecordParser
from services.applier.records.record_format import DeclaredColumn, Metadata, RecordFormat
from services.applier.records.rejection import Rejection
from services.applier.worker import topic_reader
from services.applier.worker.topic_clients import BrokerClients
from services.applier.worker.topic_reader import TopicReader
from services.applier.worker.worker_memory import WorkerMemory
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, SourceError
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, SeedMode, WorkItem
from shared.contracts.positions import Vector
from shared.kafka.settings import KafkaSettings
from shared.kafka.topic_log import TopicIdentity
from shared.kafka.topic_records import Bounds, ReadingProgress
from shared.lake.catalog.reader import Column

SETTINGS = KafkaSettings("nowhere:1")
FORM = RecordFormat(columns=(DeclaredColumn("tenant", "$.tenant", "VARCHAR"),), metadata=(Metadata.OFFSET,))
SOURCE = SourceTopic(SETTINGS, "events", FORM, 1_000, 1_000_000, SETTINGS, "rejected", routing="tenant")
COLUMNS = (Column("tenant", "VARCHAR"), Column("_kafka_offset", "BIGINT"))

KEYED_COLUMNS = (*COLUMNS, Column("id", "BIGINT"))
KEYED = replace(
    SOURCE, form=replace(FORM, columns=(*FORM.columns, DeclaredColumn("id", "$.id", "BIGINT")), key_columns=("id",))
)


def message(at: int, text: str) -> Message:
    """One of partition 0."""
    return Message(topic="events", partition=0, offset=at, value=text.encode(), timestamp=(1, 0))


@dataclass
class FakeClients:
    """A topic of one partition, and what of it was delivered as rejected."""

    texts: list[str]
    reads: list[str] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    refuses: SourceError | None = None

    @property
    def log(self) -> FakeClients:
        return self

    records = log

    @contextmanager
    def of(self, source: SourceTopic) -> Iterator[FakeClients]:
        yield self

    def identity(self) -> TopicIdentity:
        return TopicIdentity("cluster", "topic id", 1)

    def follow(self, topic_id: str) -> None:
        assert topic_id == "topic id"

    def schemas(self, source: SourceTopic) -> None: ...

    def rejected(self, source: SourceTopic) -> FakeClients:
        return self

    def read(
        self, begin: Vector, end: Vector, bounds: Bounds, silence_s: float, take: Callable[[Sequence[Any]], None]
    ) -> ReadingProgress:
        first, last = begin.by_partition.get(0, 0), end.by_partition[0]
        self.reads.append(f"{first}-{last}")
        found = [message(each, self.texts[each]) for each in range(first, last)]
        take(found)
        return ReadingProgress(end.by_partition, len(found), 100)

    def deliver_once(self, topic_id: str, topic: str, records: Sequence[Rejection]) -> None:
        assert (topic_id, topic) == ("topic id", "events")
        if self.refuses is not None:
            raise self.refuses
        self.delivered += [each.offset for each in records]


@dataclass
class FakeAnswers:
    """The tables of destinations; that of ``broken`` can't be read."""

    asked: list[str] = field(default_factory=list)
    broken: str = ""

    rows: dict[str, list[int]] = field(default_factory=dict)
    """Ids of the rows that are there, by destination."""

    def foreign_keys(self, target: Target, keys: KeysOfRange) -> pa.Table:
        assert (keys.names, keys.types, keys.harmless) == (("id",), ("BIGINT",), (True,))
        there, own = self.rows.get(target.destination.destination, []), target.destination.routing_value
        found = [each["k0"] for each in keys.rows.to_pylist() if each["owner"] != own and each["k0"] in there]
        return pa.table({"k0": pa.array(sorted(found), pa.int64())})

    def columns(self, target: Target) -> tuple[Column, ...]:
        self.asked.append(target.destination.destination)
        if target.destination.destination == self.broken:
            raise DestinationError("destination_unreachable", "no answer", "wait")
        return COLUMNS if not self.rows else KEYED_COLUMNS


def target(tenant: str, begin: int = 0, end: int = 4, read: int | None = None) -> Target:
    destination = Destination(
        pipeline="p", destination=tenant, generation=1, routing_value=tenant, state=DesiredState.RUNNING,
        lake=LakeRef(catalog="sqlite:elsewhere"), table="events", seed_mode=SeedMode.REPLAY, revision="1",
    )  # fmt: skip
    item = WorkItem(
        item=f"of {tenant}", kind=ItemKind.CHANGES, pipeline="p", destination=tenant, generation=1, expected=begin,
        after=begin, through=end, pinned=True, expected_at=Vector.of({0: begin}).text,
        through_at=Vector.of({0: end}).text, read_at=None if read is None else Vector.of({0: read}).text,
    )  # fmt: skip
    return Target(item, destination, ResolvedLake("sqlite:none", None, "none"), is_spelled=True)


class Reading:
    """A reader of four records: two of a, one of b, one that is no JSON."""

    def __init__(self, source: SourceTopic = SOURCE, routed: frozenset[str] = frozenset()) -> None:
        self.clients = FakeClients(['{"tenant": "a", "x": 1}', '{"tenant": "b"}', "no JSON", '{"tenant": "a"}'])
        self.answers, self.memory = FakeAnswers(), WorkerMemory("100MB")
        clients, answers = cast(BrokerClients, self.clients), cast(CursorAnswers, self.answers)
        self.reader = TopicReader(clients, self.memory, answers, source, routed)

    def share(self, *targets: Target) -> int | None:
        shared = self.reader.share(ItemKind.CHANGES, list(enumerate(targets)), sparing=False)
        return None if shared is None else shared.records

    def rows(self, number: int, of: Target) -> list[tuple[Any, ...]] | None:
        """None where nothing is to be committed."""
        reading = self.reader.read(ItemKind.CHANGES, [(number, of)], sparing=False)
        try:
            assert reading.through_at == of.item.through_at
            if reading.is_quiet:
                return None
            return reading.con.execute(f"SELECT * FROM {reading.memory('rows')} ORDER BY ALL").fetchall()
        finally:
            self.reader.forget(reading)


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    made.memory.close()


def test_the_records_are_read_once_and_each_destination_gets_its_own(reading: Reading) -> None:
    targets = [target(each) for each in "abc"]
    assert reading.share(*targets) == 4
    found = [reading.rows(number, each) for number, each in enumerate(targets)]
    assert found == [[(0, False, "a", 0, 1), (0, False, "a", 3, None)], [(1, False, "b", 1)], None]
    assert reading.clients.reads == ["0-4"]
    assert reading.answers.asked == ["a", "b"]


def test_what_may_be_anybodys_is_delivered_before_any_destination_is_read(reading: Reading) -> None:
    reading.share(target("c"))
    assert reading.clients.delivered == [2]
    reading.clients.refuses = SourceError("source_unreachable", "no broker", "wait")
    with pytest.raises(SourceError):
        reading.share(target("a"))


def test_reading_begins_where_nothing_was_found_before(reading: Reading) -> None:
    late = target("a", read=3)
    assert reading.share(late) == 1
    assert reading.rows(0, late) == [(0, False, "a", 3)]


def test_what_no_destination_takes_is_told_with_the_ends_of_what_was_read() -> None:
    telling = Reading(routed=frozenset({"b"}))
    shared = telling.reader.share(ItemKind.CHANGES, [(0, target("b", read=1))], sparing=False)
    assert shared is not None
    assert shared.unrouted is not None
    found = shared.unrouted
    assert (found.pipeline, found.topic_id, found.after_at, found.through_at) == ("p", "topic id", '{"0":1}', '{"0":4}')
    assert (found.rows, [(each.value, each.rows) for each in found.values]) == (1, [("a", 1)])
    seed = telling.reader.share(ItemKind.SEED, [(0, target("b"))], sparing=False)
    assert seed is not None
    assert seed.unrouted is None
    telling.memory.close()


def test_a_destination_whose_lake_is_away_harms_no_other(reading: Reading) -> None:
    reading.answers.broken = "a"
    reading.share(target("a"), target("b"))
    with pytest.raises(DestinationError):
        reading.rows(0, target("a"))
    assert reading.rows(1, target("b")) == [(1, False, "b", 1)]


def test_where_bad_records_park_one_that_may_be_anybodys_parks_all_that_read_it() -> None:
    parking = Reading(replace(SOURCE, parks_bad=True))
    parking.share(target("a"), target("c"))
    for number, each in enumerate("ac"):
        with pytest.raises(DestinationError, match="offset 2 of partition 0 can't become a row"):
            parking.rows(number, target(each))
    assert parking.clients.delivered == []
    parking.memory.close()


def test_a_row_of_another_tenant_never_leaves_the_worker(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.share(target("a"))
    shared = reading.reader._shared
    assert shared is not None
    wrong = {**shared.routed.places, "a": [0, 1]}
    monkeypatch.setattr(reading.reader, "_shared", replace(shared, routed=replace(shared.routed, places=wrong)))
    with pytest.raises(DestinationError, match="1 rows for p/a are of another routing value"):
        reading.rows(0, target("a"))


def test_a_topic_that_is_not_routed_is_read_for_its_destination() -> None:
    plain = Reading(replace(SOURCE, routing=None))
    assert plain.share(target("a")) is None
    plain.memory.close()


MOVES = [
    '{"tenant": "a", "id": 1}', '{"tenant": "b", "id": 1}', '{"tenant": "b", "id": 2}', '{"id": 3}',
    '{"tenant": "a", "id": 4}', '{"tenant": "a"}', '{"tenant": "a", "id": 5}',
]  # fmt: skip


@dataclass(frozen=True)
class Net:
    """What a transaction is given: offsets of rows, and keys."""

    rows: list[int]
    touched: list[int]
    counts: tuple[int, int]


def net(reading: Reading, number: int, of: Target) -> Net | None:
    found = reading.reader.read(ItemKind.CHANGES, [(number, of)], sparing=False)
    try:
        if found.is_quiet:
            return None
        offsets = f"SELECT _kafka_offset FROM {found.memory('rows')} ORDER BY ALL"
        rows = [offset for (offset,) in found.con.execute(offsets).fetchall()]
        keys = found.con.execute(f"SELECT d, k0 FROM {found.memory('touched')} ORDER BY ALL").fetchall()
        assert {each for each, _ in keys} <= {number}
        counts = found.counts[number]
        assert counts.harmless_keys in ((True,), ())
        return Net(rows, [key for _, key in keys], (counts.upserts, counts.touched))
    finally:
        reading.reader.forget(found)


def test_a_destination_is_told_which_of_its_rows_went_elsewhere_and_stays_quiet_without_any() -> None:
    keyed = Reading(KEYED)
    keyed.clients.texts[:] = MOVES
    keyed.answers.rows = {"a": [1, 3, 9], "b": [3], "c": [1, 8], "d": [8]}
    targets = [target(each, end=7) for each in "abcde"]
    assert keyed.share(*targets) == 7
    assert keyed.clients.delivered == [5]
    assert [net(keyed, number, each) for number, each in enumerate(targets)] == [
        Net([4, 6], [1, 3, 4, 5], (2, 4)), Net([1, 2], [1, 2, 3], (2, 3)), Net([], [1], (0, 1)), None, None,
    ]  # fmt: skip
    left = "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'memory'"
    assert keyed.memory.cursor().execute(left).fetchall() == []
    keyed.memory.close()


MOVED = [
    '{"tenant": "a", "id": 1}', '{"tenant": "b", "id": 1}', '{"tenant": "b", "id": 2}', '{"id": 2}',
    '{"tenant": "c", "id": 3}', '{"tenant": "c"}', '{"tenant": "a", "id": 3}',
]  # fmt: skip


@pytest.mark.parametrize("end", range(1, len(MOVED) + 1))
def test_a_destination_is_quiet_over_a_range_only_where_it_is_over_each_of_its_beginnings(end: int) -> None:
    """An applier that wakes up late may commit a beginning of it after it was answered that there is nothing up to the
    end; the next item goes on from the end, and what comes in between is not read again."""
    keyed = Reading(KEYED)
    keyed.clients.texts[:] = MOVED
    keyed.answers.rows = {"a": [9]}

    def quiet(tenant: str, end: int) -> bool:
        keyed.share(target(tenant, end=end))
        return net(keyed, 0, target(tenant, end=end)) is None

    for tenant in "abcd":
        assert not quiet(tenant, end) or all(quiet(tenant, earlier) for earlier in range(1, end)), tenant
    keyed.memory.close()


def test_where_bad_records_park_a_bad_one_parks_all_whose_rows_it_might_delete() -> None:
    parking = Reading(replace(KEYED, parks_bad=True))
    parking.clients.texts[:] = MOVES
    parking.share(target("c", end=7))
    with pytest.raises(DestinationError, match="offset 5 of partition 0 can't become a row"):
        net(parking, 0, target("c", end=7))
    assert parking.clients.delivered == []
    parking.memory.close()


def test_a_record_that_only_one_destination_refuses_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = Reading(KEYED)
    keyed.clients.texts[:] = MOVES
    keyed.share(target("a", end=7))
    shared = keyed.reader._shared
    assert shared is not None
    assert shared.routed.keys is not None
    keys = replace(shared.routed.keys, staying={"a": [4, 5]})
    monkeypatch.setattr(keyed.reader, "_shared", replace(shared, routed=replace(shared.routed, keys=keys)))
    keyed.answers.rows = {"a": []}
    with pytest.raises(DestinationError, match="1 records for p/a are bad for it alone"):
        net(keyed, 0, target("a", end=7))
    keyed.memory.close()


PLAIN = replace(SOURCE, routing=None)


def of_one_field(reader: Reading) -> list[Any]:
    reader.clients.texts = [f'{{"tenant": "{each}"}}' for each in "abc"] + ["no JSON"]
    return [(0, False, "a", 0), (0, False, "b", 1), (0, False, "c", 2)]


def test_records_that_fit_the_columns_are_read_once_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[bool]()

    class Watched(RecordParser):
        def __init__(self, *how: Any, lets_go: bool) -> None:
            kept.append(lets_go)
            super().__init__(*how, lets_go=lets_go)

    monkeypatch.setattr(topic_reader, "RecordParser", Watched)
    plain = Reading(PLAIN)
    expected = of_one_field(plain)
    assert plain.rows(0, target("a")) == expected
    assert (plain.clients.reads, kept) == (["0-4"], [True])
    plain.memory.close()


def test_records_that_change_the_columns_are_read_again() -> None:
    """Those that were let go before it showed can't be staged again."""
    plain = Reading(PLAIN)
    plain.clients.texts = ['{"tenant": "a", "x": 1}', '{"tenant": "b"}', "no JSON", '{"tenant": "a"}']
    assert plain.rows(0, target("a")) == [(0, False, "a", 0, 1), (0, False, "a", 3, None), (0, False, "b", 1, None)]
    assert plain.clients.reads == ["0-4", "0-4"]
    plain.memory.close()


def test_nothing_stays_in_memory_of_a_range_that_could_not_be_read() -> None:
    plain = Reading(PLAIN)
    of_one_field(plain)

    def ends(*how: Any) -> Any:
        how[-1]([message(0, '{"tenant": "a"}')])
        raise SourceError("source_unreachable", "no broker", "wait")

    plain.clients.read = ends  # type: ignore[assignment]
    with pytest.raises(SourceError):
        plain.rows(0, target("a"))
    con = plain.memory.cursor()
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    con.close()
    plain.memory.close()


@pytest.mark.parametrize(("large", "times"), [(1, 2), (10_000, 0)])
def test_what_a_large_reading_needed_is_given_back_before_and_after_its_rows_are_written(
    monkeypatch: pytest.MonkeyPatch, large: int, times: int
) -> None:
    monkeypatch.setattr(topic_reader, "LARGE_BYTES", large)
    given = list[int]()

    def give_back(memory: WorkerMemory) -> None:
        given.append(1)
        right(memory)

    right = WorkerMemory.give_back
    monkeypatch.setattr(WorkerMemory, "give_back", give_back)
    plain = Reading(PLAIN)
    expected = of_one_field(plain)
    assert plain.rows(0, target("a")) == expected
    assert len(given) == times
    plain.memory.close()
