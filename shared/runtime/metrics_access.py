"""Who may read ``/metrics``: they name the tenants (``server.metrics``)."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shared.config.model import Config
from shared.config.secrets import shown_variable
from shared.contracts.errors import ConfigError
from shared.runtime.loopback import is_loopback, is_own_name

Rule = Literal["local", "token", "open"]


@dataclass(frozen=True)
class MetricsAccess:
    """``local``: without a token from this machine only. ``token``: never without one. ``open``: always."""

    rule: Rule = "local"
    token: str | None = None
    """The configured token."""

    @classmethod
    def of(cls, config: Config, environ: Mapping[str, str] = os.environ) -> MetricsAccess:
        """Raises ``ConfigError`` where the token's variable is missing."""
        return cls(config.server.metrics, own_token(config, environ))

    def is_open_to(self, address: str, host: str, *, brought: bool) -> bool:
        """Whether no token is needed from there. ``host``: the header; ``brought``: by a proxy."""
        if self.rule != "local":
            return self.rule == "open"
        return is_loopback(address) and is_own_name(host) and not brought

    def knows(self, authorization: str | None) -> bool:
        """Whether the header holds the token that the configuration names."""
        scheme, _, text = (authorization or "").partition(" ")
        return self.token is not None and scheme.lower() == "bearer" and same_token(text.strip(), self.token)


def same_token(given: str, known: str) -> bool:
    """In a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), known.encode(errors="surrogatepass"))


def own_token(config: Config, environ: Mapping[str, str]) -> str | None:
    """The token that the file names. Raises ``ConfigError`` where its variable is missing."""
    name = config.server.token_env
    token = environ.get(name, "").strip() if name is not None else None
    if name is not None and not token:
        raise ConfigError([f"server.token_env: the environment variable {shown_variable(name)} is not set; set it"])
    return token
