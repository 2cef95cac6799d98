"""One destination, one transaction: what the applier does and refuses on real lakes, on each kind of catalog."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.source import carry
from services.applier.apply.source.feed import Feed
from services.applier.apply.source.reading import Reading
from services.applier.apply.transaction import DestinationApplier
from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker import spark_task, worker_state
from services.applier.worker.spark_task import run_tasks
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.config.model import Routing
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.cursor import cursor_name
from tests.fast.waiting import eventually
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig


def outcomes(progress: list[Progress]) -> list[Outcome]:
    return [each.outcome for each in progress]


def problem(progress: Progress) -> str:
    assert progress.error is not None
    assert progress.error.hint
    return progress.error.type


def test_a_seed_makes_lake_table_and_cursor_and_fills_them(rig: ApplyRig) -> None:
    assert [each.position for each in rig.run(ItemKind.PROBE)] == [-1, -1]
    assert outcomes(rig.seed()) == [Outcome.APPLIED] * 2
    assert [each.position for each in rig.run(ItemKind.PROBE)] == [rig.head] * 2
    for name in rig.destinations:
        assert rig.rows(name) == rig.expected(name)


def test_a_lake_without_a_place_for_its_files_keeps_them_beside_its_catalog(rig: ApplyRig, tmp_path: Path) -> None:
    rig.add("a", lake=ResolvedLake(f"sqlite:{tmp_path}/placeless.sqlite"))
    rig.sql("INSERT INTO src.main.t SELECT 100 + i, 'a', 'many' FROM range(2000) r(i)")
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    worker_state.forget()
    assert outcomes(rig.seed("a")) == [Outcome.ALREADY_APPLIED], "opened anew"
    assert rig.rows("a") == rig.expected("a")
    assert list((tmp_path / "placeless.sqlite.files").rglob("*.parquet"))


@EITHER_PATH
def test_an_empty_catalog_is_a_lake_that_is_still_to_be_made(rig: ApplyRig) -> None:
    """A database without a table, or an empty file, as its owner may have prepared it."""
    catalog = rig.lake("a").sqlite_file
    if catalog is not None:
        catalog.touch()
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_every_commit_says_what_it_holds(rig: ApplyRig) -> None:
    rig.seed("a")
    seeded = rig.head
    head = rig.sql("UPDATE src.main.t SET v = 'new' WHERE id = 2", "DELETE FROM src.main.t WHERE id = 4")
    rig.changes(seeded, "a")
    stamps = rig.look("a", "SELECT author, commit_extra_info FROM dst.snapshots() WHERE snapshot_id > 0 ORDER BY 1")
    assert {author for author, _ in stamps} == {"viaduck"}
    seed, change = (json.loads(extra) for _, extra in stamps)
    assert (seed["kind"], seed["after"], seed["through"], seed["inserted"]) == ("seed", -1, seeded, 10)
    assert (change["kind"], change["after"], change["through"]) == ("changes", seeded, head)
    assert (change["deleted"], change["inserted"], change["generation"]) == (2, 1, 1)
    assert seed["token"] != change["token"]


@EITHER_PATH
def test_changes_end_equal_and_a_row_that_moves_leaves_its_old_tenant(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql(
        "UPDATE src.main.t SET v = v || '!' WHERE id < 6",
        "DELETE FROM src.main.t WHERE id IN (6, 7)",
        "INSERT INTO src.main.t VALUES (100, 'a', 'x'), (101, 'b', NULL)",
        "UPDATE src.main.t SET tenant = 'b' WHERE id = 8",
        "UPDATE src.main.t SET id = 900 WHERE id = 9",
    )
    assert outcomes(rig.changes(before)) == [Outcome.APPLIED] * 2
    for name in rig.destinations:
        assert rig.rows(name) == rig.expected(name)
    assert (8, "b", "v8") in rig.rows("b")


@EITHER_PATH
def test_a_second_delivery_writes_nothing(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w' WHERE id < 4")
    again = rig.target("a", ItemKind.CHANGES, expected=before, after=before)
    assert outcomes(rig.run_targets(ItemKind.CHANGES, [again])) == [Outcome.APPLIED]
    commits = rig.commits("a")
    assert outcomes(rig.run_targets(ItemKind.CHANGES, [again])) == [Outcome.ALREADY_APPLIED]
    assert outcomes(rig.seed("a")) == [Outcome.ALREADY_APPLIED]
    assert rig.commits("a") == commits


def test_what_the_cursor_has_passed_costs_no_reading_of_the_source_where_a_look_comes_first(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.seed()
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w' WHERE id < 4")
    item = rig.target("a", ItemKind.CHANGES, expected=before, after=before)
    ahead = rig.target("a", ItemKind.CHANGES, expected=before - 1, after=before - 1)
    read: list[int] = []
    reading = Feed.read

    def counted(self: Feed, *given: Any, **more: Any) -> Any:
        read.append(1)
        return reading(self, *given, **more)

    monkeypatch.setattr(Feed, "read", counted)
    for target, outcome, reads in (
        (ahead, Outcome.GAP, 0),
        (item, Outcome.APPLIED, 1),
        (item, Outcome.ALREADY_APPLIED, 1),
    ):
        (told,) = rig.run_targets(ItemKind.CHANGES, [replace(target, looks_first=True)])
        assert (told.outcome, len(read)) == (outcome, reads)
    assert told.position == rig.head
    assert rig.rows("a") == rig.expected("a")


def test_nothing_is_written_where_nothing_changed(rig: ApplyRig) -> None:
    rig.seed()
    before, commits = rig.head, rig.commits("b")
    rig.sql("UPDATE src.main.t SET v = 'w' WHERE tenant = 'a'")
    answered = rig.changes(before, "b")
    assert outcomes(answered) == [Outcome.EMPTY]
    assert (answered[0].position, answered[0].through) == (before, rig.head)
    assert rig.commits("b") == commits


def test_an_item_of_an_older_life_is_fenced(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    late = rig.target("a", ItemKind.CHANGES, expected=before, after=before)
    rig.sql("UPDATE src.main.t SET v = 'w'")
    rig.add("a", generation=2)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    answered = rig.run_targets(ItemKind.CHANGES, [late])
    assert outcomes(answered) in ([Outcome.FENCED], [Outcome.EMPTY])
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_an_item_of_an_older_life_is_fenced_even_where_its_range_would_fit(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    late = rig.target("a", ItemKind.CHANGES, expected=seeded, after=seeded)
    rig.add("a", generation=2)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    rig.sql("UPDATE src.main.t SET v = 'w'")
    commits = rig.commits("a")
    answered = rig.run_targets(ItemKind.CHANGES, [late])
    assert (answered[0].outcome, answered[0].generation) == (Outcome.FENCED, 2)
    assert rig.commits("a") == commits


@EITHER_PATH
def test_null_is_a_key_like_any_other_and_equals_null(rig: ApplyRig) -> None:
    rig.sql("INSERT INTO src.main.t VALUES (NULL, 'a', 'nothing'), (NULL, 'b', 'nothing')")
    rig.seed()
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'something' WHERE id IS NULL AND tenant = 'a'",
            "DELETE FROM src.main.t WHERE id IS NULL AND tenant = 'b'")  # fmt: skip
    assert outcomes(rig.changes(before)) == [Outcome.APPLIED] * 2
    for name in rig.destinations:
        assert rig.rows(name) == rig.expected(name)


@EITHER_PATH
def test_a_reinserted_key_and_one_that_came_and_went_end_as_they_are(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql(
        "DELETE FROM src.main.t WHERE id = 2",
        "INSERT INTO src.main.t VALUES (2, 'a', 'again'), (50, 'a', 'short')",
        "UPDATE src.main.t SET v = v || '!' WHERE id IN (2, 50)",
        "DELETE FROM src.main.t WHERE id = 50",
    )
    assert outcomes(rig.changes(before, "a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_changes_that_begin_elsewhere_are_a_gap_and_tell_the_position(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w'", "UPDATE src.main.t SET v = 'x'")
    answered = rig.changes(seeded + 1, "a")
    assert (answered[0].outcome, answered[0].position) == (Outcome.GAP, seeded)


def test_a_cursor_that_is_gone_parks_its_destination_and_nothing_is_seeded_over_what_is_there(rig: ApplyRig) -> None:
    rig.seed()
    seeded, rows = rig.head, rig.rows("a")
    rig.sql("UPDATE src.main.t SET v = 'w'")
    cursor = cursor_name("p", "a")
    rig.write("a", f'DROP TABLE dst._viaduck."{cursor}"')
    for kind in (ItemKind.CHANGES, ItemKind.ADVANCE):
        (gone,) = rig.run(kind, "a", expected=seeded, after=seeded)
        assert (gone.outcome, problem(gone)) == (Outcome.PARKED, "cursor_damaged")
    (again,) = rig.seed("a")
    assert (again.outcome, problem(again)) == (Outcome.PARKED, "table_not_empty")
    assert rig.rows("a") == rows


def test_an_advance_moves_the_position_and_no_row(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    head = rig.sql("CREATE TABLE src.main.other (x INTEGER)", "INSERT INTO src.main.other VALUES (1)")
    answered = rig.run(ItemKind.ADVANCE, "a", expected=seeded, after=head, through=head)
    assert (answered[0].outcome, answered[0].position) == (Outcome.APPLIED, head)
    assert rig.rows("a") == rig.expected("a")
    said = rig.look("a", "SELECT commit_message FROM dst.snapshots() ORDER BY snapshot_id DESC LIMIT 1")
    assert said == [(f"advance to {head} of p: 0 rows out, 0 rows in",)]


def test_an_advance_to_where_the_position_is_commits_nothing(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.look("a", "SELECT count(*) FROM dst.snapshots()")
    (answered,) = rig.run(ItemKind.ADVANCE, "a", expected=rig.head, after=rig.head, through=rig.head)
    assert (answered.outcome, answered.position) == (Outcome.ALREADY_APPLIED, rig.head)
    assert rig.look("a", "SELECT count(*) FROM dst.snapshots()") == before


@EITHER_PATH
def test_a_reseed_replaces_rows_and_columns(rig: ApplyRig) -> None:
    rig.seed()
    rig.write("a", "DELETE FROM dst.main.t", "INSERT INTO dst.main.t VALUES (5, 'a', 'not ours')")
    rig.sql("ALTER TABLE src.main.t RENAME COLUMN v TO w")
    rig.add("a", generation=2, replace=True)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_an_item_whose_end_was_expired_is_to_be_planned_again(rig: ApplyRig) -> None:
    """Its rows are no matter of it any more; the reader knows what there is now."""
    rig.seed("a")
    seeded = rig.head
    end = rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    rig.sql("INSERT INTO src.main.t VALUES (1000, 'b', 'fine')")
    rig.sql("CALL ducklake_expire_snapshots('src', older_than => now())")
    late = [
        *rig.run(ItemKind.ADVANCE, "a", expected=seeded, after=seeded, through=end),
        *rig.run(ItemKind.SEED, "b", through=end, pinned=True),
    ]
    assert [(each.outcome, problem(each)) for each in late] == [(Outcome.FAILED, "source_behind")] * 2
    assert all(f"no longer keeps snapshot {end}" in str(each.error) for each in late)
    assert outcomes(rig.run(ItemKind.ADVANCE, "a", expected=seeded, after=seeded)) == [Outcome.APPLIED]


def test_a_pinned_range_that_changed_rows_is_read_at_the_head_with_what_followed(rig: ApplyRig) -> None:
    """Whether a range only appended is judged by all that touched the table in it, whatever the item's end was."""
    rig.seed("a")
    before = rig.head
    end = rig.sql("UPDATE src.main.t SET v = 'changed' WHERE id = 1")
    rig.sql("DELETE FROM src.main.t WHERE id = 2", "INSERT INTO src.main.t VALUES (1000, 'a', 'new')")
    answers = rig.run(ItemKind.CHANGES, "a", expected=before, after=before, through=end, pinned=True)
    assert [(each.outcome, each.position) for each in answers] == [(Outcome.APPLIED, rig.head)]
    assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
