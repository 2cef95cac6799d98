"""Offsets are committed only behind work that is done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.applier.model.offsets import OffsetLedger

WORK = ("work", 0)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_a_commit_never_passes_an_unanswered_item(finished: list[int], count: int) -> None:
    ledger = OffsetLedger()
    for offset in range(8):
        ledger.received(WORK, offset)
    done = set(finished[:count])
    for offset in done:
        ledger.done(WORK, offset)
    committed = ledger.committable().get(WORK, 0)
    assert all(offset in done for offset in range(committed))
    assert committed == 8 or committed not in done


def test_an_offset_is_offered_once() -> None:
    ledger = OffsetLedger()
    ledger.received(WORK, 3)
    ledger.done(WORK, 3)
    assert ledger.committable() == {WORK: 4}
    assert ledger.committable() == {}


def test_a_lost_partition_is_forgotten() -> None:
    ledger = OffsetLedger()
    ledger.received(WORK, 3)
    ledger.forget([WORK])
    ledger.done(WORK, 3)
    assert ledger.committable() == {}
    assert ledger.in_hand == 0


def test_gaps_in_a_log_hold_nothing_up() -> None:
    ledger = OffsetLedger()
    for offset in (1, 7):
        ledger.received(WORK, offset)
        ledger.done(WORK, offset)
    assert ledger.committable() == {WORK: 8}
