"""The faulty network is faulty in exactly the way that it is told to be."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.fast.waiting import eventually
from tests.servers.pgwire import Client, Server
from tests.servers.proxy import Proxy

SOON_S = 5.0
A_WHILE_S = 0.2


class Echo(socketserver.BaseRequestHandler):
    received: list[bytes]

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            while chunk := self.request.recv(65536):
                self.received.append(chunk)
                self.request.sendall(chunk)


@pytest.fixture
def received() -> list[bytes]:
    """What reached the server."""
    return []


@pytest.fixture
def proxy(received: list[bytes]) -> Iterator[Proxy]:
    handler = type("Handler", (Echo,), {"received": received})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with Proxy(server.server_address[1]) as proxy:
            yield proxy
        server.shutdown()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), SOON_S) as made:
        yield made


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    answer = b""
    while len(answer) < len(text) and (chunk := client.recv(65536)):
        answer += chunk
    return answer


def send_without_end(client: socket.socket) -> None:
    while True:
        client.sendall(b"x" * 1000)
        client.recv(1000)


def test_nothing_is_changed_on_the_way(client: socket.socket) -> None:
    text = bytes(range(256)) * 4096
    sender = threading.Thread(target=client.sendall, args=(text,))
    sender.start()
    answer = b""
    while len(answer) < len(text):
        answer += client.recv(65536)
    sender.join()
    assert answer == text


def test_an_orderly_end_goes_through_in_both_directions(client: socket.socket) -> None:
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    answer = b""
    while chunk := client.recv(65536):
        answer += chunk
    assert answer == b"last words"


def test_latency_delays_each_direction_and_goes_again(proxy: Proxy, client: socket.socket) -> None:
    proxy.latency(A_WHILE_S)
    began = time.monotonic()
    assert ask(client, b"a") == b"a"
    assert time.monotonic() - began >= 2 * A_WHILE_S
    proxy.heal()
    began = time.monotonic()
    assert ask(client, b"b") == b"b"
    assert time.monotonic() - began < A_WHILE_S


def test_reset_is_seen_as_a_reset_and_new_connections_work(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client, b"a") == b"a"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), SOON_S) as again:
        assert ask(again, b"b") == b"b"


def test_cut_is_seen_as_an_end(proxy: Proxy, client: socket.socket) -> None:
    assert ask(client, b"a") == b"a"
    proxy.cut()
    assert client.recv(1) == b""
    eventually(lambda: proxy.connections == 0, SOON_S)


def test_a_closed_port_refuses_until_it_is_healed(proxy: Proxy, client: socket.socket) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), SOON_S)
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), SOON_S) as again:
        assert ask(again, b"a") == b"a"


def test_a_silent_network_accepts_forwards_nothing_and_goes_on_where_it_stopped(
    proxy: Proxy, client: socket.socket, received: list[bytes]
) -> None:
    assert ask(client, b"a") == b"a"
    proxy.silence()
    client.sendall(b"b")
    with socket.create_connection(("127.0.0.1", proxy.port), SOON_S) as late:
        late.sendall(b"c")
        late.settimeout(A_WHILE_S)
        with pytest.raises(TimeoutError):
            late.recv(1)
        assert received == [b"a"]
        proxy.heal()
        late.settimeout(SOON_S)
        assert (late.recv(1), client.recv(1)) == (b"c", b"b")


def test_what_was_ended_in_the_silence_does_not_hold_up_the_end(proxy: Proxy) -> None:
    with Proxy(proxy.target_port) as other:
        other.silence()
        with socket.create_connection(("127.0.0.1", other.port), SOON_S) as late:
            eventually(lambda: other.connections == 1)
            other.reset()
            with pytest.raises(ConnectionResetError):
                late.recv(1)


@pytest.mark.parametrize("count", [1, 3, 65536])
def test_exactly_so_many_bytes_reach_the_server(
    proxy: Proxy, client: socket.socket, received: list[bytes], count: int
) -> None:
    proxy.cut_after(count, "server")
    with pytest.raises(OSError):
        send_without_end(client)
    eventually(lambda: len(b"".join(received)) == count, SOON_S)


def test_exactly_so_many_bytes_reach_the_client(proxy: Proxy, client: socket.socket, received: list[bytes]) -> None:
    proxy.cut_after(4, "client")
    client.sendall(b"abcdefgh")
    assert client.recv(4, socket.MSG_WAITALL) == b"abcd"
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert received == [b"abcdefgh"]
    assert proxy.broken_off == 1


STARTUP = (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x00\x00\x00\x09\x00\x03\x00\x00\x00")
"""SSLRequest, and the shortest startup message."""


def query(text: str) -> bytes:
    body = text.encode() + b"\0"
    return b"Q" + (len(body) + 4).to_bytes(4, "big") + body


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


SYNC = message(b"S", b"")


def prepared(text: str, name: str = "name") -> bytes:
    return message(b"P", name.encode() + b"\0" + text.encode() + b"\0" + b"\0\0")


def bound(*values: str, name: str = "name") -> bytes:
    """Values for a prepared statement, and its execution."""
    texts = b"".join(len(value).to_bytes(4, "big") + value.encode() for value in values)
    return message(b"B", b"\0" + name.encode() + b"\0" + b"\0\0" + len(values).to_bytes(2, "big") + texts + b"\0\0")


def extended(text: str) -> bytes:
    return prepared(text) + bound() + SYNC


def commits(client: Client, stream: bytes, size: int) -> list[bytes]:
    pieces = (stream[start : start + size] for start in range(0, len(stream), size))
    return [transaction for piece in pieces for transaction in client.commits(piece)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_commit_is_found_however_the_stream_is_cut(size: int) -> None:
    sent = [
        *STARTUP, query("BEGIN"), query("INSERT INTO t VALUES ('commit')"), SYNC, query("COMMIT"),
        query("begin; update u set a = 1; commit;"), extended("BEGIN"), extended("DELETE FROM v"), extended("Commit"),
        query("ROLLBACK"), query("SELECT 'commit'"),
    ]  # fmt: skip
    found = commits(Client(), b"".join(sent), size)
    assert [what in transaction for what, transaction in zip((b"into t", b"update u", b"from v"), found, strict=True)]
    assert all(b"into t" not in transaction for transaction in found[1:])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_batch_outside_a_transaction_commits_with_its_sync_and_a_question_does_not(size: int) -> None:
    write = "INSERT INTO t VALUES ($1)"
    sent = [
        *STARTUP, prepared("SELECT $1", "ask"), bound("first", name="ask"), SYNC,
        prepared(write, "write"), bound("second", name="write"), bound("third", name="write"), SYNC,
        bound("fourth", name="ask"), SYNC, bound("fifth", name="write"), SYNC,
    ]  # fmt: skip
    found = commits(Client(), b"".join(sent), size)
    assert [[word in each for word in (b"first", b"second", b"third", b"fourth", b"fifth")] for each in found] == [
        [False, True, True, False, False],
        [False, False, False, False, True],
    ]


ANSWERS = {
    b"C\x00\x00\x00\x0bCOMMIT\0": True,
    b"C\x00\x00\x00\x0fINSERT 0 1\0C\x00\x00\x00\x0dSELECT 1\0": True,
    b"C\x00\x00\x00\x0dROLLBACK\0": False,
    b"C\x00\x00\x00\x0fINSERT 0 1\0E\x00\x00\x00\x05\0": False,
}


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(("answer", "committed"), ANSWERS.items())
def test_what_became_of_a_transaction_is_known_when_the_server_is_ready_again(
    size: int, answer: bytes, committed: bool
) -> None:
    before, ready = b"C\x00\x00\x00\x0dDELETE 1\0" + b"Z\x00\x00\x00\x05T", b"Z\x00\x00\x00\x05I"
    stream, server = before + answer + ready, Server()
    told = [server.committed(stream[start : start + size]) for start in range(0, len(stream), size)]
    assert told[-1] is committed
    assert set(told[:-1]) <= {None}
