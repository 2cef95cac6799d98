"""Who asks for what: the values that the guard's rules are about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.control.store.tokens import RANK, Scope, Token

READING = frozenset({"GET", "HEAD", "OPTIONS"})
ADMIN = ("/v1/tokens", "/v1/audit")
OF_ONE = re.compile(r"/(?:v1/)?pipelines/([^/]+)")
PIPELINE = re.compile(r"/v1/pipelines/[^/]*/?")
"""A PUT of a pipeline decides what all services open, and with which of their variables."""


@dataclass(frozen=True)
class Caller:
    """An authenticated client. ``name`` goes into the audit trail, where no client can choose the name of another."""

    name: str
    scope: Scope
    pipelines: frozenset[str] | None = None
    """The pipelines that it is limited to; None for all."""

    def may(self, needed: Scope) -> bool:
        return RANK[self.scope] >= RANK[needed]

    def sees(self, pipeline: str) -> bool:
        return self.pipelines is None or pipeline in self.pipelines


ANONYMOUS = Caller("anonymous", "read")
LOCAL = Caller("loopback", "admin")
OPERATOR = Caller("operator", "admin")
"""Who has the token that the configuration names."""


def holder(token: Token) -> Caller:
    """The client with this token. The token's label is not an identity."""
    return Caller(token.author_name, token.scope, token.pipelines)


@dataclass(frozen=True)
class Denied:
    """``kind`` is a key of ``services.control.model.problems.KINDS``."""

    kind: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GuardedRequest:
    """As much of a request as it takes."""

    method: str
    path: str
    host: str = "127.0.0.1"
    authorization: str | None = None
    sessions: tuple[str, ...] = ()
    """A browser may send several: cookies know no ports, and paths of their own."""
    origin: str | None = None
    site: str | None = None
    """``Sec-Fetch-Site``: what a browser says of who made it ask."""
    address: str = ""
    brought: bool = False
    """By a proxy."""

    @property
    def pipeline(self) -> str | None:
        """The pipeline in the path. A verb behind a colon counts as part of the name: no pipeline has such a name."""
        found = OF_ONE.match(self.path)
        return None if found is None else found[1]

    @property
    def needs(self) -> Scope:
        if self.path.startswith(ADMIN):
            return "admin"
        if self.method in READING or self.path == "/logout":
            return "read"
        return "admin" if PIPELINE.fullmatch(self.path) else "write"
