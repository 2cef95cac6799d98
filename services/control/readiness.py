"""Whether everything that the pipelines depend on answers. No tenant's lake is among it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late

from shared.runtime.background import problems
from shared.runtime.peers import Peers

ANSWER_WITHIN_S = 3.0

Check = Callable[[], str | None]
"""None if the dependency answers, else what is wrong with it."""


class Readiness:
    """Asks all dependencies at once, and waits for none of them longer than ``within_s``."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        peers: Peers,
        sources: Callable[[], Mapping[str, str | None]],
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """``sources``: what control itself knows of each."""
        self._checks = dict(checks)
        self._peers = peers
        self._sources = sources
        self._within_s = within_s
        self._threads = ThreadPoolExecutor(len(checks) + 1, thread_name_prefix="readiness")
        self._lock = threading.Lock()
        self._asked: dict[str, Future[str | None]] = {}

    def checks(self) -> dict[str, str | None]:
        """By dependency: None, or what is wrong."""
        with self._lock:
            asked = {name: self._ask(name, check) for name, check in self._checks.items()}
        if not self._peers.names:
            return {name: self._answer(future) for name, future in asked.items()} | problems()
        # A reader that is away can't speak for the source; control's own look at the start can.
        own = {**self._sources()} | {name: self._answer(future) for name, future in asked.items()}
        return own | problems() | self._peers.checks()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, name: str, check: Check) -> Future[str | None]:
        """A check that has not returned is not started again: it would only queue up behind itself."""
        asked = self._asked.get(name)
        if asked is None or asked.done():
            asked = self._asked[name] = self._threads.submit(check)
        return asked

    def _answer(self, future: Future[str | None]) -> str | None:
        try:
            return future.result(self._within_s)
        except Late:
            return f"did not answer within {self._within_s:g} s"
