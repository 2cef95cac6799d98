"""A task that takes long answers for those whose turn came; the others are as they were, and have it in the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.applier.model.task import Limits, SourceTable, Target, Task
from services.applier.worker.task_run import TaskRun, run_task
from shared.contracts.messages import ItemKind, Outcome
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

TENANTS = "abcd"


def late(run: TaskRun) -> bool:
    """As soon as something is done."""
    return bool(run.done)


@pytest.fixture
def rig(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> ApplyRig:
    made = make_rig(limits=Limits(threads=1, most_threads=1))
    made.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    for name in TENANTS:
        made.add(name)
        made.sql(f"INSERT INTO src.main.t VALUES ({ord(name)}, '{name}', 'x')")
    monkeypatch.setattr(TaskRun, "_is_late", late)
    return made


def in_turns(rig: ApplyRig, kind: ItemKind, targets: Sequence[Target]) -> list[list[str]]:
    """Do all targets, in as many tasks as it takes; who was answered for in each."""
    source, turns = SourceTable(rig.source, "main", "t", rig.routing), []
    waiting = {target.item.item: target for target in targets}
    while waiting:
        done = run_task(Task(kind, source, tuple(waiting.values()), rig.limits)).results
        assert done, "no task does nothing"
        assert {(result.progress.outcome, result.progress.error) for result in done} == {(Outcome.APPLIED, None)}
        turns.append([result.progress.destination for result in done])
        for result in done:
            del waiting[result.progress.item]
    return turns


def exact(rig: ApplyRig) -> bool:
    return all(rig.rows(name) == rig.expected(name) for name in TENANTS)


def test_seeds_and_changes_are_done_in_turns(rig: ApplyRig) -> None:
    seeds = [rig.target(name, ItemKind.SEED) for name in TENANTS]
    assert in_turns(rig, ItemKind.SEED, seeds) == [["a"], ["b"], ["c"], ["d"]]
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'y'", "DELETE FROM src.main.t WHERE tenant = 'd'")
    changes = [rig.target(name, ItemKind.CHANGES, expected=before, after=before) for name in TENANTS]
    assert in_turns(rig, ItemKind.CHANGES, changes) == [["a"], ["b"], ["c"], ["d"]]
    assert exact(rig)


def test_a_range_of_others_is_not_even_read_where_it_is_late(rig: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    reads = TaskRun._read

    def noted(run: TaskRun, group: Any, *, sparing: bool) -> Any:
        read.append(len(group))
        return reads(run, group, sparing=sparing)

    first = rig.head
    in_turns(rig, ItemKind.SEED, [rig.target(name, ItemKind.SEED) for name in "ab"])
    rig.sql("INSERT INTO src.main.t VALUES (1, 'c', 'z')")
    second = rig.head
    in_turns(rig, ItemKind.SEED, [rig.target(name, ItemKind.SEED) for name in "cd"])
    rig.sql("UPDATE src.main.t SET v = 'y'")
    positions = {"a": first, "b": first, "c": second, "d": second}
    monkeypatch.setattr(TaskRun, "_read", noted)
    changes = [rig.target(name, ItemKind.CHANGES, expected=at, after=at) for name, at in positions.items()]
    assert in_turns(rig, ItemKind.CHANGES, changes) == [["a"], ["b"], ["c"], ["d"]]
    assert read == [2, 1, 2, 1]
    assert exact(rig)


def test_an_item_of_another_history_that_shares_a_reading_waits_alone(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source was replaced: one seed was planned at a snapshot that it does not have any more, or not yet."""
    monkeypatch.setattr(TaskRun, "_is_late", lambda _: False)
    early, right = rig.target("a", ItemKind.SEED, through=rig.head + 3), rig.target("b", ItemKind.SEED)
    for order in ((right, early), (early, right)):
        said = {each.destination: each for each in rig.run_targets(ItemKind.SEED, order)}
        assert said["a"].outcome is Outcome.FAILED
        assert said["a"].error is not None
        assert said["a"].error.type == "source_behind"
        assert said["b"].outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    assert rig.rows("b") == rig.expected("b")
    assert not (rig.folder / "a-data").exists()