def test_a_later_life_replaces_the_rows_of_the_one_before(rig: ApplyRig) -> None:
    rig.seed()
    rig.sql("DELETE FROM src.main.t WHERE id < 4", "UPDATE src.main.t SET v = 'w'")
    rig.add("a", generation=2)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_rows_of_others_are_refused_and_only_replaced_on_request(rig: ApplyRig) -> None:
    rig.write("a", "CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
              "INSERT INTO dst.main.t VALUES (1, 'mine', 'precious')")  # fmt: skip
    refused = rig.seed("a", "b")
    assert (refused[0].outcome, problem(refused[0])) == (Outcome.PARKED, "table_not_empty")
    assert refused[1].outcome is Outcome.APPLIED
    assert rig.rows("a") == [(1, "mine", "precious")]
    rig.add("a", replace=True)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_an_empty_table_of_the_same_columns_is_adopted(rig: ApplyRig) -> None:
    rig.write("a", "CREATE TABLE dst.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize("columns", ["id BIGINT, tenant VARCHAR, v INTEGER", "id BIGINT, tenant VARCHAR, w VARCHAR",
                                     "tenant VARCHAR, id BIGINT, v VARCHAR", "id BIGINT, tenant VARCHAR",
                                     "id BIGINT, tenant VARCHAR, v VARCHAR, more INTEGER"])  # fmt: skip
