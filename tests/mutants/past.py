"""Mistakes about the source's history, and about older snapshots of destinations."""

from __future__ import annotations

from typing import Any

from services.cli.verify import comparison
from services.control.operations import destination_past
from services.control.view import retention
from services.control.view.lake_retention import LakeRetention
from tests.mutants.mistake import Mistake, put

RETENTION = "tests/fast/control/view/test_retention.py"


def _forget_the_paused() -> None:
    right = retention._need

    def need(name: str, held: Any, state: Any, seen: Any) -> Any:
        return None if state in ("paused", "stopped") else right(name, held, state, seen)

    put(retention, "_need", need)


def _expire_the_lowest_itself() -> None:
    put(LakeRetention, "may_expire_through", property(lambda self: self.lowest and self.lowest.held.snapshot))


def _trust_time_travel() -> None:
    put(comparison, "last_compaction", lambda *_: -1)
    put(comparison, "COMPACTED", "")


def _ignore_later_arrivals() -> None:
    right = destination_past.newest_at
    put(destination_past, "newest_at", lambda found, moment, _: right(found, moment, lambda _: {}))


MISTAKES = (
    Mistake("floor-without-the-paused", "a destination that is switched off holds no snapshot of the source",
            _forget_the_paused, (RETENTION, "-k", "switched_off")),
    Mistake("lowest-expires", "the lowest needed snapshot may be expired itself", _expire_the_lowest_itself,
            (RETENTION, "-k", "lowest_stored_position")),
    Mistake("past-behind-compaction", "what time travel shows behind a compaction counts as proven",
            _trust_time_travel, ("tests/lake/test_compare_past.py", "-k", "compaction and sqlite")),
    Mistake("past-by-arrival", "a commit counts from when it arrived, not from when the source made it",
            _ignore_later_arrivals, ("tests/lake/test_destination_past.py", "-k", "moment_is")),
)  # fmt: skip
