"""A range that a worker's memory can't hold goes to disk, or in parts by routing value; both give the same result."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest

from services.applier.apply.source.feed import Feed
from services.applier.apply.source.reading import Reading
from services.applier.model.task import Limits, SourceTable, Target, Task
from services.applier.worker.task_run import run_task
from shared.contracts.messages import ItemKind, Outcome
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

TENANTS = tuple("abcdefg")
CHARACTERS = 5_000
"""Of one value."""
VERY_WIDE = tuple(f"c{number}" for number in range(50))

ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


def ranged(make_rig: MakeRig, limits: Limits, *, snapshots: int, rows: int) -> tuple[ApplyRig, Task]:
    """A rig whose destinations are to take over ``snapshots`` of ``rows`` wide rows each, and the task that does it."""
    rig = make_rig(limits=limits)
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    for name in TENANTS:
        rig.add(name)
    rig.seed()
    before = rig.head
    for number in range(snapshots):
        rig.sql(
            f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER),"
            f" repeat(md5(i::VARCHAR), {CHARACTERS // 32}) FROM range({number * rows}, {(number + 1) * rows}) r(i)"
        )
    rig.sql("UPDATE src.main.t SET v = 'touched' WHERE id % 10 = 0", "DELETE FROM src.main.t WHERE id % 10 = 1")
    targets = tuple(rig.target(name, ItemKind.CHANGES, expected=before, after=before) for name in TENANTS)
    return rig, Task(ItemKind.CHANGES, SourceTable(rig.source, "main", "t", rig.routing), targets, rig.limits)


def exact(rig: ApplyRig) -> bool:
    return all(rig.rows(name) == rig.expected(name) for name in TENANTS)


@ON_SQLITE
def test_a_range_of_twice_the_memory_goes_to_disk(make_rig: MakeRig) -> None:
    limits = Limits(memory_limit="100MB")
    rig, task = ranged(make_rig, limits, snapshots=10, rows=4_000)
    done = run_task(task)
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert exact(rig)


@ON_SQLITE
def test_a_range_that_does_not_fit_is_read_in_parts(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    read, parts = Feed.read, []

    def cramped(self: Feed, kind: ItemKind, targets: Sequence[tuple[int, Target]], *, sparing: bool = False) -> Reading:
        if len(targets) > 2:
            raise duckdb.OutOfMemoryException("failed to allocate")
        parts.append((len(targets), sparing))
        return read(self, kind, targets, sparing=sparing)

    rig, task = ranged(make_rig, Limits(), snapshots=2, rows=100)
    monkeypatch.setattr(Feed, "read", cramped)
    done = run_task(task)
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert parts == [(1, True), (2, True), (2, True), (2, True)]
    assert exact(rig)


def append_very_wide(rig: ApplyRig, first: int, rows: int) -> None:
    """Half a megabyte a row."""
    values = ", ".join(f"repeat(md5(i || '{name}'), 312)" for name in VERY_WIDE)
    rig.sql(
        f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER), {values}"
        f" FROM range({first}, {first + rows}) r(i)"
    )


@pytest.fixture
def very_wide(make_rig: MakeRig) -> ApplyRig:
    """A rig with no row yet."""
    rig = make_rig(limits=Limits(memory_limit="120MB"))
    rig.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, {', '.join(f'{c} VARCHAR' for c in VERY_WIDE)})")
    for name in TENANTS:
        rig.add(name)
    return rig


@ON_SQLITE
def test_who_has_seen_very_wide_rows_reads_no_more_of_them_than_fit(
    very_wide: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, parts = Feed.read, []

    def noted(self: Feed, kind: ItemKind, targets: Sequence[tuple[int, Target]], *, sparing: bool = False) -> Reading:
        parts.append((len(targets), sparing))
        return read(self, kind, targets, sparing=sparing)

    rig = very_wide
    append_very_wide(rig, 0, len(TENANTS))
    rig.seed()
    before = rig.head
    append_very_wide(rig, len(TENANTS), 8 * len(TENANTS))
    targets = tuple(rig.target(name, ItemKind.CHANGES, expected=before, after=before, rows=8) for name in TENANTS)
    monkeypatch.setattr(Feed, "read", noted)
    done = run_task(Task(ItemKind.CHANGES, SourceTable(rig.source, "main", "t", rig.routing), targets, rig.limits))
    assert [result.progress.outcome for result in done.results] == [Outcome.APPLIED] * len(TENANTS)
    assert parts == [(3, True), (3, True), (1, True)], "an eighth of 120 MB is room for 30 such rows"
    assert not any("does not fit" in line for line in done.log)
    assert exact(rig)


@ON_SQLITE
@pytest.mark.parametrize("pinned", [False, True])
def test_very_wide_rows_that_were_only_appended_are_read_sparingly(very_wide: ApplyRig, *, pinned: bool) -> None:
    """200 MB in all, and DuckDB would pin a gigabyte to hold 2,048 of them."""
    rig = very_wide
    rig.seed()
    before = rig.head
    for first in range(0, 420, 42):
        append_very_wide(rig, first, 42)
    targets = tuple(
        rig.target(name, ItemKind.CHANGES, expected=before, after=before, pinned=pinned) for name in TENANTS
    )
    if pinned:
        rig.sql("DELETE FROM src.main.t WHERE id % 2 = 0")  # after the end of the range, so it must not show
    done = run_task(Task(ItemKind.CHANGES, SourceTable(rig.source, "main", "t", rig.routing), targets, rig.limits))
    assert [(result.progress.outcome, result.progress.error) for result in done.results] == [
        (Outcome.APPLIED, None)
    ] * len(TENANTS)
    assert any("read sparingly" in line for line in done.log), "else it shows nothing"
    if pinned:
        assert [rig.look(name, "SELECT count(*) FROM dst.main.t") for name in TENANTS] == [[(60,)]] * len(TENANTS)
        rig.changes(targets[0].item.through)
    assert exact(rig)


@ON_SQLITE
def test_one_destination_that_does_not_fit_says_what_to_do(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*_: object, **__: object) -> Reading:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 128.0 MiB")

    _, task = ranged(make_rig, Limits(), snapshots=1, rows=100)
    monkeypatch.setattr(Feed, "read", too_small)
    for result in run_task(task).results:
        assert result.progress.outcome is Outcome.FAILED
        assert result.progress.error is not None
        assert "applier.memory_limit" in result.progress.error.hint
