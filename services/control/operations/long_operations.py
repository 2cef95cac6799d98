"""Actions that take longer than a request: each is over when its destination's life has come as far as it asks.

The state of an open one is told from what control knows anyway; the database keeps it once it is over.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from services.control.model.lifecycle import Registered
from services.control.store.database import Database
from services.control.store.tables import operations
from services.control.view.observed_state import ObservedLife
from shared.contracts.messages import Problem, Progress
from shared.contracts.upkeep import StepOutcome, UpkeepOrder, UpkeepResult

Kind = Literal["reseed", "rewind", "drop", "upkeep"]
State = Literal["running", "succeeded", "failed", "superseded"]

KEPT_FOR = timedelta(days=30)
"""How long the operations of upkeep are kept."""


@dataclass(frozen=True)
class LongOperation:
    """``failed``: its destination is parked, and an operator may correct that; ``superseded``: a later life began."""

    id: str
    destination: str
    kind: Kind
    generation: int
    created_at: datetime
    seed_at: int | None = None
    author: str | None = None
    state: State = "running"
    finished_at: datetime | None = None
    error: Problem | None = None
    order: UpkeepOrder | None = None
    """Of an upkeep."""
    result: UpkeepResult | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing can become of it any more. A life whose destination is parked may still be corrected."""
        return self.state in ("succeeded", "superseded") or (self.kind == "upkeep" and self.state == "failed")


def begun(kind: Kind, after: Registered) -> LongOperation:
    """The operation that waits for what ``after`` asks for."""
    revision = after.revision
    return LongOperation(
        uuid.uuid4().hex, after.id, kind, after.generation, revision.at, after.seed_at, author=revision.author
    )


def look(
    operation: LongOperation, held: Registered | None, seen: ObservedLife | None, upkept: Progress | None = None
) -> LongOperation:
    """How far an open operation is, by what is registered and what was answered.

    ``upkept``: the last answer to an ordered upkeep of its destination.
    """
    if held is None or held.generation > operation.generation:
        return replace(operation, state="superseded")
    if operation.kind == "upkeep":
        return replace(operation, state="superseded") if held.removed else _look_at_upkeep(operation, upkept)
    if operation.kind == "drop":
        done = held.removed
    else:
        if held.removed:
            return replace(operation, state="superseded")
        done = seen is not None and seen.generation == operation.generation and (seen.position or -1) >= 0
    if done:
        return replace(operation, state="succeeded", error=None)
    error = seen.error if seen is not None and seen.generation == operation.generation else None
    return replace(operation, error=error, state="failed" if error is not None and seen and seen.parked else "running")


def operation_of(item: str) -> str:
    """The operation whose order an item is: control names items so."""
    return item.partition(".")[0]


def _look_at_upkeep(operation: LongOperation, upkept: Progress | None) -> LongOperation:
    if upkept is None or operation_of(upkept.item) != operation.id:
        return operation
    if upkept.upkeep is None and upkept.error is None:  # the position moved to another life, or there is none
        return replace(operation, state="superseded")
    error = upkept.error or _complaint(operation, upkept.upkeep)
    return replace(operation, state="succeeded" if error is None else "failed", error=error, result=upkept.upkeep)


def _complaint(operation: LongOperation, result: UpkeepResult | None) -> Problem | None:
    """The first step that failed, or that was asked for by name and not done."""
    steps = () if result is None else result.steps
    named = operation.order.steps if operation.order is not None else None
    for each in steps:
        if each.outcome is StepOutcome.FAILED:
            hint = "the next upkeep tries again; the applier's log has more"
            return Problem(type="destination_busy", message=f"{each.step}: {each.reason}", hint=hint, retryable=True)
        if each.outcome is not StepOutcome.DONE and named is not None:
            hint = "docs/how-to/keep-destinations-small.md says what each step needs"
            return Problem(type="not_allowed", message=f"{each.step}: {each.reason}", hint=hint, retryable=False)
    return None


