"""Names and values from strangers: kept and shown as text, or refused by their field; never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg.pq import Conninfo

from shared.config.catalogs import ResolvedLake, absolute_data_path, parse_catalog
from shared.config.libpq_words import ANYBODYS
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError
from shared.lake.catalog.reader import CatalogReader
from tests.fast.control.files import config, destination, make_source, write
from tests.fast.control.rig import V1, ControlRig, D, entry, offered

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
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path)) as rig:
        yield rig


@pytest.mark.parametrize("value", HOSTILE)
def test_a_routing_value_is_whatever_it_is(rig: ControlRig, value: str) -> None:
    assert rig.add("a", routing_value=value, name=value[:200], table=value[:200])["routing_value"] == value
    published = rig.published("a")
    assert published is not None
    assert (published.routing_value, published.table) == (value, value[:200])
    assert rig.registry.destinations()["a"].declared.name == value[:200]
    for path in ("/", "/destinations/a"):
        html = rig.http.get(path).text
        assert "<script>" not in html
        assert "<img" not in html
    shown = escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    assert shown in html


@pytest.mark.parametrize("value", TOO_MUCH)
@pytest.mark.parametrize("key", ["routing_value", "table", "schema", "data_path", "name"])
def test_what_nothing_can_hold_is_refused_by_its_field(rig: ControlRig, key: str, value: str) -> None:
    answer = rig.http.put(f"{D}/a?check=false", entry("a", **{key: value}))
    assert answer.status_code == 422
    assert any(key in field["path"] for field in answer.json()["fields"])
    assert len(answer.content) < 10_000


TEXTS = ["schema", "table", "metadata_schema"]


def put_hostile(rig: ControlRig, key: str, value: str, check: str) -> dict[str, Any] | None:
    """What is registered then; None where the value is refused by its field, and then nothing else has happened."""
    id, sent, before = f"{key}-of-a-stranger", len(rig.topic.sent), rig.registry.destinations()  # noqa: A001
    where = {"catalog": "postgres:dbname=lakes host=db.internal user=viaduck"} if key == "metadata_schema" else {}
    answer = rig.http.put(f"{D}/{id}?check={check}", entry(id, **{**where, key: value}))
    assert "set-cookie" not in answer.headers
    if answer.status_code == 422:
        fields = answer.json()["fields"]
        assert {field["path"].split(".")[0] for field in fields} == {key}
        assert all(field["message"] and "\n" not in field["message"] for field in fields)
        assert answer.json()["hint"]
        assert len(answer.content) < 10_000
        assert rig.registry.destinations() == before
        assert len(rig.topic.sent) == sent
        return None
    assert answer.status_code == 201, answer.text
    shown = rig.http.get(f"{D}/{id}").json()
    held, published = rig.registry.destinations()[id].declared, rig.published(id)
    assert published is not None
    assert (held.lake, held.schema_name, held.table) == (published.lake, published.schema_name, published.table)
    assert (shown["schema"], shown["table"]) == (held.schema_name, held.table)
    html = rig.http.get(f"/destinations/{id}").text
    assert "<script>alert" not in html
    assert "<img" not in html
    return {"schema": held.schema_name, "table": held.table, **held.lake.model_dump()}


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", TEXTS)
def test_a_name_over_rest_is_that_text_and_nothing_else(rig: ControlRig, key: str, value: str) -> None:
    before = sorted(rig.folder.rglob("*"))
    found = put_hostile(rig, key, value, "false")
    assert (found is None) == (len(value) > 200)
    assert found is None or found[key] == value
    assert sorted(rig.folder.rglob("*")) == before


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH])
def test_a_catalog_or_path_over_rest_names_one_place_or_is_refused(rig: ControlRig, value: str) -> None:
    before = sorted(rig.folder.rglob("*"))
    for given in (value, f"sqlite:lakes/{value}", f"postgres:dbname={value}", f"postgresql://db.internal/{value}"):
        found = put_hostile(rig, "catalog", given, "false")
        if found is not None:
            assert parse_catalog(found["catalog"], rig.folder) == found["catalog"]
            assert given.startswith(("sqlite:", "postgres"))
        assert rig.http.delete(f"{D}/catalog-of-a-stranger").status_code == (404 if found is None else 204)
    found = put_hostile(rig, "data_path", value, "false")
    assert found is None or found["data_path"] == absolute_data_path(value, rig.folder)
    assert sorted(rig.folder.rglob("*")) == before


def test_a_look_at_a_real_lake_runs_nothing_of_what_a_name_says(tmp_path: Path) -> None:
    make_source(tmp_path)
    with closing(ControlRig(tmp_path)) as rig:
        for value in HOSTILE:
            for key in ("schema", "table"):
                id = f"{key}-of-a-stranger"  # noqa: A001
                body = entry(id, catalog="sqlite:source.sqlite", data_path=f"{tmp_path}/data/", **{key: value})
                checks = rig.http.post(f"{D}:validate", {**body, "id": id})
                assert checks.status_code == (200 if len(value) <= 200 else 422), checks.text
                if checks.status_code == 200:
                    assert checks.json()["valid"], checks.text
        lake = ResolvedLake(f"sqlite:{tmp_path}/source.sqlite")
        with closing(CatalogReader(lake)) as catalog:
            assert catalog.table("main", "events", catalog.head().snapshot) is not None


@pytest.mark.parametrize("name", [*(each for each in HOSTILE if each != "NULL"), *TOO_MUCH, "a/b", "%2e%2e", "é"])
def test_an_id_is_a_name_or_nothing(rig: ControlRig, name: str) -> None:
    path = f"{D}/{quote(name, safe='')}"
    for answer in (rig.http.put(f"{path}?check=false", entry("a")), rig.http.get(path)):
        assert answer.status_code in (404, 422)
        assert answer.headers["content-type"] == "application/problem+json"
    assert "set-cookie" not in answer.headers
    assert rig.registry.destinations() == {}


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH])
@pytest.mark.parametrize("parameter", ["search", "prefix", "after", "state", "sort"])
def test_a_parameter_breaks_nothing(rig: ControlRig, parameter: str, value: str) -> None:
    rig.add("a")
    for path in (f"{V1}/destinations", "/"):
        assert rig.http.get(path, {parameter: value}).status_code in (200, 422)


FIELDS = ["routing_value", "id", "name", "catalog", "metadata_schema", "data_path", "schema", "table"]

TEMPLATE = {
    "id": "{routing_value}", "name": "{routing_value}", "catalog": "sqlite:lakes/{routing_value}.sqlite",
    "data_path": "data/{routing_value}", "schema": "{routing_value}", "table": "{routing_value}",
}  # fmt: skip


def outcome(file: Path) -> Config | ConfigError:
    try:
        return load(file, {})
    except ConfigError as error:
        return error


def is_told_in_one_line(error: ConfigError, where: str) -> bool:
    return all(line.startswith(where) and "\n" not in line and len(line) < 600 for line in error.mistakes)


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH])
def test_in_a_file_it_is_text_or_a_mistake_of_one_line(tmp_path: Path, value: str) -> None:
    for key in FIELDS:
        given = f"sqlite:lakes/{value}" if key == "catalog" else value
        loaded = outcome(write(tmp_path, [{**destination("a"), key: given}]))
        if isinstance(loaded, ConfigError):
            assert is_told_in_one_line(loaded, "destinations[0]"), loaded
        elif key not in ("catalog", "data_path"):
            assert getattr(loaded.destinations[0], {"schema": "schema_name"}.get(key, key)) == value


@pytest.mark.parametrize("value", HOSTILE)
def test_from_a_file_it_reaches_registry_topic_and_page_as_text(tmp_path: Path, value: str) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        given = destination("a", routing_value=value, name=value, table=value if value.strip() else "t")
        rig.reconciler.apply(config(tmp_path, [given]))
        published = rig.published("a")
        assert published is not None
        assert (published.routing_value, published.table) == (value, given["table"])
        html = rig.http.get("/destinations/a").text
        assert "<script>alert" not in html
        assert "<img" not in html


def appearing(folder: Path) -> ControlRig:
    return ControlRig(folder, sections={"template": TEMPLATE, "appear": {"policy": "create", "allow": "(?s).*"}})


@pytest.mark.parametrize("value", [each for each in [*HOSTILE, *TOO_MUCH] if each != "NULL"])
def test_through_a_template_it_is_proposed_and_nothing_is_made_of_it(tmp_path: Path, value: str) -> None:
    with closing(appearing(tmp_path)) as rig:
        before = sorted(tmp_path.rglob("*"))
        rig.offers([offered(value, 7)])
        assert sorted(tmp_path.rglob("*")) == before
        assert (rig.registry.destinations(), rig.topic.sent) == ({}, [])
        (shown,) = rig.proposals().values()
        assert (shown["routing_value"], shown["rows"], shown["reason"]) == (value[:200], 7, "unsafe")
        assert shown["destination"] is None
        html = rig.http.get("/proposals").text
        assert "<script>alert" not in html
        assert "<img" not in html
        assert f"/proposals/{shown['id']}/accept" not in html
        for path in (f"{V1}/proposals/{shown['id']}:accept", f"/proposals/{shown['id']}/accept"):
            refused = rig.http.post(path)
            assert refused.status_code in (409, 422)
            assert "set-cookie" not in refused.headers
        assert rig.http.post(f"/proposals/{shown['id']}/dismiss").headers["location"] == "/proposals"
        assert rig.http.get(f"{V1}/audit").json()["items"][0]["changes"]["routing_value"] == [None, value[:200]]
        assert rig.registry.destinations() == {}


def test_all_of_them_at_once_leave_the_good_one_alone(tmp_path: Path) -> None:
    with closing(appearing(tmp_path)) as rig:
        rig.offers([offered(value) for value in [*HOSTILE, *TOO_MUCH, "quacksworth"]])
        assert set(rig.registry.destinations()) == {"quacksworth", "NULL"}
        assert len(rig.discovery.proposals.all()) == len(HOSTILE) + len(TOO_MUCH) - 1


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH])
def test_around_the_placeholder_it_is_text_or_a_mistake_of_one_line(tmp_path: Path, value: str) -> None:
    for key in ("id", "catalog_env", "metadata_schema"):
        given = value if key == "catalog_env" else f"{value}{{routing_value}}"
        catalog = (
            {}
            if key == "catalog_env"
            else {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "{routing_value}"}
        )
        loaded = outcome(write(tmp_path, template={**catalog, key: given}, appear={"policy": "create"}))
        if isinstance(loaded, ConfigError):
            assert is_told_in_one_line(loaded, "template."), loaded
        else:
            assert getattr(loaded.template, key) == given


WORDS = [each.keyword.decode() for each in Conninfo.get_defaults() if each.keyword.decode() not in ANYBODYS]
ELSEWHERE: list[tuple[str, dict[str, Any]]] = [
    ("catalog_env", {"catalog": None, "catalog_env": "VIADUCK_TOKEN"}),
    ("catalog_env", {"catalog": None, "catalog_env": "ANY_OTHER"}),
    ("properties.s3_session_token_env", {"properties": {"s3_session_token_env": "VIADUCK_TOKEN"}}),
    ("properties.s3_session_token_env", {"properties": {"s3_session_token_env": "PATH"}}),
    ("properties.s3_region_env", {"properties": {"s3_region_env": "PATH"}}),
    *[("properties.s3_endpoint", {"properties": {"s3_endpoint": each}})
      for each in ("evil/x", "http://evil", "u@evil", "evil?x", "evil#x", "evil%00", "a:b:c", ":1", "evil:", "")],
    *[("properties.s3_region", {"properties": {"s3_region": each}}) for each in ("x@evil:9/", "a/b", "a#", "A", "é")],
    *[("data_path", {"data_path": each}) for each in (
        "s3://x@evil:9000/", "s3://b:1/x", "s3://bucket/x?s3_endpoint=evil", "s3://bucket/#", "s3://bucket/../x",
        "https://evil/", "s3://", "s3:///x", "://x", "s3://BUCKET/x")],
    *[("catalog", {"catalog": f"postgres:host=db user=u {word}=/tmp/x"}) for word in WORDS],
    *[("catalog", {"catalog": each}) for each in (
        "postgres:user=u", "postgres:host=db", "postgres:host=/run user=u", "postgres:host=a:b/c user=u",
        "postgresql://u@%2Frun%2Fpostgresql/x", "postgresql://u@db/x?hostaddr=10.0.0.1")],
]  # fmt: skip


@pytest.mark.parametrize(("path", "keys"), ELSEWHERE)
def test_what_would_send_something_elsewhere_is_refused_by_its_field_before_anybody_is_asked(
    rig: ControlRig, path: str, keys: dict[str, Any]
) -> None:
    sent = {key: value for key, value in entry("a", **keys).items() if value is not None}
    for call in (f"{D}/a?check=false", f"{D}/a", f"{D}:validate"):
        answer = rig.http.put(call, sent) if "/a" in call else rig.http.post(call, {**sent, "id": "a"})
        assert answer.status_code == 422, answer.text
        assert path in {field["path"] for field in answer.json()["fields"]}
        assert answer.json()["type"] != "/docs/errors#check_failed"
    assert rig.registry.destinations() == {}


NO_JSON = [
    b'{"routing_value": "x", "catalog": "sqlite:x.sqlite", "catalog": "sqlite:y.sqlite"}',
    b'{"routing_value": NaN, "catalog": "sqlite:x.sqlite"}',
    b'{"routing_value": Infinity, "catalog": "sqlite:x.sqlite"}',
    b'{"routing_value": 1e999, "catalog": "sqlite:x.sqlite"}',
    b'{"routing_value": "x", "catalog": "sqlite:x.sqlite", "properties": {"s3_region": "a", "s3_region": "b"}}',
]


@pytest.mark.parametrize("body", NO_JSON)
def test_what_two_readers_would_read_differently_is_no_json(rig: ControlRig, body: bytes) -> None:
    json = {"content-type": "application/json"}
    calls = [("PUT", f"{D}/a?check=false", body, json), ("POST", f"{D}:validate", body, json),
             ("PUT", "/v1/pipelines/orders?check=false", body, json),
             ("POST", f"{D}:import", b"[" + body.replace(b"{", b'{"id": "a", ', 1) + b"]", json)]  # fmt: skip
    for method, path, sent, headers in calls:
        answer = rig.http.request(method, path, content=sent, headers=headers)
        assert answer.status_code == 422, answer.text
        assert "is no JSON" in answer.text
    line = {"content-type": "application/x-ndjson"}
    answer = rig.http.request("POST", f"{D}:import", content=body.replace(b"{", b'{"id": "a", ', 1), headers=line)
    assert [each["status"] for each in answer.json()["lines"]] == [422]
    assert rig.registry.destinations() == {}
