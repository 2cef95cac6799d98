"""Where a service listens, and where ``viaduck up`` tells it that its peers do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from shared.contracts.errors import DependencyError

PEERS = "VIADUCK_PEERS"
"""Under ``viaduck up``: ``name=url`` of each reader and applier, separated by commas."""

OWN_PORT = "VIADUCK_HTTP_PORT"
"""Under ``viaduck up``: the port that it chose for a reader or applier."""


def peers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The services that run beside this one, by name: their base addresses."""
    pairs = (pair.partition("=") for pair in environ.get(PEERS, "").split(",") if pair)
    return {name: url for name, _, url in pairs}


def ports_of_peers(environ: Mapping[str, str] = os.environ) -> list[int]:
    """Where they listen, or will."""
    found = (urlsplit(url).port for url in peers(environ).values())
    return [port for port in found if port is not None]


def own_port(configured: int, environ: Mapping[str, str] = os.environ) -> int:
    """Where this reader or applier listens: as ``viaduck up`` told it, else as configured."""
    return int(environ.get(OWN_PORT, configured))


def listen(host: str, port: int, option: str) -> socket.socket:
    """A socket that connections may wait on already; 0 takes a free port. ``option``: what configures the port.

    Raises ``DependencyError`` if the address is in use: the process that has it may release it.
    """
    listening = bind(host, port, option)
    with _explained(host, port, option):
        listening.listen()
    return listening


def bind(host: str, port: int, option: str) -> socket.socket:
    """The same, but connections are refused until a server begins to listen."""
    with _explained(host, port, option):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    return bound


@contextmanager
def _explained(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = f"choose another {option}, or stop the process that listens there"
        raise DependencyError("server", f"can't listen on {host}:{port}: {error.strerror}", hint) from None
