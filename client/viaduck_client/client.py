"""A client of control's REST interface: what Viaduck's command line uses, and yours to use.

::

    from viaduck_client import Client

    with Client("http://127.0.0.1:8000", token="vdk_…") as viaduck:
        viaduck.put_pipeline("orders", {"source": {"catalog_env": "ORDERS", "table": "orders"}, "routing": {…}})
        viaduck.put("events", "quacksworth-lake", {"routing_value": "quacksworth", "catalog_env": "QUACKSWORTH"})
        begun = viaduck.reseed("events", "quacksworth-lake")
        viaduck.wait("events", begun["id"])

Answers are the JSON that ``/openapi.json`` describes. If control refuses a request, the client raises ``Rejected`` with
the problem document; if control does not answer, or cannot at the moment, it raises ``Unavailable``.
``if_match`` is the ``version`` that you have seen: a change of a newer version is refused (412).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, cast
from urllib.parse import quote

import httpx

from viaduck_client.errors import InvalidAddress, Rejected, Unavailable, prefix

PAGE = 1_000
ASK_EVERY_S = 0.3

Status = dict[str, Any]
"""A destination's status (``/openapi.json``); a PUT and ``destination`` add what is registered of it."""

Action = Literal["pause", "resume", "stop", "restart"]


class Operation(TypedDict):
    """An action that takes longer than a request."""

    id: str
    pipeline: str
    destination: str
    kind: Literal["reseed", "rewind", "drop", "upkeep"]
    state: Literal["running", "succeeded", "failed", "superseded"]
    generation: int
    to: int | None
    author: str | None
    created_at: str
    finished_at: str | None
    error: dict[str, Any] | None
    upkeep: dict[str, Any] | None
    """What an upkeep came to; None while it runs, and of other kinds."""


