from __future__ import annotations

import itertools
from datetime import timedelta

from services.reader.planner.frontier import CatalogTime
from services.reader.planner.plan import Planner
from services.reader.planner.scheduling import Rules
from services.reader.source.source_poller import (
    HEARD_WITHIN_S,
    LONGEST_PAUSE_S,
    LOOK_WITHIN_S,
    SIGHT_EVERY_S,
    SIZES_EVERY_S,
    SourcePoller,
)
from services.reader.source.unrouted_values import LOOK_AGAIN_AFTER_S, RoutingContext, UnroutedValues
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import UNREACHABLE, FakeSource, sample
from tests.fast.reader.simulation import EPOCH, answer, spec


class Setup:
    """A watch over a fake source, and the planner that it serves."""

    def __init__(
        self, *names: str, counts_unrouted: bool = True, interval_s: float = 5.0, unknown: UnroutedValues | None = None
    ) -> None:
        numbers = itertools.count(1)
        self.source, self.metrics = FakeSource(), Metrics("p")
        self.planner = Planner(Rules(), lambda: f"item-{next(numbers)}", lambda: 0.0)
        self.routes: dict[str, str] = {}
        self.watch = SourcePoller(
            self.source, self.planner, self.metrics, RoutingContext(self.routes, lambda: counts_unrouted, unknown),
            interval_s, 0.0,
        )  # fmt: skip
        for name in names:
            self.routes[name] = name
            self.planner.destination(spec(name), 0.0)

    def probed(self, **positions: int) -> None:
        for action in self.planner.plan(0.0):
            position = positions[action.destination]
            self.planner.progress(answer(action, Outcome.ALREADY_APPLIED, position), 0.0)  # type: ignore[arg-type]

    def poll(self, now_s: float) -> None:
        """Poll, and count all there is to count."""
        self.watch.poll(now_s)
        while self.watch.has_work(now_s):
            self.watch.work(now_s)

    def told_problem(self) -> bool:
        return self.watch.problem is not None

    def unrouted(self) -> float:
        return sample(self.metrics, "unrouted_rows_total")

    def at_head(self) -> Setup:
        self.poll(0.0)
        self.probed(**dict.fromkeys(self.routes, 1))
        self.planner.plan(0.0)
        self.source.calls.clear()
        return self


def test_an_idle_poll_asks_for_the_head_and_nothing_else() -> None:
    setup = Setup("a").at_head()
    for second in (5, 10, 15):
        setup.poll(float(second))
    assert setup.source.calls == ["head"] * 3


def test_expiry_is_looked_for_now_and_then_though_the_head_stands_still() -> None:
    setup = Setup("a").at_head()
    setup.poll(SIGHT_EVERY_S - 1)
    setup.poll(SIGHT_EVERY_S)
    assert setup.source.calls == ["head", "head", "observe"]


def test_a_moved_head_is_counted_once() -> None:
    setup = Setup("a").at_head()
    setup.source.commit(a=1)
    setup.source.commit(a=1)
    setup.poll(5.0)
    setup.poll(10.0)
    assert [call for call in setup.source.calls if call.startswith("count")] == ["count (1, 3]"]


def test_a_long_history_is_counted_bite_by_bite() -> None:
    setup = Setup("a").at_head()
    setup.source.segments = True
    for _ in range(3):
        setup.source.commit(a=1)
    setup.watch.poll(5.0)
    bites = []
    while setup.watch.has_work(5.0):
        setup.watch.work(5.0)
        bites.append(setup.planner.index.line if setup.planner.index else None)
    assert bites == [2, 3, 4]


def test_those_who_stand_further_back_are_counted_from_the_line_down() -> None:
    setup = Setup("a", "b")
    setup.source.segments = True
    for _ in range(4):
        setup.source.commit(a=1)
    setup.poll(0.0)
    setup.probed(a=2, b=5)
    setup.source.calls.clear()
    setup.poll(5.0)
    counted = [call for call in setup.source.calls if call.startswith("count")]
    assert counted == ["count (4, 5]", "count (3, 4]", "count (2, 3]"]
    assert [action.destination for action in setup.planner.plan(5.0)] == ["a"]


