"""One destination's upkeep: each step on its own, what it came to, and proof that no snapshot shows other rows.

A step that is refused or fails harms no other one; the next run tries again.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace

import duckdb

from services.applier.apply.cursor.decide import Cursor
from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.destination.change import Applied
from services.applier.apply.destination.lake_state import stored_cursor
from services.applier.apply.destination.lakes import DestinationLakes
from services.applier.apply.destination.table_options import reload_options, tables_of
from services.applier.apply.maintenance import content
from services.applier.apply.maintenance.compaction import DEAD_SHARE, SMALL_BYTES, maintain
from services.applier.apply.maintenance.fenced_expiry import clean, expire, sweep_orphans, whole_lake_refusal
from services.applier.model.task import Limits, Target
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Outcome
from shared.contracts.upkeep import (
    LAKE_WIDE,
    UPKEEP_DAMAGED,
    StepOutcome,
    StepResult,
    UpkeepFigures,
    UpkeepResult,
    UpkeepStep,
)
from shared.lake.attached.pool import OpenLake
from shared.lake.checks.foreign_files import require_own_files
from shared.lake.failure import classify
from shared.lake.upkeep.facts import figures, small_files

DOING = {
    UpkeepStep.COMPACT: "merging the files",
    UpkeepStep.EXPIRE: "expiring snapshots",
    UpkeepStep.CLEAN: "deleting files that were let go",
    UpkeepStep.ORPHANS: "deleting orphaned files",
}

LONGEST_REASON = 1_000

DAMAGED = ("destination_damaged", UPKEEP_DAMAGED)
"""After these no further step is tried, and the destination parks."""

PROVEN_BYTES = 256_000_000
"""Live bytes of a table up to which each compaction is proven, which reads the table three times, or five. The files
that a compaction replaces stay until a clean-up, and that is proven whatever it costs, as is all that deletes."""


@dataclass
class Upkeeper:
    """Used by many threads at once, like the applier that it is a part of."""

    lakes: DestinationLakes
    answers: CursorAnswers
    limits: Limits

    def keep_up(self, target: Target) -> Applied:
        """Do the target's steps if its item fits the cursor. ``Applied.upkeep`` tells what each came to.

        Raises ``destination_damaged`` where a file of the table is gone (H7), and ``upkeep_damaged`` where a retained
        snapshot shows other rows than before.
        """
        with self.lakes.use(target) as lake:
            answer = self.answers.of(lake, target)
            if answer.outcome is not Outcome.ALREADY_APPLIED:
                return answer
            target = _at(target, answer.position or 0)
            before = _figures(lake, target)
        steps = tuple(self._step(target, step) for step in UpkeepStep if step in target.upkeep.steps)
        with self.lakes.use(target) as lake:
            if any(each.outcome is StepOutcome.FAILED for each in steps):
                self.answers.look_at_files(lake, target.destination, None)
            after = _figures(lake, target)
        result = UpkeepResult(dry_run=target.upkeep.dry_run, before=before, after=after, steps=steps)
        return replace(answer, upkeep=result)

    def _step(self, target: Target, step: UpkeepStep) -> StepResult:
        began = time.perf_counter()
        if step not in target.upkeep.policy.steps:
            return StepResult(step=step, outcome=StepOutcome.OFF, reason=f"upkeep.{step}_after is off")
        try:
            found = self._done(target, step)
        except (duckdb.Error, ViaduckError) as error:
            refused = classify(error, f"{DOING[step]} of {target.destination.key}")
            if refused.type in DAMAGED:
                raise refused from None
            said = str(refused)[:LONGEST_REASON]
            found = StepResult(step=step, outcome=StepOutcome.FAILED, reason=said)
        return found.model_copy(update={"seconds": round(time.perf_counter() - began, 3)})

    def _done(self, target: Target, step: UpkeepStep) -> StepResult:
        """Raises ``duckdb.Error`` and ``ViaduckError``; then the lake is attached again at its next use."""
        was_open = self.lakes.pool.has_open(target.lake)
        with self.lakes.use(target) as lake:
            one_writer = lake.writing if lake.lake.sqlite_file is not None else nullcontext()
            with one_writer:
                refusal = self._refusal(lake, target, step)
                if refusal is not None:
                    return StepResult(step=step, outcome=StepOutcome.REFUSED, reason=refusal[:LONGEST_REASON])
                try:
                    self._prepare(lake, target, was_open=was_open)
                    return self._proven(lake, target, step)
                except (duckdb.Error, ViaduckError):
                    self.lakes.pool.evict(lake)
                    raise

    def _refusal(self, lake: OpenLake, target: Target, step: UpkeepStep) -> str | None:
        known = target.upkeep.refusal(step)
        if step not in LAKE_WIDE:
            return known
        # Clean-up takes what the catalog itself let go, and no table of it.
        return known if known is not None or step is UpkeepStep.CLEAN else whole_lake_refusal(lake, target)

    def _prepare(self, lake: OpenLake, target: Target, *, was_open: bool) -> None:
        lake.catalog.inlined_tables()
        require_own_files(lake.catalog, lake.lake)
        lake.inspect(*tables_of(target.destination), anew=True)
        doing = "reading options"
        self.lakes.guarded(lake, doing, lambda con: reload_options(con, lake, target, was_open=was_open))

    def _proven(self, lake: OpenLake, target: Target, step: UpkeepStep) -> StepResult:
        """Do the step between two looks at what the table shows."""
        if target.upkeep.dry_run or (step is UpkeepStep.COMPACT and _figures(lake, target).bytes > PROVEN_BYTES):
            return self.lakes.guarded(lake, DOING[step], lambda con: self._run(con, lake, target, step))

        def proven(con: duckdb.DuckDBPyConnection) -> StepResult:
            before = content.shown(con, lake, target)
            found = self._run(con, lake, target, step)
            content.require_unchanged(con, lake, target, before)
            return found

        return self.lakes.guarded(lake, DOING[step], proven)

    def _run(self, con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, step: UpkeepStep) -> StepResult:
        if step is UpkeepStep.COMPACT:
            return self._compact(lake, target)
        if step is UpkeepStep.ORPHANS:
            return sweep_orphans(con, lake, target, self.limits)
        cursor = self._cursor(lake, target)
        work = expire if step is UpkeepStep.EXPIRE else clean
        return work(con, lake, target, self.limits, cursor)

    def _compact(self, lake: OpenLake, target: Target) -> StepResult:
        destination = target.destination
        names = destination.schema_name, destination.table
        if target.upkeep.dry_run:
            worn = len(lake.catalog.worn_files(*names, DEAD_SHARE))
            small = small_files(lake.catalog, *names, SMALL_BYTES)
            count = max(worn, small if small > 1 else 0)
            return StepResult(step=UpkeepStep.COMPACT, outcome=StepOutcome.DONE, files_removed=count)
        before = figures(lake.catalog, *names)
        maintain(self.lakes, lake, target, self.limits.deadline_s)
        after = figures(lake.catalog, *names)
        gone = before.files + before.delete_files - after.files - after.delete_files
        return StepResult(step=UpkeepStep.COMPACT, outcome=StepOutcome.DONE, files_removed=max(0, gone))

    def _cursor(self, lake: OpenLake, target: Target) -> Cursor:
        found = self.lakes.read(lake, "reading the cursor", lambda con: stored_cursor(con, lake, target))
        if found is None or found.generation != target.item.generation:
            raise ViaduckError("destination_busy", f"the cursor of {target.destination.key} moved before its upkeep")
        return found


def _at(target: Target, position: int) -> Target:
    """An ordered item knows no position, and stamps tell one."""
    at = {"expected": position, "after": position, "through": position}
    return replace(target, item=target.item.model_copy(update=at))


def _figures(lake: OpenLake, target: Target) -> UpkeepFigures:
    return figures(lake.catalog, target.destination.schema_name, target.destination.table)
