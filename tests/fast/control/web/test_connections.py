"""Whoever says nothing, says it too slowly, or follows everything at once, shuts nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from services.control.web.problems import HttpProblem
from services.control.web.streams import MOST, MOST_OF_ONE, Streams
from services.control.web.ttl_cache import SHARE, TtlCache
from shared.runtime.http_connections import BoundedHttpConnection
from tests.fast.control.live_server import served, serving
from tests.fast.control.rig import ControlRig


class Impatient(BoundedHttpConnection):
    head_within_s, body_within_s, take_within_s = 0.5, 0.5, 0.5
    most = 8


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with closing(ControlRig(tmp_path)) as rig, served(rig, Impatient) as url:
        yield url


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(url).port or 0))


def is_closed(connection: socket.socket, within_s: float = 4) -> bool:
    connection.settimeout(within_s)
    try:
        while connection.recv(4_000):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_silent_connections_are_let_go_of(url: str) -> None:
    with connected(url) as silent:
        assert is_closed(silent)


@pytest.mark.parametrize("sent", [b"", b"PUT /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"])
def test_a_request_that_comes_byte_by_byte_is_not_waited_for(url: str, sent: bytes) -> None:
    with connected(url) as slow, contextlib.suppress(ConnectionError):
        slow.sendall(sent)
        began = time.monotonic()
        while time.monotonic() - began < 6:
            slow.send(b"G")
            time.sleep(0.05)
        raise AssertionError("the server still listens")


def test_silent_connections_take_no_place_of_others(url: str) -> None:
    with ExitStack() as opened:
        for _ in range(5 * Impatient.most):
            opened.enter_context(connected(url))
            assert httpx.get(f"{url}/healthz", timeout=5).status_code == 200


def test_a_stream_that_is_followed_stays_though_nothing_is_said_to_it(url: str) -> None:
    with httpx.stream("GET", f"{url}/events", timeout=10) as followed:
        began, lines = time.monotonic(), followed.iter_lines()
        assert next(lines)
        time.sleep(3 * Impatient.head_within_s + 1)
        assert time.monotonic() - began > 2
        with ExitStack() as opened:
            for _ in range(2 * Impatient.most):
                opened.enter_context(connected(url))
            assert next(lines)


async def endless(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _each in range(64):
        await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})


def test_a_client_that_takes_nothing_of_its_answer_is_let_go_of() -> None:
    with serving(endless, Impatient) as url, connected(url) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(4)
        deaf.settimeout(5)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := deaf.recv(1_000_000):
                taken += len(part)
        assert taken < 40_000_000


def test_streams_are_bounded_for_one_and_for_all() -> None:
    streams = Streams()
    with ExitStack() as opened:
        for _ in range(MOST_OF_ONE):
            streams.check("olga")
            opened.enter_context(streams.one("olga"))
        with pytest.raises(HttpProblem, match="event streams"):
            streams.check("olga")
        for n in range(MOST - MOST_OF_ONE):
            opened.enter_context(streams.one(f"holder {n}"))
        with pytest.raises(HttpProblem) as full:
            streams.check("hugo")
        assert (full.value.document.status, full.value.headers["Retry-After"]) == (503, "10")
    streams.check("olga")


def test_a_stream_beyond_the_bound_is_refused_as_a_problem_and_one_that_ended_makes_room(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig, served(rig) as url:
        streams = rig.http.app.state.streams
        with ExitStack() as opened:
            for _ in range(MOST_OF_ONE - 1):
                opened.enter_context(streams.one("loopback"))
            with httpx.stream("GET", f"{url}/events", timeout=5) as last:
                assert last.status_code == 200
                refused = httpx.get(f"{url}/events", timeout=5)
                assert (refused.status_code, refused.json()["type"]) == (503, "/docs/errors#too_many_streams")
        with httpx.stream("GET", f"{url}/events", timeout=5) as again:
            assert again.status_code == 200


def test_what_many_different_streams_show_leaves_most_of_the_time_to_others() -> None:
    """Two hundred pages that all differ: the loop is free again after each of them."""
    once: TtlCache[int] = TtlCache(10.0)

    def slow() -> int:
        time.sleep(0.02)
        return 1

    async def follow() -> tuple[float, float]:
        began = time.monotonic()
        following = [asyncio.create_task(once.soon(n, slow)) for n in range(20)]
        longest = 0.0
        while not all(each.done() for each in following):
            at = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - at)
        return time.monotonic() - began, longest

    whole, longest = asyncio.run(follow())
    assert whole > 20 * 0.02 / SHARE * 0.9
    assert longest < 0.3
