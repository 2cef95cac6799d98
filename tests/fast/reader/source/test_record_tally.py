"""What appliers find in a topic and no destination takes: offered, counted once, and never more than there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from services.reader.source.record_tally import SILENT_AFTER_S, RecordTally
from services.reader.source.unrouted_values import RoutingContext, UnroutedValues
from shared.contracts.digest import value_digest
from shared.contracts.positions import Vector
from shared.contracts.reports import LONGEST_OFFERED, Offer, Offered, UnroutedRecords
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import sample

TOPIC = "topic id"


def found(after: int, through: int, nowhere: int = 0, topic: str = TOPIC, **rows: int) -> UnroutedRecords:
    return between(Vector.of({0: after}), Vector.of({0: through}), rows, nowhere, topic)


def between(
    after: Vector, through: Vector, rows: dict[str, int], nowhere: int = 0, topic: str = TOPIC
) -> UnroutedRecords:
    values = tuple(
        Offered(value=each, digest=value_digest(each), rows=count, first_seen=through.records)
        for each, count in rows.items()
    )
    return UnroutedRecords(
        pipeline="p", topic_id=topic, after_at=after.text, through_at=through.text,
        rows=nowhere + sum(rows.values()), values=values,
    )  # fmt: skip


@dataclass
class Setup:
    routes: dict[str, str] = field(default_factory=dict)
    counts: bool = True
    metrics: Metrics = field(default_factory=lambda: Metrics("p"))
    unknown: UnroutedValues = field(default_factory=UnroutedValues)

    def __post_init__(self) -> None:
        self.tally = RecordTally(self.metrics, RoutingContext(self.routes, lambda: self.counts, self.unknown))

    def hear(self, *reports: UnroutedRecords, now_s: float = 0.0, topic: str | None = TOPIC) -> None:
        for each in reports:
            self.tally.heard(each, topic, now_s)

    @property
    def total(self) -> int:
        return int(sample(self.metrics, "unrouted_rows_total"))

    @property
    def offered(self) -> dict[str, tuple[int, int]]:
        return {each.value: (each.rows, each.first_seen) for each in self.unknown.offer(self.routes.values())}


def test_the_records_of_ranges_that_follow_each_other_add_up() -> None:
    setup = Setup()
    setup.hear(found(0, 10, a=2), found(10, 20, nowhere=3, a=1, b=4))
    assert setup.offered == {"a": (3, 10), "b": (4, 20)}
    assert setup.total == 10


def test_a_range_that_every_destination_reads_and_that_is_read_again_counts_once() -> None:
    setup = Setup()
    setup.hear(*[found(0, 10, a=2)] * 3, found(10, 20, a=1), found(0, 10, a=2), found(10, 20, a=1), found(5, 20, a=2))
    assert setup.offered == {"a": (3, 10)}
    assert setup.total == 3


def test_values_that_only_one_who_lags_has_read_are_offered_with_what_was_read_of_them() -> None:
    setup = Setup()
    setup.hear(found(100, 110), found(0, 10, old=7), found(10, 20, old=5))
    assert setup.offered == {"old": (7, 10)}
    assert setup.total == 0


def test_another_chain_takes_over_where_the_one_that_counts_is_silent() -> None:
    setup = Setup()
    setup.hear(found(0, 10, a=1))
    setup.hear(found(15, 20, a=1), now_s=SILENT_AFTER_S - 1)
    assert setup.total == 1
    setup.hear(found(20, 30, a=5), now_s=SILENT_AFTER_S)
    setup.hear(found(10, 20, a=2), now_s=SILENT_AFTER_S)
    assert (setup.total, setup.offered) == (6, {"a": (6, 10)})


def test_what_a_destination_takes_that_only_its_reader_has_heard_of_is_neither_counted_nor_offered() -> None:
    long = "x" * (LONGEST_OFFERED + 1)
    setup = Setup({"one": "a", "long": long})
    cut = Offered(value=long[:-1], whole=False, digest=value_digest(long), rows=4, first_seen=10)
    said = found(0, 10, nowhere=1, a=2, b=3)
    setup.hear(said.model_copy(update={"values": (*said.values, cut), "rows": 10}))
    assert (setup.total, setup.offered) == (4, {"b": (3, 10)})


def test_a_value_that_got_a_destination_begins_at_nothing_when_that_goes() -> None:
    setup = Setup()
    setup.hear(found(0, 10, a=5))
    setup.routes["one"] = "a"
    assert setup.offered == {}
    setup.routes.clear()
    setup.hear(found(10, 20, a=1))
    assert setup.offered == {"a": (1, 20)}


def test_a_reader_that_starts_again_offers_what_it_offered_and_counts_from_then_on() -> None:
    before, setup = Setup(), Setup()
    before.hear(found(0, 10, a=5, b=1))
    setup.unknown.recall(Offer(pipeline="p", instance="i", values=before.unknown.offer([]), more=True))
    assert setup.offered == {"a": (5, 10), "b": (1, 10)}
    assert setup.unknown.more
    setup.hear(found(10, 20, a=4, b=4), found(20, 30, a=4))
    assert (setup.total, setup.offered) == (12, {"a": (8, 10), "b": (4, 10)})


def test_ranges_of_a_topic_that_was_deleted_do_not_count_and_one_created_again_begins_at_its_beginning() -> None:
    setup = Setup()
    setup.hear(found(0, 100, a=1))
    setup.hear(found(100, 110, a=1), topic="another")
    setup.hear(found(100, 110, a=1), topic=None)
    setup.hear(found(0, 5, topic="another", a=3), topic="another")
    assert setup.total == 4


def test_of_several_readers_of_a_pipeline_one_counts() -> None:
    setup = Setup(counts=False)
    setup.hear(found(0, 10, a=2))
    assert (setup.total, setup.offered) == (0, {})


PARTITIONS, LENGTH = 2, 12
Topic = Sequence[Sequence[str]]
TOPICS = st.lists(
    st.lists(st.sampled_from(["a", "b", "routed", ""]), min_size=LENGTH, max_size=LENGTH),
    min_size=PARTITIONS, max_size=PARTITIONS,
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.integers(0, 4), min_size=PARTITIONS, max_size=PARTITIONS),
        st.sampled_from(["once", "once", "twice", "lost", "again", "from the start"]),
        st.sampled_from([0.0, 0.0, SILENT_AFTER_S]),
    ),
    max_size=40,
)  # fmt: skip


def read(topic: Topic, after: Vector, through: Vector) -> UnroutedRecords:
    """What an applier tells of a range; an empty text stands for a record without a value."""
    inside = [
        value
        for partition, values in enumerate(topic)
        for value in values[after.by_partition.get(partition, 0) : through.by_partition.get(partition, 0)]
    ]
    rows = Counter(inside)
    return between(after, through, {each: rows[each] for each in ("a", "b") if rows[each]}, rows[""])


@given(TOPICS, STEPS)
def test_however_destinations_read_never_more_is_counted_than_there_is_and_every_value_told_is_offered(
    topic: Topic, steps: list[tuple[int, list[int], str, float]]
) -> None:
    setup, at, now_s, told = Setup({"one": "routed"}), [Vector()] * 3, 0.0, set[str]()
    for who, counts, how, passed in steps:
        now_s += passed
        after = Vector() if how == "from the start" else at[who]
        beyond = [min(LENGTH, after.by_partition.get(each, 0) + count) for each, count in enumerate(counts)]
        through = Vector.of(dict(enumerate(beyond)))
        if through == after:
            continue
        if how != "again":  # it died before its cursor moved
            at[who] = through
        report = read(topic, after, through)
        told |= set() if how == "lost" else {each.value for each in report.values}
        setup.hear(*[report] * {"lost": 0, "twice": 2}.get(how, 1), now_s=now_s)
    truth = Counter(value for values in topic for value in values)
    assert set(setup.offered) == told
    assert all(0 < rows <= truth[value] for value, (rows, _) in setup.offered.items())
    assert setup.total <= truth["a"] + truth["b"] + truth[""]


@given(TOPICS, st.lists(st.lists(st.integers(0, 4), min_size=PARTITIONS, max_size=PARTITIONS), max_size=12))
def test_destinations_that_stop_at_one_place_count_each_record_once(topic: Topic, ends: list[list[int]]) -> None:
    setup, at = Setup(), Vector()
    for counts in ends:
        beyond = [min(LENGTH, at.by_partition.get(each, 0) + count) for each, count in enumerate(counts)]
        through = Vector.of(dict(enumerate(beyond)))
        setup.hear(*[read(topic, at, through)] * 3)
        at = through
    seen = Counter(value for each, values in enumerate(topic) for value in values[: at.by_partition.get(each, 0)])
    assert setup.total == seen["a"] + seen["b"] + seen[""]
    assert {value: rows for value, (rows, _) in setup.offered.items()} == {
        each: seen[each] for each in ("a", "b") if seen[each]
    }
