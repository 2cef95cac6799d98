"""Mistakes about upkeep: what it may take, and what a transaction from before it is held against."""

from __future__ import annotations

from services.applier import upkeep_planner
from services.applier.apply import content, fenced_expiry
from services.applier.model.upkeep_exclusion import UpkeepExclusion
from shared.lake import upkeep
from tests.mutants.mistake import Mistake, put

STEPS = "tests/lake/test_upkeep_steps.py"


def _expire_bare() -> None:
    put(fenced_expiry, "_touch_own", lambda *_: None)
    put(fenced_expiry, "_touch", lambda *_: None)


def _fence_only_one() -> None:
    put(fenced_expiry, "_touch", lambda *_: None)


def _by_time() -> None:
    put(fenced_expiry, "_cut_by_date", fenced_expiry._cut)
    put(fenced_expiry, "_require_known", lambda *_: None)


def _ungated() -> None:
    put(upkeep_planner, "overlaps", lambda *_: False)


def _any_stamp() -> None:
    put(upkeep, "kept_stamps", lambda *_, **__: frozenset())


def _never_proven() -> None:
    put(content, "require_unchanged", lambda *_: None)


def _beside_changes() -> None:
    put(UpkeepExclusion, "take", lambda _, __, keys: frozenset(keys))


MISTAKES = (
    Mistake("bare-expiry", "expiry writes to no cursor", _expire_bare,
            (STEPS, "-k", "from_before_an_expiry and postgres")),
    Mistake("fence-only-one", "expiry fences one destination of the lake", _fence_only_one,
            (STEPS, "-k", "of_a_neighbour and postgres")),
    Mistake("older-than", "clean-up goes by DuckLake's own comparison of times", _by_time,
            (STEPS, "-k", "own_date and sqlite")),
    Mistake("ungated-orphans", "orphans are looked for beside other lakes", _ungated,
            ("tests/fast/applier/test_upkeep_planner.py",)),
    Mistake("expire-any-stamp", "expiry takes stamps that others rest on", _any_stamp,
            (STEPS, "-k", "stamps_of_other and sqlite")),
    Mistake("upkeep-unproven", "what upkeep did to the rows is not looked at", _never_proven,
            (STEPS, "-k", "rows_that_an_upkeep_changes and sqlite")),
    Mistake("upkeep-beside-changes", "upkeep runs beside changes of the destination", _beside_changes,
            ("tests/fast/applier/model/test_upkeep_exclusion.py",)),
)  # fmt: skip
