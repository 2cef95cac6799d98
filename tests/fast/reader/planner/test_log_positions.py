"""Sources that spell their positions: what items carry, and what a look at the log's partitions makes impossible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.reader.planner.actions import Park, Send
from services.reader.planner.plan import Planner
from services.reader.planner.scheduling import LogState, Rules, SourceState
from services.reader.source.source_poller import is_doubted
from shared.contracts.errors import SourceError
from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode
from shared.contracts.positions import Vector
from tests.fast.reader.simulation import EPOCH, spec, step

VALUE = "*"


def vector(*offsets: int) -> Vector:
    return Vector.of(dict(enumerate(offsets)))


def look(
    *spelled: Vector,
    oldest: Vector | None = None,
    newest: Vector | None = None,
    topic: str = "topic",
    skips: bool = False,
) -> SourceState:
    """The head is the last of the vectors, at whose integers items may end; the first is where a life begins."""
    head = spelled[-1]
    log = LogState(oldest or vector(), head, newest or head, {each.records: each for each in spelled}, skips)
    return SourceState(head.records, 0, 0, spelled[0].records, "cluster", topic, EPOCH, log=log)


class Log:
    """A planner with one destination that takes every record, and what it sent."""

    def __init__(self, *spelled: Vector) -> None:
        self.planner = Planner(Rules(), iter(map(str, range(100))).__next__, lambda: 0.5)
        self.now_s = 0.0
        self.planner.destination(spec("d", value=VALUE, mode=SeedMode.REPLAY), self.now_s)
        self.see(*spelled)

    def see(
        self, *spelled: Vector, oldest: Vector | None = None, newest: Vector | None = None, skips: bool = False
    ) -> None:
        self.planner.observe(look(*spelled, oldest=oldest, newest=newest, skips=skips), self.now_s)
        if (above := self.planner.above()) is not None:
            self.planner.counted(step(above.after, above.through, {VALUE: above.through - above.after}, pinned=True))
        while (below := self.planner.below()) is not None:
            self.planner.counted_below(step(below.after, below.through, {VALUE: 1}, pinned=True))

    def next(self) -> Send | Park:
        self.now_s += 1.0
        (action,) = self.planner.plan(self.now_s)
        return action

    def sent(self) -> Send:
        action = self.next()
        assert isinstance(action, Send)
        return action

    def answer(
        self, sent: Send, outcome: Outcome, at: Vector | None, generation: int = 1, read: Vector | None = None
    ) -> None:
        """``read``: up to where nothing of the destination's was found."""
        said = Progress(
            pipeline="p", destination="d", item=sent.item, kind=sent.draft.kind, outcome=outcome,
            generation=generation, position=-1 if at is None else at.records,
            position_at=None if at is None else at.text,
            through=None if read is None else read.records, through_at=None if read is None else read.text,
        )  # fmt: skip
        self.planner.progress(said, self.now_s)


@pytest.fixture
def log() -> Log:
    """Seeded at its beginning, and read up to (4, 2)."""
    made = Log(vector(1, 1), vector(4, 2))
    made.answer(made.sent(), Outcome.ALREADY_APPLIED, None)
    seed = made.sent()
    assert (seed.draft.kind, seed.draft.through_at, seed.draft.expected_at) == (ItemKind.SEED, '{"0":1,"1":1}', "")
    made.answer(seed, Outcome.APPLIED, vector(1, 1))
    made.see(vector(1, 1), vector(4, 2))
    return made


def test_an_item_says_from_which_vector_to_which(log: Log) -> None:
    draft = log.sent().draft
    assert (draft.expected, draft.expected_at) == (2, '{"0":1,"1":1}')
    assert (draft.through, draft.through_at) == (6, '{"0":4,"1":2}')


def test_an_applier_may_stop_earlier_and_the_rest_is_planned_from_there(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(1, 2))
    draft = log.sent().draft
    assert (draft.expected_at, draft.through_at) == ('{"0":1,"1":2}', '{"0":4,"1":2}')


def test_a_destination_at_another_vector_of_the_same_sum_goes_on_to_the_head(log: Log) -> None:
    """The head was (4, 2) once, and this destination read (1, 5) by the items of another reader."""
    log.answer(log.sent(), Outcome.GAP, vector(1, 3))
    log.see(vector(1, 1), vector(4, 2), vector(6, 7))
    draft = log.sent().draft
    assert (draft.expected_at, draft.through, draft.through_at) == ('{"0":1,"1":3}', 13, '{"0":6,"1":7}')


