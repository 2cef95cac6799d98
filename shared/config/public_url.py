"""``server.public_url``: under which address people reach control, where a proxy stands before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
EXAMPLE = "write it like https://viaduck.example.com"


@dataclass(frozen=True)
class PublicUrl:
    """``host`` in lower case, in brackets where it is an IPv6 address; ``port`` also where it goes without saying."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def is_origin(self, origin: str) -> bool:
        """Whether a browser's ``Origin`` is a page of ours."""
        try:
            return read(origin) == self
        except ValueError:
            return False

    def is_host(self, host: str) -> bool:
        """Whether a ``Host`` header is ours."""
        return self.is_origin(f"{self.scheme}://{host}")

    def __str__(self) -> str:
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


def read(text: str) -> PublicUrl:
    """Raises ``ValueError`` that says what to write instead."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"is no address; {EXAMPLE}") from None
    if parts.scheme not in PORTS:
        raise ValueError(f"must begin with https:// or http://; {EXAMPLE}")
    if parts.path not in ("", "/") or parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError(f"has something behind the host: Viaduck's pages are at the root of their host; {EXAMPLE}")
    host = parts.netloc.removesuffix(f":{port}") if port is not None else parts.netloc
    if not re.fullmatch(HOST, host):
        raise ValueError(f"has no host that can be used; {EXAMPLE}")
    return PublicUrl(parts.scheme, host.lower(), PORTS[parts.scheme] if port is None else port)
