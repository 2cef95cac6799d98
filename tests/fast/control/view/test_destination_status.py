"""What users see of a destination and of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.control.metrics_view import _known
from services.control.model.lifecycle import Registered, remove
from services.control.view.destination_status import PipelineStatus, Status, pipeline_status, status
from services.control.view.frontier import UNHEARD_AFTER_S
from services.control.view.status_store import StatusStore
from shared.contracts.messages import CommitPath, DesiredState, ItemKind, Outcome, Progress
from shared.contracts.reports import Frontier
from shared.runtime.metrics import together
from tests.fast.control.examples import (
    PIPELINE,
    at,
    by_id,
    declared,
    frontier,
    problem,
    progress,
    registered,
    revision,
)

A, B = registered("a"), registered("b", declared=declared("b"))
PARKED = progress(Outcome.PARKED, position=7, error=problem("table_mismatch", retryable=False))


def status_store(held: Sequence[Registered], *said: Progress | Frontier, in_force: bool = True) -> StatusStore:
    status_store = StatusStore(PIPELINE)
    status_store.file_in_force = in_force
    status_store.hold(by_id(held))
    for each in said:
        status_store.note(each)
    return status_store


def of_a(*said: Progress | Frontier, held: Registered = A) -> Status:
    """In every case, lists must sort and filter by what the status says."""
    view = status_store([held], *said).view()
    found, standing = status(view, "a"), view.standings["a"]
    assert (standing.state, standing.position, standing.lag_seconds) == (found.state, found.position, found.lag_seconds)
    assert standing.trouble == (None if found.error is None else found.error.type)
    return found


def pipeline(*said: Progress | Frontier, held: Sequence[Registered] = (A, B)) -> PipelineStatus:
    return pipeline_status(status_store(held, *said).view())


def test_a_status_has_exactly_the_fields_of_the_interface() -> None:
    said = of_a(progress(position=15, rows_applied=7), frontier([A], head=17)).model_dump(mode="json")
    assert said == {
        "id": "a",
        "pipeline": PIPELINE,
        "routing_value": "value of a",
        "state": "running",
        "generation": 1,
        "position": 15,
        "known_through": 17,
        "source_snapshot": 17,
        "lag_snapshots": 0,
        "lag_seconds": 0.0,
        "rows_applied": 7,
        "last_applied_at": "2026-01-01T00:00:10Z",
        "commit": None,
        "commit_reason": None,
        "managed_by": "file",
        "notice": None,
        "topic": None,
        "error": None,
    }


def test_a_status_says_who_made_the_last_commit_of_this_life_and_why() -> None:
    by_extension = progress(position=15, commit=CommitPath.EXTENSION, commit_reason="schema_change")
    assert who(of_a(by_extension)) == ("extension", "schema_change")
    assert who(of_a(by_extension, held=registered("a", generation=2))) == (None, None)


def who(said: Status) -> tuple[CommitPath | None, str | None]:
    return said.commit, said.commit_reason


def test_an_error_has_exactly_the_fields_of_the_interface() -> None:
    error = of_a(PARKED).model_dump(mode="json")["error"]
    assert error == {
        "type": "table_mismatch",
        "message": "it is table_mismatch",
        "hint": "do something",
        "retryable": False,
        "since": "2026-01-01T00:00:10Z",
        "attempts": None,
        "next_try_at": None,
    }


def test_before_anybody_said_anything_nothing_is_claimed() -> None:
    said = of_a()
    assert said.state == "seeding"
    assert (said.position, said.known_through, said.source_snapshot) == (None, None, None)
    assert (said.lag_snapshots, said.lag_seconds, said.rows_applied) == (None, None, 0)


def test_a_lake_that_was_never_seeded_has_no_position() -> None:
    probed = progress(Outcome.ALREADY_APPLIED, kind=ItemKind.PROBE, position=-1)
    said = of_a(probed, frontier([A], lagging={"a": -1}))
    assert (said.state, said.position, said.known_through, said.lag_snapshots) == ("seeding", None, None, None)


def test_lag_counts_source_snapshots_after_what_is_known_and_not_after_the_position() -> None:
    said = of_a(progress(position=5), frontier([A], head=17, lagging={"a": 12}))
    assert (said.position, said.known_through, said.lag_snapshots, said.lag_seconds) == (5, 12, 5, 2.5)


def test_an_apply_is_known_at_once_without_waiting_for_the_reader() -> None:
    assert of_a(frontier([A], head=17, lagging={"a": 12}), progress(position=17, through=17)).known_through == 17


def test_a_destination_is_not_exact_because_a_reader_has_not_heard_of_it() -> None:
    said = of_a(frontier([], head=17))
    assert (said.state, said.known_through, said.source_snapshot) == ("seeding", None, 17)


def test_a_destination_of_the_next_life_is_not_exact_because_its_last_life_was() -> None:
    reborn = registered("a", generation=2, revision=revision("2"))
    said = of_a(progress(position=15), frontier([A], head=17), held=reborn)
    assert (said.state, said.position, said.known_through) == ("seeding", None, None)


@pytest.mark.parametrize("desired", [DesiredState.PAUSED, DesiredState.STOPPED])
def test_what_an_operator_wants_is_shown_before_what_is(desired: DesiredState) -> None:
    assert of_a(PARKED, held=registered("a", desired=desired)).state == desired.value


def test_a_parked_destination_says_so_and_why() -> None:
    said = of_a(PARKED)
    assert said.state == "parked"
    assert said.error is not None
    assert said.error.type == "table_mismatch"


def test_a_destination_that_is_tried_again_is_running_and_says_what_is_wrong() -> None:
    said = of_a(progress(position=7), progress(Outcome.FAILED, seconds=20, error=problem()))
    assert said.state == "running"
    assert said.error is not None
    assert said.error.retryable


def test_a_parked_destination_that_was_changed_since_is_not_parked_any_more() -> None:
    said = of_a(PARKED, held=registered("a", revision=revision("2", seconds=60)))
    assert (said.state, said.error) == ("running", None)


def test_a_park_in_an_older_life_is_forgotten() -> None:
    assert of_a(PARKED, held=registered("a", generation=2)).state == "seeding"


def test_a_reader_that_has_just_started_does_not_make_the_source_look_empty() -> None:
    """Before its first look at the source it knows of no head."""
    said = of_a(progress(position=15), frontier([A], head=0, lagging={"a": -1}))
    assert (said.source_snapshot, said.lag_snapshots) == (15, 0)


def test_a_pipeline_counts_its_destinations_by_state() -> None:
    gone = remove(registered("c", declared=declared("c")), revision("2"))
    said = pipeline(PARKED, progress(id="b", position=9), held=[A, B, gone])
    assert said.destinations == {"parked": 1, "running": 1, "total": 2}


def test_a_pipeline_is_caught_up_when_every_destination_is_exact_at_the_head() -> None:
    assert pipeline(frontier([A, B])).caught_up
    assert not pipeline(frontier([A, B], lagging={"a": 9})).caught_up


def test_a_reader_that_has_not_looked_yet_is_no_proof_of_having_caught_up() -> None:
    said = [progress(position=10), progress(id="b", position=10)]
    assert not pipeline(*said, frontier([A, B], head=0, lagging={"a": 10, "b": 10})).caught_up


def test_destinations_that_an_operator_switched_off_are_not_waited_for() -> None:
    off = registered("b", declared=declared("b"), desired=DesiredState.PAUSED)
    assert pipeline(frontier([A, off], lagging={"b": 3}), held=[A, off]).caught_up


def test_a_pipeline_is_settled_only_by_the_word_of_a_reader_that_knows_everything_that_is_published() -> None:
    assert pipeline(frontier([A, B])).settled
    assert not pipeline(frontier([A, B], settled=False)).settled
    assert not pipeline(frontier([A])).settled
    assert not pipeline().settled


def test_a_pipeline_is_not_settled_while_a_share_has_no_reader() -> None:
    from_a = frontier([A], share={"mode": "explicit", "include": ["a"]}, instance="one")
    from_b = frontier([B], share={"mode": "explicit", "include": ["b"]}, instance="two", head=12)
    assert not pipeline(from_a).settled
    both = pipeline(from_a, from_b)
    assert both.settled
    assert both.frontier is not None
    assert (both.source_snapshot, both.frontier.head) == (12, 10)


def test_a_reader_that_is_no_more_does_not_keep_a_pipeline_from_settling() -> None:
    former = frontier([A, B], head=10, instance="former", settled=False, at=at(20))
    present = frontier([A, B], head=10, instance="present", at=at(30))
    assert pipeline(former, present).settled
    assert pipeline(present, former).settled


def test_a_pipeline_says_what_makes_its_source_dear_to_read() -> None:
    plain, said = (pipeline(frontier([A, B], notice=notice)) for notice in (None, "it is read whole"))
    assert plain.frontier is not None
    assert said.frontier is not None
    assert (plain.frontier.notice, said.frontier.notice) == (None, "it is read whole")
    assert (said.frontier.error, said.settled) == (None, True)


def test_a_pipeline_without_destinations_is_settled_once_a_reader_looked() -> None:
    assert not pipeline(held=[]).settled
    said = pipeline(frontier([]), held=[])
    assert (said.settled, said.caught_up, said.destinations) == (True, True, {"total": 0})


@pytest.mark.parametrize("held", [[], [A]], ids=["none", "some"])
def test_a_pipeline_is_neither_settled_nor_caught_up_before_its_file_is_taken_over(held: list[Registered]) -> None:
    """A reader has nothing to do then, and knows of all that there is: whoever waits must not take that for the end."""
    said = pipeline_status(status_store(held, frontier(held), in_force=False).view())
    assert (said.settled, said.caught_up) == (False, False)


def test_a_source_that_can_not_be_read_is_shown_with_the_frontier() -> None:
    said = pipeline(frontier([A, B], settled=False, error=problem("source_unreachable")))
    assert said.frontier is not None
    assert said.frontier.error is not None
    assert said.frontier.error.type == "source_unreachable"


def test_other_pipelines_on_the_same_topics_are_not_ours() -> None:
    foreign: Any = progress(position=15).model_copy(update={"pipeline": "another"})
    assert of_a(foreign).position is None


def test_a_view_is_made_anew_only_when_something_has_changed() -> None:
    it = status_store([A], progress(position=15))
    before = it.view()
    assert it.view() is before
    it.note(progress(position=16))
    after = it.view()
    assert (status(before, "a").position, status(after, "a").position) == (15, 16)
    it.hold(by_id([A, B]))
    assert set(it.view().destinations) == {"a", "b"}
    it.file_in_force = True
    assert it.view().in_force


class TestLagThatNobodyKnows:
    """It is shown as unknown, never as none."""

    @staticmethod
    def status_store(clock: list[float]) -> StatusStore:
        made = StatusStore(PIPELINE, lambda: clock[0])
        made.file_in_force = True
        made.hold({"a": A})
        return made

    def test_a_reader_that_is_silent_says_nothing_of_now(self) -> None:
        clock = [0.0]
        status_store = self.status_store(clock)
        status_store.note(frontier([A]))
        assert status(status_store.view(), "a").lag_seconds == 0.0
        clock[0] = UNHEARD_AFTER_S
        assert status(status_store.view(), "a").lag_seconds is None
        assert status_store.view().standings["a"].lag_seconds is None
        clock[0] = 2 * UNHEARD_AFTER_S
        status_store.note(frontier([A], cycle=2, at=at(21)))
        assert status(status_store.view(), "a").lag_seconds is None, "it was only held back on its way"
        status_store.note(frontier([A], cycle=3, at=at(20 + 2 * UNHEARD_AFTER_S)))
        assert status(status_store.view(), "a").lag_seconds == 0.0

    def test_while_the_only_reader_is_silent_nobody_is_no_snapshot_behind_and_the_pipeline_is_not_there(self) -> None:
        clock = [0.0]
        status_store = self.status_store(clock)
        status_store.file_in_force = True
        status_store.note(frontier([A], settled=True))
        for silent_s, known in ((0.0, True), (UNHEARD_AFTER_S, False)):
            clock[0] = silent_s
            found = pipeline_status(status_store.view())
            assert (found.caught_up, found.settled) == (known, known)
            assert status(status_store.view(), "a").lag_snapshots == (0 if known else None)
        assert found.frontier is not None, "when it was heard last is told"
        clock[0] = 2 * UNHEARD_AFTER_S
        status_store.note(frontier([A], cycle=2, settled=True, at=at(21)))
        assert not pipeline_status(status_store.view()).caught_up, "it was only held back on its way"
        status_store.note(frontier([A], cycle=3, settled=True, at=at(20 + 2 * UNHEARD_AFTER_S)))
        assert pipeline_status(status_store.view()).caught_up

    def test_a_look_at_the_source_that_is_overdue_makes_every_lag_unknown(self) -> None:
        """Its catalog was locked for 101 s, and everybody was shown at 0.0."""
        status_store = self.status_store([0.0])
        status_store.note(frontier([A], look_age_seconds=0.5))
        shown = pipeline_status(status_store.view()).frontier
        assert shown is not None
        assert (shown.looked_at, shown.overdue) == (at(19.5), False)
        status_store.note(frontier([A], cycle=2, look_age_seconds=101.0, overdue=True, at=at(121)))
        shown = pipeline_status(status_store.view()).frontier
        assert shown is not None
        assert (shown.looked_at, shown.overdue) == (at(20), True)
        assert status(status_store.view(), "a").lag_seconds is None
        assert status_store.view().standings["a"].lag_seconds is None
        page = together([_known(status_store.view())])
        (age,) = [line for line in page.splitlines() if line.startswith("viaduck_source_look_age_seconds{")]
        assert float(age.split()[-1]) > 101
        assert "viaduck_dest_lag_seconds{" not in page
        status_store.note(frontier([A], cycle=3, look_age_seconds=0.1, at=at(122)))
        assert status(status_store.view(), "a").lag_seconds == 0.0

    def test_a_destination_that_only_the_reader_has_heard_of_does_not_hold_everybody_at_none(self) -> None:
        """What it said before that goes on for a moment, as when one is just added, and not for ever."""
        clock = [0.0]
        status_store = self.status_store(clock)
        ghost = registered("ghost")
        status_store.note(frontier([A]))
        status_store.note(frontier([A, ghost], cycle=2, lagging={"a": 5}, at=at(21)))
        assert status(status_store.view(), "a").lag_seconds == 0.0
        status_store.note(frontier([A, ghost], cycle=3, lagging={"a": 5}, at=at(40)))
        assert status(status_store.view(), "a").lag_seconds is None

    def test_a_frontier_that_is_sent_again_takes_nothing_back(self) -> None:
        status_store = self.status_store([0.0])
        old = frontier([A], head=5, cycle=1, at=at(1))
        status_store.note(old)
        status_store.note(frontier([A], head=10, lagging={"a": 5}, cycle=2, at=at(2)))
        status_store.note(old)
        found = status(status_store.view(), "a")
        assert (found.source_snapshot, found.lag_seconds) == (10, 2.5)

    def test_an_answer_that_is_sent_again_takes_nothing_back_and_asks_for_nothing(self) -> None:
        status_store = self.status_store([0.0])
        old = progress(Outcome.PARKED, position=3, error=problem("destination_damaged"), seconds=0)
        status_store.note(old)
        status_store.take_asks()
        status_store.note(progress(position=9, seconds=600))
        status_store.note(old)
        found = status(status_store.view(), "a")
        assert (found.position, found.error) == (9, None)
        assert status_store.take_asks() == {}
