"""The mistakes, each a way in which a replicator goes wrong, and the tests that must notice.

A mistake replaces functions of the services for one pytest run (``plugin``); none of it lives in the services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import duckdb

from services.applier import health_sweep
from services.applier.apply import cursor_answers, transaction
from services.applier.apply.cursor import decide, fence, in_doubt
from services.applier.apply.cursor.decide import Cursor, Decision
from services.applier.apply.cursor.fence import Move
from services.applier.apply.destination import table_options, table_schema
from services.applier.apply.maintenance import catalog_rows
from services.applier.apply.maintenance import compaction as maintenance
from services.applier.apply.source import carry, feed, row_counts
from services.applier.apply.source import reading as readings
from services.applier.apply.source.feed import Feed
from services.applier.apply.source.reading import Reading
from services.applier.model.offsets import OffsetLedger, Partition
from services.applier.model.task import Target
from services.applier.worker import answer_files
from services.applier.worker.in_flight import Numbered
from services.applier.worker.task_run import TaskRun
from services.cli.verify import comparison, expected_rows, registered_destinations
from services.control.operations.destination_service import DestinationService
from services.control.page import entry_form, live
from services.control.view import destination_status
from services.control.view.destination_status import View
from services.control.view.frontier import Frontiers
from services.control.web import middleware
from services.control.web.guard import Caller, Denied, Guard, GuardedRequest
from services.reader.loop import Loop
from services.reader.messaging.status_repetition import StatusRepetition
from services.reader.planner import waiting_queue
from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.scheduling import Draft
from services.reader.source import row_counter
from services.reader.source.lake_source import LakeSource
from services.reader.source.source_poller import SourcePoller
from shared.config import catalogs, libpq_words, secrets, store_access
from shared.config.limits import LakeLimits
from shared.config.path_overlap import Paths
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Destination, WorkItem
from shared.contracts.ranges import Range
from shared.kafka import renewal, settings
from shared.kafka.broker import Broker
from shared.kafka.follower import Follower
from shared.lake import failure, pruning
from shared.lake.attached.pool import OpenLake
from shared.lake.attached.state import AttachedState
from shared.lake.catalog import reader as catalog
from shared.lake.catalog import touches
from shared.lake.catalog.reader import CatalogReader, Head, TableView
from shared.lake.changes.changed_rows import INSERTIONS
from shared.lake.connection import engine, spill, store_secrets
from shared.lake.connection import postgres as postgres_connections
from shared.lake.pruning import FileLayout
from shared.lake.sql import ident
from shared.lake.upkeep.health import HealthReader, TableHealth
from tests.mutants import (
    changed,
    counting,
    direct,
    direct_columns,
    evolution,
    layouts,
    past,
    records,
    replayed,
    upkeep,
    values,
    vectors,
)
from tests.mutants.mistake import Mistake
from tests.mutants.mistake import put as _put

APPLY = "tests/lake/test_apply.py"
GUARD = "tests/fast/control/web/test_guard.py"
STRANGERS = "tests/fast/shared/config/test_strangers.py"
HOSTILE = "tests/lake/test_hostile_values.py"


def _apply_events() -> None:
    """Take the inserted images for the rows that are there now."""

    def load_state(self: Feed, reading: Reading, _: object, at: str) -> None:
        bounds = self._bounds(Range(0, reading.through))
        same = self._same_keys(reading, "s", "t")
        self._con.execute(
            f"CREATE TABLE {reading.memory('rows')} AS SELECT DISTINCT ON (t.d, {_keys(reading)})"
            f" {self._hidden(reading, 't.d', 't.was_there')}, s.* EXCLUDE (snapshot_id, rowid)"
            f" FROM (SELECT * FROM {INSERTIONS}) s"
            f" JOIN {reading.memory('touched')} t ON s.{ident(self._routing.field)} = t.r AND {same}",
            [self._lake.alias, *reading.table.called(bounds[1]), *bounds],
        )

    _put(Feed, "_load_state", load_state)


def _keys(reading: Reading) -> str:
    return ", ".join(f"t.k{i}" for i in range(len(reading.keys)))


def _touch_without(condition: str) -> Callable[[], None]:
    """Leave out deleted images for which an inserted image ``i`` meets ``condition``."""

    def plant() -> None:
        def load_touched(self: Feed, reading: Reading) -> None:
            keys = "".join(f", f.k{i}" for i in range(len(reading.keys)))
            feed_table = reading.memory("feed")
            self._con.execute(
                f"CREATE TABLE {reading.memory('touched')} AS"
                f" SELECT g.d, g.r{keys}, bool_or(f.was_there) AS was_there FROM {feed_table} f"
                f" JOIN {reading.memory('targets')} g ON f.r = g.r WHERE NOT f.was_there"
                f" OR NOT EXISTS (SELECT 1 FROM {feed_table} i WHERE NOT i.was_there AND {condition})"
                " GROUP BY ALL ORDER BY g.d"
            )

        _put(Feed, "_load_touched", load_touched)

    return plant


def _read_whole_files() -> None:
    _put(Feed, "_bound_routing", lambda *_: "")


def _first_speaks_for_all() -> None:
    begin = Feed._begin

    def begun(self: Feed, targets: Any, through: int, *, only_inserts: bool) -> Reading:
        reading = begin(self, targets, through, only_inserts=only_inserts)
        reading.refused = {number: each for number, each in reading.refused.items() if each.type != "source_behind"}
        return reading

    _put(Feed, "_begin", begun)


def _last_read_holds() -> None:
    _put(Destination, "order", property(lambda _: (0, 0, 0)))


def _look_again_first() -> None:
    turn = Loop._turn

    def forgetful(loop: Loop) -> None:
        loop._polled = False
        turn(loop)

    _put(Loop, "_turn", forgetful)


def _use_what_has_ended() -> None:
    _put(CatalogReader, "is_cut_off", False)


def _keep_dead_cursors() -> None:
    _put(catalog_rows, "forget_positions", lambda *_: None)


def _prove_the_files_alone() -> None:
    """Pass over what came over REST or appeared by itself."""
    _put(
        registered_destinations,
        "_joined",
        lambda deployment, *_: registered_destinations.KnownPipelines(deployment.configs),
    )


def _read_to_look() -> None:
    """Read a file's own metadata to tell whether it is there, which fails for an encrypted one."""

    def is_there(con: duckdb.DuckDBPyConnection, file: str) -> bool:
        con.execute("SELECT file_name FROM parquet_file_metadata(?)", [file])
        return True

    _put(in_doubt, "_is_there", is_there)