class Operations:
    """The operations of one pipeline. Raises ``DependencyError`` while the registry can't be used."""

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline

    def add(self, con: Connection, operation: LongOperation) -> None:
        """In the transaction that begins the life which it waits for."""
        con.execute(insert(operations).values(pipeline=self._pipeline, **_row(operation)))

    def begin(self, operation: LongOperation) -> None:
        """In a transaction of its own, for what begins no life. What began by itself is kept for a month."""
        old = operations.c.created_at < operation.created_at - KEPT_FOR
        same = (operations.c.pipeline == self._pipeline) & (operations.c.destination == operation.destination)
        by_itself = (operations.c.kind == "upkeep") & (operations.c.author == operation.author)
        with self._database.transaction() as con:
            con.execute(delete(operations).where(same, by_itself, old, operations.c.finished_at.is_not(None)))
            self.add(con, operation)

    def last_upkeeps(self, author: str) -> dict[str, datetime]:
        """When the last upkeep began that ``author`` asked for, by destination."""
        mine = (operations.c.pipeline == self._pipeline, operations.c.kind == "upkeep", operations.c.author == author)
        newest = func.max(operations.c.created_at, type_=operations.c.created_at.type)
        with self._database.transaction() as con:
            rows = con.execute(select(operations.c.destination, newest).where(*mine).group_by(operations.c.destination))
            return {str(name): at for name, at in rows}

    def find(self, operation_id: str) -> LongOperation | None:
        with self._database.transaction() as con:
            mine = select(operations).where(operations.c.pipeline == self._pipeline, operations.c.id == operation_id)
            row = con.execute(mine).mappings().first()
        return None if row is None else _operation(row)

    def newest(
        self, limit: int, destination: str | None = None, before: LongOperation | None = None
    ) -> list[LongOperation]:
        """Up to ``limit``, the newest first: those behind ``before`` in that order."""
        found = select(operations).where(operations.c.pipeline == self._pipeline)
        if destination is not None:
            found = found.where(operations.c.destination == destination)
        if before is not None:
            same = (operations.c.created_at == before.created_at) & (operations.c.id > before.id)
            found = found.where((operations.c.created_at < before.created_at) | same)
        with self._database.transaction() as con:
            rows = con.execute(found.order_by(operations.c.created_at.desc(), operations.c.id).limit(limit)).mappings()
            return [_operation(row) for row in rows]

    def open(self) -> list[LongOperation]:
        """Operations whose end was not recorded."""
        with self._database.transaction() as con:
            rows = con.execute(
                select(operations).where(operations.c.pipeline == self._pipeline, operations.c.finished_at.is_(None))
            ).mappings()
            return [_operation(row) for row in rows]

    def finish(self, over: list[LongOperation], at: datetime) -> None:
        """Record how operations ended; the first control to notice does so."""
        with self._database.transaction() as con:
            for each in over:
                self._finish(con, each, at)

    def _finish(self, con: Connection, each: LongOperation, at: datetime) -> None:
        still_open = (operations.c.id == each.id) & operations.c.finished_at.is_(None)
        values = {"state": each.state, "finished_at": at, "error": _error(each), "details": _details(each)}
        con.execute(update(operations).where(still_open).values(values))


def _error(operation: LongOperation) -> str | None:
    return None if operation.error is None else operation.error.model_dump_json()


def _details(operation: LongOperation) -> str | None:
    if operation.kind != "upkeep":
        return None
    order, result = operation.order or UpkeepOrder(), operation.result
    told = {"order": order.model_dump(mode="json")}
    return json.dumps(told if result is None else {**told, "result": result.model_dump(mode="json")})


def _row(operation: LongOperation) -> dict[str, object]:
    told = {name: value for name, value in vars(operation).items() if name in operations.c and name != "error"}
    return {**told, "details": _details(operation)}


def _operation(row: RowMapping) -> LongOperation:
    details = json.loads(row["details"] or "{}")
    told: dict[str, Any] = {name: value for name, value in row.items() if name not in ("pipeline", "error", "details")}
    return LongOperation(
        **told,
        error=None if row["error"] is None else Problem(**json.loads(row["error"])),
        order=UpkeepOrder(**details["order"]) if "order" in details else None,
        result=UpkeepResult(**details["result"]) if "result" in details else None,
    )
