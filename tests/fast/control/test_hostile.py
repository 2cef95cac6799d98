"""Names and values from strangers: kept and shown as text, or refused by their field; never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.fast.control.office import V1, D, Office, entry

HOSTILE = [
    "'; DROP TABLE destinations; --",
    '" OR "1"="1',
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}${7*7}%s%n%d{0}{}",
    "../../etc/passwd",
    "..\\..\\x",
    "line\nbreak\r\nSet-Cookie: x=1",
    "\u202eevil\u200b\ufeff",
    "tab\tand \x07 bell",
    "x" * 4_000,
    "株式会社 Ünïcode 🦆",
    " ",
    "-rf",
    "NULL",
]
TOO_MUCH = ["nul\x00", "x" * 10_000]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(Office(tmp_path)) as office:
        yield office


@pytest.mark.parametrize("value", HOSTILE)
def test_a_routing_value_is_whatever_it_is(office: Office, value: str) -> None:
    assert office.add("a", routing_value=value, name=value[:200], table=value[:200])["routing_value"] == value
    published = office.published("a")
    assert published is not None
    assert (published.routing_value, published.table) == (value, value[:200])
    assert office.registry.destinations()["a"].declared.name == value[:200]
    for path in ("/", "/destinations/a"):
        html = office.http.get(path).text
        assert "<script>" not in html
        assert "<img" not in html
    shown = escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    assert shown in html


@pytest.mark.parametrize("value", TOO_MUCH)
@pytest.mark.parametrize("key", ["routing_value", "table", "schema", "data_path", "name"])
def test_what_nothing_can_hold_is_refused_by_its_field(office: Office, key: str, value: str) -> None:
    answer = office.http.put(f"{D}/a?check=false", entry("a", **{key: value}))
    assert answer.status_code == 422
    assert any(key in field["path"] for field in answer.json()["fields"])
    assert len(answer.content) < 10_000


@pytest.mark.parametrize("name", [*(each for each in HOSTILE if each != "NULL"), *TOO_MUCH, "a/b", "%2e%2e", "é"])
def test_an_id_is_a_name_or_nothing(office: Office, name: str) -> None:
    path = f"{D}/{quote(name, safe='')}"
    for answer in (office.http.put(f"{path}?check=false", entry("a")), office.http.get(path)):
        assert answer.status_code in (404, 422)
        assert answer.headers["content-type"] == "application/problem+json"
    assert "set-cookie" not in answer.headers
    assert office.registry.destinations() == {}


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH])
@pytest.mark.parametrize("parameter", ["search", "prefix", "after", "state", "sort"])
def test_a_parameter_breaks_nothing(office: Office, parameter: str, value: str) -> None:
    office.add("a")
    for path in (f"{V1}/destinations", "/"):
        assert office.http.get(path, {parameter: value}).status_code in (200, 422)