def test_a_gap_at_the_vector_that_was_expected_is_waited_out_and_one_at_another_vector_is_not(log: Log) -> None:
    sent = log.sent()
    log.answer(sent, Outcome.GAP, vector(0, 2))
    assert log.sent().draft.expected_at == '{"1":2}'


def test_records_that_retention_took_before_they_were_read_park_it_by_partition_and_offsets(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(9, 9), oldest=vector(7, 2))
    probe = log.sent()
    assert probe.draft.kind is ItemKind.PROBE
    log.answer(probe, Outcome.ALREADY_APPLIED, vector(4, 2))
    parked = log.next()
    assert isinstance(parked, Park)
    assert parked.problem.type == "history_expired"
    assert "partition 0: offsets 4 to 6; up to 3 are gone" in parked.problem.message


def test_what_is_gone_is_skipped_where_its_operator_wants_that(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(9, 9), oldest=vector(7, 1), skips=True)
    draft = log.sent().draft
    assert (draft.kind, draft.expected, draft.expected_at) == (ItemKind.CHANGES, 6, '{"0":4,"1":2}')
    assert (draft.after, draft.after_at) == (9, '{"0":7,"1":2}')
    assert (draft.through, draft.through_at) == (18, '{"0":9,"1":9}')


def test_where_nothing_is_gone_nothing_is_skipped(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(9, 9), oldest=vector(4, 0), skips=True)
    draft = log.sent().draft
    assert (draft.after, draft.after_at) == (6, "")


def test_records_that_are_gone_before_they_were_planned_are_skipped_beyond_the_planned_head(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 1))
    log.see(vector(1, 1), vector(4, 2), oldest=vector(7, 0), newest=vector(9, 9), skips=True)
    draft = log.sent().draft
    assert (draft.after_at, draft.through_at) == ('{"0":7,"1":1}', '{"0":7,"1":2}')


