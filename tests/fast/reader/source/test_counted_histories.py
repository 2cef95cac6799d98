"""Random histories of a source that is counted while it goes on: no destination that was touched is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from services.reader.source.lake_source import LakeSource
from services.reader.source.source_reader import Cut
from shared.contracts.ranges import Range
from tests.fast.reader.lakes import Lake, config

TENANTS = ("a", "b", "c")
NAMES = ("company", "firm", "house")
"""Which columns take from each other; none is given the name by which the file knows the routing column."""

STEPS = 15
MAINTENANCE = (
    "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    "CALL ducklake_merge_adjacent_files('lake')",
)


class History:
    """A lake that changes at random, and which tenants each of its snapshots touched."""

    def __init__(self, lake: Lake, rng: Random) -> None:
        self.lake, self.rng = lake, rng
        self.rows: dict[int, str] = {}
        self.touched: list[tuple[int, frozenset[str]]] = []
        self.routing, self.other = "tenant", "v"
        # DuckLake's own maintenance of rows in the catalog fails where columns have exchanged their names.
        lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)")

    def step(self) -> None:
        acts: list[Callable[[], None]] = [self.insert, self.delete, self.move, self.rename, self.exchange, self.keep_up]
        self.rng.choices(acts, (3, 2, 2, 2, 2, 3))[0]()

    def go_on(self) -> None:
        """What comes between a look and the count: columns that exchange their names and maintenance, above all."""
        for act in self.rng.choices([self.exchange, self.keep_up, self.insert, self.delete], (3, 3, 1, 1), k=3):
            act()

    def insert(self) -> None:
        tenant, first = self.rng.choice(TENANTS), 1 + max(self.rows, default=0)
        self.rows |= dict.fromkeys(range(first, first + 3), tenant)
        self._done(f"INSERT INTO lake.t SELECT i, '{tenant}', 'v' FROM range({first}, {first + 3}) r(i)", {tenant})

    def delete(self) -> None:
        if self.rows:
            gone = self.rng.choice(list(self.rows))
            self._done(f"DELETE FROM lake.t WHERE id = {gone}", {self.rows.pop(gone)})

    def move(self) -> None:
        if self.rows:
            moved, to = self.rng.choice(list(self.rows)), self.rng.choice(TENANTS)
            before, self.rows[moved] = self.rows[moved], to
            self._done(f"UPDATE lake.t SET {self.routing} = '{to}' WHERE id = {moved}", {before, to})

    def rename(self) -> None:
        name = self.rng.choice([each for each in NAMES if each not in (self.routing, self.other)])
        self._done(f"ALTER TABLE lake.t RENAME COLUMN {self.routing} TO {name}", set())
        self.routing = name

    def exchange(self) -> None:
        """The other column gets the name that the routing column had."""
        before = self.routing
        self.rename()
        if before in NAMES:
            self._done(f"ALTER TABLE lake.t RENAME COLUMN {self.other} TO {before}", set())
            self.other = before

    def keep_up(self) -> None:
        self._done(self.rng.choice(MAINTENANCE), set())

    def _done(self, sql: str, touched: set[str]) -> None:
        self.touched.append((self.lake.sql(sql), frozenset(touched)))

    def within(self, snapshots: Range) -> set[str]:
        """Whom a range touched."""
        each = (who for at, who in self.touched if snapshots.after < at <= snapshots.through)
        return set().union(*each)


@pytest.fixture
def source(tmp_path: Path, lake: Lake) -> Iterator[LakeSource]:
    with closing(LakeSource(config(tmp_path), lake.lake)) as source:
        yield source


@pytest.mark.parametrize("seed", range(6))
def test_whoever_a_range_touched_is_counted_whatever_came_since_it_was_seen(
    lake: Lake, source: LakeSource, seed: int
) -> None:
    history, counted, ranges = History(lake, Random(seed)), lake.head, 0
    for _ in range(STEPS):
        history.step()
        if history.rng.random() < 0.4:
            source.observe(source.head())
            seen = lake.head
            cuts = source.cuts(Range(counted, seen)) if seen > counted else []
            for cut in cuts:
                history.go_on()
                rows = counted_of(source, cut)
                assert history.within(cut.range) <= rows, f"{cut.range} of {history.touched}"
                ranges += 1
            counted = seen
    assert ranges


def counted_of(source: LakeSource, cut: Cut) -> set[str]:
    return set(source.count(cut, TENANTS).rows)
