"""The services that run beside this one: their readiness and their metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import structlog

from shared.runtime.checks import is_source

log = structlog.get_logger(__name__)

ANSWER_WITHIN_S = 2.0
MOST_AT_ONCE = 8


class Peers:
    """May be used from several threads. A peer that does not answer in time counts as away, never as an error."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        transport: httpx.BaseTransport | None = None,
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._addresses = dict(addresses)
        self._http = httpx.Client(timeout=within_s, transport=transport)
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="peers")

    def point_to(self, addresses: Mapping[str, str]) -> None:
        """There are others from now on."""
        self._addresses = dict(addresses)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    def checks(self) -> dict[str, str | None]:
        """What each peer depends on and whether it has it: by the peer's name, and sources by their own."""
        checks: dict[str, str | None] = {}
        for name, found in self.each().items():
            for source in [what for what in found if is_source(what)]:
                checks[source] = found.pop(source)
            wrong = [f"{what}: {why}" if what else why for what, why in found.items() if why]
            checks[name] = "; ".join(wrong) or None
        return checks

    def each(self) -> dict[str, dict[str, str | None]]:
        """The checks of each peer; what is wrong with an answer itself has no name."""
        return {name: _checks(answer) for name, answer in self._ask("/readyz").items()}

    def metrics(self) -> dict[str, str]:
        """The expositions of those that answer, by the peer's name."""
        answers = self._ask("/metrics")
        away = [name for name, answer in answers.items() if answer is None or answer.status_code != 200]
        if away:
            log.warning("peers_unavailable", peers=away)
        return {name: answer.text for name, answer in answers.items() if answer is not None and name not in away}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def _ask(self, path: str) -> dict[str, httpx.Response | None]:
        addresses = self._addresses
        answers = self._threads.map(lambda address: self._get(f"{address.rstrip('/')}{path}"), addresses.values())
        return dict(zip(addresses, answers, strict=True))

    def _get(self, url: str) -> httpx.Response | None:
        try:
            return self._http.get(url)
        except httpx.HTTPError:
            return None


def _checks(answer: httpx.Response | None) -> dict[str, str | None]:
    """The body of a /readyz as ``shared.runtime.http`` writes it."""
    if answer is None:
        return {"": "does not answer"}
    try:
        checks = json.loads(answer.text)["checks"]
        return {str(what): None if why is None else str(why) for what, why in checks.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"": f"answers with {answer.status_code} and no checks"}
