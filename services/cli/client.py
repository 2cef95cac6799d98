"""Asks control, as any script could."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import httpx

from services.cli.lock import told
from shared.config.model import Config
from shared.errors import ConfigError, DependencyError

TOKEN = "VIADUCK_TOKEN"  # noqa: S105 - the name of a variable
PAGE = 1_000
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - read, not bound


class Control:
    """The REST interface of one control service. Raises ``DependencyError`` where it does not answer."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=self._url, headers=headers, timeout=timeout_s)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError([f"--url: {error}; give it as http://host:port"]) from None

    def pipelines(self) -> list[str]:
        return [item["name"] for item in self._items("/v1/pipelines")]

    def pipeline(self, name: str) -> dict[str, Any]:
        return self._get(f"/v1/pipelines/{name}")

    def destinations(self, pipeline: str) -> list[dict[str, Any]]:
        """The status of each, as INTERFACE.md shows it."""
        return list(self._items(f"/v1/pipelines/{pipeline}/destinations"))

    def destination(self, pipeline: str, id: str) -> dict[str, Any]:
        return self._get(f"/v1/pipelines/{pipeline}/destinations/{id}")

    def close(self) -> None:
        self._http.close()

    def _items(self, path: str) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            page = self._get(path, limit=str(PAGE), **({"after": after} if after else {}))
            yield from page["items"]
            after = page["next"]
            if not after:
                return

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        try:
            answer = self._http.get(path, params=params)
            answer.raise_for_status()
            body = answer.json()
        except httpx.HTTPStatusError as error:
            raise self._refusal(error.response) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            hint = "is `viaduck up`, or `viaduck control`, running with this file?"
            raise DependencyError("control", f"{self._url} does not answer: {error}", hint) from None
        if not isinstance(body, dict):
            raise DependencyError("control", f"{self._url} is something else", "check the address")
        return body

    def _refusal(self, answer: httpx.Response) -> Exception:
        """4xx is the caller's mistake; control says which, as problem+json."""
        problem: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            problem = answer.json()
        said = str(problem.get("detail") or problem.get("title") or f"{answer.status_code} {answer.reason_phrase}")
        hint = str(problem.get("hint", ""))
        if answer.is_client_error:
            return ConfigError([f"{answer.url.path}: {said}" + (f" ({hint})" if hint else "")])
        return DependencyError("control", f"{self._url}{answer.url.path}: {said}", hint)


def base_url(config: Config) -> str:
    """Where the control service of this file is; with port 0 only ``viaduck up`` on its state folder can tell."""
    if config.server.port == 0:
        return str(told(config.state_dir).get("url", "http://127.0.0.1:0"))
    return url_of(config.server.host, config.server.port)


def url_of(host: str, port: int) -> str:
    reachable = ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


def token_of(config: Config | None) -> str | None:
    """The bearer token, from the variable that the file names, or from ``VIADUCK_TOKEN`` where it names none."""
    named = config.server.token_env if config is not None else None
    return os.environ.get(named or TOKEN)


def control_of(config: Config, timeout_s: float = 10.0) -> Control:
    return Control(base_url(config), token_of(config), timeout_s)
