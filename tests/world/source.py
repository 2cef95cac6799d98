"""The source in a real lake, kept in step with its model: every snapshot that it makes is recorded as truth."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import cast

import duckdb

from tests.world.duck import name
from tests.world.history import Step
from tests.world.lake import Lake, attach, detach, metadata
from tests.world.model import Model
from tests.world.recovery import Recovery, catalog_of
from tests.world.rows import minus, plain, rows_of
from tests.world.shape import Shape
from tests.world.statements import SetNotNull, Transaction
from tests.world.truth import RecordedTruth
from tests.world.upkeep import Place, Upkeep, flush, set_inlining

BUSY_TRIES = 40
BUSY_WAIT_S = 0.05

WRITER = "world"
"""The author of our own commits."""


class SourceLake:
    """One source table in an attached lake; the only one who writes to it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake, shape: Shape, alias: str = "source") -> None:
        self.con = con
        self.lake = lake
        self.shape = shape
        self.model = Model(shape.columns)
        self.truth = RecordedTruth(shape.routing)
        self.backup = self.model, -1
        self.alias = alias

    @property
    def place(self) -> Place:
        return self._place_of(self.model)

    def _place_of(self, model: Model) -> Place:
        return Place(self.alias, self.shape.schema, self.shape.called(model.renamed))

    def create(self) -> None:
        """Make the lake, the table and its bystander."""
        attach(self.con, self.place.alias, self.lake, create=True)
        columns = ", ".join(f"{name(column.name)} {column.type}" for column in self.shape.columns)
        self._commit(
            [
                f"CREATE SCHEMA IF NOT EXISTS {name(self.place.alias, self.place.schema)}",
                f"CREATE TABLE {self.place.path} ({columns})",
                f"CREATE TABLE {self.place.bystander} (i INTEGER)",
            ]
        )
        if self.shape.words:
            self._patiently([set_inlining(self.place, 0)])
        self.truth.record(self.head(), self.model)

    def close(self) -> None:
        detach(self.con, self.place.alias)

    def head(self) -> int:
        snapshots = metadata(self.con, self.place.alias, "ducklake_snapshot", self.lake)
        return int(self.con.execute(f"SELECT max(snapshot_id) FROM {snapshots}").fetchall()[0][0])

    def oldest(self) -> int:
        """The oldest snapshot that is still kept."""
        snapshots = metadata(self.con, self.place.alias, "ducklake_snapshot", self.lake)
        return int(self.con.execute(f"SELECT min(snapshot_id) FROM {snapshots}").fetchall()[0][0])

    def committed_at(self, snapshot: int) -> datetime:
        """When a snapshot that is still kept was committed, by the catalog's own clock."""
        snapshots = metadata(self.con, self.place.alias, "ducklake_snapshot", self.lake)
        sql = f"SELECT CAST(snapshot_time AS TIMESTAMPTZ) FROM {snapshots} WHERE snapshot_id = ?"
        ((at,),) = self.con.execute(sql, [snapshot]).fetchall()
        return cast(datetime, at)

    def run(self, step: Step) -> None:
        """Do one step and record what is true afterwards."""
        if isinstance(step, Upkeep):
            self._upkeep(step)
        elif isinstance(step, Recovery):
            self._recover(step)
        else:
            self._transact(step)

    def differences(self) -> list[str]:
        """What the lake's head has otherwise than the model, which would be a mistake of this world or of DuckLake."""
        there = rows_of(self.con, self.place.path, self.model.columns)
        live = Counter(map(plain, self.model.live()))
        return [f"missing {row}" for row in minus(live, there)] + [f"extra {row}" for row in minus(there, live)]

    def _recover(self, step: Recovery) -> None:
        """What is true after it is what was at the backup, or nothing."""
        self.close()
        catalog = catalog_of(self.lake)
        if step is Recovery.REPLACE:
            catalog.remove()
            self.truth.rewind(-1)
            self.model = Model(self.shape.columns)
            self.create()
            return
        if step is Recovery.BACK_UP:
            catalog.keep()
            self.backup = self.model.copy(), self.truth.head
        else:
            catalog.put_back()
            model, head = self.backup
            self.model = model.copy()
            self.truth.rewind(head)
        attach(self.con, self.place.alias, self.lake)

    def _upkeep(self, step: Upkeep) -> None:
        chore = step.sql(self.place, range(self.oldest(), self.head() + 1))
        try:
            self._patiently(chore)
        except duckdb.Error as error:
            # DuckLake can't always rewrite while inlined rows are pending: flush first, as users must.
            if "isnan" not in str(error) and "inlined-data aggregates" not in str(error):
                raise
            self._patiently([flush(self.place), *chore])
        for snapshot in range(self.truth.head + 1, self.head() + 1):
            self.truth.record_same(snapshot)

    def _transact(self, step: Transaction) -> None:
        statements = self._sql(step)
        try:
            self._write(step, statements)
        except duckdb.CatalogException as error:
            if not isinstance(step.statements[0], SetNotNull) or "NULL" not in str(error):
                raise
            return  # without statistics DuckLake refuses it, and then there is none to drop
        except duckdb.Error as error:
            # A column that came while inlining was off makes inlining fail from then on, and columns can't change after
            # rows that were inlined in one transaction with that; users have to live without it.
            if "inlined" not in str(error):
                raise
            self._patiently([set_inlining(self.place, 0)])
            self._write(step, statements)
        before, self.model = self.model, step.effect(self.model)
        for snapshot in range(self.truth.head + 1, self.head() + 1):
            self.truth.record(snapshot, self.model)
        if self.truth.columns(self.truth.head) != self.model.columns or (
            before.rows != self.model.rows and self.truth.head != self.head()
        ):
            raise AssertionError(f"the source made no snapshot for {step}")

    def _write(self, step: Transaction, statements: Sequence[str]) -> None:
        if step.bare:
            self._patiently(statements)
        else:
            self._commit(statements, "ROLLBACK" if step.rollback else "COMMIT")

    def _sql(self, step: Transaction) -> list[str]:
        """Each statement's text, made for the columns that are there when it runs."""
        model, texts = self.model.copy(), []
        for statement in step.statements:
            texts.append(statement.sql(self._place_of(model).path, model))
            statement.apply(model)
        return texts

    def _commit(self, statements: Sequence[str], end: str = "COMMIT") -> None:
        stamp = f"CALL {name(self.place.alias)}.set_commit_message({WRITER!r}, 'a step')"
        stamps = [] if self.shape.words else [stamp]  # of a row with {AUTHOR} DuckLake would make a broken statement
        self._patiently(["BEGIN", *statements, *stamps, end])

    def _patiently(self, statements: Sequence[str]) -> None:
        """Run statements; somebody else may hold the catalog for a moment."""
        for attempt in range(1, BUSY_TRIES + 1):
            try:
                for statement in statements:
                    self.con.execute(statement).fetchall()
                return
            except duckdb.Error as error:
                self._rollback()
                if attempt == BUSY_TRIES or "locked" not in str(error):
                    raise
                time.sleep(BUSY_WAIT_S)

    def _rollback(self) -> None:
        try:
            self.con.execute("ROLLBACK")
        except duckdb.TransactionException:
            return  # DuckLake ends a transaction whose COMMIT fails