def _answer_at_the_end() -> None:
    _put(answer_files.AnswerFiles, "leave", lambda self, done, *, at_once=False: None)


def _cursor_apart() -> None:
    moved = fence.move_cursor

    def move_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move) -> None:
        moved(con, alias, move)
        con.execute("COMMIT")
        con.execute("BEGIN")

    _put(fence, "move_cursor", move_cursor)


def _after_inclusive() -> None:
    _put(Range, "inclusive", lambda self: (self.after, self.through))


def _null_never_equal() -> None:
    _put(Reading, "same_keys", _plainly_equal)


def _plainly_equal(reading: Reading, left: str, right: str, *_: object) -> str:
    return " AND ".join(f"{left}.{ident(name)} = {right}.k{i}" for i, name in enumerate(reading.keys))


def _believe_any_text() -> None:
    prunable = pruning.PRUNABLE.fullmatch

    def may_prune(declared: str, layout: FileLayout = pruning.PLAIN, *, harmless: bool) -> bool:
        return not layout.misleads and (declared == pruning.TEXT or prunable(declared) is not None)

    for module in (feed, readings):
        _put(module, "may_prune", may_prune)


def _believe_buckets() -> None:
    _put(catalog, "layout_in", lambda _: pruning.PLAIN)


def _one_folder() -> None:
    shared = spill.folder()
    _put(spill, "folder", lambda: shared)


def _folder_unseen() -> None:
    """Never look whether a folder is still there once it is locked."""
    _put(spill, "_is_there", lambda *_: True)


def _two_zeros() -> None:
    _put(row_counter, "spelled", lambda expression, _: f"CAST({expression} AS VARCHAR)")


def _carry_any_text() -> None:
    _put(row_counts, "find_uncarried", lambda *_: {})


def _fail_together() -> None:
    def part(self: TaskRun, group: Sequence[Numbered], error: ViaduckError, *, sparing: bool) -> None:
        self._fail(group, error)

    _put(TaskRun, "_part", part)


