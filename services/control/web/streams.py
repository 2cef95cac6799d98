"""How many may follow events at once: each holds a connection for hours, and has its page computed every second."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from services.control.web.problems import HttpProblem

MOST = 256
MOST_OF_ONE = 128


class Streams:
    """Those of one server. For one thread: the event loop's."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def check(self, whose: str) -> None:
        """Raises ``HttpProblem`` where there is no room for another one."""
        if self._open.total() >= MOST or self._open[whose] >= MOST_OF_ONE:
            said = f"{MOST_OF_ONE} event streams per client, or {MOST} in all, are open"
            problem = HttpProblem("too_many_streams", said)
            problem.headers = {"Retry-After": "10"}
            raise problem

    @contextmanager
    def one(self, whose: str) -> Iterator[None]:
        self._open[whose] += 1
        try:
            yield
        finally:
            self._open[whose] -= 1
            self._open += Counter()  # forgets who has none


class EventStream(StreamingResponse):
    """Counted from its first byte until its client is gone, however it ends."""

    def __init__(self, events: AsyncIterator[bytes], streams: Streams, whose: str, headers: dict[str, str]) -> None:
        streams.check(whose)
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams
        self._whose = whose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one(self._whose):
            await super().__call__(scope, receive, send)
