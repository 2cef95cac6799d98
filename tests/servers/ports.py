"""Ports for servers that tests and benchmarks start."""

from __future__ import annotations

import contextlib
import secrets
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""Below the ephemeral range: a client that retries a dead port up there can end up connected to itself."""

TRIES = 500


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones."""
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for _ in range(TRIES):
            if len(found) == count:
                break
            port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    if len(found) < count:
        raise RuntimeError(f"no {count} free ports found")
    return found