def _count_without_an_end() -> None:
    @contextmanager
    def begun(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
        con.execute("BEGIN")
        yield
        con.execute("COMMIT")

    _put(row_counter, "_transaction", begun)


def _head_by_number() -> None:
    looked = LakeSource._looked

    def by_number(self: LakeSource, head: Head) -> TableView:
        seen = head if self._seen is None else self._seen[0]
        return looked(self, seen if seen.snapshot == head.snapshot else head)

    _put(LakeSource, "_looked", by_number)


def _touches_of_one_look() -> None:
    looked = Feed._looked

    def once(self: Feed, at: int, snapshots: Any = ()) -> TableView | None:
        self._after = self._after if snapshots else catalog.NEWEST
        return looked(self, at, snapshots)

    _put(Feed, "_looked", once)
    _put(Feed, "_touches", lambda self, snapshots: self._look_at(snapshots.through).touches)


def _skip_deletions() -> None:
    _put(CatalogReader, "only_appended", lambda *_: True)


def _no_generation_check() -> None:
    moved = fence.move_cursor

    def move_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move) -> None:
        seen = fence.read_cursor(con, alias, move.destination)
        assert seen is not None
        same = move.item.model_copy(update={"generation": seen.generation})
        moved(con, alias, replace(move, item=same))

    _put(fence, "move_cursor", move_cursor)


def _decide_without_generation() -> None:
    decided = decide.decide

    def careless(cursor: Cursor | None, item: WorkItem, dropped_generation: int = 0) -> Decision:
        same = item if cursor is None else item.model_copy(update={"generation": cursor.generation})
        return decided(cursor, same, dropped_generation)

    _put(decide, "decide", careless)


def _trust_the_item() -> None:
    """Believe the position that came through Kafka instead of the stored one."""

    def set_cursor(con: duckdb.DuckDBPyConnection, alias: str, move: Move, *_: Any) -> None:
        table = fence.cursor_table(alias, move.destination)
        con.execute(f"UPDATE {table} SET position = {move.through}, generation = {move.item.generation}").fetchall()

    _put(fence, "_set_cursor", set_cursor)


def _offsets_first() -> None:
    def committable(self: OffsetLedger) -> Mapping[Partition, int]:
        return dict(self._next)

    _put(OffsetLedger, "committable", committable)


def _seed_without_replacing() -> None:
    prepare = table_schema.prepare_seed

    class Deaf:
        def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
            self._con = con

        def execute(self, sql: str) -> duckdb.DuckDBPyConnection:
            return self._con.execute("SELECT 0" if sql.startswith("DELETE") else sql)

    def prepare_seed(con: duckdb.DuckDBPyConnection, *rest: Any, **named: Any) -> None:
        prepare(Deaf(con), *rest, **named)  # type: ignore[arg-type]

    _put(table_schema, "prepare_seed", prepare_seed)


def _commit_error_means_failed() -> None:
    def resolve_unknown(self: Any, change: Any, token: str, applied: Any, error: Exception) -> Any:
        raise error

    _put(transaction.DestinationApplier, "_resolve_unknown", resolve_unknown)


def _files_are_there() -> None:
    _put(cursor_answers, "require_files", lambda *_: None)


def _believe_addresses() -> None:
    _put(failure, "PLACE", re.compile("(?!)"))


def _no_deadline() -> None:
    made: Any = transaction.DestinationApplier.__init__

    def init(self: transaction.DestinationApplier, con: Any, pool: Any, limits: Any) -> None:
        made(self, con, pool, limits, lambda: 0.0)

    _put(transaction.DestinationApplier, "__init__", init)


def _append_what_maintenance_shows() -> None:
    _put(feed, "insertion_runs", lambda whole, _: [whole])


def _believe_statistics() -> None:
    _put(engine, "SETTINGS", tuple(setting for setting in engine.SETTINGS if "disabled_optimizers" not in setting))


def _marks_prove_nothing() -> None:
    _put(touches, "ENDED_FILES", "SELECT 0 AS n")
    _put(touches, "APPENDING", touches.APPENDING | {"rewrite_delete", "deleted_from_table", "inlined_delete"})


def _any_history() -> None:
    _put(fence, "origin", lambda lake_uuid, _: lake_uuid)


def _remember_by_numbers() -> None:
    """Take what an attached lake remembers of a snapshot for what that number means now."""

    def holds(self: AttachedState, catalog: CatalogReader) -> bool:
        return catalog.present(0).inlined == self.inlined

    _put(AttachedState, "holds", holds)


