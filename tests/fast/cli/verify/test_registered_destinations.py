"""Who is looked at by `viaduck verify`: every destination that anybody knows of, and a word where nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import insert

from services.cli.verify.registered_destinations import KnownPipelines, everything
from services.control.store.database import Database
from services.control.store.tables import destinations, documents, pipelines
from shared.config.deployment import load_all
from shared.contracts.messages import SeedMode
from tests.fast.cli.fake_control import FakeControl, serving, status

ENTRY = {"routing_value": True, "catalog_env": "B_CATALOG", "data_path": "b", "schema": "of b", "seed_mode": "replay",
         "properties": {"s3_use_ssl": False}}  # fmt: skip
DOCUMENT = {
    "source": {"catalog_env": "ORDERS", "table": "orders"},
    "routing": {"field": "company", "key_columns": ["id"]},
    "destinations": [{"id": "d", "routing_value": "d", "catalog_env": "D_CATALOG"}],
}
ENVIRON = {"ORDERS": "sqlite:/orders.sqlite", "D_CATALOG": "sqlite:/d.sqlite"}


class Both(FakeControl):
    """``events`` of the file, with a destination ``b`` that was put; ``orders``, which was put as a whole."""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        match path.strip("/").split("/"):
            case ["v1", "pipelines"]:
                return 200, {"items": [{"name": "events"}, {"name": "orders"}], "next": None}
            case ["v1", "pipelines", "orders"]:
                return 200, {"name": "orders", "document": DOCUMENT}
            case ["v1", "pipelines", "orders", "destinations"]:
                return 200, {"items": [status("d"), status("b")], "next": None}
            case ["v1", "pipelines", _, "destinations", "b", "entry"]:
                return 200, ENTRY
        return super().answer(path, query)


@pytest.fixture
def control() -> Iterator[FakeControl]:
    with serving(Both([status("a"), status("c"), status("b")])) as control:
        yield control


def known(folder: Path, port: int = 1, **sections: Any) -> KnownPipelines:
    document: dict[str, Any] = {
        "pipeline": "events",
        "source": {"catalog": "sqlite:source.sqlite", "table": "events"},
        "routing": {"field": "company"},
        "server": {"port": port},
        "defaults": {"properties": {"s3_region": "here"}},
        "destinations": [{"id": id, "routing_value": id, "catalog": f"sqlite:{id}.sqlite"} for id in ("a", "c")],  # noqa: A001
        **sections,
    }
    (folder / "viaduck.yaml").write_text(yaml.safe_dump(document))
    return everything(load_all([folder / "viaduck.yaml"], ENVIRON), ENVIRON)


def ids(found: KnownPipelines) -> dict[str, list[str]]:
    return {config.pipeline: [each.id for each in config.destinations] for config in found.configs}


def test_control_knows_those_that_came_over_rest(control: FakeControl, tmp_path: Path) -> None:
    found = known(tmp_path, int(control.url.rpartition(":")[2]))
    assert ids(found) == {"events": ["a", "c", "b"], "orders": ["d", "b"]}
    assert found.unknown == ()
    b = found.configs[0].destinations[-1]
    assert (b.routing_value, b.schema_name, b.table, b.seed_mode) == ("true", "of b", "", SeedMode.REPLAY)
    assert b.lake.catalog_env == "B_CATALOG"
    assert b.lake.data_path == f"{tmp_path}/b"
    assert b.lake.properties == {"s3_use_ssl": "false", "s3_region": "here"}
    assert found.configs[1].source.table == "orders"


def test_a_pipeline_that_can_not_be_used_here_is_not_passed_over(control: FakeControl, tmp_path: Path) -> None:
    document = {**DOCUMENT, "source": {"catalog_env": "NOT_SET", "table": "t"}}
    control.answer = lambda path, query: (  # type: ignore[method-assign]
        (200, {"document": document}) if path == "/v1/pipelines/orders" else Both.answer(control, path, query)  # type: ignore[arg-type]
    )
    found = known(tmp_path, int(control.url.rpartition(":")[2]))
    assert ids(found) == {"events": ["a", "c", "b"]}
    assert any("orders" in line and "NOT_SET" in line for line in found.unknown)


def test_one_that_control_does_not_tell_of_is_not_passed_over(control: FakeControl, tmp_path: Path) -> None:
    control.destinations.append(status("secret"))
    found = known(tmp_path, int(control.url.rpartition(":")[2]))
    assert ids(found)["events"] == ["a", "c", "b"]
    (said,) = found.unknown
    assert said.startswith("events/secret: ")


def test_where_no_control_answers_its_registry_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"pipeline": "events", "routing_value": "b", "generation": 1, "desired": "running", "replace": False,
           "managed_by": "api", "revision": "1", "created_at": at, "updated_at": at}  # fmt: skip
    spec = {"lake": {"catalog_env": "E_CATALOG", "properties": {}}, "schema_name": "main", "table": "of e",
            "seed_mode": "scan", "written": None}  # fmt: skip
    known(tmp_path)
    config = load_all([tmp_path / "viaduck.yaml"], ENVIRON).common
    with closing(Database.open(config)) as database, database.transaction() as con:
        con.execute(insert(pipelines).values(name="events", created_at=at))
        for id, written, removed in (  # noqa: A001
            ("a", ENTRY, False),
            ("b", ENTRY, False),
            ("e", None, False),
            ("gone", ENTRY, True),
        ):
            said = json.dumps({**spec, "written": written})
            con.execute(insert(destinations).values(**row, id=id, spec=said, removed=removed))
        for name, state in (("orders", "there"), ("old", "deleted")):
            content = json.dumps(DOCUMENT)
            con.execute(insert(documents).values(pipeline=name, content=content, state=state, version=1, updated_at=at))
    file = tmp_path / ".viaduck" / "registry.sqlite"
    before = file.read_bytes()
    found = known(tmp_path)
    assert ids(found) == {"events": ["a", "c", "b", "e"], "orders": ["d"]}
    assert found.unknown == ()
    assert found.configs[0].destinations[-1].table == "of e"
    assert file.read_bytes() == before


def test_where_neither_can_be_asked_that_is_said(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert ids(found) == {"events": ["a", "c"]}
    (said,) = found.unknown
    assert "only the files' destinations were looked at" in said
    assert "there is no file" in said
    assert not (tmp_path / ".viaduck" / "registry.sqlite").exists()


def test_control_of_another_deployment_is_not_believed(control: FakeControl, tmp_path: Path) -> None:
    found = known(tmp_path, int(control.url.rpartition(":")[2]), pipeline="mine")
    assert ids(found) == {"mine": ["a", "c"]}
    assert "another deployment" in found.unknown[0]
