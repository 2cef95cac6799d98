"""What the reader sees of a real source lake."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from services.reader.planner.counted_changes import CountedStep
from services.reader.source import row_counter
from services.reader.source.lake_source import LakeSource
from services.reader.source.row_counter import MOST_UNROUTED, OLD_FILE_WITHIN_S
from services.reader.source.source_reader import Expired
from shared.config.catalogs import ResolvedLake
from shared.contracts.digest import value_digest
from shared.contracts.errors import SourceError
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.ranges import Range
from shared.contracts.reports import LONGEST_OFFERED, MOST_OFFERED
from shared.lake.changes.changed_rows import RowsByFiles
from tests.fast.reader.lakes import COLUMNS, Lake, config
from tests.lake.backup import Backup
from tests.lake.other_program import rewrite

MakeSource = Callable[..., LakeSource]
SOURCE = {"catalog": "sqlite:of-the-fixture.sqlite"}


@pytest.fixture
def open_source(tmp_path: Path, lake: Lake) -> Iterator[MakeSource]:
    with ExitStack() as closing:

        def make(**sections: object) -> LakeSource:
            source = LakeSource(config(tmp_path, **sections), lake.lake)  # type: ignore[arg-type]
            closing.callback(source.close)
            return source

        yield make


def counted(source: LakeSource, range: Range, routed: tuple[str, ...] = ()) -> list[CountedStep]:
    source.observe(source.head())
    return [source.count(cut, routed) for cut in source.cuts(range)]


def test_rows_are_counted_by_routing_value_in_one_pass(lake: Lake, open_source: MakeSource) -> None:
    before = lake.head
    lake.insert("a", 0, 20)
    lake.insert("b", 100, 3)
    head = lake.insert(None, 200, 2)
    (step,) = counted(open_source(), Range(before, head), routed=("a",))
    assert step.rows == {"a": 20, "b": 3}
    assert (step.total, step.unrouted, step.pinned) == (25, 5, False)
    assert step.oldest_touch is not None


@pytest.mark.slow
def test_a_store_that_is_silent_is_not_waited_for_to_size_seeds_or_to_list_values(lake: Lake, tmp_path: Path) -> None:
    """Nobody's changes were counted for two minutes, each time that a tenant waited for its seed."""
    lake.insert("a", 0, 20_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = LakeSource(config(tmp_path), moved(tmp_path, silent.getsockname()[1]))
        try:
            source.observe(source.head())
            for ask in (source.sizes, lambda: source.unknown([])):
                began_s = time.monotonic()
                with pytest.raises(SourceError):
                    ask()
                assert time.monotonic() - began_s < 3 * OLD_FILE_WITHIN_S
        finally:
            source.close()


def moved(folder: Path, port: int) -> ResolvedLake:
    """The lake, whose files are on S3 from now on."""
    with closing(sqlite3.connect(folder / "source.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE ducklake_metadata SET value = 's3://bucket/' WHERE key = 'data_path'")
    keys = {"s3_endpoint": f"127.0.0.1:{port}", "s3_use_ssl": "false", "s3_url_style": "path",
            "s3_access_key_id": "id", "s3_secret_access_key": "secret"}  # fmt: skip
    return ResolvedLake(f"sqlite:{folder}/source.sqlite", None, "s3://bucket/", properties=keys)


def test_a_flood_of_long_values_of_nobody_takes_little_memory_and_hides_no_row_of_a_destination(
    lake: Lake, open_source: MakeSource
) -> None:
    """A commit with a million values of a thousand characters took 1.5 GB."""
    before, many = lake.head, 3 * MOST_UNROUTED // 1_000
    lake.insert("a", 0, 20)
    lake.insert("zoe", 100, 3)
    head = lake.sql(f"INSERT INTO lake.t SELECT 1000 + i, repeat('x', 990) || (1000 + i), 'v' FROM range({many}) r(i)")
    source = open_source()
    (step,) = counted(source, Range(before, head), routed=("a", "zoe"))
    assert (step.rows["a"], step.rows["zoe"], step.total, step.unrouted) == (20, 3, 23 + many, many)
    assert step.is_partial
    assert MOST_UNROUTED / 2 < sum(map(len, step.rows)) <= MOST_UNROUTED
    assert source.sizes() is None
    (small,) = counted(source, Range(before, before + 2), routed=())
    assert (small.rows, small.is_partial) == ({"a": 20, "zoe": 3}, False)


def test_updates_deletes_and_moved_rows_touch_old_and_new_tenant(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    lake.sql("UPDATE lake.t SET tenant = 'b' WHERE id = 1")
    head = lake.sql("DELETE FROM lake.t WHERE id = 2")
    (step,) = counted(open_source(), Range(before, head))
    assert step.rows.keys() == {"a", "b"}


def test_an_updated_row_of_nobody_is_one_unrouted_row(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("nobody", 0, 20)
    head = lake.sql("UPDATE lake.t SET v = 'w' WHERE id < 15")
    (step,) = counted(open_source(), Range(before, head), routed=("a",))
    assert step.rows == {"nobody": 30}
    assert step.unrouted == 15


def test_commits_to_other_tables_and_maintenance_touch_nobody(lake: Lake, open_source: MakeSource) -> None:
    lake.insert("a", 0, 20)
    before = lake.insert("a", 50, 20)
    lake.sql("CREATE TABLE lake.other (i INTEGER)", "INSERT INTO lake.other VALUES (1)")
    head = lake.sql("CALL ducklake_merge_adjacent_files('lake')")
    (step,) = counted(open_source(), Range(before, head))
    assert (step.rows, step.oldest_touch) == ({}, None)
    assert step.range == Range(before, head)


def test_a_rewrite_adds_no_rows_to_a_pipeline_without_keys(lake: Lake, open_source: MakeSource) -> None:
    """H5: the feed of a rewrite shows every surviving row as inserted."""
    lake.insert("a", 0, 100)
    before = lake.sql("DELETE FROM lake.t WHERE id < 98")
    lake.sql("CALL ducklake_rewrite_data_files('lake')")
    head = lake.insert("b", 200, 15)
    steps = counted(open_source(keys=()), Range(before, head))
    assert {value: rows for step in steps for value, rows in step.rows.items()} == {"b": 15}


def test_a_pipeline_without_keys_counts_no_deletes_and_pins_everything(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    head = lake.sql("DELETE FROM lake.t WHERE id < 15")
    (step,) = counted(open_source(keys=()), Range(before, head))
    assert (step.rows, step.pinned) == ({}, True)


@pytest.mark.parametrize("keys", [("id",), ()])
def test_a_long_history_that_only_appended_is_cut_at_snapshots(
    lake: Lake, open_source: MakeSource, keys: tuple[str, ...]
) -> None:
    before = lake.head
    snapshots = [lake.insert("ab"[number % 2], 1000 * number, 40) for number in range(5)]
    steps = counted(open_source(keys=keys, reader={"segment_rows": 80}), Range(before, snapshots[-1]))
    assert [step.range for step in steps] == [
        Range(before, snapshots[1]),
        Range(snapshots[1], snapshots[3]),
        Range(snapshots[3], snapshots[4]),
    ]
    assert [dict(step.rows) for step in steps] == [{"a": 40, "b": 40}, {"a": 40, "b": 40}, {"a": 40}]
    assert all(step.pinned for step in steps)


def test_a_history_with_deletes_is_one_step_to_the_head(lake: Lake, open_source: MakeSource) -> None:
    before = lake.head
    for number in range(4):
        lake.insert("a", 1000 * number, 40)
    head = lake.sql("DELETE FROM lake.t WHERE id < 20")
    (step,) = counted(open_source(reader={"segment_rows": 80}), Range(before, head))
    assert (step.range, step.pinned, step.rows) == (Range(before, head), False, {"a": 180})


def test_inlined_rows_count_like_others(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 5)
    head = lake.sql("DELETE FROM lake.t WHERE id = 1", "INSERT INTO lake.t VALUES (9, 'b', 'v')")
    (step,) = counted(open_source(), Range(before, head))
    assert step.rows == {"a": 1, "b": 1}


def test_routing_values_come_in_the_spelling_of_their_type(lake: Lake, open_source: MakeSource) -> None:
    spellings = {
        "INTEGER": ("7", "7"),
        "BOOLEAN": ("true", "true"),
        "DATE": ("DATE '2026-02-03'", "2026-02-03"),
        "DECIMAL(9, 2)": ("1.5", "1.50"),
        "UUID": ("'00000000-0000-0000-0000-00000000000A'", "00000000-0000-0000-0000-00000000000a"),
        "VARCHAR": ("'Füße \"x\" ''y'''", "Füße \"x\" 'y'"),
    }
    for number, (declared, (value, text)) in enumerate(spellings.items()):
        before = lake.sql(f'CREATE TABLE lake."T {number}" (id BIGINT, "Route ""it" {declared})')
        head = lake.sql(f'INSERT INTO lake."T {number}" VALUES (1, {value})')
        routing = {"field": 'route "IT', "key_columns": ("id",)}
        (step,) = counted(open_source(source={**SOURCE, "table": f"T {number}"}, routing=routing), Range(before, head))
        assert step.rows == {text: 1}, declared


def test_the_sight_tells_identity_birth_and_what_is_retained(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    born = lake.head
    lake.insert("a", 0, 20)
    lake.insert("a", 50, 20)
    head = lake.insert("a", 100, 20)
    before = source.observe(source.head())
    assert (before.head, before.oldest, before.born, before.first) == (head, 0, born, born)
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{', '.join(map(str, range(head - 1)))}])")
    after = source.observe(source.head())
    assert (after.head, after.oldest, after.first) == (head, head - 1, head - 1)
    assert (after.lake, after.table) == (before.lake, before.table)


def test_a_table_that_was_created_again_is_another_one(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    before = source.observe(source.head())
    lake.sql("DROP TABLE lake.t")
    with pytest.raises(SourceError, match=r"no table main\.t") as gone:
        source.observe(source.head())
    assert gone.value.type == "source_gone"
    born = lake.sql(f"CREATE TABLE lake.t ({COLUMNS})")
    after = source.observe(source.head())
    assert after.table != before.table
    assert (after.born, after.lake) == (born, before.lake)


def test_a_history_that_was_undone_is_told_also_where_it_has_grown_past_what_was_seen(
    lake: Lake, open_source: MakeSource
) -> None:
    source = open_source()
    lake.insert("a", 0, 20)
    backup = Backup(lake.con, "lake", lake.lake)
    lake.insert("a", 20, 20)
    before = source.observe(source.head())
    backup.restore()
    lake.insert("b", 20, 20)
    same = source.observe(source.head())
    assert (same.head, same.history) == (before.head, before.history + 1)
    assert same.at != before.at
    lake.insert("b", 40, 20)
    assert source.observe(source.head()).history == same.history, "it was told once"
    backup.restore()
    assert source.observe(source.head()).history == same.history + 1


def test_a_history_that_was_undone_is_counted_as_it_is_now(lake: Lake, open_source: MakeSource) -> None:
    """The connection that counts has seen that no row of the table was deleted, by snapshots of the other history."""
    source = open_source()
    before = lake.insert("a", 0, 20)
    backup = Backup(lake.con, "lake", lake.lake)
    lake.insert("b", 100, 1)
    head = lake.insert("b", 200, 1)
    assert counted(source, Range(before, head))[0].rows == {"b": 2}
    backup.restore()
    lake.sql("DELETE FROM lake.t WHERE id = 3")
    head = lake.sql("DELETE FROM lake.t WHERE id = 4")
    assert counted(source, Range(before, head))[0].rows == {"a": 2}


def test_a_count_that_its_catalog_has_cut_short_is_made_again(
    lake: Lake, open_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked beside DuckDB fails in the middle of a transaction, too, which must not be open for the next."""
    source = open_source()
    before = lake.head
    head = lake.insert("a", 0, 20)
    assert counted(source, Range(before, head))[0].rows == {"a": 20}
    changed = RowsByFiles.changed

    def cut_off(*_: object) -> None:
        raise SourceError("source_unreachable", "the catalog went away", "it is asked again")

    monkeypatch.setattr(RowsByFiles, "changed", cut_off)
    with pytest.raises(SourceError, match="went away"):
        counted(source, Range(before, head))
    monkeypatch.setattr(RowsByFiles, "changed", changed)
    assert counted(source, Range(before, head))[0].rows == {"a": 20}


def test_expiry_undoes_no_history(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    before = source.observe(source.head())
    for number in range(3):
        lake.insert("a", 100 * number, 20)
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => {list(range(lake.head))})")
    assert source.observe(source.head()).history == before.history


def test_columns_that_a_policy_does_not_follow_are_told_by_position(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    before = lake.sql("ALTER TABLE lake.t ADD COLUMN n INTEGER")
    assert {broken.policy for broken in source.observe(source.head()).breaks} == {EvolutionPolicy.FREEZE}
    lake.sql("ALTER TABLE lake.t DROP COLUMN n")
    head = lake.sql("ALTER TABLE lake.t ADD COLUMN n INTEGER")
    additive = [each for each in source.observe(source.head()).breaks if each.policy is EvolutionPolicy.ADDITIVE]
    assert [(each.first, each.last) for each in additive] == [(before, head - 2)], "no other position has the first n"
    assert "drop n" in additive[0].why
    assert all(each.by_policy for each in additive)
    assert source.observe(source.head()).breaks == source.observe(source.head()).breaks, "a poll tells nothing new"


def test_the_snapshots_that_changed_the_columns_are_told_with_their_times(lake: Lake, open_source: MakeSource) -> None:
    born = lake.head
    source = open_source()
    renamed = lake.sql("ALTER TABLE lake.t RENAME COLUMN v TO w")
    lake.insert("a", 0, 1)
    lake.sql("ALTER TABLE lake.t ALTER COLUMN w SET DEFAULT 'x'", "COMMENT ON COLUMN lake.t.w IS 'words'")
    found = source.observe(source.head())
    assert (found.reshapes.snapshots, found.reshaped) == ((born, renamed), renamed)
    added = lake.sql("ALTER TABLE lake.t ADD COLUMN n INTEGER")
    head = source.head()
    found = source.observe(head)
    assert (found.reshapes.snapshots, found.reshapes.times[added]) == ((born, renamed, added), head.time)
    assert found.reshapes.times[born] < found.reshapes.times[renamed] < head.time
    assert source.observe(head).reshapes is found.reshapes, "their times are asked for once"


def test_a_routing_column_that_is_another_one_is_followed_under_no_policy(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 3)
    lake.sql("ALTER TABLE lake.t DROP COLUMN tenant")
    lake.sql("ALTER TABLE lake.t ADD COLUMN tenant VARCHAR")
    source = open_source()
    broken = [each for each in source.observe(source.head()).breaks if each.first <= before <= each.last]
    assert {each.policy for each in broken} == {*EvolutionPolicy}
    assert all("tenant was dropped and another one" in each.why for each in broken)
    assert not any(each.by_policy for each in broken)


def test_a_range_is_counted_by_its_routing_column_though_another_one_has_its_name_by_now(
    lake: Lake, open_source: MakeSource
) -> None:
    """A range that was maintained since is read up to a head that nobody has looked at yet. A tenant's deletes were
    counted as those of the values of another column, and skipped."""
    lake.insert("a", 0, 20)
    before = lake.sql("ALTER TABLE lake.t RENAME COLUMN tenant TO company")
    head = lake.sql("DELETE FROM lake.t WHERE id < 3")
    source = open_source()
    source.observe(source.head())
    cuts = source.cuts(Range(before, head))
    lake.sql("ALTER TABLE lake.t RENAME COLUMN company TO firm")
    lake.sql("ALTER TABLE lake.t RENAME COLUMN v TO company")
    lake.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    (step,) = [source.count(cut, ("a",)) for cut in cuts]
    assert step.rows.keys() == {"a"}


def test_what_is_there_is_grouped_by_the_routing_column_though_another_one_has_its_name_by_now(
    lake: Lake, open_source: MakeSource
) -> None:
    """Values of another column would be offered as tenants."""
    lake.insert("a", 0, 20)
    lake.sql("ALTER TABLE lake.t RENAME COLUMN tenant TO company")
    source = open_source()
    source.observe(source.head())
    lake.sql("ALTER TABLE lake.t RENAME COLUMN company TO firm")
    lake.sql("ALTER TABLE lake.t RENAME COLUMN v TO company")
    assert source.sizes() == {"a": 20}
    assert [found.value for found in source.unknown([])[0]] == ["a"]


def test_what_is_there_is_asked_again_where_columns_changed_meanwhile(
    lake: Lake, open_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.insert("a", 0, 20)
    source = open_source()
    source.observe(source.head())
    counter = source._counter
    state, unknown = counter.state, counter.unknown

    def changing(*asked: Any) -> Any:
        lake.sql("ALTER TABLE lake.t RENAME COLUMN v TO w")
        found = state(*asked) if len(asked) == 1 else unknown(*asked)
        lake.sql("ALTER TABLE lake.t RENAME COLUMN w TO v")
        return found

    monkeypatch.setattr(counter, "state", changing)
    monkeypatch.setattr(counter, "unknown", changing)
    for ask in (source.sizes, lambda: source.unknown([])):
        with pytest.raises(SourceError, match="changed while its rows were counted"):
            ask()
    monkeypatch.undo()
    assert source.sizes() == {"a": 20}


def test_ranges_are_counted_by_the_name_that_the_routing_column_had(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    before = source.head().snapshot
    middle = lake.insert("a", 0, 3)
    lake.sql("ALTER TABLE lake.t RENAME COLUMN tenant TO customer")
    head = lake.sql("INSERT INTO lake.t (id, customer) VALUES (100, 'b')")
    source.observe(source.head())
    assert [step.rows for step in counted(source, Range(before, middle))] == [{"a": 3}]
    assert [step.rows for step in counted(source, Range(middle, head))] == [{"b": 1}]


@pytest.mark.parametrize("configured", ["tenant", "customer"])
def test_columns_that_were_renamed_are_the_same_ones_and_told(
    lake: Lake, open_source: MakeSource, configured: str
) -> None:
    begin = lake.head
    middle = lake.insert("a", 0, 3)
    lake.sql("ALTER TABLE lake.t RENAME COLUMN tenant TO customer")
    head = lake.sql("INSERT INTO lake.t (id, customer) VALUES (100, 'b')")
    source = open_source(routing={"field": configured, "key_columns": ["id"]})
    assert source.observe(source.head()).notice == (
        "the source's column tenant is called customer now, and is followed; give no other column the old name before"
        " the section routing has the new one"
        if configured == "tenant"
        else None
    )
    assert [step.rows for step in counted(source, Range(begin, middle))] == [{"a": 3}]
    assert [step.rows for step in counted(source, Range(middle, head))] == [{"b": 1}]


@pytest.mark.parametrize("configured", ["t", "u"])
def test_a_table_that_was_renamed_is_the_same_one_and_told(
    lake: Lake, open_source: MakeSource, tmp_path: Path, configured: str
) -> None:
    source = open_source(source={"catalog": f"sqlite:{tmp_path}/source.sqlite", "table": configured})
    before = source.observe(source.head()) if configured == "t" else None
    begin = lake.head
    middle = lake.insert("a", 0, 3)
    lake.sql("ALTER TABLE lake.t RENAME TO u")
    head = lake.sql("INSERT INTO lake.u (id, tenant) VALUES (100, 'b')")
    after = source.observe(source.head())
    assert before is None or (after.table, after.born) == (before.table, before.born)
    assert after.notice == (
        "the source's table main.t is called main.u now, and is followed; give no other table the old name before"
        " source.table has the new one"
        if configured == "t"
        else None
    )
    assert [step.rows for step in counted(source, Range(begin, middle))] == [{"a": 3}]
    assert [step.rows for step in counted(source, Range(begin, head))] == [{"a": 3, "b": 1}]
    assert source.sizes() == {"a": 3, "b": 1}
    assert {each.value for each in source.unknown(["a"])[0]} == {"b"}


def test_a_source_that_is_read_whole_is_told_with_what_mends_it(lake: Lake, open_source: MakeSource) -> None:
    source = open_source()
    lake.insert("a", 0, 20)
    assert source.observe(source.head()).notice is None
    lake.sql("ALTER TABLE lake.t SET PARTITIONED BY (bucket(4, tenant))")
    lake.insert("a", 100, 20)
    notice = source.observe(source.head()).notice
    assert notice is not None
    assert 'ALTER TABLE "main"."t" RESET PARTITIONED BY' in notice
    lake.sql("ALTER TABLE lake.t RESET PARTITIONED BY")
    assert source.observe(source.head()).notice is None


def test_a_routing_column_that_is_gone_is_told_by_its_name(lake: Lake, open_source: MakeSource) -> None:
    lake.sql("ALTER TABLE lake.t DROP COLUMN tenant")
    source = open_source()
    with pytest.raises(SourceError, match="tenant"):
        source.observe(source.head())


REPLACED = {
    "tenant": ("ALTER TABLE lake.t DROP COLUMN tenant", "ALTER TABLE lake.t ADD COLUMN tenant VARCHAR"),
    "id": ("ALTER TABLE lake.t DROP COLUMN id", "ALTER TABLE lake.t ADD COLUMN id BIGINT"),
}


@pytest.mark.parametrize("column", REPLACED)
def test_a_routing_or_key_column_that_was_dropped_and_added_is_told_while_anything_is_retained_from_before(
    lake: Lake, open_source: MakeSource, column: str
) -> None:
    lake.insert("a", 0, 20)
    source = open_source(routing={"field": "tenant", "key_columns": ["id"]})
    assert source.observe(source.head()).notice is None
    before = lake.sql("ALTER TABLE lake.t ADD COLUMN w INTEGER")
    head = lake.sql(*REPLACED[column])
    notice = source.observe(source.head()).notice
    assert notice is not None
    assert f"the column {column} was dropped and another one of that name added, after snapshot {before}" in notice
    lake.sql("INSERT INTO lake.t (tenant) VALUES ('a')")
    assert source.observe(source.head()).notice == notice
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => {list(range(head))})")
    lake.sql("INSERT INTO lake.t (tenant) VALUES ('a')")
    assert source.observe(source.head()).notice is None


@pytest.mark.parametrize("declared", ["FLOAT", "DOUBLE"])
def test_both_zeros_of_a_routing_column_are_one_value(lake: Lake, open_source: MakeSource, declared: str) -> None:
    """They are equal, so an applier carries the rows of both; who counted them apart would never plan for one."""
    lake.sql(f"CREATE TABLE lake.r (id BIGINT, tenant {declared})")
    source = open_source(source={**SOURCE, "table": "r"})
    before = lake.sql("INSERT INTO lake.r VALUES (1, 0.0)")
    head = lake.sql("INSERT INTO lake.r VALUES (2, '-0.0'), (3, 1.5)", "UPDATE lake.r SET tenant = '-0.0' WHERE id = 1")
    source.observe(source.head())
    (cut,) = source.cuts(Range(before, head))
    step = source.count(cut, ["0.0"])
    assert set(step.rows) == {"0.0", "1.5"}
    assert step.unrouted == 1
    assert source.sizes() == {"0.0": 2, "1.5": 1}
    offered, _ = source.unknown(["1.5"])
    assert [(each.value, each.rows) for each in offered] == [("0.0", 2)]


@pytest.mark.parametrize("declared", ["INTERVAL", "TIMETZ", "DOUBLE[]", "STRUCT(a INTERVAL)"])
def test_a_routing_column_whose_values_have_several_spellings_is_refused(
    lake: Lake, open_source: MakeSource, declared: str
) -> None:
    """It may come later: a table that was created again, or a column."""
    source = open_source()
    source.observe(source.head())
    lake.sql("DROP TABLE lake.t", f"CREATE TABLE lake.t (id BIGINT, tenant {declared}, v VARCHAR)")
    with pytest.raises(SourceError, match="routing column tenant is") as caught:
        source.observe(source.head())
    assert caught.value.type == "schema_change"


def test_a_range_whose_beginning_expired_can_not_be_counted(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    head = lake.insert("a", 100, 20)
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{before}])")
    source = open_source()
    source.observe(source.head())
    with pytest.raises(Expired) as expired:
        source.cuts(Range(before, head))
    assert expired.value.snapshot == before


def test_a_hole_behind_the_beginning_is_counted_around(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    hole = lake.insert("b", 100, 20)
    head = lake.insert("c", 200, 20)
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{hole}])")
    (step,) = counted(open_source(), Range(before, head))
    assert {"b", "c"} <= step.rows.keys()


def test_sizes_are_the_rows_that_are_there_now(lake: Lake, open_source: MakeSource) -> None:
    lake.insert("a", 0, 20)
    lake.insert(None, 100, 20)
    lake.sql("DELETE FROM lake.t WHERE id < 4")
    source = open_source()
    source.observe(source.head())
    assert source.sizes() == {"a": 16}


def test_counting_survives_an_error_of_its_own_connection(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    head = lake.insert("a", 100, 20)
    source = open_source()
    counted(source, Range(before, head))
    lake.sql("DROP TABLE lake.t")
    with pytest.raises(SourceError):
        counted(source, Range(before, head + 1))
    lake.sql(f"CREATE TABLE lake.t ({COLUMNS})")
    born = lake.head
    after = lake.insert("b", 0, 20)
    assert [dict(step.rows) for step in counted(source, Range(born, after))] == [{"b": 20}]


def test_a_source_that_is_not_there_is_an_error_of_the_source(tmp_path: Path) -> None:
    source = LakeSource(config(tmp_path), ResolvedLake(f"sqlite:{tmp_path}/missing.sqlite"))
    with pytest.raises(SourceError, match="missing"):
        source.head()
    source.close()


def test_the_reader_leaves_no_trace_in_the_source(lake: Lake, open_source: MakeSource) -> None:
    before = lake.insert("a", 0, 20)
    head = lake.insert("a", 100, 20)
    source = open_source()
    for _ in range(3):
        counted(source, Range(before, head))
        source.sizes()
    assert lake.head == head


def test_a_range_that_was_maintained_before_it_was_counted_still_shows_its_deletes(
    lake: Lake, open_source: MakeSource
) -> None:
    before = lake.insert("a", 0, 20)
    source = open_source()
    head = lake.sql("DELETE FROM lake.t WHERE id < 3")
    source.observe(source.head())
    (cut,) = source.cuts(Range(before, head))
    lake.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    step = source.count(cut, ())
    assert step.rows["a"] >= 3
    assert step.range == Range(before, head)


def test_values_without_a_destination_are_found_in_one_pass_whatever_they_hold(
    lake: Lake, open_source: MakeSource
) -> None:
    lake.insert("a", 0, 20)
    lake.insert(None, 100, 30)
    lake.insert("b", 200, 3)
    hostile = ["'; DROP TABLE t; --", "nul\x00", "\u202eevil", "{}%s", "long" * 2_500, "🦆" * 150]
    for number, value in enumerate(hostile):
        lake.con.execute("INSERT INTO lake.t VALUES (?, ?, 'v')", [300 + number, value]).fetchall()
    found, more = open_source().unknown(["a"])
    assert not more
    assert (found[0].value, found[0].rows, found[0].first_seen) == ("b", 3, lake.head)
    assert {each.digest: (each.value, each.whole) for each in found[1:]} == {
        value_digest(value): (value[:LONGEST_OFFERED], len(value) <= LONGEST_OFFERED) for value in hostile
    }


def test_more_values_than_can_be_offered_are_cut_in_the_source(lake: Lake, open_source: MakeSource) -> None:
    lake.sql(f"INSERT INTO lake.t SELECT i, 'v' || (i // 2), 'v' FROM range({2 * MOST_OFFERED + 3}) r(i)")
    found, more = open_source().unknown([])
    assert (len(found), more) == (MOST_OFFERED, True)
    assert {each.rows for each in found} == {2}


def test_changes_are_counted_by_files(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckLake's functions would open every file that ever lost a row (H9)."""

    def refused(*_: object) -> None:
        raise AssertionError("DuckLake's functions were called")

    lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    before = lake.insert("a", 0, 9)
    lake.sql("UPDATE lake.t SET tenant = 'b' WHERE id < 2", "DELETE FROM lake.t WHERE id = 5")
    monkeypatch.setattr(row_counter, "by_functions", refused)
    with closing(LakeSource(config(tmp_path), lake.lake)) as source:
        source.observe(source.head())
        (cut,) = source.cuts(Range(before, lake.head))
        assert source.count(cut, ["a", "b"]).rows == {"a": 3, "b": 2}


@pytest.mark.parametrize("names", [{}, {"tenant": "whose", "pos": "place"}], ids=["no field ids", "other names"])
def test_changes_in_files_of_other_programs_are_counted(tmp_path: Path, lake: Lake, names: dict[str, str]) -> None:
    lake.sql("SET enable_external_file_cache = false", "CALL lake.set_option('data_inlining_row_limit', 0)")
    before = lake.insert("a", 0, 9)
    lake.sql("UPDATE lake.t SET tenant = 'b' WHERE id < 2", "DELETE FROM lake.t WHERE id = 5")
    rewrite(lake.con, "lake", tmp_path, names)
    with closing(LakeSource(config(tmp_path), lake.lake)) as source:
        source.observe(source.head())
        (cut,) = source.cuts(Range(before, lake.head))
        assert source.count(cut, ["a", "b"]).rows == {"a": 3, "b": 2}
