"""Items that can share a read run together; one tenant in trouble does not run with the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.applier.model.grouping import ONE_TASK_TARGETS, Lane, groups_of, jobs, lane_of, split
from services.applier.model.task import Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, SeedMode, WorkItem


def target(
    number: int, *, rows: int = 1, lake: int | None = None, after: int = 3, pinned: bool = False, **item: object
) -> Target:
    name = f"d{number}"
    destination = Destination(
        pipeline="p", destination=name, generation=1, routing_value=name, state=DesiredState.RUNNING,
        lake=LakeRef(catalog="sqlite:x"), table="t", seed_mode=SeedMode.SCAN, revision="1",
    )  # fmt: skip
    fields = {"kind": ItemKind.CHANGES, "through": 9} | item
    work = WorkItem.model_validate(
        {"item": f"i{number}", "pipeline": "p", "destination": name, "generation": 1, "expected": 2, "after": after,
         "rows": rows, "pinned": pinned} | fields
    )  # fmt: skip
    return Target(work, destination, ResolvedLake(f"sqlite:/lake{number if lake is None else lake}"))


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 5)), min_size=1, max_size=40), st.integers(1, 4))
def test_splitting_loses_and_doubles_nobody_and_keeps_a_lake_in_one_task(
    sizes: list[tuple[int, int]], tasks: int
) -> None:
    targets = [target(number, rows=rows, lake=lake) for number, (rows, lake) in enumerate(sizes)]
    shares = list(split(targets, tasks).values())
    assert len(shares) <= tasks
    assert sorted(t.item.item for share in shares for t in share) == sorted(t.item.item for t in targets)
    for lake in {t.lake.catalog for t in targets}:
        assert sum(any(t.lake.catalog == lake for t in share) for share in shares) == 1


def test_a_few_small_targets_are_one_task() -> None:
    assert len(split([target(n) for n in range(ONE_TASK_TARGETS)], 4)) == 1


def test_many_targets_are_spread_evenly() -> None:
    shares = split([target(n, rows=1_000) for n in range(40)], 2)
    assert [len(share) for share in shares.values()] == [20, 20]


def where(shares: dict[int, tuple[Target, ...]]) -> dict[str, int]:
    return {target.lake.catalog: number for number, share in shares.items() for target in share}


def test_a_lake_stays_in_the_task_where_it_was_and_others_make_up_for_it() -> None:
    before = where(split([target(n, rows=n) for n in range(40)], 2))
    again = where(split([target(n, rows=(n * 7) % 40) for n in reversed(range(60))], 2, before))
    assert {lake: again[lake] for lake in before} == before
    assert 27 <= list(again.values()).count(0) <= 33


def test_a_lake_goes_elsewhere_where_staying_would_make_one_task_do_it_all() -> None:
    everybody_at_home = {f"sqlite:/lake{n}": 0 for n in range(40)}
    shares = split([target(n) for n in range(40)], 2, everybody_at_home)
    assert [len(shares[0]), len(shares[1])] == [22, 18]


def test_a_task_that_is_no_more_is_nobody_s_home() -> None:
    shares = split([target(n) for n in range(40)], 2, {f"sqlite:/lake{n}": 3 for n in range(40)})
    assert [len(share) for share in shares.values()] == [20, 20]


def test_a_failed_item_waits_in_a_lane_of_its_own() -> None:
    assert lane_of(target(1).item) is Lane.CHANGES
    assert lane_of(target(1, kind=ItemKind.SEED).item) is Lane.SEEDS
    assert lane_of(target(1, attempt=2).item) is Lane.RETRIES


def test_kinds_are_jobs_of_their_own() -> None:
    made = jobs([target(1), target(2, kind=ItemKind.PROBE), target(3)])
    assert [(job.kind, len(job.targets)) for job in made] == [(ItemKind.CHANGES, 2), (ItemKind.PROBE, 1)]


def test_destinations_share_a_read_only_from_the_same_frontier_to_the_same_end() -> None:
    targets = [target(0), target(1), target(2, after=4), target(3, pinned=True), target(4, pinned=True, through=8)]
    groups = groups_of(list(enumerate(targets)))
    assert [[number for number, _ in group] for group in groups] == [[0, 1], [2], [3], [4]]


def test_destinations_of_a_topic_share_a_reading_where_reading_begins_wherever_their_cursors_are() -> None:
    def of(number: int, expected: int, read: int | None) -> tuple[int, Target]:
        begin, read_at = f'{{"0":{expected}}}', None if read is None else f'{{"0":{read}}}'
        return number, target(
            number, after=expected, pinned=True, expected=expected, expected_at=begin, read_at=read_at,
            through_at='{"0":9}',
        )  # fmt: skip

    groups = groups_of([of(0, 1, 5), of(1, 5, None), of(2, 1, None), of(3, 2, 5)])
    assert [[number for number, _ in group] for group in groups] == [[0, 1, 3], [2]]
