"""The benchmark's far-away network delays, keeps order, and changes nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.delay import FarAway

LATE_S = 0.06


@pytest.fixture
def way() -> Iterator[FarAway]:
    """To a server that says back what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        with FarAway(listener.getsockname()[1]) as way:
            yield way


def _echo(listener: socket.socket) -> None:
    server, _ = listener.accept()
    with server:
        while chunk := server.recv(65_536):
            server.sendall(chunk)


def said_back(client: socket.socket, words: bytes) -> float:
    """Seconds until all of it came back."""
    began, came = time.monotonic(), b""
    client.sendall(words)
    while len(came) < len(words):
        came += client.recv(65_536)
    assert came == words
    return time.monotonic() - began


def test_a_question_and_its_answer_take_the_round_trip_longer(way: FarAway) -> None:
    with socket.create_connection(("127.0.0.1", way.port), timeout=10) as client:
        said_back(client, b"warm")
        way.round_trip(LATE_S)
        assert LATE_S * 0.9 < said_back(client, b"far") < LATE_S + 1.0


def test_nothing_is_lost_and_order_stays_where_the_delay_is_shortened_meanwhile(way: FarAway) -> None:
    words = bytes(range(256)) * 4_000
    with socket.create_connection(("127.0.0.1", way.port), timeout=10) as client:
        way.round_trip(LATE_S)
        threading.Timer(LATE_S / 2, way.round_trip, (0,)).start()
        said_back(client, words)


def test_an_end_is_passed_on_behind_what_came_before_it(way: FarAway) -> None:
    way.round_trip(LATE_S)
    with socket.create_connection(("127.0.0.1", way.port), timeout=10) as client:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"last words"
        assert client.recv(100) == b""
