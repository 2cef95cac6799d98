"""A network that is far away: a TCP proxy which holds everything back for a while, and does nothing else.

``tests.servers.proxy`` can do far more and costs several times the CPU, which on two cores would be measured, too.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from typing import Self

CHUNK = 64 * 1024
BACKLOG = 512
LOOK_EVERY_S = 0.1
ROUNDING_S = 0.0005
"""A selector sleeps up to a millisecond too long; half of that is taken off: delays are right on the average."""

_Waiting = deque[tuple[float, socket.socket, bytes]]


class FarAway:
    """``with FarAway(server.port) as way:`` and connect to ``way.port``; ``way.round_trip(seconds)`` says how far."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._one_way_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._waiting: _Waiting = deque()
        self._told_all: set[socket.socket] = set()
        self.turns = 0
        """How often a client said something first, or after an answer: round trips, of all connections."""
        self._asking: dict[socket.socket, bool] = {}
        """Of each client: whether it was the last to say something."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="far away", daemon=True)

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for each in (self._listener, *self._peers):
            each.close()
        self._selector.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def round_trip(self, seconds: float) -> None:
        """From now on, a question and its answer take so much longer."""
        self._one_way_s = seconds / 2

    def _run(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(self._idle_s()):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._take(key.fileobj)
            self._forward()

    def _idle_s(self) -> float:
        if not self._waiting:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, max(0.0, self._waiting[0][0] - time.monotonic()))

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        self._asking[client] = False
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _take(self, sender: socket.socket) -> None:
        """Nothing received means the end, which waits behind what came before it."""
        if sender not in self._peers:
            return
        try:
            chunk = sender.recv(CHUNK)
        except ConnectionError:
            chunk = b""
        self._count_turn(sender, chunk)
        due = time.monotonic() + max(0.0, self._one_way_s - ROUNDING_S)
        self._waiting.append((due, self._peers[sender], chunk))
        if not chunk:
            self._selector.unregister(sender)

    def _count_turn(self, sender: socket.socket, chunk: bytes) -> None:
        if not chunk:
            return
        if sender in self._asking:
            self.turns += not self._asking[sender]
            self._asking[sender] = True
        else:
            self._asking[self._peers[sender]] = False

    def _forward(self) -> None:
        """What is due. A delay that was shortened lets nothing overtake what still waits by the longer one."""
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, receiver, chunk = self._waiting.popleft()
            if receiver not in self._peers:
                continue
            try:
                if chunk:
                    receiver.sendall(chunk)
                else:
                    self._end(receiver)
            except OSError:  # the receiver is gone, and so is the connection
                self._close(receiver)

    def _end(self, receiver: socket.socket) -> None:
        """It will be sent nothing more; it may still have something to say."""
        receiver.shutdown(socket.SHUT_WR)
        self._told_all.add(receiver)
        if self._peers[receiver] in self._told_all:
            self._close(receiver)

    def _close(self, one: socket.socket) -> None:
        for each in (one, self._peers[one]):
            del self._peers[each]
            self._asking.pop(each, None)
            self._told_all.discard(each)
            if each in self._selector.get_map():
                self._selector.unregister(each)
            each.close()
