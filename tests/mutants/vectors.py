"""Mistakes with positions that are vectors: two of them may have one sum."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor, Decision
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.direct import commit as direct_commit
from services.applier.apply.direct import foreign_keys as direct_foreign_keys
from services.applier.apply.direct.commit import DirectApplier
from services.applier.apply.source.reading import Reading
from services.applier.records.routing import Routed, route
from services.applier.worker import topic_reader
from services.applier.worker.topic_ranges import TopicRanges
from services.applier.worker.topic_reader import TopicReader
from services.applier.worker.topic_routes import TopicRoutes
from services.cli.verify import topic_proof
from services.control.model import lifecycle
from services.control.model.lifecycle import Registered
from services.reader.planner.counted_changes import nothing
from services.reader.source.topic_source import KafkaSource
from shared.contracts.positions import Vector
from shared.kafka import topic_records
from shared.lake.direct.lakes import DirectLake
from tests.mutants.mistake import Mistake, put

TOPICS = "tests/e2e/test_topics.py"
DECIDE = "tests/fast/applier/apply/cursor/test_decide.py"


def _any_record_of_a_key() -> None:
    def every(con: duckdb.DuckDBPyConnection, value: str) -> Any:
        return con.execute("SELECT p, o, true FROM temp.main.keys WHERE v = $value", {"value": value}).fetchall()

    put(topic_proof, "_newest", every)


def _keys_unread() -> None:
    def keyed(self: Any, messages: Any) -> pa.Table:
        places = [(each.partition(), each.offset()) for each in messages]
        own = [f"{partition} {offset}" for partition, offset in places]
        partitions, offsets = zip(*places, strict=True)
        return pa.table({"p": partitions, "o": offsets, "k": own, "v": [""] * len(own)})

    put(TopicRoutes, "keyed", keyed)


def _compare_sums() -> None:
    put(Vector, "covers", lambda self, other: self.records >= other.records)


def _fence_by_sum() -> None:
    """The statement compares the integer alone, as that of a lake does."""
    right = fence._set_cursor

    class Connection:
        def __init__(self, con: object) -> None:
            self.con = con

        def execute(self, sql: str, bound: list[object]) -> object:
            expected = str(bound[-1]).partition("/")[2]
            plain = re.sub(re.escape("coalesce(source_position, '') || '/' || "), "", sql)
            return self.con.execute(plain, [*bound[:-1], expected])  # type: ignore[attr-defined]

    def careless(con: object, *rest: object) -> None:
        right(Connection(con), *rest)  # type: ignore[arg-type]

    put(fence, "_set_cursor", careless)


def _commit_by_sum() -> None:
    """The batch pins the cursor that was looked at; whether the item begins there is told by the integer alone."""

    def stands(cursor: Cursor, change: DestinationChange) -> bool:
        return cursor.position == change.target.item.expected

    put(direct_commit, "_stands", stands)


def _look_for_keys_anywhere() -> None:
    """A table that is elsewhere than the item begins tells which keys it has."""
    put(direct_foreign_keys, "decide", lambda *_: Decision.APPLY)


def _deliver_after_the_batch() -> None:
    right = DirectApplier._send

    def late(self: DirectApplier, lake: DirectLake, change: DestinationChange, *rest: Any) -> Applied:
        done = right(self, lake, change, *rest)
        if change.reading is not None:
            change.reading.deliver()
        return done

    put(DirectApplier, "_send", late)
    put(direct_commit, "_deliver", lambda *_: None)


def _offsets_first() -> None:
    """The vector is committed by itself, and the rows come afterwards."""
    right = fence.move_cursor

    def early(con: duckdb.DuckDBPyConnection, alias: str, move: fence.Move) -> None:
        right(con, alias, move)
        con.execute("COMMIT")
        con.execute("BEGIN TRANSACTION")

    put(fence, "move_cursor", early)


def _await_no_rejected() -> None:
    put(Reading, "deliver", lambda _: None)


def _honour_the_reset() -> None:
    put(topic_records, "FETCH", {**topic_records.FETCH, "auto.offset.reset": "earliest"})


def _read_uncommitted() -> None:
    put(topic_records, "FETCH", {**topic_records.FETCH, "isolation.level": "read_uncommitted"})


def _forget_what_waits() -> None:
    """Records that came before a destination was known are nobody's."""
    put(KafkaSource, "count", lambda _, cut, routed: nothing(cut.range, pinned=not routed))


def _skip_without_a_word() -> None:
    """The stamp does not say which records a position moved over."""
    right = fence.Stamp.extra_info

    def silent(stamp: fence.Stamp) -> str:
        return json.dumps({name: said for name, said in json.loads(right(stamp)).items() if name != "skipped"})

    put(fence.Stamp, "extra_info", silent)


