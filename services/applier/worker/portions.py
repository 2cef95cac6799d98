"""Records on their way from the thread that reads them to another one, in which they are made rows meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from services.applier.records.record_batch import KafkaMessage, RecordBatch, batch_of, beside

ROWS, BYTES = 32_000, 12_000_000
"""Of a portion, about: each costs a statement of 20 ms, and is in memory until it is done."""

WAITING = 1
"""So many portions wait while another is worked on; beyond them reading waits."""


class Portions:
    """Calls ``work`` with all records in their order, in one thread. Nothing of it runs on after the block, which
    raises what ``work`` raised."""

    def __init__(self, work: Callable[[RecordBatch], None]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1, "viaduck-records")
        self._begun = deque[Future[None]]()
        self._next: list[RecordBatch] = []

    def __enter__(self) -> Portions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self._hand_on()
                self._wait(0)
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def take(self, messages: Sequence[KafkaMessage]) -> None:
        self._next.append(batch_of(messages))
        if sum(map(len, self._next)) >= ROWS or sum(each.bytes for each in self._next) >= BYTES:
            self._hand_on()

    def _hand_on(self) -> None:
        portion, self._next = self._next, []
        if portion:
            self._wait(WAITING)
            self._begun.append(self._thread.submit(self._work, beside(portion)))

    def _wait(self, left: int) -> None:
        """Until so many are left."""
        while len(self._begun) > left:
            self._begun.popleft().result()