def test_a_table_of_other_columns_parks_its_destination_alone(make_rig: MakeRig, columns: str) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    rig.add("a")
    rig.add("b")
    rig.write("a", f"CREATE TABLE dst.main.t ({columns})")
    refused = rig.seed()
    assert (refused[0].outcome, problem(refused[0])) == (Outcome.PARKED, "table_mismatch")
    assert refused[1].outcome is Outcome.APPLIED


def test_an_added_column_arrives_with_the_next_changes_and_its_default_for_older_rows(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql("ALTER TABLE src.main.t ADD COLUMN size INTEGER DEFAULT 7", "UPDATE src.main.t SET v = 'w' WHERE id < 2")
    assert outcomes(rig.changes(before)) == [Outcome.APPLIED] * 2
    for name in rig.destinations:
        assert rig.rows(name) == rig.expected(name)


def test_a_key_that_names_two_rows_parks_that_tenant_and_shows_the_key(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql("INSERT INTO src.main.t VALUES (4, 'a', 'second'), (5, 'b', 'fine?')",
            "DELETE FROM src.main.t WHERE id = 5", "INSERT INTO src.main.t VALUES (5, 'b', 'alone')")  # fmt: skip
    answered = rig.changes(before)
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "key_not_unique")
    assert answered[0].error is not None
    assert "(4)" in answered[0].error.message
    assert answered[1].outcome is Outcome.APPLIED


def test_a_second_row_for_a_key_is_noticed_even_where_the_range_only_inserted(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql("INSERT INTO src.main.t VALUES (4, 'a', 'second'), (1000, 'b', 'fine')")
    answered = rig.changes(before)
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "key_not_unique")
    assert answered[1].outcome is Outcome.APPLIED


def test_history_that_was_expired_parks_with_the_oldest_snapshot(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w'", "UPDATE src.main.t SET v = 'x'")
    rig.sql("CALL ducklake_expire_snapshots('src', older_than => now())")
    answered = rig.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "history_expired")
    rig.add("a", generation=2, replace=True)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_a_table_that_was_dropped_and_created_again_parks(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    rig.sql("DROP TABLE src.main.t", "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
            "INSERT INTO src.main.t VALUES (1, 'a', 'another life')")  # fmt: skip
    answered = rig.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "source_recreated")
    assert problem(rig.run(ItemKind.PROBE, "b")[0]) == "source_recreated", "a quiet destination is found too"


def test_a_cursor_of_another_routing_value_parks(rig: ApplyRig) -> None:
    rig.seed()
    seeded = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w'")
    rig.add("a", routing_value="b")
    answered = rig.changes(seeded, "a")
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "routing_value_changed")