def _skip_unasked() -> None:
    put(TopicRanges, "_require_gone", lambda *_: None)


def _stay_after_a_move() -> None:
    """Records of other destinations delete no row."""
    put(TopicReader, "_left", lambda *_: None)


def _quiet_once_all_moved_on() -> None:
    """Nothing is committed where all of a destination's own records went elsewhere within the range."""

    def staying(*given: Any) -> Routed:
        found = route(*given)
        return found if found.keys is None else replace(found, places=found.keys.staying)

    put(topic_reader, "route", staying)


def _rewind_in_place() -> None:
    """A rewind goes on in the generation that was there."""
    right = lifecycle.rewind

    def same(held: Registered, *how: Any) -> Registered:
        return replace(right(held, *how), generation=held.generation)

    put(lifecycle, "rewind", same)


MISTAKES = (
    Mistake("sums-for-vectors", "a vector covers whatever has no greater sum", _compare_sums,
            (DECIDE, "-k", "passed_each_of_them")),
    Mistake("offsets-before-rows", "offsets are committed before the rows up to them", _offsets_first,
            (TOPICS, "-k", "nothing_commits_while")),
    Mistake("rejected-not-awaited", "rows commit before the records that were rejected beside them are delivered",
            _await_no_rejected, (TOPICS, "-k", "nothing_commits_while")),
    Mistake("reset-honoured", "an offset that is gone is a jump to the oldest that is there", _honour_the_reset,
            (TOPICS, "-k", "no_jump")),
    Mistake("read-uncommitted", "records of aborted transactions become rows", _read_uncommitted,
            (TOPICS, "-k", "aborted")),
    Mistake("unheard-records", "records that are planned before a destination is known are no one's",
            _forget_what_waits,
            ("tests/fast/reader/source/test_topic_source.py::test_what_was_flushed_is_one_step_that_may_be_of_any_destination",)),
    Mistake("fence-by-sum", "the fence compares sums of offsets", _fence_by_sum,
            ("tests/lake/test_spelled_cursors.py::test_no_item_that_expects_another_vector_moves_it[sqlite-expected0]",)),
    Mistake("direct-by-sum", "a direct commit begins wherever the sum of offsets is the item's", _commit_by_sum,
            ("tests/lake/test_direct_topics.py::test_an_item_of_another_vector_of_the_same_sum_is_a_gap_and_writes_nothing[sqlite]",)),
    Mistake("keys-from-elsewhere", "a table that is not where the item begins tells what left it",
            _look_for_keys_anywhere,
            ("tests/lake/test_foreign_keys.py::test_a_table_that_is_elsewhere_leaves_no_key_out[direct-begin0-end0-1]",)),
    Mistake("rejected-after-the-batch", "a direct commit comes before the records that were rejected beside it",
            _deliver_after_the_batch,
            ("tests/lake/test_direct_topics.py::test_rejected_records_are_delivered_once_and_before_the_batch[sqlite]",)),
    Mistake("skip-unstamped", "records are skipped, and no stamp says which", _skip_without_a_word,
            (TOPICS, "-k", "gone_are_skipped")),
    Mistake("skip-unasked", "records are skipped though the topic still has them", _skip_unasked,
            (TOPICS, "-k", "nothing_else_is_ever_skipped")),
    Mistake("moved-away-stays", "a row stays after the newest record of its key went to another destination",
            _stay_after_a_move,
            ("tests/fast/applier/worker/test_topic_reader.py::test_a_destination_is_told_which_of_its_rows_went_elsewhere_and_stays_quiet_without_any",)),
    Mistake("quiet-once-all-moved-on", "records that came and moved on within a range leave no commit behind",
            _quiet_once_all_moved_on,
            ("tests/fast/applier/worker/test_topic_reader.py::test_a_destination_is_quiet_over_a_range_only_where_it_is_over_each_of_its_beginnings[2]",)),
    Mistake("any-record-of-a-key", "a proof takes the row of any record of a key", _any_record_of_a_key,
            ("tests/fast/cli/verify/test_topic_proof.py", "-k", "newest_record")),
    Mistake("keys-unread", "a proof of keys that nothing routes takes each record as one of its own", _keys_unread,
            ("tests/e2e/test_topic_verify_keys.py", "-k", "anything_else")),
    Mistake("rewind-in-place", "a rewind goes on in the generation that was there", _rewind_in_place,
            ("tests/fast/control/operations/test_topic_rewind.py::test_a_rewind_begins_a_life_at_its_offsets_and_other_partitions_stay",)),
)  # fmt: skip