def test_new_changes_are_counted_before_old_ones() -> None:
    setup = Setup("a", "b")
    setup.source.segments = True
    for _ in range(3):
        setup.source.commit(a=1)
    setup.poll(0.0)
    setup.probed(a=1, b=4)
    setup.watch.work(1.0)
    setup.watch.work(1.0)
    setup.source.commit(b=1)
    setup.source.calls.clear()
    setup.poll(5.0)
    assert next(call for call in setup.source.calls if call.startswith("count")) == "count (4, 5]"


def test_unrouted_rows_are_counted_once_per_range_and_never_for_a_catch_up() -> None:
    setup = Setup("a", "b")
    setup.source.commit(nobody=100)
    setup.poll(0.0)
    setup.probed(a=1, b=2)
    setup.poll(5.0)
    assert setup.unrouted() == 0
    setup.source.commit(a=1, nobody=7)
    setup.poll(10.0)
    setup.poll(15.0)
    assert setup.unrouted() == 7


def test_of_several_readers_only_one_counts_unrouted_rows() -> None:
    setup = Setup("a", counts_unrouted=False).at_head()
    setup.source.commit(nobody=7)
    setup.poll(5.0)
    assert setup.unrouted() == 0


def test_rows_wait_a_while_for_a_first_destination_before_they_count_as_nobodys() -> None:
    setup = Setup()
    setup.poll(0.0)
    setup.source.commit(a=7)
    setup.poll(HEARD_WITHIN_S - 1)
    assert not setup.watch.has_work(HEARD_WITHIN_S - 1)
    setup.routes["a"] = "a"
    setup.poll(HEARD_WITHIN_S - 0.5)
    assert setup.unrouted() == 0
    setup.routes.clear()
    setup.source.commit(a=7)
    setup.poll(HEARD_WITHIN_S)
    assert setup.unrouted() == 7


def test_a_source_that_does_not_answer_is_told_retried_slower_and_forgiven() -> None:
    setup = Setup("a").at_head()
    setup.source.fails = UNREACHABLE
    pauses = []
    now_s = 5.0
    for _ in range(8):
        setup.poll(now_s)
        pauses.append(round(setup.watch.poll_at_s - now_s, 6))
        now_s = setup.watch.poll_at_s
    assert setup.watch.problem == UNREACHABLE.problem()
    assert pauses[0] == 5.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    assert sample(setup.metrics, "errors_total", type="source_unreachable", destination="") == 8
    setup.source.fails = None
    setup.poll(now_s)
    assert setup.watch.poll_at_s == now_s + 5.0
    assert not setup.told_problem()


def test_a_source_that_does_not_answer_at_all_is_told_while_it_is_still_waited_for() -> None:
    """The thread that waits for a locked catalog can't tell, and what it said last looked healthy."""
    setup = Setup("a").at_head()
    said: list[str | None] = []
    setup.source.on_call = lambda: said.extend(setup.watch.overdue(5.0 + late) for late in (LOOK_WITHIN_S, 101.0))
    setup.poll(5.0)
    assert said == [None, "the source has not answered for 101 s"]
    assert setup.watch.overdue(1_000.0) is None


def test_a_source_that_fails_while_it_is_counted_is_counted_again_at_the_next_poll() -> None:
    setup = Setup("a").at_head()
    setup.source.commit(a=1)
    setup.watch.poll(5.0)
    setup.source.fails = UNREACHABLE
    setup.watch.work(5.0)
    assert not setup.watch.has_work(5.0)
    setup.source.fails = None
    setup.poll(setup.watch.poll_at_s)
    assert [action.destination for action in setup.planner.plan(20.0)] == ["a"]


def test_a_head_of_the_same_number_and_another_time_is_looked_at() -> None:
    """A source that was restored from a backup may have come to the same number again."""
    setup = Setup("a").at_head()
    setup.source.calls.clear()
    setup.source.committed += timedelta(seconds=1)
    setup.poll(5.0)
    assert setup.source.calls[:2] == ["head", "observe"]


