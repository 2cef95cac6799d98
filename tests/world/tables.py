"""A source table written by plain SQL, for shapes that the random world does not have. The source is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem
from tests.world.duck import name
from tests.world.lake import Lake, attach, detach
from tests.world.oracle import check_all
from tests.world.referee import Seen
from tests.world.service_view import Receiver, forget_lakes, receiver, send, source_table
from tests.world.shape import Shape
from tests.world.truth import LakeTruth

ALIAS = "written"


def shape_of(
    routing: str, keys: Sequence[str], values: Sequence[str], *, schema: str = "main", table: str = "t"
) -> Shape:
    """As much of a shape as destinations need to know. ``values`` are the tenants' routing values."""
    return Shape((), routing, tuple(keys), tuple(values), (), null_keys=True, schema=schema, table=table)


@dataclass
class Table:
    """``in_files`` writes every row to Parquet; else small changes stay in the catalog."""

    con: duckdb.DuckDBPyConnection
    folder: Path
    shape: Shape
    in_files: bool = False
    receivers: list[Receiver] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = ("DATA_INLINING_ROW_LIMIT 0",) if self.in_files else ()
        lake = Lake.in_folder(self.folder / "source")
        self.lake = Lake(lake.catalog, lake.data_path, options=options)
        attach(self.con, ALIAS, self.lake, create=True)
        self.truth = LakeTruth(self.con, ALIAS, self.lake, self.shape.schema, self.shape.table, self.shape.routing)
        self.table = source_table(self.lake, self.shape)
        self.sql(f"CREATE SCHEMA IF NOT EXISTS {name(ALIAS, self.shape.schema)}")

    @property
    def path(self) -> str:
        return name(ALIAS, self.shape.schema, self.shape.table)

    def sql(self, *statements: str) -> None:
        """Each a commit of its own; ``{t}`` is the table."""
        for statement in statements:
            self.con.execute(statement.replace("{t}", self.path)).fetchall()

    def seed(self, *spellings: str) -> list[Progress]:
        """Make a destination for each tenant, its routing value in another spelling if one is given."""
        for number, value in enumerate(self.shape.tenants):
            one = receiver(self.folder / f"lake {number}", self.truth, self.shape, f"tenant-{number}", value)
            spelled = spellings[number] if spellings else value
            one.desired = one.desired.model_copy(update={"routing_value": spelled})
            self.receivers.append(one)
        head = self.truth.head
        return self._send([(one, one.item(ItemKind.SEED, head)) for one in self.receivers])

    def bring(self) -> list[Progress]:
        """Changes for everybody who has been seeded, up to the head."""
        head = self.truth.head
        seeded = [one for one in self.receivers if one.cursor.generation]
        items = [(one, one.item(ItemKind.CHANGES, head, expected=one.cursor.position)) for one in seeded]
        return self._send(items)

    def follow(self, *statements: str) -> None:
        """Each statement, and right after it the changes of everybody: nothing fails."""
        for statement in statements:
            self.sql(statement)
            for answer in self.bring():
                assert answer.outcome in (Outcome.APPLIED, Outcome.EMPTY), answer

    def wrong(self) -> list[str]:
        """What the oracle finds, the head being reached."""
        promised = [one.promised for one in self.receivers]
        return [str(found) for found in check_all(self.con, promised, self.truth, head=self.truth.head)]

    def close(self) -> None:
        forget_lakes()
        detach(self.con, ALIAS)

    def _send(self, items: list[tuple[Receiver, WorkItem]]) -> list[Progress]:
        answers = send(self.table, items)
        for (one, _), answer in zip(items, answers, strict=True):
            if answer.outcome is Outcome.APPLIED and answer.position is not None:
                one.cursor = Seen(one.generation, answer.position)
        return answers
