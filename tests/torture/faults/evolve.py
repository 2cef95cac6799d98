"""The owner of the source changes columns, with rows and without, while appliers die, freeze, or lose a COMMIT."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from tests.torture.fault import Done
from tests.torture.faults.catalogs import commit_unheard, unheard
from tests.torture.faults.processes import ZOMBIE_POINTS, frozen_at, pass_point
from tests.torture.points import Deed, Point
from tests.torture.rig import FaultRig
from tests.world.statements import ColumnChange, Transaction


def altered_under_faults(rig: FaultRig, count: int) -> Done:
    """In turn a kill at the next of the nine points, a COMMIT that nobody hears of, and a zombie.

    Everybody is at the head before each, so that the next who passes brings other columns.
    """
    owner = _Owner(rig)
    points = itertools.cycle(Point)
    for number in range(count):
        rig.wait_until_exact()
        if number % 3 == 1:
            owner.begin()
            commit_unheard(rig, owner.act)
            continue
        point = next(points) if number % 3 == 0 else rig.rng.choice(ZOMBIE_POINTS)
        owner.begin(point)
        if number % 3 == 0:
            pass_point(rig, point, rig.rng.choice([Deed.KILL_ALL, Deed.KILL_ONE]), owner.act)
        else:
            frozen_at(rig, point, act=owner.act)
        owner.done[f"{'killed' if number % 3 == 0 else 'zombie'} {point}"] += 1
    rig.flatten()
    rig.wait_until_exact()
    return owner.done + unheard(rig)


class _Owner:
    """Changes columns first, and then columns and rows by turns. ``done`` tells how often what was changed.

    Batches are of direct commits alone, which change no columns and leave tables with fields to DuckLake's extension:
    where one is to be met, rows follow upon other columns that have none.
    """

    def __init__(self, rig: FaultRig) -> None:
        self._rig, self._nested, self.done = rig, True, Counter[str]()
        self._turns: Iterator[bool] = iter(())

    def begin(self, point: Point | None = None) -> None:
        """The next act changes columns."""
        self._nested = point is not Point.WITHIN_BATCH
        self._turns = itertools.cycle((True, False))
        if not self._nested:
            self._rig.flatten()
            self._turns = itertools.chain((True,), itertools.repeat(False))

    def act(self) -> None:
        if next(self._turns):
            self._tell(self._rig.alter(nested=self._nested))
        else:
            self._rig.step()

    def _tell(self, made: Transaction) -> None:
        kinds = [type(one).__name__ for one in made.statements if isinstance(one, ColumnChange)]
        rows = "with rows" if len(kinds) < len(made.statements) else "without a row"
        self.done += Counter([f"transactions that alter {rows}", *kinds])
