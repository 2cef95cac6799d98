"""Finds free TCP ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from shared.contracts.errors import ConfigError

BELOW_EPHEMERAL = range(15_000, 20_000)
"""Not used for outgoing connections, so that a port stays free while the service that owns it restarts."""

TRIES = 100


def free_port(host: str = "127.0.0.1", taken: Collection[int] = ()) -> int:
    """A port without a listener. Raises ``OSError`` if there is none.

    ``taken``: ports of services that may not have begun to listen on them.
    """
    for _ in range(TRIES):
        port = random.choice(BELOW_EPHEMERAL)  # noqa: S311 - no secret
        if port not in taken and is_free(host, port):
            return port
    raise OSError(f"no free port on {host} in {BELOW_EPHEMERAL.start} to {BELOW_EPHEMERAL.stop}")


def is_free(host: str, port: int) -> bool:
    """Whether nothing listens there now."""
    try:
        _bind(host, port)
    except OSError:
        return False
    return True


def require_free(host: str, port: int) -> None:
    """Raises ``ConfigError`` where ``server.host`` and ``server.port`` can't be listened on."""
    try:
        _bind(host, port)
    except OSError as error:
        why = f"can't listen on {host}:{port} ({error.strerror})"
        raise ConfigError([f"server.port: {why}; choose another, or stop the process that listens there"]) from None


def _bind(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)