def _commit_what_came() -> None:
    """Never count what came into a destination's instance."""
    _put(carry, "require_all", lambda *_: None)


def _load_side_by_side() -> None:
    """Let two threads load one version of a lake's schema."""
    _put(OpenLake, "begin", lambda _, con: con.execute("BEGIN"))


def _prove_as_it_was_made() -> None:
    _put(comparison, "read_whole", lambda _: None)


def _prove_by_name() -> None:
    _put(expected_rows, "grew_only", lambda *_: True)


def _eager_groups() -> None:
    """Whoever comes or goes takes everything from everybody for a moment."""
    _put(settings, "CLASSIC", {**settings.CLASSIC, "partition.assignment.strategy": "range"})


def _rewritten(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, _: float) -> bool:
    where = [lake.alias, target.destination.table, target.destination.schema_name]
    con.execute("CALL ducklake_rewrite_data_files(?, ?, schema => ?, delete_threshold => 0.04)", where).fetchall()
    return False


def _narrow_the_statistics() -> None:
    """Leave dead rows behind by DuckLake's own rewrite."""
    _put(maintenance, "_leave_dead_rows", _rewritten)


def _count_dead_rows() -> None:
    made = HealthReader._look

    def whole(*given: Any) -> list[TableHealth]:
        return [replace(each, rows=each.rows + each.dead_rows) for each in made(*given)]

    _put(HealthReader, "_look", whole)


def _ask_the_silent() -> None:
    _put(health_sweep, "SILENT", "no type of an error")


def _health_of_another_life() -> None:
    _put(View, "health_of", lambda self, name: self.health.get(name))


def _rewrite_beside_what_is_inlined() -> None:
    _put(maintenance, "_flush", lambda *_: None)
    _put(maintenance, "_leave_dead_rows", _rewritten)


def _believe_options_of_an_earlier_life() -> None:
    _put(transaction, "reload_options", lambda *_, **__: None)


def _believe_every_proxy() -> None:
    """Whoever comes through a proxy on this machine is this machine."""
    _put(middleware, "is_brought", lambda _headers, _version: False)


def _every_token_for_all() -> None:
    """Forget which pipelines a token is for."""
    _put(Caller, "sees", lambda _self, _pipeline: True)


def _throttle_first() -> None:
    """Count wrong tokens before looking whether the token is a valid one."""
    judge = Guard.judge

    def throttled(self: Guard, asked: GuardedRequest) -> Caller | Denied:
        given = self._given(asked)
        return self._failed(asked) if given and self._failures.too_many(asked.address) else judge(self, asked)

    _put(Guard, "judge", throttled)


def _cut_anywhere() -> None:
    """Cut a text without a thought of what the cut goes through."""
    _put(secrets, "CUT", "")


def _show_what_was_typed() -> None:
    _put(entry_form, "_may_be_secret", lambda *_: False)


def _believe_what_was_forgotten() -> None:
    _put(ChangeIndex, "knows", lambda *_: True)


def _old_looks_are_news() -> None:
    _put(SourcePoller, "is_late", lambda *_: False)


def _late_pages_are_news() -> None:
    _put(Frontiers, "_lateness_s", lambda *_: 0.0)


def _say_parks_once() -> None:
    _put(StatusRepetition, "_gather", lambda *_: None)


def _lag_of_nothing() -> None:
    _put(destination_status, "_lag_seconds", lambda *_: 0.0)


def _any_reseed() -> None:
    """Take every table for one of ours."""
    _put(DestinationService, "is_ours", lambda *_: True)


def _streams_outlive_tokens() -> None:
    """Never ask again who follows a stream."""
    _put(live, "is_still_allowed", lambda _: True)


def _any_variable() -> None:
    """Look up whatever variable a lake names."""
    _put(LakeLimits, "_refused", lambda *_: None)


def _any_word() -> None:
    """Take every connection word from everybody."""
    _put(libpq_words, "faults", lambda *_, **__: iter(()))


def _lend_passwords() -> None:
    """Leave what a stranger's connection words leave out to the surroundings."""
    _put(catalogs, "pinned", dict)


def _lend_keys() -> None:
    """Leave to httpfs what a stranger's lake has no keys for."""
    _put(store_secrets, "NO_KEYS", {})
    _put(engine, "FORGOTTEN", ())