def test_a_line_that_expired_between_two_polls_parks_and_goes_on_at_the_head() -> None:
    setup = Setup("a").at_head()
    setup.source.commit(a=1)
    setup.source.oldest = 2
    setup.poll(5.0)
    setup.probed(a=1)
    assert [type(action).__name__ for action in setup.planner.plan(5.0)] == ["Park"]
    setup.source.calls.clear()
    setup.poll(10.0)
    assert setup.source.calls == ["head"]


def test_seeds_that_come_one_after_the_other_are_sized_by_one_count() -> None:
    setup = Setup("a", "b")
    setup.poll(0.0)
    first, second = setup.planner.plan(0.0)
    for action, now_s in ((first, 1.0), (second, SIZES_EVERY_S - 1)):
        setup.planner.progress(answer(action, Outcome.ALREADY_APPLIED, NOT_SEEDED), now_s)  # type: ignore[arg-type]
        setup.planner.plan(now_s)
        assert setup.watch.has_work(now_s)
        setup.watch.work(now_s)
        (seed,) = setup.planner.plan(now_s)
        assert seed.draft.kind is ItemKind.SEED  # type: ignore[union-attr]
    assert setup.source.calls.count("sizes") == 1


def test_changes_are_counted_before_seeds_are_sized() -> None:
    setup = Setup("a", "b")
    setup.poll(0.0)
    setup.probed(a=1, b=NOT_SEEDED)
    setup.planner.plan(0.0)
    setup.source.commit(a=1)
    setup.watch.poll(5.0)
    setup.source.calls.clear()
    setup.watch.work(5.0)
    setup.watch.work(5.0)
    assert [call.split()[0] for call in setup.source.calls] == ["count", "sizes"]


def test_a_seed_that_can_not_be_sized_goes_all_the_same_and_changes_are_counted_at_once() -> None:
    """One old file of the source is unreadable, and somebody waits for a seed: that is nobody else's trouble."""
    setup = Setup("a", "b")
    setup.source.unsizable = UNREACHABLE
    setup.poll(0.0)
    setup.probed(a=1, b=NOT_SEEDED)
    setup.planner.plan(0.0)
    setup.source.commit(a=1)
    setup.poll(5.0)
    assert not setup.told_problem()
    sent = {action.destination: action.draft for action in setup.planner.plan(5.0)}  # type: ignore[union-attr]
    assert sent["a"].kind is ItemKind.CHANGES
    assert (sent["b"].kind, sent["b"].rows) == (ItemKind.SEED, None)


def test_values_that_can_not_be_listed_keep_no_change_waiting_and_are_asked_for_again_after_a_while() -> None:
    """One old file of the source is unreadable: what has no destination can't be offered, and changes go on."""
    setup = Setup("a", unknown=UnroutedValues())
    setup.source.unlistable = UNREACHABLE
    setup.poll(0.0)
    setup.probed(a=1)
    setup.source.commit(a=1)
    setup.poll(5.0)
    assert not setup.told_problem()
    assert setup.planner.index is not None
    assert setup.planner.index.line == 2
    assert setup.source.calls.count("unknown") == 1
    setup.source.unlistable = None
    setup.poll(LOOK_AGAIN_AFTER_S)
    assert setup.source.calls.count("unknown") == 2


def test_the_catalogs_time_goes_on_between_polls() -> None:
    setup = Setup("a")
    assert setup.watch.catalog_time(0.0) is None
    setup.poll(10.0)
    assert setup.watch.catalog_time(12.5) == CatalogTime(EPOCH, EPOCH.replace(minute=1, second=42, microsecond=500_000))


def test_values_without_a_destination_are_looked_for_once_and_then_counted_with_what_changes() -> None:
    unknown = UnroutedValues()
    setup = Setup("a", unknown=unknown)
    setup.source.commit(a=1, old=7)
    setup.poll(0.0)
    setup.source.commit(a=1, new=2)
    setup.poll(5.0)
    setup.poll(10.0)
    assert setup.source.calls.count("unknown") == 1
    assert {each.value: (each.rows, each.first_seen) for each in unknown.offer(["a"])} == {"old": (7, 2), "new": (2, 3)}


