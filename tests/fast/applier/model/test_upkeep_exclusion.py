"""Upkeep of a destination and its other items never run side by side, and other destinations are not held up."""

from __future__ import annotations

from services.applier.model.expiry_plan import ExpiryPlan, plan
from services.applier.model.grouping import Lane
from services.applier.model.upkeep_exclusion import UpkeepExclusion


def test_what_has_upkeep_gets_no_changes_meanwhile_and_others_do() -> None:
    exclusion = UpkeepExclusion()
    assert exclusion.take(Lane.UPKEEP, ["a", "b"]) == {"a", "b"}
    assert exclusion.take(Lane.CHANGES, ["a", "c"]) == {"c"}
    exclusion.release(Lane.UPKEEP, ["a"])
    assert exclusion.take(Lane.CHANGES, ["a", "b"]) == {"a"}


def test_upkeep_waits_for_every_lane_that_has_the_destination() -> None:
    exclusion = UpkeepExclusion()
    exclusion.take(Lane.CHANGES, ["a"])
    exclusion.take(Lane.RETRIES, ["a"])
    exclusion.release(Lane.CHANGES, ["a"])
    assert exclusion.take(Lane.UPKEEP, ["a"]) == frozenset()
    exclusion.release(Lane.RETRIES, ["a"])
    exclusion.release(Lane.RETRIES, ["a"])
    assert exclusion.take(Lane.UPKEEP, ["a"]) == {"a"}


def test_other_lanes_do_not_hold_each_other_up() -> None:
    exclusion = UpkeepExclusion()
    exclusion.take(Lane.CHANGES, ["a"])
    assert exclusion.take(Lane.SEEDS, ["a"]) == {"a"}


def test_expiry_takes_the_oldest_that_nothing_keeps() -> None:
    assert plan([1, 2, 3, 5, 8], kept={2, 8, 9}, most=2) == ExpiryPlan((1, 3), left=1)
    assert plan([2], kept={2}, most=2) == plan([], kept=(), most=5) == ExpiryPlan(())
