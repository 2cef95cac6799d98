"""A task that takes long answers for those whose turn came; the others are as they were, and have it in the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.applier.run import TURN_S, Run, run_task
from services.applier.task import Limits, SourceTable, Target, Task
from shared.messages import ItemKind, Outcome
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed

TENANTS = "abcd"


def late(run: Run) -> bool:
    """As soon as something is done."""
    return bool(run.done)


@pytest.fixture
def bed(make_bed: MakeBed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = make_bed(limits=Limits(threads=1, most_threads=1))
    made.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    for name in TENANTS:
        made.add(name)
        made.sql(f"INSERT INTO src.main.t VALUES ({ord(name)}, '{name}', 'x')")
    monkeypatch.setattr(Run, "_is_late", late)
    return made


def in_turns(bed: Bed, kind: ItemKind, targets: Sequence[Target]) -> list[list[str]]:
    """Do all targets, in as many tasks as it takes; who was answered for in each."""
    source, turns = SourceTable(bed.source, "main", "t", bed.routing), []
    waiting = {target.item.item: target for target in targets}
    while waiting:
        done = run_task(Task(kind, source, tuple(waiting.values()), bed.limits)).results
        assert done, "no task does nothing"
        assert {(result.progress.outcome, result.progress.error) for result in done} == {(Outcome.APPLIED, None)}
        turns.append([result.progress.destination for result in done])
        for result in done:
            del waiting[result.progress.item]
    return turns


def exact(bed: Bed) -> bool:
    return all(bed.rows(name) == bed.expected(name) for name in TENANTS)


def test_seeds_and_changes_are_done_in_turns(bed: Bed) -> None:
    seeds = [bed.target(name, ItemKind.SEED) for name in TENANTS]
    assert in_turns(bed, ItemKind.SEED, seeds) == [["a"], ["b"], ["c"], ["d"]]
    before = bed.head
    bed.sql("UPDATE src.main.t SET v = 'y'", "DELETE FROM src.main.t WHERE tenant = 'd'")
    changes = [bed.target(name, ItemKind.CHANGES, expected=before, after=before) for name in TENANTS]
    assert in_turns(bed, ItemKind.CHANGES, changes) == [["a"], ["b"], ["c"], ["d"]]
    assert exact(bed)


def test_a_range_of_others_is_not_even_read_where_it_is_late(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    reads = Run._read

    def noted(run: Run, group: Any, *, sparing: bool) -> Any:
        read.append(len(group))
        return reads(run, group, sparing=sparing)

    first = bed.head
    in_turns(bed, ItemKind.SEED, [bed.target(name, ItemKind.SEED) for name in "ab"])
    bed.sql("INSERT INTO src.main.t VALUES (1, 'c', 'z')")
    second = bed.head
    in_turns(bed, ItemKind.SEED, [bed.target(name, ItemKind.SEED) for name in "cd"])
    bed.sql("UPDATE src.main.t SET v = 'y'")
    positions = {"a": first, "b": first, "c": second, "d": second}
    monkeypatch.setattr(Run, "_read", noted)
    changes = [bed.target(name, ItemKind.CHANGES, expected=at, after=at) for name, at in positions.items()]
    assert in_turns(bed, ItemKind.CHANGES, changes) == [["a"], ["b"], ["c"], ["d"]]
    assert read == [2, 1, 2, 1]
    assert exact(bed)


@pytest.mark.parametrize(
    ("elsewhere_s", "read_s", "done", "is_late"),
    [
        (TURN_S + 1, 0.0, 1, True),
        (TURN_S - 1, 0.0, 1, False),
        (TURN_S + 1, 2 * TURN_S, 1, False),
        (2 * TURN_S + 1, 2 * TURN_S, 1, True),
        (9 * TURN_S, 0.0, 0, False),
        (TURN_S + 1, 0.0, 60, True),
        (TURN_S + 1, 0.0, 70, False),
    ],
)
def test_a_task_is_late_after_its_turn_or_after_as_long_as_it_read_unless_little_is_left(
    elsewhere_s: float, read_s: float, done: int, *, is_late: bool
) -> None:
    nothing: Any = None
    task = Task(ItemKind.CHANGES, nothing, (nothing,) * 100, nothing)
    run = Run(nothing, task, done=dict.fromkeys(range(done), nothing))
    run._began -= elsewhere_s + read_s
    run._read_s = read_s
    assert run._is_late() is is_late
