"""Every route there is, asked with what strangers write: nothing breaks, and nothing of it becomes markup.

The routes are the application's own, with their parameters, headers and bodies: a new one is asked as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

import services.control.page
from services.control.operations.destination_entry import Entry
from services.control.operations.work_items import Work
from shared.kafka.topics import Topics
from tests.fast.control.examples import PIPELINE
from tests.fast.control.operations.test_work_items import FakeBroker
from tests.fast.control.raw_http import EVENTS, Answer, routes, send
from tests.fast.control.rig import ControlRig, D, entry, offered

TOKEN = "the-token-of-the-administrator-0123456789"
SECRET = "what-a-variable-of-the-deployment-holds"
ASKED = {"authorization": f"Bearer {TOKEN}".encode()}
FORM, JSON = b"application/x-www-form-urlencoded", b"application/json"

VALUES = {
    "markup": b"<script>alert(1)</script>\"'><img src=x onerror=alert(1)>",
    "an attribute": b'" autofocus onfocus="alert(1)',
    "a template": b"{{ 7*7 }}{% raw %}${7*7}%s%n{0}",
    "SQL": b"'; DROP TABLE destinations; -- $$ \" OR 1=1",
    "colons": b"a:pause::b:table:name:",
    "NUL": b"a\x00b",
    "lines": b"a\r\nSet-Cookie: stolen=1\r\n\r\nb",
    "libpq": b"postgres:host=127.0.0.1 hostaddr=127.0.0.1 port=1 sslkeylogfile=/etc/passwd user=u passfile=/etc/passwd",
    "a URL": b"http://u:p@evil.example:9000/x?y=z#w",
    "another URL": b"//evil.example/\\@x",
    "a script's URL": b"javascript:alert(1)",
    "a path": b"../../../etc/passwd",
    "a variable": b"SECRET_OF_OURS",
    "10 kB": b"x" * 10_000,
    "a surrogate": b"a\xed\xa0\x80b",
    "no UTF-8": b"\xff\xfe\x80",
    "a number": b"9" * 400,
    "no number": b"NaN",
    "nothing": b"",
    "direction": "\u202eevil\u200b\ufeff 🦆".encode(),
}
MARKUP = (b"<script>alert", b"<img src=x", b'" autofocus onfocus="')
RESTRICTED = ("Content-Length", "Host")
NAMED = {"pipeline": PIPELINE, "destination": "a", "action": "pause", "verb": "pause", "name": "page.css"}


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Of all fields that a form of the page has."""
    folder = Path(services.control.page.__file__).parent
    found = {name for file in folder.glob("*.html") for name in re.findall(r'name="(\w+)"', file.read_text())}
    assert {"token", "reason", "version"} <= found
    return sorted(found | {alias or name for name, alias in _entry_fields()})


def _entry_fields() -> Iterator[tuple[str, str | None]]:
    return ((name, each.alias) for name, each in Entry.model_fields.items())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    broker = FakeBroker()
    template = {"id": "{routing_value}", "catalog": "sqlite:lakes/{routing_value}.sqlite",
                "data_path": "data/{routing_value}"}  # fmt: skip
    made = ControlRig(
        tmp_path,
        token=TOKEN,
        environ={"SECRET_OF_OURS": SECRET},
        work=lambda status_store, trail: Work(PIPELINE, Topics(), broker, broker, status_store.view, trail),
        sections={"template": template, "appear": {"policy": "propose"}},
    )
    with closing(made) as rig:
        put = rig.http.request("PUT", f"{D}/a?check=false", None, {"authorization": f"Bearer {TOKEN}"},
                                  json=entry("a"))  # fmt: skip
        assert put.status_code == 201, put.text
        rig.offers([offered("quacksworth")])
        yield rig


