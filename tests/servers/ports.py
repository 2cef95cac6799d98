"""Ports for servers that tests and benchmarks start."""

from __future__ import annotations

import secrets
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""Below the ephemeral range: a client that retries a dead port up there can end up connected to itself."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    for _ in range(200):
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no free port found")