def _set_for_one_connection() -> None:
    """Leave cursors to what their process's surroundings say."""
    for name in ("SETTINGS", "FORGOTTEN"):
        _put(engine, name, tuple(setting.replace("SET GLOBAL ", "SET ") for setting in getattr(engine, name)))


def _wait_with_a_core() -> None:
    _put(renewal, "SOON_S", renewal.ANSWER_WITHIN_S)


def _ask_who_is_gone() -> None:
    """Learn of no other node."""
    _put(Broker, "_names", lambda *_: frozenset())


def _tell_a_file_nothing() -> None:
    _put(table_options, "WRITE_LIMITS_TO_A_FILE", ())


def _spell_as_the_database_does() -> None:
    _put(postgres_connections, "SPELLINGS", "SET search_path = pg_catalog;")


def _lend_identity() -> None:
    """Let anybody have the machine's own identity used for them."""
    _put(store_access, "IDENTITIES", ())


def _assume_by_any_chain() -> None:
    """Let DuckDB choose by what chain a role is assumed."""
    _put(store_secrets, "OF_A_ROLE", {"CHAIN": "env", "REFRESH": "auto"})


def _any_place() -> None:
    """Let two lakes keep their files in one place."""
    _put(Paths, "clash", lambda *_: None)


def _age_counts_for_nothing() -> None:
    """Let those who wait for room go by name."""
    place_of = waiting_queue.place_of

    def by_name(tracked: DestinationState, draft: Draft) -> waiting_queue.QueuePlace:
        place = place_of(tracked, draft)
        first, _, name = place.order
        return place._replace(order=(first, waiting_queue._LONG_AGO, name))

    _put(waiting_queue, "place_of", by_name)


def _wait_for_silence() -> None:
    """Believe the broker alone of where a partition ends."""
    _put(Follower, "_note_read", lambda *_: None)


