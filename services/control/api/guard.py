"""Who asks, and what they may: everything that can be decided about a request before a route sees it."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from services.control.problems import PAGE
from services.control.tokens import RANK, Scope, Token

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
ADMIN = ("/v1/tokens",)
PIPELINE = re.compile(r"/v1/pipelines/[^/]*/?")
"""Whoever puts a pipeline says what all services open, and with which of their variables."""

LOGIN = frozenset({"/login", "/logout", "/assets/page.css", "/assets/mark.svg", PAGE})
"""What a browser needs before it can show a token, and what explains to everybody why one is needed. Nothing of it
tells anything of what is served here."""

SESSION = "viaduck_session"
SESSION_FOR_S = 12 * 3600.0
MAX_SESSIONS = 1_000

FAILURES, WITHIN_S = 10, 60.0
MAX_ADDRESSES = 10_000


class Known(Protocol):
    """The part of ``services.control.tokens.Tokens`` that is used here."""

    @property
    def fresh(self) -> bool: ...
    def any_valid(self) -> bool: ...
    def check(self, text: str) -> Token | None: ...


class Nobody:
    """A control without a registry of tokens."""

    fresh = True

    def any_valid(self) -> bool:
        return False

    def check(self, text: str) -> Token | None:  # noqa: ARG002 - nobody is known
        return None


@dataclass(frozen=True)
class Asker:
    """Somebody who may do something. ``name`` goes into the audit trail."""

    name: str
    scope: Scope

    def may(self, needed: Scope) -> bool:
        return RANK[self.scope] >= RANK[needed]


@dataclass(frozen=True)
class Denied:
    """``kind`` is a key of ``services.control.problems.KINDS``."""

    kind: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """As much of a request as it takes."""

    method: str
    path: str
    host: str = "127.0.0.1"
    authorization: str | None = None
    session: str | None = None
    origin: str | None = None
    site: str | None = None
    """``Sec-Fetch-Site``: what a browser says of who made it ask."""
    address: str = ""

    @property
    def needs(self) -> Scope:
        if self.path.startswith(ADMIN):
            return "admin"
        if self.method in READING:
            return "read"
        return "admin" if PIPELINE.fullmatch(self.path) else "write"


ANONYMOUS = Asker("anonymous", "read")
LOCAL = Asker("loopback", "admin")


class Guard:
    """The rules of one server. May be used from several threads."""

    def __init__(
        self,
        *,
        loopback: bool,
        token: str | None = None,
        tokens: Known | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``token``: the one that the configuration names; it may do everything."""
        self._loopback, self._token, self._tokens, self._clock = loopback, token, tokens or Nobody(), clock
        self._failures = Failures(clock)
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @property
    def quick(self) -> bool:
        """Whether ``judge`` has nothing to wait for now."""
        return self._tokens.fresh

    def judge(self, asked: Asked) -> Asker | Denied:
        if asked.path in OPEN:
            return ANONYMOUS
        given = self._given(asked)
        if given is None:
            return self._unnamed(asked)
        if self._failures.too_many(asked.address):
            return Denied("too_many_failures", "too many wrong tokens came from this address",
                          {"Retry-After": str(int(WITHIN_S))})  # fmt: skip
        asker = self.asker(given)
        if asker is None:
            self._failures.note(asked.address)
            return _unauthorized("the token is not valid")
        if asked.authorization is None and (foreign := _is_foreign(asked)) is not None:
            return foreign
        if not asker.may(asked.needs):
            return Denied(
                "forbidden", f"this needs a token with the scope {asked.needs}; {asker.name} has {asker.scope}"
            )
        return asker

    def asker(self, text: str) -> Asker | None:
        """Whose token ``text`` is."""
        if self._token is not None and hmac.compare_digest(text.encode(), self._token.encode()):
            return Asker("operator", "admin")
        found = self._tokens.check(text)
        return None if found is None else Asker(found.name, found.scope)

    def login(self, text: str, address: str) -> str | None:
        """A session's name for a valid token, which stays here; None for a wrong one."""
        if self._failures.too_many(address):
            return None
        if self.asker(text) is None:
            self._failures.note(address)
            return None
        name = secrets.token_urlsafe(32)
        self._sessions[name] = text, self._clock() + SESSION_FOR_S
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def logout(self, session: str | None) -> None:
        self._sessions.pop(session or "", None)

    @property
    def protected(self) -> bool:
        """Whether any token is configured."""
        return self._token is not None or self._tokens.any_valid()

    def _given(self, asked: Asked) -> str | None:
        """The token that came with a request; empty where something came that is none."""
        if asked.authorization is not None:
            scheme, _, text = asked.authorization.partition(" ")
            return text.strip() if scheme.lower() == "bearer" else ""
        text, until = self._sessions.get(asked.session or "", ("", 0.0))
        return text if until > self._clock() else None

    def _unnamed(self, asked: Asked) -> Asker | Denied:
        """Nobody says who he is."""
        if (foreign := _is_foreign(asked)) is not None:
            return foreign
        protected = self.protected
        if not protected and not self._loopback:
            return Denied("closed", "this control listens beyond loopback and has no token")
        if asked.path in LOGIN:
            return ANONYMOUS
        if self._loopback and not is_own_name(asked.host):
            return Denied("cross_site", f"{asked.host[:100]} is not a name of this machine's own")
        if not protected:
            return LOCAL
        if self._loopback and asked.needs == "read":
            return ANONYMOUS
        return _unauthorized("a bearer token is needed")


class Failures:
    """Wrong tokens by address, of the last minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, address: str) -> None:
        times = self._times.setdefault(address, deque(maxlen=FAILURES))
        times.append(self._clock())
        self._times.move_to_end(address)
        while len(self._times) > MAX_ADDRESSES:
            self._times.popitem(last=False)

    def too_many(self, address: str) -> bool:
        times = self._times.get(address)
        return times is not None and len(times) == FAILURES and self._clock() - times[0] < WITHIN_S


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_own_name(host: str) -> bool:
    """Whether a ``Host`` header names this machine: a stranger's name may be made to point here (DNS rebinding)."""
    name = host if host.count(":") != 1 else host.partition(":")[0]
    return is_loopback(name.partition("]")[0].strip("["))


def _is_foreign(asked: Asked) -> Denied | None:
    """A browser must not act for a page of another site: cookies and the way to loopback are its, not the site's."""
    if asked.method in READING:
        return None
    if asked.site not in (None, "same-origin", "none"):
        return Denied("cross_site", f"a browser sent this for a page elsewhere ({asked.site[:40]})")
    if asked.origin is not None and urlsplit(asked.origin).netloc != asked.host:
        return Denied("cross_site", f"a browser sent this for a page of {asked.origin[:100]}")
    return None


def _unauthorized(said: str) -> Denied:
    return Denied("unauthorized", said, {"WWW-Authenticate": "Bearer"})
