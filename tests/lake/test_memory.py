"""A range that a worker's memory can't hold goes to disk, or in parts by routing value; both give the same result."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest

from services.applier.feed import Feed
from services.applier.reading import Reading
from services.applier.run import run_task
from services.applier.task import Limits, SourceTable, Target, Task
from shared.messages import ItemKind, Outcome
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed

TENANTS = tuple("abcdefg")
CHARACTERS = 5_000
"""Of one value."""
VERY_WIDE = tuple(f"c{number}" for number in range(50))

ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


def ranged(make_bed: MakeBed, limits: Limits, *, snapshots: int, rows: int) -> tuple[Bed, Task]:
    """A bed whose destinations are to take over ``snapshots`` of ``rows`` wide rows each, and the task that does it."""
    bed = make_bed(limits=limits)
    bed.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    for name in TENANTS:
        bed.add(name)
    bed.seed()
    before = bed.head
    for number in range(snapshots):
        bed.sql(
            f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER),"
            f" repeat(md5(i::VARCHAR), {CHARACTERS // 32}) FROM range({number * rows}, {(number + 1) * rows}) r(i)"
        )
    bed.sql("UPDATE src.main.t SET v = 'touched' WHERE id % 10 = 0", "DELETE FROM src.main.t WHERE id % 10 = 1")
    targets = tuple(bed.target(name, ItemKind.CHANGES, expected=before, after=before) for name in TENANTS)
    return bed, Task(ItemKind.CHANGES, SourceTable(bed.source, "main", "t", bed.routing), targets, bed.limits)


def exact(bed: Bed) -> bool:
    return all(bed.rows(name) == bed.expected(name) for name in TENANTS)


@ON_SQLITE
def test_a_range_of_twice_the_memory_goes_to_disk(make_bed: MakeBed) -> None:
    limits = Limits(memory_limit="100MB")
    bed, task = ranged(make_bed, limits, snapshots=10, rows=4_000)
    done = run_task(task)
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert exact(bed)


@ON_SQLITE
def test_a_range_that_does_not_fit_is_read_in_parts(make_bed: MakeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    read, parts = Feed.read, []

    def cramped(self: Feed, kind: ItemKind, targets: Sequence[tuple[int, Target]], *, sparing: bool = False) -> Reading:
        if len(targets) > 2:
            raise duckdb.OutOfMemoryException("failed to allocate")
        parts.append((len(targets), sparing))
        return read(self, kind, targets, sparing=sparing)

    bed, task = ranged(make_bed, Limits(), snapshots=2, rows=100)
    monkeypatch.setattr(Feed, "read", cramped)
    done = run_task(task)
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert parts == [(1, True), (2, True), (2, True), (2, True)]
    assert exact(bed)


def append_very_wide(bed: Bed, first: int, rows: int) -> None:
    """Half a megabyte a row."""
    values = ", ".join(f"repeat(md5(i || '{name}'), 312)" for name in VERY_WIDE)
    bed.sql(
        f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER), {values}"
        f" FROM range({first}, {first + rows}) r(i)"
    )


@pytest.fixture
def very_wide(make_bed: MakeBed) -> Bed:
    """A bed with no row yet."""
    bed = make_bed(limits=Limits(memory_limit="120MB"))
    bed.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, {', '.join(f'{c} VARCHAR' for c in VERY_WIDE)})")
    for name in TENANTS:
        bed.add(name)
    return bed


@ON_SQLITE
def test_who_has_seen_very_wide_rows_reads_no_more_of_them_than_fit(
    very_wide: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, parts = Feed.read, []

    def noted(self: Feed, kind: ItemKind, targets: Sequence[tuple[int, Target]], *, sparing: bool = False) -> Reading:
        parts.append((len(targets), sparing))
        return read(self, kind, targets, sparing=sparing)

    bed = very_wide
    append_very_wide(bed, 0, len(TENANTS))
    bed.seed()
    before = bed.head
    append_very_wide(bed, len(TENANTS), 8 * len(TENANTS))
    targets = tuple(bed.target(name, ItemKind.CHANGES, expected=before, after=before, rows=8) for name in TENANTS)
    monkeypatch.setattr(Feed, "read", noted)
    done = run_task(Task(ItemKind.CHANGES, SourceTable(bed.source, "main", "t", bed.routing), targets, bed.limits))
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert parts == [(3, True), (3, True), (1, True)], "an eighth of 120 MB is room for 30 such rows"
    assert not any("does not fit" in line for line in done.log)
    assert exact(bed)


@ON_SQLITE
@pytest.mark.parametrize("pinned", [False, True])
def test_very_wide_rows_that_were_only_appended_are_read_sparingly(very_wide: Bed, *, pinned: bool) -> None:
    """200 MB in all, and DuckDB would pin a gigabyte to hold 2,048 of them."""
    bed = very_wide
    bed.seed()
    before = bed.head
    for first in range(0, 420, 42):
        append_very_wide(bed, first, 42)
    targets = tuple(
        bed.target(name, ItemKind.CHANGES, expected=before, after=before, pinned=pinned) for name in TENANTS
    )
    if pinned:
        bed.sql("DELETE FROM src.main.t WHERE id % 2 = 0")  # after the end of the range, so it must not show
    done = run_task(Task(ItemKind.CHANGES, SourceTable(bed.source, "main", "t", bed.routing), targets, bed.limits))
    assert [(result.progress.outcome, result.progress.error) for result in done.results] == [
        (Outcome.APPLIED, None)
    ] * len(TENANTS)
    assert any("read sparingly" in line for line in done.log), "else it shows nothing"
    if pinned:
        assert [bed.look(name, "SELECT count(*) FROM dst.main.t") for name in TENANTS] == [[(60,)]] * len(TENANTS)
        bed.changes(targets[0].item.through)
    assert exact(bed)


@ON_SQLITE
def test_one_destination_that_does_not_fit_says_what_to_do(make_bed: MakeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*_: object, **__: object) -> Reading:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 128.0 MiB")

    _, task = ranged(make_bed, Limits(), snapshots=1, rows=100)
    monkeypatch.setattr(Feed, "read", too_small)
    for result in run_task(task).results:
        assert result.progress.outcome is Outcome.FAILED
        assert result.progress.error is not None
        assert "applier.memory_limit" in result.progress.error.hint
