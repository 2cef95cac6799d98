"""A faulty network: a TCP proxy that delays, cuts, resets and falls silent when it is told to.

``with Proxy(server.port) as proxy:`` and connect to ``proxy.port``. Everything may be changed while it runs, from any
thread; what is told holds for the connections that there are and for those to come.

==========================  ==========================================================================================
``latency(seconds)``        every chunk arrives later, in each direction; the bandwidth stays
``silence()``               half-open: connections are accepted and held, and nothing is forwarded any more
``refuse()``                the port is closed, as if the server were down
``reset()`` / ``cut()``     end all connections now: by RST (a crash), or by FIN (an orderly end)
``cut_after(n, to)``        the ``n``-th byte from now on that goes to the server or the client is the last one
``lose_commits(n)``         the next ``n`` times that a Postgres client says COMMIT, the server does it and nobody hears
``cut_commits(n, late)``    the next ``n`` times, the client is cut off with COMMIT on its way, which gets to the server
                            ``late`` seconds later, or never (None)
``heal()``                  all of this is over; connections that fell silent go on
==========================  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tests.servers.pgwire import Client, Server
from tests.servers.ports import free_port

CHUNK = 64 * 1024
BACKLOG = 128
TOLD_WITHIN_S = 10.0
HELD_CHUNKS = 64
"""Chunks on their way through a slow connection; beyond that the sender waits, as behind a full window."""

Towards = Literal["server", "client"]
T = TypeVar("T")
_Waiting = asyncio.Queue[tuple[float, bytes]]
"""Chunks with the moment at which they may go on; an empty one is the end."""


@dataclass(frozen=True)
class _Ambush:
    """What waits for COMMITs of transactions with a statement that ``holds`` this."""

    holds: bytes
    cut: bool = False
    late_s: float | None = 0.0


@dataclass(eq=False)
class _Link:
    """One client's connection and ours to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    asked: Client = field(default_factory=Client)
    answered: Server = field(default_factory=Server)
    met: _Ambush | None = None
    """The client hears no more: its COMMIT is under way, and only the server is to know how it went."""