def test_a_cursor_table_with_two_rows_parks(rig: ApplyRig) -> None:
    rig.seed()
    table = rig.look("a", "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_viaduck'")[0][0]
    rig.write("a", f"INSERT INTO dst._viaduck.{table} SELECT * FROM dst._viaduck.{table}")
    assert problem(rig.run(ItemKind.PROBE, "a")[0]) == "cursor_damaged"


def test_a_transaction_past_its_deadline_is_rolled_back(make_rig: MakeRig) -> None:
    rig = make_rig(limits=Limits(deadline_s=0.0, seed_deadline_s=0.0))
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    rig.add("a")
    answered = rig.seed()
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.FAILED, "deadline_exceeded")
    assert rig.commits("a") == 0


@EITHER_PATH
def test_two_appliers_on_one_range_apply_it_once(rig: ApplyRig) -> None:
    rig.seed()
    before, commits = rig.head, rig.commits("a")
    rig.sql("UPDATE src.main.t SET v = v || '+'")
    start = threading.Barrier(3, timeout=60)

    def rival(reading: tuple[DestinationApplier, DestinationChange]) -> Applied:
        applier, change = reading
        start.wait()
        return applier.apply(change)

    with ExitStack() as readings, ThreadPoolExecutor(3) as threads:
        ready = [readings.enter_context(_Reading(rig, "a", before)) for _ in range(3)]
        answered = list(threads.map(rival, ready))
    assert sorted(applied.outcome for applied in answered) == ["already_applied", "already_applied", "applied"]
    assert rig.commits("a") == commits + 1
    assert rig.rows("a") == rig.expected("a")


