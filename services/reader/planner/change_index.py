"""The counted steps in a row: what changed for whom since when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.reader.planner.counted_changes import CountedStep, merged
from shared.contracts.ranges import NOT_SEEDED

MOST_STEPS = 512
"""Beyond it neighbours are merged: a destination that lags for days must not cost memory for days."""

MOST_COUNTS = 250_000
"""Counts, of one value in one step each, above which only counts that a destination still needs are kept."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A destination's next piece of work: nothing changed up to ``after``, ``rows`` did up to ``through``."""

    after: int
    through: int
    rows: int
    pinned: bool


class ChangeIndex:
    """Steps without a gap from ``floor`` to ``line``, the head that was counted last.

    Polls add steps above the line. For destinations below the floor (found at a start, or resumed after a long pause)
    steps are added below it. Steps that no destination needs are removed. If that does not suffice, the counts of
    values that do not lag are removed, and the index then knows nothing about their past.
    """

    def __init__(self, at: int, segment_rows: int) -> None:
        self.floor = at
        self._segment_rows = segment_rows
        self._steps: list[CountedStep] = []
        self._ends: list[int] = []
        self._counts = 0
        self._most_counts = MOST_COUNTS
        self._thinned = NOT_SEEDED
        """From there on the counts of every value are complete."""
        self._known_from: dict[str, int] = {}
        """Of values that were lagging when the others were forgotten: from where on their counts are."""

    @property
    def line(self) -> int:
        return self._ends[-1] if self._ends else self.floor

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def counts(self) -> int:
        """How many counts, of a value in a step each, are held."""
        return self._counts

    @property
    def is_heavy(self) -> bool:
        """Whether there are so many counts that ``thin`` should be asked to forget some."""
        return self._counts > self._most_counts

    def knows(self, exact: int, value: str) -> bool:
        """Whether all is known of a value that changed between ``exact`` and the line, as far as the steps reach."""
        return exact >= self._known_from.get(value, self._thinned)

    def thin(self, lagging: Mapping[str, int]) -> None:
        """Remove counts that are not needed: ``lagging`` has the position of each value that is not exact at the line.

        For a destination that turns out to be further back later, ``knows`` is false.
        """
        before = self._known_from
        self._known_from = {value: max(before.get(value, self._thinned), exact) for value, exact in lagging.items()}
        self._thinned = self.line
        self._steps = [step.only_above(lagging) for step in self._steps]
        self._counts = sum(len(step.rows) for step in self._steps)
        while self._counts > MOST_COUNTS and self._coarsen():
            pass  # with each turn there are fewer steps
        self._most_counts = max(MOST_COUNTS, 2 * self._counts)

    def keep_known(self, values: Iterable[str]) -> None:
        """Something was counted for these values alone: for all others the index begins at its line."""
        self._known_from = {value: self._known_from.get(value, self._thinned) for value in values}
        self._thinned = self.line

    def forget(self) -> None:
        """Start again at the line: everything below it has to be counted again when needed."""
        self.trim(self.line)
        self._thinned, self._known_from = NOT_SEEDED, {}
        self._most_counts = MOST_COUNTS

    def extend(self, step: CountedStep) -> None:
        """Add a step above the line."""
        if step.range.after != self.line:
            raise ValueError(f"step {step.range} does not begin at the line {self.line}")
        self._counts += len(step.rows)
        self._steps.append(step)
        self._ends.append(step.range.through)
        if len(self._steps) > MOST_STEPS:
            self._coarsen()

    def extend_down(self, step: CountedStep) -> None:
        """Add a step under the floor."""
        if step.range.through != self.floor:
            raise ValueError(f"step {step.range} does not end at the floor {self.floor}")
        self._counts += len(step.rows)
        self._steps.insert(0, step)
        self._ends.insert(0, step.range.through)
        self.floor = step.range.after

    def trim(self, needed: int) -> None:
        """Drop the steps that end at or before ``needed``."""
        gone = bisect_right(self._ends, needed)
        if gone:
            self.floor = self._ends[gone - 1]
            self._counts -= sum(len(step.rows) for step in self._steps[:gone])
            del self._steps[:gone]
            del self._ends[:gone]

    def settle(self, exact: int, value: str) -> tuple[int, CountedStep | None]:
        """How far a destination that is exact at ``exact`` is known to be exact, and the step that touches it then.

        A step that ``exact`` lies within counts whole: its rows may all lie before ``exact``, or not.
        TLA: ``Settle``.
        """
        if exact < self.floor or not self.knows(exact, value):
            return exact, None
        for index in range(bisect_right(self._ends, exact), len(self._steps)):
            step = self._steps[index]
            if step.touches(value):
                return max(exact, step.range.after), step
        return max(exact, self.line), None

    def ahead(self, exact: int, value: str) -> Ahead | None:
        """The next piece of work of a destination; None if it has none, or lies under the floor."""
        after, first = self.settle(exact, value)
        if first is None:
            return None
        index = bisect_right(self._ends, after)
        run = self._run(index) if first.pinned else self._steps[index:]
        rows = sum(step.rows_of(value) for step in run)
        return Ahead(after, run[-1].range.through, rows, first.pinned)

    def _run(self, index: int) -> list[CountedStep]:
        """Pinned steps from ``index`` on that fit one segment together, or the first alone.

        Where it begins decides where it ends, so destinations that wait for the same step share the range.
        """
        run = [self._steps[index]]
        total = run[0].total
        for step in self._steps[index + 1 :]:
            total += step.total
            if not step.pinned or total > self._segment_rows:
                break
            run.append(step)
        return run

    def _coarsen(self) -> bool:
        """Merge neighbours in the older half of the steps. Returns whether there are fewer now."""
        before = len(self._steps)
        half = len(self._steps) // 2
        coarse: list[CountedStep] = []
        whole = True
        for step in self._steps[:half]:
            if whole or not self._may_merge(coarse[-1], step):
                coarse.append(step)
                whole = False
            else:
                coarse[-1] = merged(coarse[-1], step)
                whole = True
        self._steps[:half] = coarse
        self._ends = [step.range.through for step in self._steps]
        self._counts = sum(len(step.rows) for step in self._steps)
        return len(self._steps) < before

    def _may_merge(self, older: CountedStep, newer: CountedStep) -> bool:
        """Pinned steps are pieces of work as they stand, so a merged one must fit a segment."""
        if older.pinned and newer.pinned:
            return older.total + newer.total <= self._segment_rows
        return not older.pinned and not newer.pinned
