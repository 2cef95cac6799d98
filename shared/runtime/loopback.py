"""Detects requests from this machine: not through a proxy, and not under a foreign host name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

BROUGHT = frozenset(
    {
        "cf-connecting-ip", "cf-ray", "client-ip", "fastly-client-ip", "fly-client-ip", "forwarded", "proxy-connection",
        "true-client-ip", "via", "x-client-ip", "x-cluster-client-ip", "x-envoy-external-address", "x-host",
        "x-original-forwarded-for", "x-original-host", "x-original-uri", "x-original-url", "x-proxyuser-ip",
        "x-real-ip", "x-real-port", "x-scheme",
    }
)  # fmt: skip
"""Headers that only a proxy adds, in lower case; so is everything that begins with ``x-forwarded``."""


def is_brought(headers: Iterable[str], version: str) -> bool:
    """Whether a request came through a proxy, by the names of its headers and by its version of HTTP.

    nginx adds no header unless configured to, but speaks HTTP/1.0 then, as no current client does.
    """
    if version == "1.0":
        return True
    return any(name in BROUGHT or name.startswith("x-forwarded") for name in map(str.lower, headers))


def is_loopback(host: str) -> bool:
    """Whether a server at this address can be reached from this machine only, or a client is on this machine."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_own_name(host: str) -> bool:
    """Whether a ``Host`` header names this machine: a foreign name may resolve to it (DNS rebinding)."""
    name = host if host.count(":") != 1 else host.partition(":")[0]
    return is_loopback(name.partition("]")[0].strip("["))