def test_an_idle_source_costs_the_same_when_values_are_offered() -> None:
    setup = Setup("a", unknown=UnroutedValues()).at_head()
    setup.source.calls.clear()
    for second in (5, 10, 15):
        setup.poll(float(second))
    assert setup.source.calls == ["head"] * 3


def test_values_are_not_looked_for_where_nobody_asks_for_them() -> None:
    setup = Setup("a").at_head()
    setup.source.commit(nobody=1)
    setup.poll(5.0)
    assert "unknown" not in setup.source.calls


def test_values_wait_for_the_first_destinations_to_be_heard_of() -> None:
    setup = Setup(unknown=UnroutedValues())
    setup.poll(0.0)
    assert not setup.watch.has_work(HEARD_WITHIN_S - 1)
    assert setup.watch.has_work(HEARD_WITHIN_S)


def test_a_look_that_is_overdue_is_late_and_its_age_is_told() -> None:
    setup = Setup("a").at_head()
    assert (setup.watch.age_s(4.0), setup.watch.is_late(4.0)) == (4.0, False)
    setup.source.fails = UNREACHABLE
    setup.poll(5.0)
    assert not setup.watch.is_late(5.0 + LOOK_WITHIN_S)
    assert setup.watch.is_late(5.1 + LOOK_WITHIN_S)
    assert setup.watch.age_s(30.0) == 30.0
    setup.source.fails = None
    setup.poll(40.0)
    assert (setup.watch.age_s(41.0), setup.watch.is_late(41.0)) == (1.0, False)


def test_a_look_that_hangs_is_late_while_it_hangs() -> None:
    setup = Setup("a").at_head()
    late: list[bool] = []
    setup.source.on_call = lambda: late.append(setup.watch.is_late(5.1 + LOOK_WITHIN_S))
    setup.poll(5.0)
    assert late == [True]
    assert not setup.watch.is_late(6.0)


def test_a_reader_that_stood_still_between_two_looks_says_so() -> None:
    """Its page answers at once after a freeze. It was ready 22 s after its source fell silent."""
    setup = Setup("a").at_head()
    assert setup.watch.missed(5.0 + LOOK_WITHIN_S) is None
    assert setup.watch.missed(5.1 + LOOK_WITHIN_S) == "the source was last looked at 20 s ago"
    setup.poll(40.0)
    assert setup.watch.missed(40.0) is None


def test_after_a_freeze_no_lag_is_known_before_what_the_look_found_is_counted() -> None:
    """The head has moved, and whom that concerns is not known: between look and count everybody's lag was 0."""
    setup = Setup("a").at_head()
    setup.poll(5.0)
    setup.source.commit(a=1)
    setup.watch.poll(10.0)
    assert not setup.watch.is_late(10.0), "the last look that was counted is not old"
    setup.watch.poll(45.0)
    assert setup.watch.is_late(45.0)
    setup.watch.work(45.0)
    assert not setup.watch.is_late(45.0)


def test_a_look_that_was_answered_before_a_freeze_is_late_after_it() -> None:
    """The metrics said 0 for a destination that had lacked a change for 40 s."""
    setup = Setup("a").at_head()
    setup.poll(5.0)
    assert not setup.watch.is_late(6.0)
    assert setup.watch.is_late(45.0)


def test_a_count_that_hangs_does_not_hide_that_no_look_has_succeeded_for_too_long() -> None:
    """A count may take two minutes; a source that falls silent meanwhile must not look healthy for as long."""
    setup = Setup("a").at_head()
    setup.source.commit(a=1)
    setup.watch.poll(5.0)
    said: list[str | None] = []
    setup.source.on_call = lambda: said.extend(setup.watch.missed(5.0 + late) for late in (5.0, 22.0))
    setup.watch.work(5.0)
    assert said[:2] == [None, "the source was last looked at 22 s ago"]


def test_before_the_first_look_there_is_no_age() -> None:
    assert Setup("a").watch.age_s(100.0) is None
    assert Setup("a").watch.missed(100.0) is None