MISTAKES = (
    Mistake("apply-events", "apply the feed's events", _apply_events,
            ("tests/lake/test_apply.py::test_a_reinserted_key_and_one_that_came_and_went_end_as_they_are[sqlite-extension]",)),
    Mistake("forget-old-tenant", "forget the old tenant of a moved row",
            _touch_without("i.k0 IS NOT DISTINCT FROM f.k0"),
            ("tests/lake/test_apply.py::test_changes_end_equal_and_a_row_that_moves_leaves_its_old_tenant[sqlite-auto]",)),
    Mistake("forget-old-key", "forget the old key of a row whose key changed",
            _touch_without("i.r = f.r"),
            ("tests/lake/test_apply.py::test_changes_end_equal_and_a_row_that_moves_leaves_its_old_tenant[sqlite-auto]",)),
    Mistake("cursor-apart", "cursor in a transaction of its own", _cursor_apart,
            ("tests/lake/test_apply.py::test_every_commit_says_what_it_holds[sqlite-extension]",)),
    Mistake("after-inclusive", "`after` inclusive", _after_inclusive,
            ("tests/lake/test_apply.py::TestAppendOnly::test_inserted_rows_are_appended_once_equal_ones_too[sqlite]",)),
    Mistake("null-never-equal", "NULL keys never equal", _null_never_equal,
            ("tests/lake/test_apply.py::test_null_is_a_key_like_any_other_and_equals_null[sqlite-extension]",)),
    Mistake("believe-any-text", "plain equality for all keys, whatever their text", _believe_any_text,
            (HOSTILE, "-k", "statistics_that_a_strangers_row and sqlite")),
    Mistake("believe-buckets", "files left out by buckets that some of them don't have", _believe_buckets,
            (HOSTILE, "-k", "bucket and sqlite")),
    Mistake("one-folder", "all instances of a process spill into one folder", _one_folder,
            ("tests/fast/shared/lake/connection/test_spill.py", "-k", "side_by_side")),
    Mistake("folder-unseen", "who has locked a folder has it, whatever was swept before that", _folder_unseen,
            ("tests/fast/shared/lake/connection/test_spill.py", "-k", "between_a_folder")),
    Mistake("two-zeros", "routing values counted by whatever text they have", _two_zeros,
            ("tests/fast/reader/source/test_lake_source.py::test_both_zeros_of_a_routing_column_are_one_value[FLOAT]",)),
    Mistake("carry-any-text", "rows with words that DuckLake replaces", _carry_any_text,
            (HOSTILE, "-k", "small_seed_with_such_a_word and sqlite")),
    Mistake("read-whole-files", "rows of others are read whole before they are left out", _read_whole_files,
            ("tests/lake/test_costs.py::test_a_seed_by_text_reads_the_files_that_hold_its_tenant_and_the_routing_column_of_others[sqlite]",)),
    Mistake("first-speaks-for-all", "of a shared reading only the first item is held against the source's head",
            _first_speaks_for_all,
            ("tests/lake/test_turns.py::test_an_item_of_another_history_that_shares_a_reading_waits_alone[sqlite]",)),
    Mistake("last-read-holds", "of a destination holds what was read last, whatever its version", _last_read_holds,
            ("tests/fast/applier/test_destination_cache.py",)),
    Mistake("keep-dead-cursors", "rows of the cursor stay for ever", _keep_dead_cursors,
            ("tests/lake/test_bounded.py", "-k", "leaves_of_a_cursor and sqlite")),
    Mistake("look-again-first", "a look that is due goes before what the last one found", _look_again_first,
            ("tests/fast/reader/test_loop.py", "-k", "longer_than_the_pause")),
    Mistake("use-what-has-ended", "a source is asked on a connection that its server has ended", _use_what_has_ended,
            ("tests/lake/test_direct_commit.py", "-k", "source_whose_connections")),
    Mistake("prove-the-files-alone", "verify looks at the destinations of files alone", _prove_the_files_alone,
            ("tests/fast/cli/verify/test_registered_destinations.py", "-k", "came_over_rest or registry_is_read")),
    Mistake("read-to-look", "whether a file is there is told by reading it", _read_to_look,
            ("tests/lake/test_encrypted.py::test_a_file_of_it_that_is_gone_is_still_found_missing[sqlite]",)),
    Mistake("answer-at-the-end", "who is done waits for the slowest of its job", _answer_at_the_end,
            ("tests/lake/test_early_answers.py", "-k", "while_another_apply")),
    Mistake("fail-together", "a reading's failure told of the whole group", _fail_together,
            (HOSTILE, "-k", "reading_that_fails_for_a_group and sqlite")),
    Mistake("count-without-an-end", "a count that fails leaves its transaction open", _count_without_an_end,
            ("tests/fast/reader/source/test_lake_source.py", "-k", "cut_short")),
    Mistake("head-by-number", "a head is known by its number alone, whatever was restored", _head_by_number,
            ("tests/fast/reader/source/test_lake_source.py", "-k", "history_that_was_undone")),
    Mistake("touches-of-one-look", "a second look at a source asks for nothing that touched it", _touches_of_one_look,
            ("tests/lake/test_apply.py", "-k", "read_at_the_head_with_what_followed and sqlite")),
    Mistake("skip-deletions", "skip the deletions scan always", _skip_deletions,
            ("tests/lake/test_apply.py::test_changes_end_equal_and_a_row_that_moves_leaves_its_old_tenant[sqlite-auto]",)),
    Mistake("no-generation-check", "no generation check in the fence", _no_generation_check,
            ("tests/lake/test_apply.py::test_an_item_of_an_older_life_is_fenced_even_where_its_range_would_fit[sqlite-auto]",)),
    Mistake("decide-without-generation", "no generation check when the cursor is read", _decide_without_generation,
            ("tests/fast/applier/apply/cursor/test_decide.py",)),
    Mistake("trust-the-item", "positions trusted from Kafka", _trust_the_item,
            (APPLY, "-k", "test_a_second_delivery and sqlite")),
    Mistake("offsets-first", "offsets committed before progress", _offsets_first,
            ("tests/fast/applier/model/test_offsets.py",)),
    Mistake("seed-without-replacing", "seed without replacing", _seed_without_replacing,
            ("tests/lake/test_apply.py::test_a_later_life_replaces_the_rows_of_the_one_before[sqlite-extension]",)),
    Mistake("unknown-is-failed", "an error during COMMIT means that it failed", _commit_error_means_failed,
            (APPLY, "-k", "test_a_lost_acknowledgement and sqlite")),
    Mistake("files-are-there", "committed files are never looked for", _files_are_there,
            (APPLY, "-k", "test_a_destination_whose_committed_files and sqlite")),
    Mistake("believe-addresses", "a file name with 404 in it is a file that is gone", _believe_addresses,
            ("tests/fast/shared/lake/test_failure.py",)),
    Mistake("no-deadline", "deadline ignored", _no_deadline,
            ("tests/lake/test_apply.py::test_a_transaction_past_its_deadline_is_rolled_back[sqlite]",)),
    Mistake("append-maintenance", "append what a rewrite shows as inserted", _append_what_maintenance_shows,
            ("tests/lake/test_apply.py::TestAppendOnly::test_compaction_appends_nothing[sqlite]",)),
    Mistake("believe-statistics", "leave DuckLake's statistics on", _believe_statistics,
            ("tests/lake/test_hazards.py::test_h1_every_cursor_of_an_instance_has_the_setting",)),
    Mistake("narrow-statistics", "rewrite files, which narrows what old snapshots are held against",
            _narrow_the_statistics, ("tests/lake/test_upkeep.py", "-k", "stock_reader and sqlite")),
    Mistake("dead-rows-live", "a lake's rows are what its files hold, deleted or not", _count_dead_rows,
            ("tests/lake/test_health.py::test_the_figures_are_those_that_ducklake_shows[sqlite]",)),
    Mistake("ask-the-silent", "a silent database is waited for once for each of its lakes", _ask_the_silent,
            ("tests/fast/applier/test_health_sweep.py", "-k", "silent")),
    Mistake("health-of-another-life", "a lake's figures outlive its generation", _health_of_another_life,
            ("tests/fast/control/view/test_lake_health.py::test_what_is_older_comes_too_late_and_another_life_s_is_not_shown",)),
    Mistake("rewrite-beside-inlined", "rewrite files whose deletes are still in the catalog",
            _rewrite_beside_what_is_inlined, ("tests/lake/test_upkeep.py", "-k", "before_others and sqlite")),
    Mistake("options-of-an-earlier-life", "options are read when a lake is attached, and never again",
            _believe_options_of_an_earlier_life, ("tests/lake/test_lives.py", "-k", "earlier_life and sqlite")),
    Mistake("marks-prove-nothing", "any range counts as appended", _marks_prove_nothing,
            ("tests/lake/test_hazards.py::test_h9_an_appended_range_is_proven_by_metadata_alone",)),
    Mistake("any-history", "a snapshot is its number", _any_history,
            ("tests/lake/test_identity.py::test_changes_on_top_of_a_history_that_was_written_anew_park[sqlite]",)),
    Mistake("remember-by-numbers", "what is attached knows a history by its snapshots' numbers", _remember_by_numbers,
            ("tests/lake/test_identity.py", "-k", "source_open_from and deleted and sqlite")),
    Mistake("commit-what-came", "rows that were lost on their way are not missed", _commit_what_came,
            ("tests/lake/test_apply.py::test_what_is_lost_on_its_way_into_a_destination_is_never_committed[sqlite-touched-extension]",)),
    Mistake("load-side-by-side", "threads load a lake's schema side by side", _load_side_by_side,
            ("tests/fast/shared/lake/attached/test_pool.py", "-k", "one_thread_at_a_time")),
    Mistake("prove-as-made", "a proof reads no more files than DuckLake believes it has to", _prove_as_it_was_made,
            ("tests/lake/test_compare.py::TestLayouts::test_a_destination_that_holds_everything_is_equal",)),
    Mistake("prove-by-name", "a proof takes a column for its name", _prove_by_name,
            ("tests/lake/test_compare.py::TestLater::test_a_routing_column_that_was_dropped_and_added_moves_nobody_before_it",)),
    Mistake("eager-groups", "a rebalance takes everything from everybody", _eager_groups,
            ("tests/e2e/test_rebalances.py", "-k", "classic")),
    Mistake("believe-every-proxy", "a request through a proxy on this machine is local", _believe_every_proxy,
            (GUARD, "-k", "through_a_proxy")),
    Mistake("every-token-for-all", "a token for one pipeline opens all", _every_token_for_all,
            (GUARD, "-k", "for_one_pipeline or for_some_pipelines")),
    Mistake("throttle-first", "wrong tokens lock a valid one out", _throttle_first, (GUARD, "-k", "valid_one_never")),
    Mistake("any-variable", "a lake may name every variable", _any_variable, (STRANGERS, "-k", "nobody_listed")),
    Mistake("any-word", "a lake may have every connection word", _any_word, (STRANGERS, "-k", "every_other_word")),
    Mistake("lend-passwords", "PGPASSWORD goes to a stranger's host", _lend_passwords,
            (STRANGERS, "-k", "no_password_of_this_machine")),
    Mistake("lend-keys", "AWS keys go to a stranger's store", _lend_keys,
            (STRANGERS, "-k", "no_key_of_this_machine")),
    Mistake("set-for-one-connection", "cursors have the machine's time zone and keys",
            _set_for_one_connection,
            ("tests/fast/shared/lake/connection/test_engine.py", "-k", "every_cursor or is_missing")),
    Mistake("spell-as-the-database-does", "bytes come in whatever form the owner of a catalog likes",
            _spell_as_the_database_does, ("tests/lake/test_database_settings.py", "-k", "bytea_output and auto")),
    Mistake("wait-with-a-core", "a look at the topics waits ten seconds for a node that is gone", _wait_with_a_core,
            ("tests/fast/shared/kafka/test_renewal.py", "-k", "each_look")),
    Mistake("ask-who-is-gone", "topics are described by a node that is gone, each time", _ask_who_is_gone,
            ("tests/fast/shared/kafka/test_broker.py", "-k", "known_again")),
    Mistake("tell-a-file-nothing", "a lake in a SQLite file keeps DuckLake's own limits", _tell_a_file_nothing,
            ("tests/lake/test_lives.py", "-k", "says_the_limits_once and sqlite")),
    Mistake("lend-identity", "the machine's role goes to a stranger's lake", _lend_identity,
            ("tests/fast/shared/config/test_strangers_identities.py", "-k", "no_stranger_uses")),
    Mistake("assume-by-any-chain", "a role is assumed by a chain that assumes none", _assume_by_any_chain,
            ("tests/fast/shared/lake/connection/test_store_secrets.py", "-k", "not_the_machine_itself")),
    Mistake("any-place", "two lakes' files in one place", _any_place,
            ("tests/fast/shared/config/test_overlap.py", "-k", "both_names")),
    Mistake("cut-anywhere", "a text is cut through a secret", _cut_anywhere,
            ("tests/fast/shared/config/test_secrets.py", "-k", "cut_went_through")),
    Mistake("password-comes-back", "a refused form shows all that was typed", _show_what_was_typed,
            ("tests/fast/control/page/test_pages.py", "-k", "never_comes_back")),
    Mistake("never-reached-is-exact", "what nobody knows of lags by nothing", _lag_of_nothing,
            ("tests/fast/control/page/test_pages.py", "-k", "never_reached")),
    Mistake("any-reseed", "a reseed is harmless whatever the table holds", _any_reseed, (GUARD, "-k", "never_filled")),
    Mistake("streams-outlive-tokens", "who was let in once stays in", _streams_outlive_tokens,
            ("tests/fast/control/page/test_live.py", "-k", "stream_ends")),
    Mistake("wait-for-silence", "a topic has been read once the broker finds nothing more", _wait_for_silence,
            ("tests/fast/shared/kafka/test_follower.py::test_a_follower_catches_up_with_a_topic_that_never_rests",)),
    Mistake("age-counts-for-nothing", "those who wait for room go by name", _age_counts_for_nothing,
            ("tests/fast/reader/planner/test_in_flight_limits.py", "-k", "longest")),
    *changed.MISTAKES,
    *counting.MISTAKES,
    *replayed.MISTAKES,
    *direct.MISTAKES,
    *values.MISTAKES,
    *past.MISTAKES,
    *upkeep.MISTAKES,
    *layouts.MISTAKES,
    *direct_columns.MISTAKES,
    *evolution.MISTAKES,
    *vectors.MISTAKES,
    *records.MISTAKES,
    Mistake("believe-what-was-forgotten", "counts that were forgotten prove that nothing changed",
            _believe_what_was_forgotten, ("tests/fast/reader/planner/test_plan.py", "-k", "counted_for_again")),
    Mistake("old-looks-are-news", "who was exact at the last look is exact now", _old_looks_are_news,
            ("tests/fast/reader/source/test_source_poller.py", "-k", "late")),
    Mistake("late-pages-are-news", "what a reader said before its broker fell silent is news", _late_pages_are_news,
            ("tests/fast/control/view/test_frontier.py", "-k", "held_back")),
    Mistake("say-parks-once", "a park is said once", _say_parks_once,
            ("tests/fast/reader/messaging/test_status_repetition.py", "-k", "park")),
)  # fmt: skip
