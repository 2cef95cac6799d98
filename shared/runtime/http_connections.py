"""uvicorn's HTTP, with an end to waiting for others and a bound on how many are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 512
"""Open at once. A new connection replaces the longest silent one."""

HEAD_WITHIN_S = 15.0
"""From the beginning of a connection, or the end of the answer before, to the end of a request's head."""

BODY_WITHIN_S = 120.0
TAKE_WITHIN_S = 60.0
"""A client that reads nothing of its answer for so long is disconnected."""

LOOK_EVERY_S = 1.0
AT_ONCE = 8
"""That part of all goes at once where there is no room."""


class BoundedHttpConnection(H11Protocol):
    """One connection. What it is waited for, and since when, is looked at now and then."""

    head_within_s, body_within_s, take_within_s = HEAD_WITHIN_S, BODY_WITHIN_S, TAKE_WITHIN_S
    look_every_s = LOOK_EVERY_S
    most = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._waits_for: tuple[Any, ...] = ()
        self._since_s = self.loop.time()
        super().connection_made(transport)
        self._look_timer = self.loop.call_later(self.look_every_s, self._look)
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._since_s = self.loop.time()

    @property
    def idle_since_s(self) -> float | None:
        """None while a request is being answered."""
        return self._since_s if self._is_idle() else None

    def end(self) -> None:
        """At once: a client that sends nothing may be gone, and is not waited for."""
        self.transport.abort()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        """Those that have been silent longest go, several at once, because to look for them takes a while.

        The new one goes where all others are being answered.
        """
        others = [each for each in self.connections if isinstance(each, BoundedHttpConnection) and each is not self]
        idle = [(since, id(each), each) for each in others if (since := each.idle_since_s) is not None]
        longest = [each for _, _, each in nsmallest(max(self.most // AT_ONCE, 1), idle)]
        for each in longest or [self]:
            each.end()

    def _look(self) -> None:
        self._look_timer = self.loop.call_later(self.look_every_s, self._look)
        waits_for, within_s = self._waiting()
        now = self.loop.time()
        if waits_for != self._waits_for:
            self._waits_for, self._since_s = waits_for, now
        elif now - self._since_s > within_s:
            self.end()

    def _waiting(self) -> tuple[tuple[Any, ...], float]:
        """What of which request is waited for now, and how long it may be."""
        if self._is_idle():
            return ("head", self.cycle), self.head_within_s
        if self.cycle.more_body and not self.flow.read_paused:
            return ("body", self.cycle), self.body_within_s
        if self.flow.write_paused:
            return ("taking", self.cycle, self.transport.get_write_buffer_size()), self.take_within_s
        return ("us", self.cycle), float("inf")


def server_settings(
    app: ASGIApp, connection: type[BoundedHttpConnection], finish_within_s: int, headers: Sequence[tuple[str, str]] = ()
) -> uvicorn.Config:
    """How every server of ours runs: no log of its own, no header that names it, no trust in what a proxy adds."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=list(headers),
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=finish_within_s,
    )
