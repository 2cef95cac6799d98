"""A tenant that appears by itself, on running services: its lake is made and exact; a hostile value is proposed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.e2e.prepared_viaduck import PreparedViaduck
from tests.servers.ports import free_port

HOSTILE = "../x'; DROP TABLE events; --<script>\u202e{}%s\n"
WITHIN_S = 180.0


class Source:
    """Writes to the shared table, and reads what tenants have."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.con = folder, connect()
        lake = ResolvedLake(f"sqlite:{folder}/source.sqlite", data_path=f"{folder}/source/")
        attach(self.con, "source", lake, read_only=False, create=True)
        self.con.execute("CREATE TABLE source.events (id BIGINT, company VARCHAR, amount DECIMAL(10, 2))")

    def insert(self, company: str | None, first: int, rows: int) -> None:
        self.con.execute(
            "INSERT INTO source.events SELECT ?::BIGINT + i, ?, i / 7 FROM range(?) r(i)", [first, company, rows]
        ).fetchall()

    @property
    def head(self) -> int:
        return int(self.con.execute("SELECT id FROM source.current_snapshot()").fetchall()[0][0])

    def rows(self, company: str) -> list[Any]:
        return self._rows("source.events WHERE company = ?", company)

    def tenant(self, name: str) -> list[Any]:
        """What a tenant's lake holds, all of it."""
        attach(self.con, "tenant", ResolvedLake(f"sqlite:{self.folder}/tenants/{name}.sqlite"), read_only=True)
        try:
            return self._rows("tenant.events WHERE ? IS NOT NULL", name)
        finally:
            self.con.execute("DETACH tenant")

    def _rows(self, relation: str, value: str) -> list[Any]:
        return self.con.execute(f"SELECT * FROM {relation} ORDER BY id", [value]).fetchall()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path)
    yield made
    made.con.close()


def configured(folder: Path, port: int) -> Path:
    file = folder / "viaduck.yaml"
    document = {
        "source": {"catalog": "sqlite:source.sqlite", "table": "events"},
        "routing": {"field": "company", "key_columns": ["id"]},
        "destinations": [
            {"id": "first", "routing_value": "first", "catalog": "sqlite:tenants/first.sqlite", "data_path": "data/1"}
        ],
        "template": {"id": "t-{routing_value}", "catalog": "sqlite:tenants/{routing_value}.sqlite",
                     "data_path": "data/{routing_value}/"},
        "appear": {"policy": "create", "allow": "[a-z]+"},
        "poll": {"interval_seconds": 0.2},
        "server": {"port": port},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(document))
    return file


def wait_for(viaduck: RunningViaduck, source: Source, name: str) -> None:
    """Until there is such a destination, and everybody is exact at the source's head."""

    def is_there() -> bool:
        return name in {each["id"] for each in viaduck.destinations()} and viaduck.caught_up(source.head)

    viaduck.wait_until(name, is_there, WITHIN_S)


@pytest.mark.timeout(900)
def test_a_new_tenant_gets_its_lake_and_a_hostile_value_is_only_proposed(tmp_path: Path, source: Source) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    source.insert("first", 0, 5)
    source.insert("before", 100, 7)
    source.insert(None, 200, 2)
    viaduck = PreparedViaduck(configured(tmp_path, port), url, "events", tmp_path / "up.log")
    with viaduck, httpx.Client(base_url=f"{url}/v1/pipelines/events", timeout=30.0) as rest:
        wait_for(viaduck, source, "t-before")
        source.insert("later", 300, 4)
        source.insert(HOSTILE, 400, 3)
        source.insert("later", 310, 4)
        wait_for(viaduck, source, "t-later")

        def proposed() -> list[Any]:
            return list(rest.get("/proposals").json()["items"])

        viaduck.wait_until("a proposal", lambda: bool(proposed()), WITHIN_S)
        (shown,) = proposed()
        assert (shown["routing_value"], shown["rows"], shown["reason"]) == (HOSTILE, 3, "unsafe")
        assert rest.post(f"/proposals/{shown['id']}:accept").status_code == 422
        assert "<script>" not in httpx.get(f"{url}/proposals").text.replace("<script src", "")
        assert {each["id"] for each in viaduck.destinations()} == {"first", "t-before", "t-later"}
        assert "DROP TABLE" not in viaduck.metrics()
        for name in ("first", "before", "later"):
            assert source.tenant(name) == source.rows(name)
        assert sorted(file.name for file in (tmp_path / "tenants").glob("*.sqlite")) == [
            "before.sqlite", "first.sqlite", "later.sqlite",
        ]  # fmt: skip
