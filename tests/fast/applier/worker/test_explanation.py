"""Who is to blame for an error, and what one task reports."""

from __future__ import annotations

from services.applier.worker.explanation import explain
from shared.contracts.errors import DestinationError


def test_what_any_lake_may_say_is_of_the_source_while_that_is_read() -> None:
    error = DestinationError("destination_unreachable", "no route", "check it")
    assert explain(error, "reading", source=True).type == "source_unreachable"
    assert explain(error, "reading").type == "destination_unreachable"


def test_an_error_that_only_the_range_can_cause_keeps_its_type() -> None:
    error = DestinationError("history_expired", "gone", "reseed it")
    assert explain(error, "reading", source=True).type == "history_expired"
