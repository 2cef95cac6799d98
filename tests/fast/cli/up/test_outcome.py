from __future__ import annotations

from typing import Any

from services.cli.up.outcome import GRACE_S, ExitVerdict, ProgressSummary, reasons

PROBLEM = {"type": "access_denied", "message": "no", "hint": "grant", "retryable": False, "since": "…"}


def dest(id: str, state: str = "running", through: int | None = 7, error: Any = None) -> dict[str, Any]:
    return {"id": id, "state": state, "known_through": through, "error": error}


def tally(
    *destinations: dict[str, Any], settled: bool = True, fresh: bool = True, source: int | None = 7
) -> ProgressSummary:
    return ProgressSummary(7, source, settled, fresh, destinations)


def code(*tallies: ProgressSummary, now: float = 0.0) -> int | None:
    verdict = ExitVerdict()
    return [verdict.code(each, now) for each in tallies][-1]


def test_it_is_done_when_everybody_is_at_the_head_and_nothing_is_in_flight() -> None:
    assert code(tally(dest("a"), dest("b", through=9))) == 0
    assert code(tally()) == 0


def test_it_goes_on_while_somebody_is_behind_and_something_moves() -> None:
    assert code(tally(dest("a"), dest("b", through=6), settled=False)) is None
    assert code(tally(dest("a", "seeding", None), settled=False)) is None


def test_it_goes_on_while_somebody_is_parked_and_something_still_moves() -> None:
    assert code(tally(dest("a", "parked", error=PROBLEM), dest("b", through=3), settled=False)) is None


def test_it_gives_up_when_nothing_moves_and_somebody_is_parked_even_one_that_was_at_the_head() -> None:
    assert code(tally(dest("a", "parked", 7, PROBLEM), dest("b"))) == 1


def test_it_gives_up_when_nothing_moves_and_somebody_is_past_its_retries() -> None:
    assert code(tally(dest("a", through=3), dest("b"))) == 1


def test_paused_and_stopped_destinations_count_for_nothing() -> None:
    assert code(tally(dest("a", "paused", 3), dest("b", "stopped", None), dest("c"))) == 0


def test_what_was_said_before_the_command_started_decides_nothing() -> None:
    assert code(tally(dest("a"), fresh=False)) is None
    assert code(tally(dest("a", "parked", 3, PROBLEM), fresh=False)) is None


def test_what_the_reader_said_of_an_older_head_decides_nothing() -> None:
    assert code(tally(dest("a", through=6), source=6)) is None
    assert code(tally(source=None)) is None


def test_nothing_is_decided_before_control_knows_every_destination_of_the_file() -> None:
    early = ProgressSummary(7, 7, True, True, [dest("a")], frozenset({"a", "b"}))
    assert code(early) is None
    assert code(ProgressSummary(7, 7, True, True, [dest("a"), dest("b", "paused")], frozenset({"a", "b"}))) == 0


def test_a_source_that_never_rests_does_not_keep_it_from_ending() -> None:
    verdict = ExitVerdict()
    busy = tally(dest("a"), settled=False)
    assert verdict.code(busy, 0.0) is None
    assert verdict.code(busy, GRACE_S - 1) is None
    assert verdict.code(busy, GRACE_S) == 0


def test_everybody_behind_is_named_with_reason_and_hint() -> None:
    lines = reasons(tally(dest("a", "parked", 3, PROBLEM), dest("b", through=-1), dest("c")).behind)
    assert lines == ["a: parked at snapshot 3: access_denied: no (grant)", "b: running at no snapshot yet"]
