"""The judge of what is shown can fail: each lie is found where it is told, and the truth is believed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.world.destination import Destination
from tests.world.holdings import Holdings
from tests.world.lake import Lake
from tests.world.rows import Column, Rows
from tests.world.shown import HEAD, LAST, OLD_AFTER_S, SECONDS, SNAPSHOTS, Answer, Held, Look, Past, Trouble
from tests.world.shown import contradictions as contradictions_
from tests.world.shown import lies as lies_
from tests.world.truth import RecordedTruth, _State

A = "tenant-a"
LONG_S = OLD_AFTER_S + 1
AT_HEAD = Held(1, 3)


def truth(*changed: bool, reshaped: int | None = None) -> RecordedTruth:
    """A source whose snapshots 1, 2, … change the tenant's rows or not; each is made a second after the one before.

    One of them may give it a column.
    """
    made = RecordedTruth("company")
    rows: Rows = Counter()
    made._states[0], made.head = _State((), (), {}, {"a": rows}, {}, {}), 0
    for snapshot, changes in enumerate(changed, 1):
        rows = Counter({(str(snapshot),): 1}) if changes else rows
        columns = (Column("v", "VARCHAR"),) if reshaped is not None and snapshot >= reshaped else ()
        made._states[snapshot] = _State(columns, tuple((each.name, 0) for each in columns), {}, {"a": rows}, {}, {})
        made.head = snapshot
    return made


def past(*changed: bool, reshaped: int | None = None) -> Past:
    told = truth(*changed, reshaped=reshaped)
    tenant = Destination(lake=Lake("sqlite:nowhere"), table="t", pipeline="events", id=A, value="a")
    return Past({A: Holdings(tenant, told)}, {each: (each - 0.1, float(each)) for each in range(told.head + 1)})


def status(**said: Any) -> dict[str, Any]:
    plain = {
        "id": A, "state": "running", "generation": 1, "position": 3, "known_through": 3, "source_snapshot": 3,
        "lag_snapshots": 0, "lag_seconds": 0.0, "error": None,
    }  # fmt: skip
    return plain | said


def look(at_s: float = 4.0, held: Held | None = AT_HEAD, gauges: Any = None, **said: Any) -> Look:
    pipeline = {"caught_up": False, "settled": False}
    lakes = {A: held}
    return Look(at_s, at_s + 0.1, [status(**said)], pipeline, gauges or {}, {}, before=lakes, held=lakes)


def lies(seen: Look, *changed: bool, troubles: Any = (), reshaped: int | None = None) -> list[str]:
    return lies_(seen, past(*(changed or (True, True, True)), reshaped=reshaped), troubles)


class TestWhatIsTrue:
    def test_at_the_head(self) -> None:
        gauges = {(LAST, A): 3.0, (SNAPSHOTS, A): 0.0, (SECONDS, A): 0.0, (HEAD, ""): 3.0}
        seen = look(4 + 10 * LONG_S, gauges=gauges)
        assert lies(replace(seen, pipeline={"caught_up": True, "settled": True})) == []

    def test_exact_beyond_its_position_where_nothing_of_it_changed(self) -> None:
        assert lies(look(4 + 10 * LONG_S, Held(1, 1), position=1), True, False, False) == []

    def test_what_is_unknown(self) -> None:
        unknown = look(4 + 10 * LONG_S, Held(1, 2), position=2, known_through=2, lag_snapshots=None, lag_seconds=None)
        assert lies(unknown) == []

    def test_old_for_less_than_it_may_be(self) -> None:
        assert lies(look(3 + OLD_AFTER_S, Held(1, 2), position=2, known_through=2, source_snapshot=2)) == []

    def test_behind_columns_that_are_again_what_they_were(self) -> None:
        assert lies(look(held=Held(1, 1), position=1), True, False, False, reshaped=4) == []

    def test_what_could_not_be_seen_in_the_lake_is_not_judged(self) -> None:
        seen = look(known_through=3, held=Held(1, 1))
        assert lies(replace(seen, held={})) == []
        assert lies(replace(seen, before={A: None})) == []  # its life began between the two looks at it

    def test_how_long_a_life_that_has_not_begun_waits_for_its_seed(self) -> None:
        waits = {"generation": 2, "position": None, "known_through": None, "lag_snapshots": None, "lag_seconds": 0.4}
        assert lies(look(3 + LONG_S, Held(1, 2), gauges={(SECONDS, A): 0.4}, **waits, state="seeding")) == []


class TestLies:
    def test_further_than_its_lake(self) -> None:
        (first, second) = lies(look(held=Held(1, 2)))
        assert "its cursor was at 2" in first
        assert "snapshot 3 changed its rows" in second

    def test_exact_where_its_lake_has_the_columns_that_were(self) -> None:
        (lie,) = lies(look(held=Held(1, 2), position=2), True, True, False, reshaped=3)
        assert "snapshot 3 changed its rows, or the columns" in lie
        (lie,) = lies(
            look(3 + LONG_S, Held(1, 2), position=2, known_through=2, lag_snapshots=1), True, True, False, reshaped=3
        )
        assert f"lacked a change for {LONG_S:.0f} s" in lie

    def test_exact_where_the_source_has_not_come_to(self) -> None:
        assert any("snapshot 4 changed" in each for each in lies(look(known_through=9, source_snapshot=9)))
        assert any("head is 3, not 9" in each for each in lies(look(source_snapshot=9)))

    def test_of_a_life_that_has_not_begun(self) -> None:
        (lie,) = lies(look(generation=2))
        assert "no life of generation 2" in lie
        (lie,) = lies(look(held=None, position=None, known_through=None, lag_snapshots=None, state="seeding"))
        assert "but None" in lie

    def test_no_lag_although_it_is_behind(self) -> None:
        behind = {"position": 2, "known_through": 2, "source_snapshot": 2}
        (lie,) = lies(look(3 + LONG_S, Held(1, 2), **behind))
        assert f"lacked a change for {LONG_S:.0f} s" in lie
        (lie,) = lies(look(3 + LONG_S, Held(1, 2), **behind, lag_seconds=None))
        assert "no snapshot behind" in lie

    def test_a_lag_that_does_not_grow(self) -> None:
        behind = {"position": 2, "known_through": 2, "lag_snapshots": 1}
        assert lies(look(3 + 100, Held(1, 2), **behind, lag_seconds=100 - OLD_AFTER_S)) == []
        assert len(lies(look(3 + 100, Held(1, 2), **behind, lag_seconds=99 - OLD_AFTER_S))) == 1

    def test_running_without_having_been_exact_anywhere(self) -> None:
        (lie, *_) = lies(look(known_through=None, lag_snapshots=None))
        assert "nobody knows" in lie

    def test_a_lag_that_is_not_what_lies_between(self) -> None:
        assert "not what lies between" in lies(look(lag_snapshots=7))[0]

    @pytest.mark.parametrize("word", ["caught_up", "settled"])
    def test_a_pipeline_that_is_not_there(self, word: str) -> None:
        behind = look(3 + LONG_S, Held(1, 2), position=2, known_through=2, lag_snapshots=None, lag_seconds=None)
        seen = replace(behind, pipeline={"caught_up": False, "settled": False, word: True})
        (lie,) = lies(seen)
        assert "the pipeline is shown as" in lie
        assert lies(replace(seen, statuses=[{**each, "state": "paused"} for each in behind.statuses or ()])) == []

    @pytest.mark.parametrize(
        ("name", "value"), [((LAST, A), 3.0), ((SECONDS, A), 0.0), ((SNAPSHOTS, A), 0.0), ((HEAD, ""), 4.0)]
    )
    def test_metrics(self, name: tuple[str, str], value: float) -> None:
        behind = {"position": 2, "known_through": 2, "lag_snapshots": None, "lag_seconds": None}
        (lie,) = lies(look(3 + LONG_S, Held(1, 2), gauges={name: value}, **behind))
        assert lie.startswith(name[0])


class TestReadiness:
    SILENT = Trouble("the broker is silent", "control", began_s=10.0, ended_s=20.0, within_s=2.0)

    def found(self, at_s: float, answer: Answer | None) -> list[str]:
        seen = Look(at_s, at_s + 1, ready={"control": answer})
        return lies(seen, troubles=[self.SILENT])

    def test_ready_in_trouble(self) -> None:
        fine = Answer(200, {"broker": None})
        assert "the broker is silent for 3 s" in self.found(13.0, fine)[0]
        assert [self.found(at_s, fine) for at_s in (9.0, 11.0, 19.5, 25.0)] == [[]] * 4
        assert self.found(13.0, Answer(503, {"broker": "does not answer"})) == []
        assert self.found(13.0, None) == []

    def test_a_code_that_is_not_what_its_checks_say(self) -> None:
        assert len(self.found(0.0, Answer(200, {"broker": "away"}))) == 1
        assert len(self.found(0.0, Answer(503, {"broker": None}))) == 1


class TestExitCodes:
    @pytest.mark.parametrize(("code", "state", "wrong"), [(0, "parked", 1), (1, "running", 1), (1, "parked", 0)])
    def test_of_status_beside_its_lines(self, code: int, state: str, wrong: int) -> None:
        assert len(contradictions_(code, [status(state=state)])) == wrong

    @pytest.mark.parametrize(("code", "wrong"), [(0, 1), (1, 0), (2, 1)])
    def test_of_status_beside_a_pipeline_that_can_not_be_used(self, code: int, wrong: int) -> None:
        assert len(contradictions_(code, [status()], unusable=True)) == wrong

    def test_somebody_parked_is_shown_as_such(self) -> None:
        (lie,) = contradictions_(0, [status(state="seeding")], parked=[A])
        assert A in lie


def test_a_change_and_its_time_are_those_of_the_source() -> None:
    told = past(True, False, True)
    assert told.behind_s(A, Held(1, 1), 9.0) == pytest.approx(6.0)
    assert told.behind_s(A, Held(1, 0), 9.0) == pytest.approx(8.0)
    assert told.behind_s(A, Held(1, 1), 2.5) == 0.0
    assert (told.head_at(2.95), told.may_be_at(2.95)) == (2, 3)