class Client:
    """One control service. Its methods raise ``Rejected`` and ``Unavailable``."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout_s: float = 30.0,
        *,
        keep_alive: bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``timeout_s`` is that of one request, in seconds. Without ``keep_alive`` nothing stays open between calls,
        and nothing has to be closed. ``transport`` takes the place of the network. Raises ``InvalidAddress``."""
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            limits = httpx.Limits() if keep_alive else httpx.Limits(max_keepalive_connections=0)
            self._http = httpx.Client(
                base_url=self._url, headers=headers, timeout=timeout_s, limits=limits, transport=transport
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidAddress(f"{error}; give the address as http://host:port") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- pipelines ----------------------------------------------------------------------------------------------------

    def pipelines(self) -> list[str]:
        return [item["name"] for item in self._items("/v1/pipelines")]

    def pipeline(self, name: str) -> dict[str, Any]:
        """The status of a pipeline, and its ``document`` if it came over REST."""
        return self._get(_pipeline(name))

    def put_pipeline(
        self, name: str, document: Mapping[str, Any], *, check: bool = True, if_match: int | None = None
    ) -> dict[str, Any]:
        """Create or change; ``document`` has the keys of a configuration file that are the pipeline's own."""
        asked = {"check": str(check).lower()}
        return self._ask("PUT", _pipeline(name), asked, json=dict(document), headers=_seen(if_match))

    def remove_pipeline(self, name: str, *, if_match: int | None = None) -> None:
        """Stop and remove a pipeline from REST, with all its destinations; their tables stay."""
        self._ask("DELETE", _pipeline(name), headers=_seen(if_match))

    def audit(self, pipeline: str, destination: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Who did what, the newest first."""
        return self._some(f"{_pipeline(pipeline)}/audit", limit, destination=destination)

    # -- sources ------------------------------------------------------------------------------------------------------

    def retention(self, ignored: Iterable[str] = ()) -> list[dict[str, Any]]:
        """How far each source lake may be expired, over all pipelines that read it.

        ``ignored``: destinations, by ``ID`` or ``PIPELINE/ID``, that are to hold nothing.
        """
        return list(self._items("/v1/retention", ignore=list(ignored)))

    def note_expiry(self, pipeline: str, snapshots: int, through: int, ignored: Iterable[str] = ()) -> None:
        """Put into the audit trail that snapshots of the source were expired, up to ``through``."""
        body = {"snapshots": snapshots, "through": through, "ignored": list(ignored)}
        self._ask("POST", f"{_pipeline(pipeline)}/source:expired", json=body)

    # -- destinations -------------------------------------------------------------------------------------------------

    def destinations(self, pipeline: str, **filters: str) -> list[Status]:
        """The status of each; ``filters`` as the list takes them: ``state``, ``prefix``, ``search``, ``min_lag``…"""
        return list(self._items(_destinations(pipeline), **filters))

    def destination(self, pipeline: str, destination: str) -> Status:
        return self._get(_destination(pipeline, destination))

    def entry(self, pipeline: str, destination: str) -> dict[str, Any]:
        """A destination as it was put, and nothing else."""
        return self._get(f"{_destination(pipeline, destination)}/entry")

    def put(
        self,
        pipeline: str,
        destination: str,
        entry: Mapping[str, Any],
        *,
        check: bool = True,
        if_match: int | None = None,
    ) -> Status:
        """Create or change; ``entry`` has the keys of a ``destinations`` entry of the configuration file."""
        asked = {"check": str(check).lower()}
        return self._ask("PUT", _destination(pipeline, destination), asked, json=dict(entry), headers=_seen(if_match))

    def validate(self, pipeline: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What speaks against a destination; its ``id`` is in the entry."""
        return self._ask("POST", f"{_destinations(pipeline)}:validate", json=dict(entry))

    def import_(
        self, pipeline: str, entries: Iterable[Mapping[str, Any]], *, all_or_nothing: bool = False
    ) -> dict[str, Any]:
        """Create or change thousands at once."""
        body = "\n".join(json.dumps(entry) for entry in entries).encode()
        return self.import_lines(pipeline, body, all_or_nothing=all_or_nothing)

    def import_lines(self, pipeline: str, ndjson: bytes, *, all_or_nothing: bool = False) -> dict[str, Any]:
        return self._ask(
            "POST",
            f"{_destinations(pipeline)}:import",
            {"all_or_nothing": str(all_or_nothing).lower()},
            content=ndjson,
            headers={"Content-Type": "application/x-ndjson"},
        )

    def act(self, pipeline: str, destination: str, action: Action, *, if_match: int | None = None) -> Status:
        return self._ask("POST", f"{_destination(pipeline, destination)}/{action}", headers=_seen(if_match))

    def reseed(
        self, pipeline: str, destination: str, *, begin: str | None = None, if_match: int | None = None
    ) -> Operation:
        """``begin``: ``earliest`` for a topic's oldest record, whatever its file says."""
        place = f"{_destination(pipeline, destination)}/reseed"
        body = None if begin is None else {"from": begin}
        return self._operation(self._ask("POST", place, json=body, headers=_seen(if_match)))

    def rewind(
        self, pipeline: str, destination: str, to: int | Mapping[int, int], *, if_match: int | None = None
    ) -> Operation:
        """``to``: a snapshot of the source, or offsets by partition of a topic."""
        place = f"{_destination(pipeline, destination)}/rewind"
        position = to if isinstance(to, int) else {str(partition): offset for partition, offset in to.items()}
        return self._operation(self._ask("POST", place, json={"to": position}, headers=_seen(if_match)))

    def upkeep(
        self, pipeline: str, destination: str, *, steps: Sequence[str] | None = None, dry_run: bool = False
    ) -> Operation:
        """Keep a destination's lake small: ``compact``, ``expire``, ``clean``, ``orphans``; None for what is on."""
        place = f"{_destination(pipeline, destination)}:upkeep"
        return self._operation(self._ask("POST", place, json=_upkeep(steps, dry_run)))

    def upkeep_all(
        self, pipeline: str, *, steps: Sequence[str] | None = None, dry_run: bool = False, **filters: str
    ) -> dict[str, Any]:
        """The same for all destinations, or those of a ``state`` or with a ``prefix``."""
        return self._ask("POST", f"{_destinations(pipeline)}:upkeep", filters, json=_upkeep(steps, dry_run))

    def remove(
        self, pipeline: str, destination: str, *, drop: bool = False, if_match: int | None = None
    ) -> Operation | None:
        """Forget a destination; with ``drop`` an operation takes its data away first."""
        asked = {"data": "drop" if drop else "keep"}
        found = self._ask("DELETE", _destination(pipeline, destination), asked, headers=_seen(if_match))
        return self._operation(found) if drop else None

    def history(self, pipeline: str, destination: str, limit: int = 50) -> list[dict[str, Any]]:
        """What was applied, the newest first, from the destination's own commits.

        ``path`` says who made each: Viaduck itself (``direct``), DuckLake's ``extension``, or None where it is unknown.
        """
        return self._some(f"{_destination(pipeline, destination)}/history", limit)

    def at(
        self, pipeline: str, destination: str, *, time: str | None = None, position: int | None = None
    ) -> dict[str, Any]:
        """Which snapshot shows a moment (``2026-03-01T00:00:00Z``) or a position of the source, and how to read it."""
        asked = {"time": time, "position": None if position is None else str(position)}
        given = {name: value for name, value in asked.items() if value is not None}
        return self._get(f"{_destination(pipeline, destination)}/at", **given)

    def schema(self, pipeline: str, destination: str) -> dict[str, Any]:
        """A destination's columns beside the source's, which are the same, and what is done to follow the source."""
        return self._get(f"{_destination(pipeline, destination)}/schema")

    def health(self, pipeline: str, destination: str) -> dict[str, Any]:
        """How a destination's table and lake fare, as its catalog had it at the last look."""
        return self._get(f"{_destination(pipeline, destination)}/health")

    def lakes(self, pipeline: str, sort: str = "id") -> Iterator[dict[str, Any]]:
        """The health of each destination; ``sort`` by keys with commas between them, with a minus for largest first."""
        return self._items(f"{_pipeline(pipeline)}/health", sort=sort)

    def source_health(self, pipeline: str) -> dict[str, Any]:
        """How the source's table and lake fare."""
        found: dict[str, Any] = self._get(f"{_pipeline(pipeline)}/health", limit="1")["source"]
        return found

    # -- proposals ----------------------------------------------------------------------------------------------------

    def proposals(self, pipeline: str, state: Literal["open", "dismissed"] = "open") -> list[dict[str, Any]]:
        """Routing values without a destination. They are untrusted, and may contain any character."""
        return list(self._items(_proposals(pipeline), state=state))

    def accept(self, pipeline: str, proposal: str) -> Status:
        """Make a proposal a destination, by the template."""
        return self._ask("POST", f"{_proposals(pipeline)}/{_part(proposal)}:accept")

    def dismiss(self, pipeline: str, proposal: str) -> dict[str, Any]:
        """Dismiss a proposal."""
        return self._ask("POST", f"{_proposals(pipeline)}/{_part(proposal)}:dismiss")

    # -- operations ---------------------------------------------------------------------------------------------------

    def operations(self, pipeline: str, destination: str | None = None, limit: int = 100) -> list[Operation]:
        """The newest, the newest first."""
        return cast(list[Operation], self._some(f"{_pipeline(pipeline)}/operations", limit, destination=destination))

    def operation(self, pipeline: str, operation_id: str) -> Operation:
        return self._operation(self._get(f"{_pipeline(pipeline)}/operations/{_part(operation_id)}"))

    def wait(
        self,
        pipeline: str,
        operation_id: str,
        timeout_s: float = 600.0,
        tell: Callable[[Operation], None] = lambda _: None,
    ) -> Operation:
        """The operation once it is over, or has failed, or the time is. ``tell`` hears how it goes meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.operation(pipeline, operation_id)
            tell(found)
            if found["state"] != "running" or time.monotonic() >= deadline:
                return found
            time.sleep(ASK_EVERY_S)

    # -- tokens -------------------------------------------------------------------------------------------------------

    def tokens(self) -> list[dict[str, Any]]:
        return list(self._items("/v1/tokens"))

    def create_token(self, name: str, scope: str, pipelines: Sequence[str] | None = None) -> dict[str, Any]:
        """The answer's ``token`` is shown only once. ``pipelines``: the pipelines that the token is limited to."""
        only = {} if pipelines is None else {"pipelines": list(pipelines)}
        return self._ask("POST", "/v1/tokens", json={"name": name, "scope": scope, **only})

    def revoke_token(self, token_id: str) -> None:
        self._ask("DELETE", f"/v1/tokens/{_part(token_id)}")

    # -- work ---------------------------------------------------------------------------------------------------------

    def work(self, pipeline: str, limit: int = 100, **filters: str) -> list[dict[str, Any]]:
        """The newest work items and what became of each."""
        return self._some(f"/v1/pipelines/{_part(pipeline)}/work", limit, **filters)

    def replay(self, pipeline: str, **which: Any) -> dict[str, Any]:
        """Send work items again, which is harmless: ``destination``, ``since``, ``until``, ``after``, ``through``…"""
        return self._sent(f"/v1/pipelines/{_part(pipeline)}/work:replay", which)

    def dead_letters(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        return self._some(f"/v1/pipelines/{_part(pipeline)}/dead-letters", limit)

    def redrive(self, pipeline: str, **which: Any) -> dict[str, Any]:
        """Send dead letters to where they came from."""
        return self._sent(f"/v1/pipelines/{_part(pipeline)}/dead-letters:redrive", which)

    def rejected(self, pipeline: str, limit: int = 100, **where: int) -> list[dict[str, Any]]:
        """Records that could not become rows, about the newest first: ``partition``, ``offset``."""
        path = f"/v1/pipelines/{_part(pipeline)}/rejected"
        filters = {name: str(value) for name, value in where.items()}
        return list(islice(self._items(path, limit=str(min(limit, PAGE)), **filters), limit))

    def redrive_rejected(self, pipeline: str, **which: Any) -> dict[str, Any]:
        """Send rejected records to their topic again, each once: ``partition``, ``offset``, ``again``…"""
        return self._sent(f"/v1/pipelines/{_part(pipeline)}/rejected:redrive", which)

    def _sent(self, path: str, which: Mapping[str, Any]) -> dict[str, Any]:
        """All that matches, in as many calls as it takes."""
        total = self._ask("POST", path, json=which)
        while total.get("next"):
            said = self._ask("POST", path, {"after": total["next"]}, json=which)
            total = {**said, **{name: total[name] + said[name] for name in ("matched", "sent", "refused")}}
        return total

    # -- HTTP ---------------------------------------------------------------------------------------------------------

    def _items(self, path: str, **filters: str | list[str]) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            page = self._get(path, **{"limit": str(PAGE), **filters, **({"after": after} if after else {})})
            yield from page["items"]
            after = page["next"]
            if not after:
                return

    def _some(self, path: str, limit: int, **filters: str | None) -> list[dict[str, Any]]:
        given = {name: value for name, value in filters.items() if value is not None}
        found: list[dict[str, Any]] = self._get(path, limit=str(limit), **given)["items"]
        return found

    def _operation(self, found: dict[str, Any]) -> Operation:
        return cast(Operation, found)

    def _get(self, path: str, **params: str | list[str]) -> dict[str, Any]:
        return self._ask("GET", path, params)

    def _ask(
        self, method: str, path: str, params: Mapping[str, str | list[str]] | None = None, **body: Any
    ) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, params=params, **body)
            answer.raise_for_status()
            found = {} if answer.status_code == 204 else answer.json()
        except httpx.HTTPStatusError as error:
            raise self._refusal(error.response) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            hint = "is `viaduck up`, or `viaduck control`, running with this file?"
            raise Unavailable(f"{self._url} does not answer: {error}", hint) from None
        if not isinstance(found, dict):
            raise Unavailable(f"{self._url} is something else", "check the address")
        return found

    def _refusal(self, answer: httpx.Response) -> Exception:
        """4xx is the caller's mistake; control says which, as problem+json."""
        problem = _document(answer)
        if answer.is_client_error:
            return Rejected(answer.url.path, answer.status_code, problem)
        said = str(problem.get("detail") or problem.get("title") or f"{answer.status_code} {answer.reason_phrase}")
        return Unavailable(f"{self._url}{answer.url.path}: {prefix(problem)}{said}", str(problem.get("hint", "")))


def _document(answer: httpx.Response) -> dict[str, Any]:
    """A problem document; empty where a proxy, or something else, answers with another body."""
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seen(version: int | None) -> dict[str, str]:
    """The header that makes a change fail (412) if there is a newer version than ``version``."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def _upkeep(steps: Sequence[str] | None, dry_run: bool) -> dict[str, Any]:
    return {"dry_run": dry_run, **({} if steps is None else {"steps": list(steps)})}


def _part(name: str) -> str:
    """One part of a path, whatever it holds.

    Raises ``InvalidAddress`` for a name that would be another path: ``..`` is resolved before anything is sent.
    """
    if name in ("", ".", ".."):
        raise InvalidAddress(f"{name!r} is no name of a pipeline, destination, proposal, operation or token")
    return quote(name, safe="")


def _pipeline(name: str) -> str:
    return f"/v1/pipelines/{_part(name)}"


def _destinations(pipeline: str) -> str:
    return f"{_pipeline(pipeline)}/destinations"


def _proposals(pipeline: str) -> str:
    return f"{_pipeline(pipeline)}/proposals"


def _destination(pipeline: str, destination: str) -> str:
    return f"{_destinations(pipeline)}/{_part(destination)}"
