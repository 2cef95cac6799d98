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
    Watch,
)
from services.reader.source.unrouted_values import Unknown
from shared.contracts.messages import ItemKind, Outcome
from shared.contracts.ranges import NOT_SEEDED
from shared.runtime.metrics import Metrics
from tests.fast.reader.fakes import UNREACHABLE, FakeSource, sample
from tests.fast.reader.simulation import EPOCH, answer, spec


class Desk:
    """A watch over a fake source, and the planner that it serves."""

    def __init__(
        self, *names: str, counts_unrouted: bool = True, interval_s: float = 5.0, unknown: Unknown | None = None
    ) -> None:
        numbers = itertools.count(1)
        self.source, self.metrics = FakeSource(), Metrics("p")
        self.planner = Planner(Rules(), lambda: f"item-{next(numbers)}", lambda: 0.0)
        self.routes: dict[str, str] = {}
        self.watch = Watch(
            self.source, self.planner, self.metrics, self.routes, interval_s, 0.0,
            counts_unrouted=lambda: counts_unrouted, unknown=unknown,
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

    def at_head(self) -> Desk:
        self.poll(0.0)
        self.probed(**dict.fromkeys(self.routes, 1))
        self.planner.plan(0.0)
        self.source.calls.clear()
        return self


def test_an_idle_poll_asks_for_the_head_and_nothing_else() -> None:
    desk = Desk("a").at_head()
    for second in (5, 10, 15):
        desk.poll(float(second))
    assert desk.source.calls == ["head"] * 3


def test_expiry_is_looked_for_now_and_then_though_the_head_stands_still() -> None:
    desk = Desk("a").at_head()
    desk.poll(SIGHT_EVERY_S - 1)
    desk.poll(SIGHT_EVERY_S)
    assert desk.source.calls == ["head", "head", "sight"]


def test_a_moved_head_is_counted_once() -> None:
    desk = Desk("a").at_head()
    desk.source.commit(a=1)
    desk.source.commit(a=1)
    desk.poll(5.0)
    desk.poll(10.0)
    assert [call for call in desk.source.calls if call.startswith("count")] == ["count (1, 3]"]


def test_a_long_history_is_counted_bite_by_bite() -> None:
    desk = Desk("a").at_head()
    desk.source.segments = True
    for _ in range(3):
        desk.source.commit(a=1)
    desk.watch.poll(5.0)
    bites = []
    while desk.watch.has_work(5.0):
        desk.watch.work(5.0)
        bites.append(desk.planner.ledger.line if desk.planner.ledger else None)
    assert bites == [2, 3, 4]


def test_those_who_stand_further_back_are_counted_from_the_line_down() -> None:
    desk = Desk("a", "b")
    desk.source.segments = True
    for _ in range(4):
        desk.source.commit(a=1)
    desk.poll(0.0)
    desk.probed(a=2, b=5)
    desk.source.calls.clear()
    desk.poll(5.0)
    counted = [call for call in desk.source.calls if call.startswith("count")]
    assert counted == ["count (4, 5]", "count (3, 4]", "count (2, 3]"]
    assert [action.destination for action in desk.planner.plan(5.0)] == ["a"]


def test_new_changes_are_counted_before_old_ones() -> None:
    desk = Desk("a", "b")
    desk.source.segments = True
    for _ in range(3):
        desk.source.commit(a=1)
    desk.poll(0.0)
    desk.probed(a=1, b=4)
    desk.watch.work(1.0)
    desk.watch.work(1.0)
    desk.source.commit(b=1)
    desk.source.calls.clear()
    desk.poll(5.0)
    assert next(call for call in desk.source.calls if call.startswith("count")) == "count (4, 5]"


def test_unrouted_rows_are_counted_once_per_range_and_never_for_a_catch_up() -> None:
    desk = Desk("a", "b")
    desk.source.commit(nobody=100)
    desk.poll(0.0)
    desk.probed(a=1, b=2)
    desk.poll(5.0)
    assert desk.unrouted() == 0
    desk.source.commit(a=1, nobody=7)
    desk.poll(10.0)
    desk.poll(15.0)
    assert desk.unrouted() == 7


def test_of_several_readers_only_one_counts_unrouted_rows() -> None:
    desk = Desk("a", counts_unrouted=False).at_head()
    desk.source.commit(nobody=7)
    desk.poll(5.0)
    assert desk.unrouted() == 0


def test_rows_wait_a_while_for_a_first_destination_before_they_count_as_nobodys() -> None:
    desk = Desk()
    desk.poll(0.0)
    desk.source.commit(a=7)
    desk.poll(HEARD_WITHIN_S - 1)
    assert not desk.watch.has_work(HEARD_WITHIN_S - 1)
    desk.routes["a"] = "a"
    desk.poll(HEARD_WITHIN_S - 0.5)
    assert desk.unrouted() == 0
    desk.routes.clear()
    desk.source.commit(a=7)
    desk.poll(HEARD_WITHIN_S)
    assert desk.unrouted() == 7


def test_a_source_that_does_not_answer_is_told_retried_slower_and_forgiven() -> None:
    desk = Desk("a").at_head()
    desk.source.fails = UNREACHABLE
    pauses = []
    now_s = 5.0
    for _ in range(8):
        desk.poll(now_s)
        pauses.append(round(desk.watch.poll_at_s - now_s, 6))
        now_s = desk.watch.poll_at_s
    assert desk.watch.problem == UNREACHABLE.problem()
    assert pauses[0] == 5.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    assert sample(desk.metrics, "errors_total", type="source_unreachable", destination="") == 8
    desk.source.fails = None
    desk.poll(now_s)
    assert desk.watch.poll_at_s == now_s + 5.0
    assert not desk.told_problem()


def test_a_source_that_does_not_answer_at_all_is_told_while_it_is_still_waited_for() -> None:
    """The thread that waits for a locked catalog can't tell, and what it said last looked healthy."""
    desk = Desk("a").at_head()
    said: list[str | None] = []
    desk.source.on_call = lambda: said.extend(desk.watch.overdue(5.0 + late) for late in (LOOK_WITHIN_S, 101.0))
    desk.poll(5.0)
    assert said == [None, "the source has not answered for 101 s"]
    assert desk.watch.overdue(1_000.0) is None


def test_a_source_that_fails_while_it_is_counted_is_counted_again_at_the_next_poll() -> None:
    desk = Desk("a").at_head()
    desk.source.commit(a=1)
    desk.watch.poll(5.0)
    desk.source.fails = UNREACHABLE
    desk.watch.work(5.0)
    assert not desk.watch.has_work(5.0)
    desk.source.fails = None
    desk.poll(desk.watch.poll_at_s)
    assert [action.destination for action in desk.planner.plan(20.0)] == ["a"]


def test_a_head_of_the_same_number_and_another_time_is_looked_at() -> None:
    """A source that was restored from a backup may have come to the same number again."""
    desk = Desk("a").at_head()
    desk.source.calls.clear()
    desk.source.committed += timedelta(seconds=1)
    desk.poll(5.0)
    assert desk.source.calls[:2] == ["head", "sight"]


def test_a_line_that_expired_between_two_polls_parks_and_goes_on_at_the_head() -> None:
    desk = Desk("a").at_head()
    desk.source.commit(a=1)
    desk.source.oldest = 2
    desk.poll(5.0)
    desk.probed(a=1)
    assert [type(action).__name__ for action in desk.planner.plan(5.0)] == ["Park"]
    desk.source.calls.clear()
    desk.poll(10.0)
    assert desk.source.calls == ["head"]


def test_seeds_that_come_one_after_the_other_are_sized_by_one_count() -> None:
    desk = Desk("a", "b")
    desk.poll(0.0)
    first, second = desk.planner.plan(0.0)
    for action, now_s in ((first, 1.0), (second, SIZES_EVERY_S - 1)):
        desk.planner.progress(answer(action, Outcome.ALREADY_APPLIED, NOT_SEEDED), now_s)  # type: ignore[arg-type]
        desk.planner.plan(now_s)
        assert desk.watch.has_work(now_s)
        desk.watch.work(now_s)
        (seed,) = desk.planner.plan(now_s)
        assert seed.draft.kind is ItemKind.SEED  # type: ignore[union-attr]
    assert desk.source.calls.count("sizes") == 1


def test_changes_are_counted_before_seeds_are_sized() -> None:
    desk = Desk("a", "b")
    desk.poll(0.0)
    desk.probed(a=1, b=NOT_SEEDED)
    desk.planner.plan(0.0)
    desk.source.commit(a=1)
    desk.watch.poll(5.0)
    desk.source.calls.clear()
    desk.watch.work(5.0)
    desk.watch.work(5.0)
    assert [call.split()[0] for call in desk.source.calls] == ["count", "sizes"]


def test_a_seed_that_can_not_be_sized_goes_all_the_same_and_changes_are_counted_at_once() -> None:
    """One old file of the source is unreadable, and somebody waits for a seed: that is nobody else's trouble."""
    desk = Desk("a", "b")
    desk.source.unsizable = UNREACHABLE
    desk.poll(0.0)
    desk.probed(a=1, b=NOT_SEEDED)
    desk.planner.plan(0.0)
    desk.source.commit(a=1)
    desk.poll(5.0)
    assert not desk.told_problem()
    sent = {action.destination: action.draft for action in desk.planner.plan(5.0)}  # type: ignore[union-attr]
    assert sent["a"].kind is ItemKind.CHANGES
    assert (sent["b"].kind, sent["b"].rows) == (ItemKind.SEED, None)


def test_the_catalogs_time_goes_on_between_polls() -> None:
    desk = Desk("a")
    assert desk.watch.catalog_time(0.0) is None
    desk.poll(10.0)
    assert desk.watch.catalog_time(12.5) == CatalogTime(EPOCH, EPOCH.replace(minute=1, second=42, microsecond=500_000))


def test_values_without_a_destination_are_looked_for_once_and_then_counted_with_what_changes() -> None:
    unknown = Unknown()
    desk = Desk("a", unknown=unknown)
    desk.source.commit(a=1, old=7)
    desk.poll(0.0)
    desk.source.commit(a=1, new=2)
    desk.poll(5.0)
    desk.poll(10.0)
    assert desk.source.calls.count("unknown") == 1
    assert {each.value: (each.rows, each.first_seen) for each in unknown.offer(["a"])} == {"old": (7, 2), "new": (2, 3)}


def test_an_idle_source_costs_the_same_when_values_are_offered() -> None:
    desk = Desk("a", unknown=Unknown()).at_head()
    desk.source.calls.clear()
    for second in (5, 10, 15):
        desk.poll(float(second))
    assert desk.source.calls == ["head"] * 3


def test_values_are_not_looked_for_where_nobody_asks_for_them() -> None:
    desk = Desk("a").at_head()
    desk.source.commit(nobody=1)
    desk.poll(5.0)
    assert "unknown" not in desk.source.calls


def test_values_wait_for_the_first_destinations_to_be_heard_of() -> None:
    desk = Desk(unknown=Unknown())
    desk.poll(0.0)
    assert not desk.watch.has_work(HEARD_WITHIN_S - 1)
    assert desk.watch.has_work(HEARD_WITHIN_S)


def test_a_look_that_is_overdue_is_late_and_its_age_is_told() -> None:
    desk = Desk("a").at_head()
    assert (desk.watch.age_s(4.0), desk.watch.is_late(4.0)) == (4.0, False)
    desk.source.fails = UNREACHABLE
    desk.poll(5.0)
    assert not desk.watch.is_late(5.0 + LOOK_WITHIN_S)
    assert desk.watch.is_late(5.1 + LOOK_WITHIN_S)
    assert desk.watch.age_s(30.0) == 30.0
    desk.source.fails = None
    desk.poll(40.0)
    assert (desk.watch.age_s(41.0), desk.watch.is_late(41.0)) == (1.0, False)


def test_a_look_that_hangs_is_late_while_it_hangs() -> None:
    desk = Desk("a").at_head()
    late: list[bool] = []
    desk.source.on_call = lambda: late.append(desk.watch.is_late(5.1 + LOOK_WITHIN_S))
    desk.poll(5.0)
    assert late == [True]
    assert not desk.watch.is_late(6.0)


def test_before_the_first_look_there_is_no_age() -> None:
    assert Desk("a").watch.age_s(100.0) is None
