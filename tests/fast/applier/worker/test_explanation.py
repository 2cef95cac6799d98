"""Who is to blame for an error, and what one task reports."""

from __future__ import annotations

from services.applier.model.task import WorkerReport
from services.applier.worker.explanation import explain
from services.applier.worker.tally import Tally
from shared.contracts.errors import DestinationError


def test_what_any_lake_may_say_is_of_the_source_while_that_is_read() -> None:
    error = DestinationError("destination_unreachable", "no route", "check it")
    assert explain(error, "reading", source=True).type == "source_unreachable"
    assert explain(error, "reading").type == "destination_unreachable"


def test_an_error_that_only_the_range_can_cause_keeps_its_type() -> None:
    error = DestinationError("history_expired", "gone", "reseed it")
    assert explain(error, "reading", source=True).type == "history_expired"


def test_a_tally_is_reported_by_name() -> None:
    tally = Tally(rows_read=3, read_seconds=0.5, routing_mutations=2, conflicts_resolved=1)
    assert tally.report(7, 8, 9) == WorkerReport(7, 8, 9, 3, 0.5, 2, 1)
