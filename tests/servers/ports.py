"""Ports for servers that tests and benchmarks start, and for the services that tests configure."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""Below the ephemeral range: a client that retries a dead port up there can end up connected to itself. Above the ports
that `viaduck up` gives to its services."""

SHARES = 8
"""Processes of one test run take ports of different ranges: a server that starts again keeps its own."""

TRIES = 500

_given = set[int]()


def free_port() -> int:
    """A port of 127.0.0.1 without a listener, which this process gives once."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones."""
    mine = _share(os.environ.get("PYTEST_XDIST_WORKER", ""))
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for _ in range(TRIES):
            if len(found) == count:
                break
            port = mine.start + secrets.randbelow(len(mine))
            if port in _given:
                continue
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    if len(found) < count:
        raise RuntimeError(f"no {count} free ports found")
    _given.update(found)
    return found


def _share(worker: str) -> range:
    """The ports of a process of pytest-xdist, which are called gw0, gw1 and so on."""
    number = re.search(r"\d+$", worker)
    if number is None:
        return range(LOWEST, HIGHEST)
    size = (HIGHEST - LOWEST) // SHARES
    first = LOWEST + size * (int(number[0]) % SHARES)
    return range(first, first + size)
