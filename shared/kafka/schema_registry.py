"""A schema registry, by its REST interface: the schemas that records name by their ids.

A schema never changes under its id, so what was fetched is kept. An id that the registry does not know is told apart
from a registry that does not answer: the first is the record's fault, the second is not.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from shared.contracts.errors import SourceError

if TYPE_CHECKING:
    import httpx

WITHIN_S = 10.0
UNKNOWN = 40403
"""What the registry calls an id that it does not have, beside status 404."""

FIRST = 1
"""The id that a registry gives to its first schema."""

PROTOBUF, SERIALIZED = "PROTOBUF", "?format=serialized"

MOST_REFERENCES = 100

USER_INFO, TOKEN = "basic.auth.user.info", "bearer.auth.token"
CA, CERTIFICATE, KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
PROPERTIES = frozenset({USER_INFO, TOKEN, CA, CERTIFICATE, KEY})
"""Of Confluent's client, by the same names."""


@dataclass(frozen=True)
class RegistrySettings:
    url: str = field(repr=False)
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sorted; none but ``PROPERTIES``."""

    @property
    def place(self) -> str:
        """Without what may be secret."""
        found = urlsplit(self.url)
        return f"{found.hostname or '?'}:{found.port}" if found.port else found.hostname or "?"


@dataclass(frozen=True)
class RegisteredSchema:
    """``kind`` is AVRO, JSON or PROTOBUF; ``references`` are what it refers to, by name, each before those that
    need it. The texts of PROTOBUF are descriptors in base64.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """One registry; thread-safe."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[int, RegisteredSchema] = {}
        self._client: httpx.Client | None = None

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema of an id; None where the registry has none. Raises ``source_unreachable``."""
        with self._lock:
            if number not in self._known:
                path = f"/schemas/ids/{number:d}"
                found = self._fetched(path, may_miss=True)
                if found is None:
                    return None
                if found.get("schemaType") == PROTOBUF:
                    found = self._fetched(path + SERIALIZED) or {}
                self._known[number] = self._read(found)
            return self._known[number]

    def ping(self) -> None:
        """Ask for a schema, which it may have or not. Raises ``source_unreachable`` where it does not answer so."""
        with self._lock:
            self._fetched(f"/schemas/ids/{FIRST:d}", may_miss=True)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _read(self, found: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[tuple[str, int], tuple[str, str]] = {}
        kind, text = found.get("schemaType", "AVRO"), found.get("schema")
        self._collect(found, references, SERIALIZED if kind == PROTOBUF else "")
        if not isinstance(kind, str) or not isinstance(text, str):
            raise self._failed("it answers without a schema")
        return RegisteredSchema(kind, text, tuple(references.values()))

    def _collect(self, found: Mapping[str, Any], references: dict[tuple[str, int], tuple[str, str]], form: str) -> None:
        for each in found.get("references") or ():
            subject, version = str(each.get("subject")), int(each.get("version", -1))
            if (subject, version) in references:
                continue
            if len(references) >= MOST_REFERENCES:
                raise self._failed(f"a schema refers to more than {MOST_REFERENCES} others")
            references[subject, version] = "", ""
            answer = self._fetched(f"/subjects/{quote(subject, safe='')}/versions/{version:d}{form}") or {}
            self._collect(answer, references, form)
            del references[subject, version]
            references[subject, version] = str(each.get("name")), str(answer.get("schema"))

    def _fetched(self, path: str, *, may_miss: bool = False) -> Mapping[str, Any] | None:
        import httpx  # a tenth of what a reader imports, and few topics have a registry

        try:
            response = self._connected().get(path)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise self._failed(type(error).__name__) from None
        answer = _object_in(response)
        if may_miss and response.status_code == httpx.codes.NOT_FOUND and answer.get("error_code") == UNKNOWN:
            return None
        if response.status_code != httpx.codes.OK or not answer:
            raise self._failed(f"it answers {response.status_code} to {path}")
        return answer

    def _connected(self) -> httpx.Client:
        import httpx

        if self._client is None:
            given = dict(self._settings.properties)
            user, _, password = given.get(USER_INFO, "").partition(":")
            self._client = httpx.Client(
                base_url=self._settings.url,
                auth=(user, password) if USER_INFO in given else None,
                headers={"Authorization": f"Bearer {given[TOKEN]}"} if TOKEN in given else None,
                verify=_trust(given),
                timeout=WITHIN_S,
            )
        return self._client

    def _failed(self, said: str) -> SourceError:
        return SourceError(
            "source_unreachable",
            f"the schema registry at {self._settings.place} does not tell a schema that records name: {said}",
            "check that it runs, and url and properties of source.format.registry; it is tried again",
        )


def _trust(given: Mapping[str, str]) -> ssl.SSLContext:
    """Raises ``OSError`` for files that are not there or hold none."""
    context = ssl.create_default_context(cafile=given.get(CA))
    if CERTIFICATE in given:
        context.load_cert_chain(given[CERTIFICATE], given.get(KEY))
    return context


def _object_in(response: httpx.Response) -> Mapping[str, Any]:
    """Empty where the answer is no object."""
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
