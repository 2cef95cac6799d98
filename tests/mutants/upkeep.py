"""Mistakes about upkeep: what it may take, and what a transaction from before it is held against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb

from services.applier import upkeep_planner
from services.applier.apply import upkeep as applied_upkeep
from services.applier.apply.maintenance import content, fenced_expiry, table_wear
from services.applier.model.upkeep_exclusion import UpkeepExclusion
from services.control.model import answers, lifecycle
from services.control.operations import upkeep_service
from services.reader.planner import compaction
from shared.contracts.upkeep import StepOutcome, StepResult, UpkeepStep
from shared.lake.attached import pool
from shared.lake.attached.pool import OpenLake
from shared.lake.upkeep import facts as upkeep
from tests.mutants.mistake import Mistake, put

STEPS = "tests/lake/test_upkeep_steps.py"
HISTORIES = "tests/lake/test_histories.py"
ANY_AGE = "CALL ducklake_delete_orphaned_files(?, older_than => now() + INTERVAL 1 DAY)"


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


def _orphans_of_any_age() -> None:
    def sweep(con: duckdb.DuckDBPyConnection, lake: OpenLake, *_: Any) -> StepResult:
        con.execute(ANY_AGE, [lake.alias]).fetchall()
        return StepResult(step=UpkeepStep.ORPHANS, outcome=StepOutcome.DONE)

    put(applied_upkeep, "sweep_orphans", sweep)


def _no_orphan_goes() -> None:
    put(applied_upkeep, "sweep_orphans", lambda *_: StepResult(step=UpkeepStep.ORPHANS, outcome=StepOutcome.DONE))


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


def _files_go_with_an_answer() -> None:
    put(pool, "keep_files", lambda *_: False)


MISTAKES = (
    Mistake("bare-expiry", "expiry writes to no cursor", _expire_bare,
            (STEPS, "-k", "from_before_an_expiry and postgres")),
    Mistake("fence-only-one", "expiry fences one destination of the lake", _fence_only_one,
            (STEPS, "-k", "of_a_neighbour and postgres")),
    Mistake("older-than", "clean-up goes by DuckLake's own comparison of times", _by_time,
            (STEPS, "-k", "own_date and sqlite")),
    Mistake("ungated-orphans", "orphans are looked for beside other lakes", _ungated,
            ("tests/fast/applier/test_upkeep_planner.py",)),
    Mistake("orphans-of-any-age", "a file that no catalog names goes however young it is", _orphans_of_any_age,
            (HISTORIES, "-k", "strays and 94080")),
    Mistake("no-orphan-goes", "orphans are told as gone, and stay", _no_orphan_goes,
            (HISTORIES, "-k", "strays and 94080")),
    Mistake("expire-any-stamp", "expiry takes stamps that others rest on", _any_stamp,
            (STEPS, "-k", "stamps_of_other and sqlite")),
    Mistake("upkeep-unproven", "what upkeep did to the rows is not looked at", _never_proven,
            ("tests/lake/test_upkeep_steps.py::test_rows_that_an_upkeep_changes_park_the_destination[sqlite]",)),
    Mistake("upkeep-damage-reseeded", "what upkeep damaged is replaced by itself", _reseed_what_upkeep_damaged,
            ("tests/fast/control/model/test_lifecycle.py", "-k", "upkeep_damaged_stays")),
    Mistake("upkeep-after-damage", "upkeep begins in another lake after it damaged one", _go_on_to_the_next_lake,
            ("tests/fast/control/api/test_upkeep.py::test_no_upkeep_of_the_pipeline_begins_while_one_of_its_destinations_is_damaged_by_it",)),
    Mistake("compaction-after-damage", "readers' compactions go on after one damaged a lake", _compact_after_damage,
            ("tests/fast/applier/test_upkeep_planner.py", "-k", "damaged")),
    Mistake("upkeep-beside-changes", "upkeep runs beside changes of the destination", _beside_changes,
            ("tests/fast/applier/model/test_upkeep_exclusion.py",)),
    Mistake("compact-again", "what a compaction left asks for another one at once", _compact_what_cannot_be,
            ("tests/fast/reader/planner/test_compaction.py",)),
    Mistake("wear-without-old-deletes", "rows that were deleted earlier do not ask for a compaction",
            _old_deletes_are_no_wear, ("tests/fast/applier/apply/maintenance/test_table_wear.py",)),
    Mistake("files-go-with-an-answer", "DuckLake may delete what it has committed and not heard of",
            _files_go_with_an_answer, ("tests/lake/test_kept_files.py", "-k", "loses_no_file and disk")),
)  # fmt: skip
