"""Mistakes in what a reader knows of its source, and in how messages about it are sent."""

from __future__ import annotations

from typing import Any

from services.reader.loop import Loop
from services.reader.planner.exactness import Exactness
from services.reader.source import row_counter
from services.reader.source.source_poller import SourcePoller
from shared.kafka import settings
from tests.mutants.mistake import Mistake, put

POLLER = "tests/fast/reader/source/test_source_poller.py"
COUNTS = "tests/fast/reader/source/test_lake_source.py"


def _believe_looks() -> None:
    def looked(poller: Any) -> None:
        poller._counted_s = poller._looked_s

    put(SourcePoller, "_note_counted", looked)


def _believe_partial_counts() -> None:
    put(Exactness, "_know_only_tracked", lambda *_: None)


def _wait_for_old_files() -> None:
    put(row_counter, "IMPATIENT", ("SET http_timeout = 20", "SET http_retries = 0"))


def _send_before_all_are_placed() -> None:
    right = Loop._act

    def act(loop: Any, poller: SourcePoller) -> None:
        loop._publish(loop._clock())
        right(loop, poller)

    put(Loop, "_act", act)


def _idempotent_producers() -> None:
    put(settings, "PRODUCER_FIXED", {"acks": "all", "enable.idempotence": True})


MISTAKES: tuple[Mistake, ...] = (
    Mistake("looks-are-counts", "a look makes lags known before its count", _believe_looks, (POLLER, "-k", "freeze")),
    Mistake("partial-is-whole", "a count of some values proves something of all", _believe_partial_counts,
            ("tests/fast/reader/planner/test_plan.py", "-k", "comes_from_before")),
    Mistake("wait-for-old-files", "counting waits for a store that is silent", _wait_for_old_files,
            (COUNTS, "-k", "silent")),
    Mistake("send-unplaced", "items are sent before all have their partition", _send_before_all_are_placed,
            ("tests/fast/reader/test_loop.py", "-k", "before_all")),
    Mistake("idempotent-producers", "a wiped broker drops what looks sent before", _idempotent_producers,
            ("tests/e2e/test_kafka.py", "-k", "taken_for")),
)  # fmt: skip
