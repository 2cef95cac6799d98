"""What tests of the command line make once instead of for each command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import httpx
import pytest
import typer.main
import typer.testing
from httpx._transports import default

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """The tree of commands, which typer makes of all their signatures again each time, and the certificates of usual
    authorities, which httpx reads for each client, also of a server without TLS: both take longer than a command."""
    usual = cache(httpx.create_ssl_context)

    def context(verify: object = True, cert: object = None, trust_env: bool = True) -> object:
        is_usual = verify is True and cert is None and not any(os.environ.get(name) for name in CERTIFICATES)
        return usual() if is_usual else httpx.create_ssl_context(verify, cert, trust_env)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        patch.setattr(default, "create_ssl_context", context)
        yield