def test_a_lost_acknowledgement_is_resolved_by_the_token(rig: ApplyRig) -> None:
    rig.seed()
    before, commits = rig.head, rig.commits("a")
    rig.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(rig, "a", before, lose="acknowledgement") as (applier, change):
        assert applier.apply(change).outcome is Outcome.APPLIED
    assert rig.commits("a") == commits + 1
    assert rig.rows("a") == rig.expected("a")


def test_a_commit_that_never_arrived_is_tried_again(rig: ApplyRig) -> None:
    rig.seed()
    before, commits = rig.head, rig.commits("a")
    rig.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(rig, "a", before, lose="commit") as (applier, change):
        with pytest.raises(ViaduckError) as caught:
            applier.apply(change)
        assert caught.value.type == "commit_unknown"
    assert rig.commits("a") == commits
    assert outcomes(rig.changes(before, "a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def test_a_destination_whose_committed_files_are_gone_is_found_damaged(rig: ApplyRig) -> None:
    rig.seed()
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(rig, "a", before, lose="files") as (applier, change):
        with pytest.raises(ViaduckError) as caught:
            applier.apply(change)
        assert caught.value.type == "destination_damaged"
    # Whoever comes later, without knowing of the lost acknowledgement, finds it too.
    again = rig.changes(before, "a")
    assert (again[0].outcome, problem(again[0])) == (Outcome.PARKED, "destination_damaged")
    rig.add("a", generation=2, replace=True)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize(
    ("asked", "commit"),
    [("a probe", "auto"), ("a gap", "auto"), ("changes that go on", "auto"), ("a seed", "extension")],
)
def test_damage_that_its_finder_did_not_live_to_tell_is_found_by_whoever_asks_next(rig: ApplyRig, asked: str) -> None:
    """H7, and the applier dies before it has looked: the next answer must not bury the loss under a new position.

    A seed by the extension reads the table.
    """
    before, damaged = damaged_unheard(rig)
    if asked == "a seed":
        rig.add("a", generation=2)
    answered = {
        "a probe": lambda: rig.run(ItemKind.PROBE, "a"),
        "a gap": lambda: rig.changes(before, "a"),
        "changes that go on": lambda: rig.changes(damaged, "a"),
        "a seed": lambda: rig.seed("a"),
    }[asked]()
    assert (answered[0].outcome, problem(answered[0])) == (Outcome.PARKED, "destination_damaged")


def test_a_direct_seed_leaves_nothing_of_such_damage(rig: ApplyRig) -> None:
    """It reads no file of the life before."""
    damaged_unheard(rig)
    rig.add("a", generation=2)
    assert outcomes(rig.seed("a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


def damaged_unheard(rig: ApplyRig) -> tuple[int, int]:
    """The positions before and after a commit to ``a`` whose files are lost, and a change after that."""
    rig.seed()
    before = rig.head
    damaged = rig.sql("UPDATE src.main.t SET v = 'w'")
    with _Reading(rig, "a", before, lose="files") as (applier, change), pytest.raises(ViaduckError):
        applier.apply(change)
    rig.sql("UPDATE src.main.t SET v = 'x'")
    return before, damaged


class _Reading:
    """A range read for one destination, and an applier of its own.

    One that may ``lose`` what it sends or hears commits by the extension, as H7 concerns that alone.
    """

    def __init__(self, rig: ApplyRig, name: str, after: int, lose: str = "") -> None:
        self._rig, self._name, self._after, self._lose = rig, name, after, lose

    def __enter__(self) -> tuple[DestinationApplier, DestinationChange]:
        rig = self._rig
        folder = rig.folder / f"{self._name}-data"
        self._pool = _FlakyPool(self._lose, lambda: delete_all(folder))
        target = rig.target(self._name, ItemKind.CHANGES, expected=self._after, after=self._after)
        with self._pool.use(rig.source, read_only=True) as lake:
            reading = Feed(lake.cursor(), lake, SourceTable(rig.source, "main", "t", rig.routing)).read(
                ItemKind.CHANGES, [(0, target)]
            )
        self._applier = DestinationApplier(self._pool, Limits(commit="extension" if self._lose else "auto"))
        return self._applier, DestinationChange(target, reading.through, reading.table, 0, reading, reading.counts[0])

    def __exit__(self, *_: object) -> None:
        self._applier.close()
        self._pool.close()


def delete_all(folder: Path) -> None:
    for file in folder.rglob("*.parquet"):
        file.unlink()


class _FlakyPool(LakePool):
    """Whose lakes that are written to lose a COMMIT between them."""

    def __init__(self, lose: str, delete_files: Callable[[], None]) -> None:
        super().__init__(10)
        self._lose, self._delete_files = [lose] if lose else [], delete_files

    @contextmanager
    def use(
        self, lake: ResolvedLake, *, read_only: bool, create: bool = False, sure: bool = True
    ) -> Iterator[OpenLake]:
        with super().use(lake, read_only=read_only, create=create, sure=sure) as entry:
            con: object = entry.con
            if not read_only and not isinstance(con, _Flaky):
                entry.con = _Flaky(entry.con, self._lose, self._delete_files)  # type: ignore[assignment]
            yield entry


class _Flaky:
    """A DuckDB connection whose first COMMIT goes wrong the way a network makes it go wrong."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lose: list[str], delete_files: Callable[[], None]) -> None:
        self._con, self._lose, self._delete_files = con, lose, delete_files

    def cursor(self) -> _Flaky:
        return _Flaky(self._con.cursor(), self._lose, self._delete_files)

    def register(self, name: str, given: object) -> None:
        self._con.register(name, given)

    def unregister(self, name: str) -> None:
        self._con.unregister(name)

    def close(self) -> None:
        self._con.close()

    def execute(self, sql: str, *values: object) -> duckdb.DuckDBPyConnection:
        if sql != "COMMIT" or not self._lose:
            return self._con.execute(sql, *values)
        lost = self._lose.pop()
        self._con.execute("ROLLBACK" if lost == "commit" else "COMMIT")
        if lost == "files":
            self._delete_files()
        raise duckdb.IOException('Failed to execute query "COMMIT": server closed the connection unexpectedly')


def soon_left(stall_s: float, threads: int = Limits.threads) -> Limits:
    """Limits by which an apply is left behind soon, also where other threads of the tests' process move bytes."""
    return Limits(threads=threads, stall_s=stall_s, deadline_s=30.0, seed_deadline_s=30.0)


def test_a_destination_that_stalls_does_not_hold_up_the_others(make_rig: MakeRig) -> None:
    rig = make_rig(limits=soon_left(4.0))
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 'a', 'x')"
    )
    rig.add("a")
    with _Deaf() as port:
        rig.add(
            "deaf",
            lake=ResolvedLake(
                f"postgres:host=127.0.0.1 port={port} dbname=x user=x connect_timeout=600", None, "/nowhere"
            ),
        )
        answered = rig.seed()
    assert answered[0].outcome is Outcome.APPLIED
    assert (answered[1].outcome, problem(answered[1])) == (Outcome.FAILED, "destination_unreachable")
    assert answered[1].error is not None
    waited = re.match(r"seed of p/deaf has been running for (\d+) s, and its lake", answered[1].error.message)
    assert waited is not None
    assert int(waited[1]) >= 4
    assert "pg_locks" in answered[1].error.hint


def test_more_that_stall_than_a_worker_has_threads_hold_up_nobody(make_rig: MakeRig) -> None:
    rig = make_rig(limits=soon_left(8.0, threads=2))
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    with _Deaf() as port:
        for number in range(3):
            lake = ResolvedLake(f"postgres:host=127.0.0.1 port={port} dbname=x{number} user=x", None, "/nowhere")
            rig.add(f"deaf-{number}", lake=lake)
        for name in "abcde":
            rig.add(name)
        answered = rig.seed()
    assert outcomes(answered) == [Outcome.FAILED] * 3 + [Outcome.APPLIED] * 5


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_lock_on_one_catalog_is_told_and_holds_up_nobody_else(make_rig: MakeRig) -> None:
    """Not even the next task in the same process: DuckDB would not close what somebody still waits in."""
    rig = make_rig(limits=soon_left(6.0))
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    rig.add("locked")
    rig.add("other")
    rig.seed()
    first = rig.head
    rig.sql("INSERT INTO src.main.t VALUES (1, 'locked', 'x'), (2, 'other', 'x')")
    with psycopg.connect(rig.lake("locked").catalog.removeprefix("postgres:")) as con, con.transaction():
        con.execute("LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE")
        answered = rig.changes(first)
        assert (answered[0].outcome, problem(answered[0])) == (Outcome.FAILED, "destination_unreachable")
        assert answered[1].outcome is Outcome.APPLIED
        second = rig.head
        rig.sql("INSERT INTO src.main.t VALUES (3, 'other', 'x')")
        later: list[Progress] = []
        going_on = threading.Thread(target=lambda: later.extend(rig.changes(second, "other")))
        going_on.start()
        going_on.join(60.0)
        went_on = outcomes(later)
    going_on.join()
    assert went_on == [Outcome.APPLIED], "while the lock was held"
    assert rig.changes(first, "locked")[0].outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    for name in rig.destinations:
        assert rig.rows(name) == rig.expected(name)


def test_a_process_goes_on_with_few_stuck_in_it_for_good_and_is_not_used_again_with_many(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends a Python worker that leaves its input unread, and with it what nothing else can end: all its lakes."""
    monkeypatch.setattr(spark_task, "MOST_STUCK", 1)
    eventually(lambda: worker_state.count_stuck() == 0)  # of the tests before
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    rig.add("a")
    source = SourceTable(rig.source, "main", "t", rig.routing)
    read_to_the_end: list[str] = []

    def one_task(name: str, limits: Limits) -> Iterator[Task]:
        yield Task(ItemKind.SEED, source, (rig.target(name, ItemKind.SEED),), limits)
        read_to_the_end.append(name)

    with _Deaf() as port:
        words = f"postgres:host=127.0.0.1 port={port} dbname=x user=x connect_timeout=600"
        impatient = Limits(stall_s=2.0, deadline_s=1.0, seed_deadline_s=1.0, commit="extension")
        ended = list(run_tasks(one_task("a", impatient)))
        for name in ("deaf", "deaf2"):
            rig.add(name, lake=ResolvedLake(f"{words} application_name={name[-1]}", None, "/nowhere"))
            ended += run_tasks(one_task(name, impatient))
            has_a_open = worker_state.worker(impatient).pool.has_open(rig.lake("a"))
            assert has_a_open, "who is left behind costs its own lake only"
    assert outcomes([each.results[0].progress for each in ended]) == [Outcome.APPLIED, Outcome.FAILED, Outcome.FAILED]
    assert read_to_the_end == ["a", "deaf"]


class _Deaf:
    """A server that accepts connections and never says a word."""

    def __enter__(self) -> int:
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        return int(self._socket.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.parametrize("kind", [ItemKind.PROBE, ItemKind.SEED, ItemKind.CHANGES])
@pytest.mark.parametrize("breaks", [False, True], ids=["goes", "breaks"])
def test_a_source_whose_catalog_goes_or_breaks_parks_nobody(
    rig: ApplyRig, tmp_path: Path, kind: ItemKind, breaks: bool
) -> None:
    """It is tried again by itself: no destination is to blame, and nobody should have to resume a thousand of them."""
    catalog = tmp_path / "broken.sqlite"
    if breaks:
        catalog.write_bytes(b"no database" * 500)
    if kind is not ItemKind.SEED:
        rig.seed("a")
    source = SourceTable(ResolvedLake(f"sqlite:{catalog}"), "main", "t", rig.routing)
    expected = {} if kind is ItemKind.SEED else {"expected": rig.head, "after": rig.head}
    (result,) = run_task(Task(kind, source, (rig.target("a", kind, **expected),), rig.limits)).results
    assert (result.progress.outcome, problem(result.progress)) == (Outcome.FAILED, "source_unreachable")


def test_a_source_that_was_flushed_after_it_got_a_column_is_read_at_once(rig: ApplyRig) -> None:
    """H12: the flush drops a table that the lake, attached since before, still means to read."""
    rig.seed()
    for statements in (
        ("INSERT INTO src.main.t VALUES (50, 'a', 'inlined')",),
        (
            "ALTER TABLE src.main.t ADD COLUMN extra INTEGER DEFAULT 5",
            "INSERT INTO src.main.t VALUES (51, 'a', 'x', 6)",
        ),
        ("CALL ducklake_flush_inlined_data('src')", "INSERT INTO src.main.t VALUES (52, 'a', 'y', 7)"),
    ):
        before = rig.head
        rig.sql(*statements)
        assert outcomes(rig.changes(before, "a")) == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")


class TestAppendOnly:
    """A pipeline without key columns: every inserted row once, and nothing that maintenance shows."""

    @staticmethod
    def rig(make_rig: MakeRig, **routing: str) -> ApplyRig:
        rig = make_rig(routing=Routing.model_validate({"field": "tenant", "key_columns": ()} | routing))
        rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
                "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(20) r(i)")  # fmt: skip
        rig.add("a")
        rig.seed()
        return rig

    def test_inserted_rows_are_appended_once_equal_ones_too(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("INSERT INTO src.main.t VALUES (1, 'a', 'v'), (1, 'a', 'v')")
        item = rig.target("a", ItemKind.CHANGES, expected=before, after=before, pinned=True)
        assert outcomes(rig.run_targets(ItemKind.CHANGES, [item])) == [Outcome.APPLIED]
        assert outcomes(rig.run_targets(ItemKind.CHANGES, [item])) == [Outcome.ALREADY_APPLIED]
        assert rig.rows("a") == rig.expected("a")

    def test_compaction_appends_nothing(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("DELETE FROM src.main.t WHERE id < 15", "CALL ducklake_flush_inlined_data('src')",
                "CALL ducklake_rewrite_data_files('src', 't', delete_threshold => 0)",
                "INSERT INTO src.main.t VALUES (99, 'a', 'new')",
                "CALL ducklake_merge_adjacent_files('src', 't')")  # fmt: skip
        answered = rig.changes(before, "a", pinned=True)
        assert (answered[0].outcome, answered[0].inserted) == (Outcome.APPLIED, 1)

    def test_what_may_be_an_update_parks(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("UPDATE src.main.t SET v = 'w' WHERE id = 3")
        assert problem(rig.changes(before, "a", pinned=True)[0]) == "update_in_append_only"

    @pytest.mark.parametrize(
        "second", ["UPDATE src.main.t SET v = 'w' WHERE id = 50", "DELETE FROM src.main.t WHERE id = 50"]
    )
    def test_so_does_a_transaction_that_takes_back_what_it_inserted(self, make_rig: MakeRig, second: str) -> None:
        """DuckLake marks it as a plain insert, and its feed shows rows that nobody ever saw."""
        rig = self.rig(make_rig)
        rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
        before = rig.head
        rig.sql("BEGIN", "INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(50, 55) r(i)", second, "COMMIT")
        assert problem(rig.changes(before, "a", pinned=True)[0]) == "update_in_append_only"

    def test_flushed_rows_that_were_deleted_later_are_none_of_that(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(50, 55) r(i)",
                "DELETE FROM src.main.t WHERE id = 50", "CALL ducklake_flush_inlined_data('src')")  # fmt: skip
        assert rig.changes(before, "a", pinned=True)[0].inserted == 5

    def test_an_update_is_appended_on_request(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig, on_update="append")
        before = rig.head
        rig.sql("UPDATE src.main.t SET v = 'w' WHERE id = 3")
        assert rig.changes(before, "a", pinned=True)[0].inserted == 1
        assert (3, "a", "v") in rig.rows("a")
        assert (3, "a", "w") in rig.rows("a")

    def test_a_delete_is_ignored_or_parks(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("DELETE FROM src.main.t WHERE id = 3")
        assert outcomes(rig.changes(before, "a", pinned=True)) == [Outcome.EMPTY]
        rig.routing = rig.routing.model_copy(update={"on_delete": "park"})
        assert problem(rig.changes(before, "a", pinned=True)[0]) == "delete_in_append_only"

    def test_a_column_that_comes_later_shows_its_default_in_earlier_rows(self, make_rig: MakeRig) -> None:
        rig = self.rig(make_rig)
        before = rig.head
        rig.sql("INSERT INTO src.main.t VALUES (50, 'a', 'before')", "CALL ducklake_merge_adjacent_files('src', 't')",
                "ALTER TABLE src.main.t ADD COLUMN size INTEGER DEFAULT 7",
                "INSERT INTO src.main.t VALUES (51, 'a', 'after', 1)")  # fmt: skip
        assert outcomes(rig.changes(before, "a", pinned=True)) == [Outcome.APPLIED]
        assert rig.rows("a") == rig.expected("a")


@EITHER_PATH
@pytest.mark.parametrize("table", ["rows", "touched"])
def test_what_is_lost_on_its_way_into_a_destination_is_never_committed(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """As where another instance wrote over a temporary file: what was counted is not what came."""
    rig.seed("a")
    position, before = rig.head, rig.rows("a")
    rig.sql("UPDATE src.main.t SET v = 'new' WHERE id < 6")
    whole = carry._asking

    def cut(reading: Reading, query: str) -> Any:
        return whole(reading, f"{query} LIMIT 1" if reading.memory(table) in query else query)

    with monkeypatch.context() as patched:
        patched.setattr(carry, "_asking", cut)
        (answer,) = rig.changes(position, "a")
    assert answer.outcome is Outcome.FAILED
    assert answer.error is not None
    assert (answer.error.type, "1 of 3" in answer.error.message) == ("internal", True)
    assert rig.rows("a") == before
    assert [each.outcome for each in rig.changes(position, "a")] == [Outcome.APPLIED]
    assert rig.rows("a") == rig.expected("a")
