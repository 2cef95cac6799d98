"""What becomes of a routing value without a destination: one reason for each, and limits that the registry keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.control.model.lifecycle import Registered
from services.control.model.policy import PolicyDecision, Sighting, decide, standing, twins
from shared.config.model import Appear
from tests.fast.control.examples import START, declared, registered


def sighting(value: str = "acme", **changes: Any) -> Sighting:
    return replace(Sighting(f"digest of {value}", value, True, 3, 7), **changes)


def appeared(name: str, hours_ago: float = 0.5, **changes: Any) -> Registered:
    return registered(name, managed_by="api", appeared_at=START - timedelta(hours=hours_ago), **changes)


def decided(
    value: Sighting | None = None, *held: Registered, among: tuple[Sighting, ...] = (), **rules: Any
) -> PolicyDecision:
    asked = value or sighting()
    id = None if asked.name is None else f"{asked.name}-lake"  # noqa: A001
    there = standing(held, START)
    return decide(asked, id, Appear(**{"policy": "create", **rules}), there, twins([asked, *among]))


def test_what_nothing_stands_against_is_made() -> None:
    assert decided().creates
    assert decided(None, registered("other"), allow="[a-z]+").creates


@pytest.mark.parametrize(
    ("reason", "decision"),
    [
        ("unsafe", decided(sighting("a/b"))),
        ("unsafe", decided(sighting(whole=False))),
        ("removed", decided(None, registered("acme-lake", removed=True))),
        ("removed", decided(None, registered("x", declared=declared("x", routing_value="acme"), removed=True))),
        ("taken", decided(None, registered("acme-lake"))),
        ("similar", decided(None, registered("ACME-lake"))),
        ("similar", decided(None, registered("Acme-Lake", removed=True))),
        ("similar", decided(None, among=(sighting("ACME"),))),
        ("not_allowed", decided(allow="acm")),
        ("not_allowed", decided(allow="x|ac", policy="propose")),
        ("asks", decided(policy="propose")),
        ("full", decided(None, appeared("a", 9), appeared("b", 9), total=2)),
        ("hour_full", decided(None, appeared("a"), appeared("b"), per_hour=2)),
        ("full", decided(total=0)),
        ("hour_full", decided(per_hour=0)),
    ],
)
def test_each_reason_says_what_an_operator_can_do(reason: str, decision: PolicyDecision) -> None:
    assert decision.reason == reason
    assert not decision.creates
    assert len(decision.message) > 20


def test_the_limit_per_hour_counts_the_removed_too_and_the_total_does_not() -> None:
    gone = appeared("gone", removed=True)
    assert decided(None, gone, per_hour=1).reason == "hour_full"
    assert decided(None, gone, total=1).creates
    assert decided(None, appeared("old", 1.01), per_hour=1).creates


def test_what_operators_and_files_made_counts_for_no_limit() -> None:
    assert decided(None, *(registered(f"d{number}") for number in range(5)), per_hour=1, total=1).creates


def test_no_message_quotes_a_strangers_value() -> None:
    for value in ("<script>", "'; DROP", "x\n\x00"):
        assert value not in decided(sighting(value)).message
