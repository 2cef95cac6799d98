"""Just enough of Postgres's wire protocol to see a transaction's end go by, and what the server says of it.

A transaction ends with COMMIT, or (an implicit one, as pipelined batches are) with the Sync behind its statements.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LONGEST_KEPT = 1 << 20
"""Bytes of a message, and of a transaction's statements, that are looked at; the rest is only counted."""

WRITES = (b"insert into", b"update ", b"delete from")

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
    """What a client says: after its startup, statements, of which some end a transaction that has written."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._startup = b""
        self._started = False
        self._transaction = bytearray()
        self._explicit = False
        self._prepared: dict[bytes, bytes] = {}

    def commits(self, chunk: bytes) -> Iterator[bytes]:
        """For each commit in ``chunk``, its transaction's statements and values in lower case, as far as they are kept.

        That is COMMIT, and a Sync behind an INSERT, UPDATE or DELETE outside such a transaction.
        """
        if not self._started:
            chunk = self._skip_startup(chunk)
        for kind, body in self._frames.feed(chunk):
            if self._hears(kind, body):
                yield bytes(self._transaction)
                self._transaction.clear()
                self._explicit = False

    def _hears(self, kind: bytes, body: bytes) -> bool:
        """Whether a message is the end of a transaction that has written."""
        if kind == b"S":
            over = not self._explicit and any(verb in self._transaction for verb in WRITES)
            if not self._explicit and not over:
                self._transaction.clear()
            return over
        said, values = self._said(kind, body)
        if said.lstrip().startswith((b"begin", b"rollback", b"start transaction")):
            self._transaction.clear()
            self._explicit = not said.lstrip().startswith(b"rollback")
        self._transaction += (said + values)[: LONGEST_KEPT - len(self._transaction)]
        last = said.rstrip(b"; \n").rpartition(b";")[2].strip()
        return last in (b"commit", b"end", b"commit transaction")

    def _said(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The text that a message has carried out, and the values bound to it."""
        if kind == b"Q":
            return body.rstrip(b"\0").lower(), b""
        name, _, rest = body.partition(b"\0")
        if kind == b"P":
            self._prepared[name] = rest.partition(b"\0")[0].lower()
        if kind == b"B":
            name, _, values = rest.partition(b"\0")
            return self._prepared.get(name, b""), values.lower()
        return b"", b""

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
    """What a server says after the end of a transaction; begins at the start of a message."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._failed = False

    def committed(self, chunk: bytes) -> bool | None:
        """Whether the transaction was committed; None while ``chunk`` does not complete the answer."""
        for kind, body in self._frames.feed(chunk):
            self._failed |= kind == b"E" or (kind == b"C" and body.rstrip(b"\0") == b"ROLLBACK")
            if kind == b"Z" and body == b"I":
                return not self._failed
        return None