class Proxy:
    """One proxy in front of one port; its event loop has a thread of its own."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = (host, target)
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True)
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._latency_s = 0.0
        self._flowing = asyncio.Event()
        self._bytes_left: dict[Towards, int] = {}
        self._ambushes: list[_Ambush] = []
        self.commits_lost = 0
        """COMMITs that the server acknowledged and whose acknowledgement was thrown away."""
        self.commits_cut = 0
        """Clients that were cut off right after they had sent COMMIT."""
        self.commits_arrived = 0
        """How many of these the server acknowledged, to nobody."""
        self.heard: Callable[[object, bytes], None] = _to_nobody
        """Is told each chunk on its way to the server, and of which connection it is; on the loop's thread."""
        self.broken_off = 0
        """How often ``cut_after`` came to its last byte."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._flowing.set()
        self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def target_port(self) -> int:
        return self._target[1]

    @property
    def connections(self) -> int:
        return len(self._links)

    def latency(self, seconds: float) -> None:
        self._latency_s = seconds

    def silence(self) -> None:
        self._call(self._flowing.clear)

    def refuse(self) -> None:
        """Close the port and every connection; ``heal`` opens it again."""
        self._do(self._close_port())
        self.reset()

    def reset(self) -> None:
        self._call(lambda: self._sever(by_rst=True))

    def cut(self) -> None:
        self._call(lambda: self._sever(by_rst=False))

    def cut_after(self, count: int, towards: Towards) -> None:
        """Let through ``count`` more bytes in that direction, of all connections together, then reset everything."""
        self._call(lambda: self._bytes_left.update({towards: count}))

    def lose_commits(self, times: int = 1, *, holds: bytes = b"") -> None:
        """Lose the acknowledgement of the next COMMITs: only of transactions with a statement that ``holds`` this."""
        self._lie_in_wait([_Ambush(holds.lower())] * times)

    def cut_commits(self, times: int = 1, late_s: float | None = 0.0, *, holds: bytes = b"") -> None:
        """Cut off the next who send COMMIT, by RST; the COMMIT itself goes on to the server, or (None) is lost too."""
        self._lie_in_wait([_Ambush(holds.lower(), cut=True, late_s=late_s)] * times)

    def heal(self) -> None:
        def forget() -> None:
            self._latency_s = 0.0
            self._ambushes.clear()
            self._bytes_left.clear()
            self._flowing.set()

        self._call(forget)
        self._do(self._listen())

    def _lie_in_wait(self, ambushes: list[_Ambush]) -> None:
        def arm() -> None:
            self._ambushes = ambushes

        self._call(arm)

    # -- from other threads to the loop's -----------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TOLD_WITHIN_S)

    def _call(self, work: Callable[[], object]) -> None:
        async def do() -> None:
            work()

        self._do(do())

    # -- on the loop's thread -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=BACKLOG)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _close_port(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _end(self) -> None:
        await self._close_port()
        while self._tasks:
            for task in self._tasks:  # those too whose link was ended while all was silent
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)

    def _accept(self, listener: socket.socket) -> None:
        """By hand: asyncio's own servers lose a connection that they accept while they are being closed."""
        with contextlib.suppress(BlockingIOError):
            accepted, _ = listener.accept()
            task = self._loop.create_task(self._serve(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _sever(self, *, by_rst: bool) -> None:
        for link in list(self._links):
            self._hang_up(link, by_rst=by_rst)

    def _hang_up(self, link: _Link, *, by_rst: bool) -> None:
        self._links.discard(link)
        for writer in (link.client, link.server):
            if writer is not None:
                _end(writer, by_rst=by_rst)

    async def _serve(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted, limit=CHUNK)
        link = _Link(writer)
        self._links.add(link)
        try:
            if self._listener is not None:
                await self._carry(link, reader)
        except* OSError:
            pass  # one of the two is gone; so is the other, below
        finally:
            self._hang_up(link, by_rst=self._listener is None)

    async def _carry(self, link: _Link, reader: asyncio.StreamReader) -> None:
        await self._flowing.wait()
        from_server, link.server = await asyncio.open_connection(*self._target, limit=CHUNK)
        for_server: _Waiting = asyncio.Queue(HELD_CHUNKS)
        for_client: _Waiting = asyncio.Queue(HELD_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(reader, for_server))
            both.create_task(self._send(link, for_server, link.server, "server"))
            both.create_task(self._read(from_server, for_client))
            both.create_task(self._send(link, for_client, link.client, "client"))

    async def _read(self, reader: asyncio.StreamReader, waiting: _Waiting) -> None:
        """Read on while what was read waits for its time, so that latency costs no bandwidth."""
        chunk = b"not the end"
        while chunk:
            chunk = await reader.read(CHUNK)
            await waiting.put((self._loop.time() + self._latency_s, chunk))

    async def _send(self, link: _Link, waiting: _Waiting, writer: asyncio.StreamWriter, to: Towards) -> None:
        while True:
            due, chunk = await waiting.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flowing.wait()
            if not chunk:
                writer.write_eof()
                return
            if to == "server":
                self.heard(link, chunk)
                await self._spring(link, self._ambush_for(link, chunk))
                if writer.is_closing():
                    return
            elif link.met is not None:
                self._settle_commit(link, link.met, chunk)
                continue
            allowed = self._allowed(len(chunk), to)
            writer.write(chunk[:allowed])
            await writer.drain()
            if self._bytes_left.get(to) == 0:
                del self._bytes_left[to]
                self.broken_off += 1
                await self._flushed(writer)
                self._sever(by_rst=True)

    async def _flushed(self, writer: asyncio.StreamWriter) -> None:
        """``drain`` returns while a little is still in the buffer, which a reset would throw away."""
        while writer.transport.get_write_buffer_size() and not writer.is_closing():
            await asyncio.sleep(0.001)

    def _allowed(self, size: int, to: Towards) -> int:
        if to not in self._bytes_left:
            return size
        allowed = min(size, self._bytes_left[to])
        self._bytes_left[to] -= allowed
        return allowed

    def _ambush_for(self, link: _Link, chunk: bytes) -> _Ambush | None:
        """What waits for a COMMIT in this chunk; it is then over."""
        for transaction in link.asked.commits(chunk):
            if self._ambushes and link.met is None and self._ambushes[0].holds in transaction:
                return self._ambushes.pop(0)
        return None

    async def _spring(self, link: _Link, ambush: _Ambush | None) -> None:
        """Before the COMMIT goes on; afterwards it can't where the way to the server is closed."""
        if ambush is None:
            return
        link.met = ambush
        if not ambush.cut:
            return
        self.commits_cut += 1
        if ambush.late_s is None:
            self._hang_up(link, by_rst=True)
            return
        _end(link.client, by_rst=True)
        await asyncio.sleep(ambush.late_s)

    def _settle_commit(self, link: _Link, ambush: _Ambush, chunk: bytes) -> None:
        committed = link.answered.committed(chunk)
        if committed is None:
            return
        if committed:
            self.commits_lost += not ambush.cut
            self.commits_arrived += ambush.cut
        elif not ambush.cut:
            self._ambushes.insert(0, ambush)  # a rival was quicker, so there was no commit to lose
        self._hang_up(link, by_rst=True)


def _to_nobody(_: object, __: bytes) -> None:
    """What is told is forgotten."""


def _end(writer: asyncio.StreamWriter, *, by_rst: bool) -> None:
    if by_rst:
        own: socket.socket | None = writer.get_extra_info("socket")
        if own is not None:
            with contextlib.suppress(OSError):
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
