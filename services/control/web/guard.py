"""Who asks, and what they may: everything that can be decided about a request before a route sees it."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from services.control.model.problems import PAGE
from services.control.store.tokens import Token
from services.control.web.caller import ANONYMOUS, LOCAL, OPERATOR, READING, holder
from services.control.web.caller import Caller as Caller
from services.control.web.caller import Denied as Denied
from services.control.web.caller import GuardedRequest as GuardedRequest
from services.control.web.throttle import WITHIN_S, Failures
from shared.config.public_url import PublicUrl
from shared.runtime.loopback import is_own_name
from shared.runtime.metrics_access import MetricsAccess, same_token

OPEN = frozenset({"/healthz", "/readyz"})
METRICS = "/metrics"

LOGIN = frozenset({"/login", "/logout", "/assets/page.css", "/assets/mark.svg", PAGE})
"""What a browser needs before it can send a token, and the page that explains why a token is needed. It reveals nothing
about this deployment."""

SESSION_FOR_S = 12 * 3600.0
MAX_SESSIONS = 1_000


class TokenCheck(Protocol):
    """The part of ``services.control.store.tokens.Tokens`` that is used here: it answers without waiting."""

    def any_valid(self) -> bool: ...
    def check(self, text: str) -> Token | None: ...


class NoTokens:
    """A control without a registry of tokens."""

    def any_valid(self) -> bool:
        return False

    def check(self, text: str) -> Token | None:  # noqa: ARG002 - no token is known
        return None


class Guard:
    """The rules of one server. May be used from several threads, and waits for nothing."""

    def __init__(
        self,
        *,
        loopback: bool,
        token: str | None = None,
        tokens: TokenCheck | None = None,
        public_url: PublicUrl | None = None,
        scraping: MetricsAccess | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``token``: the configured one, with every right. ``loopback``: whether control listens there only."""
        self._token = token
        self._tokens = tokens or NoTokens()
        self._clock = clock
        self._local = loopback and public_url is None
        self._loopback = loopback
        self.public_url = public_url
        self._scraping = scraping or MetricsAccess()
        self._failures = Failures(clock)
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @property
    def session(self) -> str:
        """The cookie's name: a browser takes no ``__Host-`` from another host, nor without TLS."""
        return "__Host-viaduck_session" if self.is_secure else "viaduck_session"

    @property
    def is_secure(self) -> bool:
        """Whether browsers come over TLS."""
        return self.public_url is not None and self.public_url.is_secure

    def judge(self, asked: GuardedRequest) -> Caller | Denied:
        if asked.path in OPEN or self._scrapes(asked):
            return ANONYMOUS
        given = self._given(asked)
        if given is None:
            return self._unnamed(asked)
        caller = self.caller(given)
        if caller is None and asked.authorization is None:  # no guess: the session's token was revoked
            self.logout(*asked.sessions)
            return _unauthorized("the session's token is no longer valid")
        if caller is None:
            return self._failed(asked)
        if asked.authorization is None and (foreign := self._foreign(asked)) is not None:
            return foreign
        if not caller.may(asked.needs):
            said = f"this needs a token with the scope {asked.needs}; {caller.name} has {caller.scope}"
            return Denied("forbidden", said)
        if caller.pipelines is not None and asked.path == METRICS:
            return Denied("forbidden", "the metrics are of all pipelines, and this token is limited to some of them")
        if asked.pipeline is not None and not caller.sees(asked.pipeline):
            return Denied("not_found", f"there is no pipeline {asked.pipeline[:200]} that this token is valid for")
        return caller

    def caller(self, text: str) -> Caller | None:
        """Whose token ``text`` is."""
        if self._token is not None and same_token(text, self._token):
            return OPERATOR
        found = self._tokens.check(text)
        return None if found is None else holder(found)

    def login(self, text: str, address: str) -> str | None:
        """A session's name for a valid token, which stays here; None for a wrong one."""
        if self.caller(text) is None:
            self._failures.note(address)
            return None
        name = secrets.token_urlsafe(32)
        self._sessions[name] = text, self._clock() + SESSION_FOR_S
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def logout(self, *sessions: str) -> None:
        for name in sessions:
            self._sessions.pop(name, None)

    @property
    def protected(self) -> bool:
        """Whether any token is configured."""
        return self._token is not None or self._tokens.any_valid()

    def _given(self, asked: GuardedRequest) -> str | None:
        """The token that came with a request; empty where something came that is none."""
        if asked.authorization is not None:
            scheme, _, text = asked.authorization.partition(" ")
            return text.strip() if scheme.lower() == "bearer" else ""
        known = (self._sessions.get(each, ("", 0.0)) for each in asked.sessions)
        return next((text for text, until in known if until > self._clock()), None)

    def _scrapes(self, asked: GuardedRequest) -> bool:
        if asked.path != METRICS or (self.public_url is not None and self._scraping.rule == "local"):
            return False
        return self._scraping.is_open_to(asked.address, asked.host, brought=asked.brought)

    def _failed(self, asked: GuardedRequest) -> Denied:
        if self._failures.too_many(asked.address):
            again = {"Retry-After": str(int(WITHIN_S))}
            return Denied("too_many_failures", "the token is not valid, after too many wrong ones", again)
        self._failures.note(asked.address)
        return _unauthorized("the token is not valid")

    def _unnamed(self, asked: GuardedRequest) -> Caller | Denied:
        """A request without credentials."""
        if (foreign := self._foreign(asked)) is not None:
            return foreign
        local, protected = self._local and not asked.brought, self.protected
        if not protected and not local:
            return Denied("closed", self._why_closed(asked))
        if asked.path in LOGIN:
            return ANONYMOUS
        if not local or asked.path == METRICS:
            return _unauthorized("a bearer token is needed")
        if not protected:
            return LOCAL
        return ANONYMOUS if asked.needs == "read" else _unauthorized("a bearer token is needed")

    def _why_closed(self, asked: GuardedRequest) -> str:
        if self.public_url is not None:
            return "this control has a public address (server.public_url) and no token"
        if self._loopback and asked.brought:
            return "this request came through a proxy, and control has no token"
        return "this control listens beyond loopback and has no token"

    def _foreign(self, asked: GuardedRequest) -> Denied | None:
        """Refuses requests that a page of another site makes the browser send with its cookies or from loopback.

        A foreign host name that points here is refused, too (DNS rebinding).
        """
        if not self._is_ours(asked.host):
            return Denied("cross_site", f"{asked.host[:100]} is not a host name of this control")
        if asked.method in READING:
            return None
        if asked.site not in (None, "same-origin", "none"):
            return Denied("cross_site", f"a browser sent this for a page elsewhere ({asked.site[:40]})")
        if asked.origin is not None and not self._is_own_page(asked.origin, asked.host):
            return Denied("cross_site", f"a browser sent this for a page of {asked.origin[:100]}")
        return None

    def _is_ours(self, host: str) -> bool:
        """A server that listens beyond loopback can't know its names, unless it is told."""
        if self.public_url is None:
            return not self._loopback or is_own_name(host)
        return self.public_url.is_host(host) or is_own_name(host)

    def _is_own_page(self, origin: str, host: str) -> bool:
        if self.public_url is not None and not is_own_name(host):
            return self.public_url.is_origin(origin)
        if self.public_url is not None and self.public_url.is_origin(origin):
            return True  # a proxy that asks under our own name
        return bool(host) and origin.partition("://")[2] == host


def _unauthorized(said: str) -> Denied:
    return Denied("unauthorized", said, {"WWW-Authenticate": "Bearer"})
