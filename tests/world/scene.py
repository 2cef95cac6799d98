"""A source and a few destinations, moved by hand: for tests that say themselves what happens when."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode, WorkItem
from tests.world.duck import name
from tests.world.lake import Lake, metadata, opened
from tests.world.oracle import check_all
from tests.world.referee import Seen
from tests.world.rows import Rows, rows_of
from tests.world.service_view import Receiver, forget_lakes, receiver, send, source_table
from tests.world.shape import Shape
from tests.world.source import SourceLake
from tests.world.statements import Statement, Transaction


class Scene:
    """One source in ``folder``; each destination gets a lake of its own beside it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, folder: Path, shape: Shape) -> None:
        self.con, self.folder = con, folder
        self.source = SourceLake(con, Lake.in_folder(folder / "source"), shape)
        self.source.create()
        self.table = source_table(self.source.lake, shape)
        self.receivers: list[Receiver] = []

    @property
    def head(self) -> int:
        return self.source.truth.head

    def destination(self, id: str, value: str | None = None, mode: SeedMode = SeedMode.SCAN) -> Receiver:
        """A new destination, by default for the first tenant."""
        shape = self.source.shape
        made = receiver(self.folder / id, self.source.truth, shape, id, value or shape.tenants[0], mode=mode)
        self.receivers.append(made)
        return made

    def commit(self, *statements: Statement) -> None:
        self.source.run(Transaction(statements))

    def seed(self, one: Receiver) -> Progress:
        return self.send(one, one.item(ItemKind.SEED, self.head))

    def bring(self, one: Receiver, through: int | None = None, **fields: Any) -> tuple[WorkItem, Progress] | None:
        """Changes from where a destination is to ``through``, else to the head; nothing where it is there already."""
        end = self.head if through is None else through
        if one.cursor.position >= end:
            return None
        item = one.item(ItemKind.CHANGES, end, expected=one.cursor.position, **fields)
        return item, self.send(one, item)

    def send(self, one: Receiver, item: WorkItem) -> Progress:
        """Do one item, and remember where the destination is then."""
        answer = send(self.table, [(one, item)])[0]
        if answer.outcome is Outcome.APPLIED and answer.position is not None:
            one.cursor = Seen(item.generation, answer.position)
        return answer

    def rows(self, one: Receiver) -> Rows:
        """What a destination's table holds now, in the columns that the source has had from the beginning."""
        with opened(self.con, one.promised.lake) as alias:
            table = name(alias, one.promised.schema, one.promised.table)
            return rows_of(self.con, table, self.source.shape.columns)

    def commits(self, one: Receiver) -> int:
        """The newest snapshot of a destination's lake."""
        with opened(self.con, one.promised.lake) as alias:
            snapshots = metadata(self.con, alias, "ducklake_snapshot", one.promised.lake)
            return int(self.con.execute(f"SELECT max(snapshot_id) FROM {snapshots}").fetchall()[0][0])

    def wrong(self) -> list[str]:
        """What the oracle finds, the head being reached."""
        promised = [one.promised for one in self.receivers]
        return [str(found) for found in check_all(self.con, promised, self.source.truth, head=self.head)]

    def close(self) -> None:
        forget_lakes()
        self.source.close()


MakeScene = Callable[[Shape], Scene]


@contextmanager
def scenes(con: duckdb.DuckDBPyConnection, folder: Path) -> Iterator[MakeScene]:
    """Makes one scene after another; the one before is taken down."""
    standing: list[Scene] = []

    def make(shape: Shape) -> Scene:
        while standing:
            standing.pop().close()
        shutil.rmtree(folder, ignore_errors=True)
        standing.append(Scene(con, folder, shape))
        return standing[-1]

    try:
        yield make
    finally:
        while standing:
            standing.pop().close()