def in_json(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass" if b"\xed\xa0" in value else "replace")


def parameters(dependant: Any, kind: str) -> list[str]:
    own = [str(each.alias) for each in getattr(dependant, f"{kind}_params")]
    return own + [name for each in dependant.dependencies for name in parameters(each, kind)]


def filled(path: str, value: str | None) -> str:
    """The path with ``value`` in its places; None: with what there is."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda place: NAMED.get(place[1], "1") if value is None else value, path)


def bodies(route: Any, schema: dict[str, Any], value: bytes, names: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """(content type, body): each field of it, and the whole of it."""
    if "/v1/" not in route.path:
        encoded = quote_from_bytes(value, safe="")
        yield FORM, "&".join(f"{name}={encoded}" for name in names).encode()
        return
    text = in_json(value)
    yield JSON, value
    yield JSON, json.dumps(text).encode()
    yield b"application/x-ndjson", json.dumps({"id": text, "routing_value": text, "catalog": text}).encode()
    fields = list(properties(route, schema))
    yield JSON, json.dumps(dict.fromkeys(fields, text)).encode()
    yield JSON, json.dumps([{name: [text, {text: text}] for name in fields}]).encode()
    known = entry("new", id="new")
    for name in fields:
        yield JSON, json.dumps({**{key: given for key, given in known.items() if key in fields}, name: text}).encode()


def properties(route: Any, schema: dict[str, Any]) -> Iterator[str]:
    described = schema["paths"].get(route.path, {}).get("post" if "POST" in route.methods else "put", {})
    content = described.get("requestBody", {}).get("content", {})
    for said in re.findall(r"#/components/schemas/(\w+)", json.dumps(content)):
        yield from schema["components"]["schemas"][said].get("properties", {})


def requests(
    rig: ControlRig, value: bytes, names: list[str]
) -> Iterator[tuple[str, str, str, dict[str, bytes], bytes]]:
    encoded, schema = quote_from_bytes(value, safe=""), rig.http.app.openapi()
    in_header = bytes(each for each in value if each not in b"\r\n\0")
    order = {"GET": 0, "HEAD": 0, "PUT": 1, "POST": 2, "DELETE": 3}
    asked = [(method, each) for each in routes(rig.http.app) for method in each.methods]
    for method, route in sorted(asked, key=lambda each: (order[each[0]], each[1].path)):
        dependant = getattr(route, "dependant", None)
        if "{" in route.path:
            yield method, filled(route.path, encoded), "", ASKED, b"{}" if method in ("PUT", "POST") else b""
        query = parameters(dependant, "query") if dependant is not None else []
        headers = dict.fromkeys(parameters(dependant, "header") if dependant is not None else [], in_header)
        said = "&".join(f"{name}={encoded}" for name in [*query, "data", "anything"])
        path = filled(route.path, None)
        yield method, path, said, ASKED, b""
        if method in ("GET", "HEAD"):
            yield method, path, "", {**ASKED, **headers, "cookie": b"viaduck_session=" + in_header}, b""
            yield method, path, "", {"authorization": b"Bearer " + in_header, "accept": in_header}, b""
            continue
        for content_type, body in bodies(route, schema, value, names) if method != "DELETE" else ():
            yield method, path, "", {**ASKED, "content-type": content_type}, body
        if headers:
            yield method, path, "", {**ASKED, **headers}, b"{}"


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_route_breaks_or_shows_as_markup_what_a_stranger_wrote(
    rig: ControlRig, names: list[str], value: bytes
) -> None:
    known = {(method, each.path) for each in routes(rig.http.app) for method in each.methods}
    assert len(known) > 100, "the routes were found"
    asked = 0
    for method, path, query, headers, body in requests(rig, value, names):
        answer = send(rig.http.app, method, path, query, headers, body)
        require_harmless(answer, f"{method} {path[:200]}?{query[:200]} {body[:300]!r}")
        asked += 1
    assert asked >= 2 * len(known)


def require_harmless(answer: Answer, request: str) -> None:
    told = f"{request}\n{answer.status} {answer.headers}\n{answer.body[:600]!r}"
    assert answer.status < 500 or (answer.status == 503 and b"/docs/errors#defect" not in answer.body), told
    assert TOKEN.encode() not in answer.body, told
    assert SECRET.encode() not in answer.body, told
    assert "stolen" not in answer.headers.get("set-cookie", ""), told
    assert answer.headers["x-content-type-options"] == "nosniff", told
    if answer.content_type in ("text/html", EVENTS, "image/svg+xml"):
        assert not any(each in answer.body for each in MARKUP), told
    if "location" in answer.headers:
        assert re.match(r"(http://127\.0\.0\.1)?/(?![/\\])", answer.headers["location"]), told
    if answer.status >= 400 and " /v1/" in f" {request.partition(' ')[2]}":
        assert answer.content_type == "application/problem+json" or request.startswith("HEAD"), told
        problem = json.loads(answer.body or b"{}")
        assert request.startswith("HEAD") or {"type", "title", "status"} <= problem.keys(), told
        assert len(answer.body) < 20_000, told
