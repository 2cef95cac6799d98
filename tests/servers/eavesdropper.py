"""A host that a stranger named: it asks for a password like a Postgres server, and keeps whatever it is told."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
CLEARTEXT = struct.pack("!cii", b"R", 8, 3)
"""AuthenticationCleartextPassword: whoever has a password sends it as it is."""

FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PATIENCE_S = 5.0


class Eavesdropper:
    """``heard``: every byte of every connection. Use as a context."""

    def __init__(self) -> None:
        self.heard = b""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(PATIENCE_S)
                self._listen(connection)

    def _listen(self, connection: socket.socket) -> None:
        try:
            while said := connection.recv(65_536):
                self.heard += said
                connection.sendall(_answer(said))
        except OSError:
            return


def _answer(said: bytes) -> bytes:
    if said[:1] in b"GHPD" and b"HTTP/1.1" in said:
        return FORBIDDEN
    asks = struct.unpack("!i", said[4:8])[0] if len(said) >= 8 else 0
    if asks in (SSL_REQUEST, GSS_REQUEST):
        return b"N"
    return CLEARTEXT if asks >> 16 == 3 else b""
