"""Mistakes about upkeep: what it may take, and what a transaction from before it is held against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from services.applier import upkeep_planner
from services.applier.apply.maintenance import content, fenced_expiry, table_wear
from services.applier.model.upkeep_exclusion import UpkeepExclusion
from services.control.model import answers, lifecycle
from services.control.operations import upkeep_service
from services.reader.planner import compaction
from shared.lake.upkeep import facts as upkeep
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


def _reseed_what_upkeep_damaged() -> None:
    put(answers, "_harmed", lambda held, _, __, revision: lifecycle.reseed(held, revision))


def _go_on_to_the_next_lake() -> None:
    put(upkeep_service, "_harmed", lambda _: None)


def _compact_after_damage() -> None:
    put(upkeep_planner.UpkeepPlanner, "_harmed", lambda *_: None)


def _beside_changes() -> None:
    put(UpkeepExclusion, "take", lambda _, __, keys: frozenset(keys))


def _compact_what_cannot_be() -> None:
    right = compaction.worn
    put(compaction, "worn", lambda wear, *told: replace(right(wear, *told), left=compaction.Left()))


def _old_deletes_are_no_wear() -> None:
    right = table_wear.wear_of

    def wear_of(files: Any, written: Any) -> Any:
        return right([replace(each, deletes=()) for each in files], written)

    put(table_wear, "wear_of", wear_of)


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
    Mistake("upkeep-damage-reseeded", "what upkeep damaged is replaced by itself", _reseed_what_upkeep_damaged,
            ("tests/fast/control/model/test_lifecycle.py", "-k", "upkeep_damaged_stays")),
    Mistake("upkeep-after-damage", "upkeep begins in another lake after it damaged one", _go_on_to_the_next_lake,
            ("tests/fast/control/api/test_upkeep.py", "-k", "damaged")),
    Mistake("compaction-after-damage", "readers' compactions go on after one damaged a lake", _compact_after_damage,
            ("tests/fast/applier/test_upkeep_planner.py", "-k", "damaged")),
    Mistake("upkeep-beside-changes", "upkeep runs beside changes of the destination", _beside_changes,
            ("tests/fast/applier/model/test_upkeep_exclusion.py",)),
    Mistake("compact-again", "what a compaction left asks for another one at once", _compact_what_cannot_be,
            ("tests/fast/reader/planner/test_compaction.py",)),
    Mistake("wear-without-old-deletes", "rows that were deleted earlier do not ask for a compaction",
            _old_deletes_are_no_wear, ("tests/fast/applier/apply/maintenance/test_table_wear.py",)),
)  # fmt: skip
