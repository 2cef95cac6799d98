"""Just enough of Postgres's wire protocol to see a COMMIT go by, and its acknowledgement."""

from __future__ import annotations

import struct
from collections.abc import Iterator

LONGEST_KEPT = 1 << 20
"""Bytes of a message, and of a transaction's statements, that are looked at; the rest is only counted."""

ENCRYPTION_REQUESTS = frozenset({80877103, 80877104})
"""SSLRequest and GSSENCRequest come before the startup message and have no type either."""


class Frames:
    """Cuts a byte stream into messages: a type byte, a length that counts itself, a body."""

    def __init__(self) -> None:
        self._head = b""
        self._body = bytearray()
        self._missing = 0
        self._type = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Each message that is complete now: its type and the beginning of its body."""
        while chunk or (self._type and self._missing == 0):
            if not self._type:
                chunk = self._begin(chunk)
            part, chunk = chunk[: self._missing], chunk[self._missing :]
            self._missing -= len(part)
            self._body += part[: LONGEST_KEPT - len(self._body)]
            if self._type and self._missing == 0:
                yield self._type, bytes(self._body)
                self._type, self._body = b"", bytearray()

    def _begin(self, chunk: bytes) -> bytes:
        wanted = 5 - len(self._head)
        self._head, rest = self._head + chunk[:wanted], chunk[wanted:]
        if len(self._head) == 5:
            self._type, self._missing = self._head[:1], struct.unpack("!I", self._head[1:])[0] - 4
            self._head = b""
        return rest


class Client:
    """What a client says: after its startup, statements, of which some are COMMIT."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._startup = b""
        self._started = False
        self._transaction = bytearray()

    def commits(self, chunk: bytes) -> Iterator[bytes]:
        """For each COMMIT in ``chunk``, the statements of its transaction in lower case, as far as they are kept."""
        if not self._started:
            chunk = self._skip_startup(chunk)
        for kind, body in self._frames.feed(chunk):
            statement = _statement(kind, body)
            if statement is None:
                continue
            last = statement.rstrip(b"; \n").rpartition(b";")[2].strip()
            if last in (b"commit", b"end", b"commit transaction"):
                self._remember(statement)
                yield bytes(self._transaction)
                self._transaction.clear()
                continue
            if statement.lstrip().startswith((b"begin", b"rollback", b"start transaction")):
                self._transaction.clear()
            self._remember(statement)

    def _remember(self, statement: bytes) -> None:
        self._transaction += statement[: LONGEST_KEPT - len(self._transaction)]

    def _skip_startup(self, chunk: bytes) -> bytes:
        self._startup += chunk
        while len(self._startup) >= 8:
            size, code = struct.unpack("!II", self._startup[:8])
            if len(self._startup) < size:
                return b""
            self._startup = self._startup[size:]
            if code not in ENCRYPTION_REQUESTS:
                self._started = True
                return self._startup
        return b""


class Server:
    """What a server says after a COMMIT; begins at the start of a message."""

    def __init__(self) -> None:
        self._frames = Frames()

    def committed(self, chunk: bytes) -> bool:
        """Whether ``chunk`` completes the acknowledgement of a COMMIT."""
        return any(kind == b"C" and body.rstrip(b"\0") == b"COMMIT" for kind, body in self._frames.feed(chunk))


def _statement(kind: bytes, body: bytes) -> bytes | None:
    """The text of a simple query, or of one that is prepared, in lower case."""
    if kind == b"Q":
        return body.rstrip(b"\0").lower()
    if kind == b"P":
        return body.partition(b"\0")[2].partition(b"\0")[0].lower()
    return None
