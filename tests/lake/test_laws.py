"""The laws of an apply: splitting, repetition, and that what one destination suffers is no other's business."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest
from hypothesis import given

from shared.messages import ItemKind, Outcome, Progress
from tests.world.history import random_history
from tests.world.lake import Lake, metadata, opened
from tests.world.oracle import check
from tests.world.replay import SEEDS, again, histories, parts, seed_of
from tests.world.rows import Column, Row, Rows, rows_of
from tests.world.shape import Shape
from tests.world.source import SourceLake
from tests.world.stage import Receiver, forget_lakes, receiver, send, source_table
from tests.world.statements import Insert, Statement, Transaction

TENANT = 0

SIMPLE = Shape(
    columns=(Column("tenant", "VARCHAR"), Column("k", "INTEGER"), Column("v", "VARCHAR")),
    routing="tenant",
    keys=("k",),
    tenants=("a", "b"),
    strays=("nobody",),
    null_keys=False,
)


class Scene:
    """A source, and destinations that want the same slice of it."""

    def __init__(self, con: duckdb.DuckDBPyConnection, folder: Path, shape: Shape) -> None:
        self.con, self.folder = con, folder
        self.source = SourceLake(con, Lake.in_folder(folder / "source"), shape)
        self.source.create()
        self.table = source_table(self.source.lake, shape)

    def destination(self, id: str, value: str | None = None, folder: str | None = None) -> Receiver:
        shape = self.source.shape
        value = value or shape.tenants[TENANT]
        return receiver(self.folder / (folder or id), self.source.truth, shape, id, value, table=f"t {id}")

    @property
    def head(self) -> int:
        return self.source.truth.head

    def commit(self, *statements: Statement) -> int:
        self.source.run(Transaction(statements))
        return self.head

    def seed(self, to: Receiver, through: int | None = None) -> Progress:
        return send(self.table, [(to, to.item(ItemKind.SEED, through or self.head))])[0]

    def apply(self, to: Receiver, after: int, through: int, *, pinned: bool = False) -> Progress:
        """Bring a destination on, if anything of it changed; answers as the applier did."""
        return send(self.table, [(to, to.item(ItemKind.CHANGES, through, expected=after, pinned=pinned))])[0]

    def rows(self, of: Receiver) -> Rows:
        with opened(self.con, of.promised.lake) as alias:
            columns = self.source.truth.columns(self.head)
            table = f'"{alias}"."{of.promised.schema}"."{of.promised.table}"'
            return rows_of(self.con, table, columns)

    def commits(self, of: Receiver) -> int:
        """The newest snapshot of a destination's lake."""
        with opened(self.con, of.promised.lake) as alias:
            snapshots = metadata(self.con, alias, "ducklake_snapshot", of.promised.lake)
            return int(self.con.execute(f"SELECT max(snapshot_id) FROM {snapshots}").fetchall()[0][0])

    def wrong(self, *receivers: Receiver) -> list[str]:
        truth = self.source.truth
        return [str(found) for one in receivers for found in check(self.con, one.promised, truth, head=truth.head)]

    def close(self) -> None:
        forget_lakes()
        self.source.close()


MakeScene = Callable[[Shape], Scene]


@pytest.fixture
def make_scene(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[MakeScene]:
    scenes: list[Scene] = []

    def make(shape: Shape) -> Scene:
        while scenes:
            scenes.pop().close()
        folder = tmp_path / "scene"
        shutil.rmtree(folder, ignore_errors=True)
        scenes.append(Scene(world, folder, shape))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


@pytest.fixture
def scene(make_scene: MakeScene) -> Scene:
    """Two tenants of three rows each."""
    made = make_scene(SIMPLE)
    rows: list[Row] = [(tenant, k, "old") for tenant in ("a", "b") for k in ("1", "2", "3")]
    made.commit(Insert(tuple(rows)))
    return made


# -- splitting --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(4))
@histories(8)
@given(drawn=SEEDS)
def test_a_range_applied_in_pieces_is_the_range_applied_at_once(make_scene: MakeScene, part: int, drawn: int) -> None:
    rng = Random(seed_of(part, drawn))
    history = random_history(rng, steps=8)
    scene = make_scene(history.shape)
    whole, pieces = scene.destination("whole"), scene.destination("pieces")
    begin = at = scene.head
    assert [scene.seed(one).outcome for one in (whole, pieces)] == [Outcome.APPLIED] * 2
    for step in history.steps:
        scene.source.run(step)
        if rng.random() < 0.6 and scene.head > at:
            answer = scene.apply(pieces, at, scene.head)
            at = at if answer.outcome is Outcome.EMPTY else scene.head
    scene.apply(pieces, at, max(scene.head, at + 1)) if scene.head > at else None
    scene.apply(whole, begin, scene.head) if scene.head > begin else None
    assert scene.rows(whole) == scene.rows(pieces), again(seed_of(part, drawn), "tests/lake/test_laws.py")
    assert scene.wrong(whole, pieces) == [], again(seed_of(part, drawn), "tests/lake/test_laws.py")
