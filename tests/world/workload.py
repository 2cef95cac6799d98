"""A source that goes on changing while the services run, with a record of what was true at each of its snapshots."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

from tests.world.duck import connect
from tests.world.history import Generator
from tests.world.lake import Lake
from tests.world.shape import Shape, random_shape
from tests.world.source import SourceLake
from tests.world.truth import RecordedTruth


class Workload:
    """Random steps, one ``seed`` always the same ones, on a source lake of its own; for one thread at a time.

    ``truth`` knows every snapshot that it made, so the oracle can judge whatever came of them.
    """

    def __init__(self, seed: int, lake: Lake, shape: Shape | None = None, *, expire: bool = False) -> None:
        rng = Random(seed)
        self.shape = shape or random_shape(rng)
        self.con = connect()
        self.source = SourceLake(self.con, lake, self.shape)
        self.generator = Generator(rng, self.shape, expire=expire)
        self.source.create()

    @property
    def truth(self) -> RecordedTruth:
        return self.source.truth

    @property
    def head(self) -> int:
        """The newest snapshot that is known to the truth."""
        return self.source.truth.head

    def step(self) -> None:
        """One transaction, or one piece of maintenance."""
        self.source.run(self.generator.step())

    def run_for(self, seconds: float, pause_s: float = 0.0) -> int:
        """Go on for some time; returns how many steps it took."""
        steps, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            self.step()
            steps += 1
            time.sleep(pause_s)
        return steps

    def close(self) -> None:
        self.source.close()
        self.con.close()


def busy_shape(seed: int, *, append_only: bool = False, spread: int = 2000, many: tuple[int, int] = (50, 300)) -> Shape:
    """A random shape with more rows, for runs against services."""
    return replace(random_shape(Random(seed), append_only=append_only), spread=spread, many=many)
