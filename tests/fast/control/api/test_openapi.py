"""A client that is generated of ``/openapi.json`` has every call, and its calls work."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.fast.control.live_server import served
from tests.fast.control.rig import ControlRig, entry

GENERATOR = "openapi_python_client"
MISSING = "the generator is not installed: `make test-client` installs it and runs this"
KNOWN_BODIES = {"application/json"}
"""Kinds of bodies that generators write code for; others may stand beside one of them."""

LISTED = {"server": {"allowed_variables": ["ORDERS_*"], "allowed_hosts": ["*"]}}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, sections=LISTED, environ={"ORDERS_CATALOG": "dbname=orders"})) as rig:
        yield rig


@pytest.fixture
def document(rig: ControlRig) -> dict[str, Any]:
    found: dict[str, Any] = rig.http.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_header_is_plain_text_or_absent(document: dict[str, Any]) -> None:
    """A header of constants or of anything else is one that generators make no call with."""
    for path, method, operation in operations(document):
        for each in operation.get("parameters", []):
            if each["in"] == "header":
                kinds = each["schema"].get("anyOf", [each["schema"]])
                assert {kind["type"] for kind in kinds} <= {"string", "null"}, (path, method, each["name"])
                assert not [kind for kind in kinds if "const" in kind or "enum" in kind], (path, method, each["name"])


def test_every_body_is_of_a_kind_that_generators_know(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            assert content.keys() & KNOWN_BODIES, (path, method)
            assert all("schema" in each for each in content.values()), (path, method)
    importing = document["paths"]["/v1/pipelines/{pipeline}/destinations:import"]["post"]
    assert set(importing["requestBody"]["content"]) == {"application/x-ndjson", "application/json"}


def test_every_route_declares_what_it_reads(rig: ControlRig, document: dict[str, Any]) -> None:
    """Whatever a handler takes of the path, the query, the headers or the body stands in the document."""
    told = {operation["operationId"]: operation for _, _, operation in operations(document)}
    routes = {route.name: route for route in _routes(rig.http.app) if route.include_in_schema}
    assert routes.keys() == told.keys()
    for name, route in routes.items():
        assert {each.alias for each in _taken(route)} <= {each["name"] for each in told[name].get("parameters", [])}
        reads = route.body_field is not None or "request.body()" in inspect.getsource(route.endpoint)
        assert reads == ("requestBody" in told[name]), name


def _routes(app: FastAPI) -> Iterator[APIRoute]:
    for included in app.router.routes:
        for route in getattr(included, "original_router", app).routes:
            if isinstance(route, APIRoute):
                yield route


def _taken(route: APIRoute) -> list[Any]:
    dependant = route.dependant
    return [*dependant.path_params, *dependant.query_params, *dependant.header_params]


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    assert {"put_pipeline", "put_destination", "import_destinations", "show_entry", "show_version"} <= set(names)


@pytest.fixture
def client(document: dict[str, Any], tmp_path: Path) -> Iterator[Path]:
    """The package that the generator makes; imported as ``viaduck_client``."""
    if importlib.util.find_spec(GENERATOR) is None:
        pytest.skip(MISSING)
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    made = subprocess.run(
        [sys.executable, "-m", GENERATOR, "generate", "--path", "openapi.json", "--meta", "none",
         "--output-path", "viaduck_client"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "will not be generated" not in made.stdout + made.stderr, made.stdout
    sys.path.insert(0, str(tmp_path))
    yield tmp_path / "viaduck_client"
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "viaduck_client"]:
        del sys.modules[name]


def _call(place: str, **arguments: Any) -> Any:
    answer = importlib.import_module(f"viaduck_client.api.{place}").sync_detailed(**arguments)
    assert answer.status_code < 300, (place, answer.content)
    return answer


def test_a_generated_client_has_every_call(client: Path, document: dict[str, Any]) -> None:
    made = {file.stem for file in (client / "api").rglob("*.py")}
    assert {operation["operationId"] for _, _, operation in operations(document)} <= made


@pytest.mark.usefixtures("client")
def test_a_generated_client_puts_imports_reads_changes_and_writes(rig: ControlRig) -> None:
    models = importlib.import_module("viaduck_client.models")
    made = importlib.import_module("viaduck_client")
    with served(rig) as url, made.Client(base_url=url) as asking:
        there = {"client": asking}
        source = {"source": {"catalog_env": "ORDERS_CATALOG", "table": "orders"}, "routing": {"field": "company"}}
        document = models.PutPipelineDocument.from_dict(source)
        _call("pipelines.put_pipeline", pipeline="orders", body=document, check=False, if_none_match="*", **there)
        of = {"pipeline": rig.pipeline, **there}
        new = models.PutEntry.from_dict(entry("a"))
        _call("destinations.put_destination", destination="a", body=new, check=False, if_none_match="*", **of)
        lines = [models.Entry.from_dict({**entry(name), "id": name}) for name in ("b", "c")]
        assert _call("destinations.import_destinations", body=lines, **of).parsed.created == 2
        seen = _call("destinations.show_entry", destination="a", **of)
        changed = models.PutEntry.from_dict({**seen.parsed.to_dict(), "name": "renamed"})
        _call("destinations.put_destination", destination="a", body=changed, check=False,
              if_match=seen.headers["ETag"], **of)  # fmt: skip
        begun = [_call("destinations.reseed_destination", destination="a", idempotency_key="k", **of) for _ in "12"]
        assert {each.parsed.id for each in begun} == {begun[0].parsed.id}
        assert _call("health.show_version", **there).parsed.version
    assert rig.registry.destinations()["a"].declared.name == "renamed"
    assert set(rig.registry.destinations()) == {"a", "b", "c"}