def test_another_topic_is_never_skipped_over(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.planner.observe(look(vector(9, 9), oldest=vector(9, 9), topic="another", skips=True), log.now_s)
    parked = log.next()
    assert isinstance(parked, Park)
    assert (parked.problem.type, parked.position_at) == ("source_recreated", '{"0":4,"1":2}')


def test_a_partition_that_ends_before_the_position_parks_it_though_the_others_grew(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(3, 90))
    parked = log.next()
    assert isinstance(parked, Park)
    assert parked.problem.type == "source_moved"
    assert "partition 0 ends at offset 3, and this destination is at 4" in parked.problem.message


def test_a_topic_that_was_created_again_parks_it(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.planner.observe(look(vector(9, 9), topic="another"), log.now_s)
    parked = log.next()
    assert isinstance(parked, Park)
    assert parked.problem.type == "source_recreated"


def test_positions_ahead_of_what_is_planned_are_no_contradiction_while_the_log_has_them(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(4, 2), newest=vector(9, 2))
    log.planner.progress(
        Progress(
            pipeline="p", destination="d", item="of another reader", kind=ItemKind.CHANGES, outcome=Outcome.APPLIED,
            generation=1, position=9, position_at='{"0":7,"1":2}',
        ),
        log.now_s,
    )  # fmt: skip
    log.see(vector(1, 1), vector(4, 2), newest=vector(9, 2))
    assert log.planner.plan(log.now_s + 1) == []


def again(log: Log, **life: Any) -> None:
    """Control begins another life, and the cursor of the one before is found."""
    log.planner.destination(spec("d", value=VALUE, mode=SeedMode.REPLAY, generation=2, **life), log.now_s)
    log.answer(log.sent(), Outcome.FENCED, vector(4, 2))


def test_a_rewind_begins_at_its_offsets_keeps_what_lies_before_them_and_reads_on_from_there(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    again(log, seed_at=4, seed_from='{"0":2,"1":2}')
    seed = log.sent()
    assert (seed.draft.kind, seed.draft.through, seed.draft.through_at, seed.draft.keeps) == (
        ItemKind.SEED, 4, '{"0":2,"1":2}', True,
    )  # fmt: skip
    log.answer(seed, Outcome.APPLIED, vector(2, 2), generation=2)
    log.see(vector(1, 1), vector(4, 2))
    draft = log.sent().draft
    assert (draft.expected_at, draft.through_at, draft.keeps) == ('{"0":2,"1":2}', '{"0":4,"1":2}', False)


def test_a_reseed_from_the_earliest_record_asks_for_nothing_that_is_gone(log: Log) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(4, 2), oldest=vector(3, 1))
    again(log, seed_from="earliest", replace=True)
    draft = log.sent().draft
    assert (draft.kind, draft.through, draft.through_at, draft.keeps) == (ItemKind.SEED, 4, '{"0":3,"1":1}', False)


@pytest.mark.parametrize("skips", [False, True])
def test_a_rewind_to_records_that_are_gone_meanwhile_parks_unless_they_may_be_skipped(log: Log, skips: bool) -> None:
    log.answer(log.sent(), Outcome.APPLIED, vector(4, 2))
    log.see(vector(1, 1), vector(4, 2), oldest=vector(3, 0), skips=skips)
    again(log, seed_at=4, seed_from='{"0":2,"1":2}')
    said = log.next()
    if skips:
        assert isinstance(said, Send)
    else:
        assert isinstance(said, Park)
        assert (said.problem.type, "offsets 2 to 2" in said.problem.message) == ("history_expired", True)


def test_a_topic_is_looked_at_again_where_an_applier_found_another_one(log: Log) -> None:
    seen, tracked = look(vector(1, 1), vector(4, 2)), log.planner.tracked.values()
    assert not is_doubted(seen, tracked)
    sent = log.sent()
    behind = SourceError("source_behind", "offset 4 of partition 0 is gone", "").problem()
    log.planner.progress(
        Progress(
            pipeline="p", destination="d", item=sent.item, kind=ItemKind.CHANGES, outcome=Outcome.FAILED, generation=1,
            error=behind,
        ),
        log.now_s,
    )  # fmt: skip
    assert is_doubted(seen, tracked)
    assert not is_doubted(replace(seen, log=None), tracked)
    assert not is_doubted(None, tracked)


# -- topics that are routed: what an applier read and found nothing in -------------------------------------------------


def test_records_without_one_of_the_destination_are_not_read_again_and_its_cursor_stays(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(4, 2))
    assert log.planner.plan(log.now_s + 1) == []
    log.see(vector(1, 1), vector(4, 2), vector(6, 7))
    draft = log.sent().draft
    assert (draft.kind, draft.expected, draft.expected_at, draft.after) == (ItemKind.CHANGES, 2, '{"0":1,"1":1}', 2)
    assert (draft.read_at, draft.through_at) == ('{"0":4,"1":2}', '{"0":6,"1":7}')


def test_of_a_part_that_was_read_the_rest_is_read_from_there(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(1, 2))
    draft = log.sent().draft
    assert (draft.expected_at, draft.read_at, draft.through_at) == ('{"0":1,"1":1}', '{"0":1,"1":2}', '{"0":4,"1":2}')


def test_once_the_cursor_has_moved_nothing_beyond_it_is_believed_that_it_does_not_lie_before(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(4, 2))
    log.see(vector(1, 1), vector(4, 2), vector(6, 7))
    log.answer(log.sent(), Outcome.GAP, vector(1, 5))
    draft = log.sent().draft
    assert (draft.expected_at, draft.read_at, draft.through_at) == ('{"0":1,"1":5}', "", '{"0":6,"1":7}')


def test_a_quiet_destination_s_cursor_is_moved_now_and_then_to_exactly_where_was_read(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(1, 2))
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(4, 2))
    log.now_s += Rules().advance_after_s
    log.see(vector(1, 1), vector(4, 2), vector(6, 7))
    advance = log.sent()
    draft = advance.draft
    assert (draft.kind, draft.expected_at, draft.through_at) == (ItemKind.ADVANCE, '{"0":1,"1":1}', '{"0":4,"1":2}')
    assert (draft.after, draft.through, draft.read_at) == (2, 6, "")
    log.answer(advance, Outcome.APPLIED, vector(4, 2))
    draft = log.sent().draft
    assert (draft.kind, draft.expected_at, draft.read_at) == (ItemKind.CHANGES, '{"0":4,"1":2}', "")


def test_a_quiet_destination_is_moved_on_before_retention_reaches_its_cursor_and_not_parked_after(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(4, 2))
    log.see(vector(1, 1), vector(4, 2), vector(60, 70), oldest=vector(3, 2))
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(60, 70))
    log.now_s += Rules().advance_pause_s
    log.see(vector(1, 1), vector(60, 70), oldest=vector(3, 2))
    draft = log.sent().draft
    assert (draft.kind, draft.through_at) == (ItemKind.ADVANCE, '{"0":60,"1":70}')


def test_a_topic_that_ends_before_what_was_read_parks_the_destination(log: Log) -> None:
    log.answer(log.sent(), Outcome.EMPTY, vector(1, 1), read=vector(4, 2))
    log.see(vector(1, 1), vector(2, 2))
    parked = log.next()
    assert isinstance(parked, Park)
    assert parked.problem.type == "source_moved"
