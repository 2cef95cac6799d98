"""When upkeep is due by itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.control.model.upkeep_schedule import due_lakes, is_within
from tests.fast.control.examples import at, declared, registered

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [((1_320, 300), (22, 23, 0, 4), (5, 12, 21)), ((480, 1_020), (8, 16), (7, 17, 23)), (None, range(24), ())],
)
def test_hours_are_utc_and_may_go_over_midnight(
    hours: tuple[int, int] | None, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    def asked(hour: int) -> bool:
        return is_within(datetime(2026, 1, 1, hour, tzinfo=UTC), hours)

    assert all(map(asked, inside))
    assert not any(map(asked, outside))


def test_one_of_each_lake_is_due_the_one_that_waited_longest_first() -> None:
    lake = declared("a").lake
    wanted = {
        "a": registered("a"),
        "b": registered("b", declared=declared("b", lake=lake)),
        "c": registered("c"),
        "d": registered("d"),
        "e": registered("e"),
    }
    last = {"b": at(-2 * DAY_S), "c": at(-3 * DAY_S), "d": at(-DAY_S / 2)}
    due = due_lakes(wanted, last, at(0), DAY_S, busy=())
    assert [each.id for each in due] == ["e", "c", "a"], "never, three days ago, two days ago; half a day is too early"
    assert [each.id for each in due_lakes(wanted, last, at(0), DAY_S, busy={"b", "e"})] == ["c"]
