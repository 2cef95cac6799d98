"""One client for tests that ask a server again and again: to make one reads all certificates of authorities."""

from __future__ import annotations

import httpx

HTTP = httpx.Client(timeout=5.0, limits=httpx.Limits(max_keepalive_connections=0))
"""No connection is kept: the server may be another one by the next time."""
