"""A destination's columns beside the source's: what control reads of both catalogs is what an applier does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.messages import ItemKind, Outcome
from tests.fast.control.rig import ControlRig
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, schema_of

T = "src.main.t"
ALTERED = (
    f"ALTER TABLE {T} RENAME COLUMN v TO w",
    f"ALTER TABLE {T} ADD COLUMN v INTEGER DEFAULT 3",
    f"ALTER TABLE {T} RENAME COLUMN s.a TO aa",
    f"ALTER TABLE {T} ALTER COLUMN n SET DATA TYPE BIGINT",
)


@dataclass
class Site:
    lakes: ApplyRig
    control: ControlRig

    def ask(self, path: str = "schema", code: int = 200) -> Any:
        answer = self.control.http.get(f"/v1/pipelines/p/destinations/a/{path}")
        assert answer.status_code == code, answer.text
        return answer.json()

    def put(self, **more: Any) -> None:
        own = schema_of(self.lakes.lake("a"))
        entry = {"routing_value": "a", "catalog_env": "LAKE_A", "table": "t", **own, **more}
        answer = self.control.http.put("/v1/pipelines/p/destinations/a?check=false", entry)
        assert answer.status_code in (200, 201), answer.text


@pytest.fixture
def site(make_rig: MakeRig, tmp_path: Path) -> Iterator[Site]:
    lakes = make_rig()
    lakes.sql(
        f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, v VARCHAR, n INTEGER, s STRUCT(a INTEGER, b VARCHAR))",
        f"INSERT INTO {T} SELECT i, 'a', 'v' || i, i, {{'a': i, 'b': 'b'}} FROM range(5) r(i)",
    )
    lakes.add("a")
    environ = {"LAKE_A": lakes.lake("a").catalog, "SOURCE": lakes.source.catalog}
    sections = {
        "source": {"catalog": lakes.source.catalog, "table": "t"} | schema_of(lakes.source),
        "routing": {"field": "tenant", "key_columns": ["id"]},
        "server": {"port": 0, "allowed_variables": ["LAKE_*"]},
    }
    with closing(ControlRig(tmp_path, pipeline="p", sections=sections, environ=environ)) as control:
        made = Site(lakes, control)
        made.put()
        yield made


def paths(columns: Any) -> list[str]:
    return [".".join(each["path"]) for each in columns]


def test_the_steps_that_are_told_are_those_that_are_done(site: Site) -> None:
    lakes = site.lakes
    assert site.ask()["position"] is None, "there is no lake yet"
    lakes.seed()
    seeded = lakes.head
    lakes.sql(*ALTERED)
    found = site.ask()
    assert (found["position"], found["head"], found["policy"]) == (seeded, lakes.head, "follow")
    assert (
        paths(found["columns"]) == ["id", "tenant", "v", "n", "s", "s.a", "s.b"] == paths(found["source_at_position"])
    )
    assert paths(found["source_at_head"]) == ["id", "tenant", "w", "n", "s", "s.aa", "s.b", "v"]
    now = {each["id"]: ".".join(each["path"]) for each in found["source_at_head"]}
    assert [now[each["source_id"]] for each in found["columns"]] == ["id", "tenant", "w", "n", "s", "s.aa", "s.b"]
    assert found["source_at_head"][-1]["default"] == "3"
    lakes.run(ItemKind.ADVANCE, "a", expected=seeded, after=lakes.head)
    newest = site.ask("history")["items"][0]
    assert newest["columns"] == found["steps"] != []
    again = site.ask()
    assert (again["steps"], again["refused"], again["position"]) == ([], None, lakes.head)
    assert [(each["path"], each["type"]) for each in again["columns"]] == [
        (each["path"], each["type"]) for each in again["source_at_head"]
    ]


def test_why_it_is_not_followed_is_what_it_parks_for(site: Site) -> None:
    lakes = site.lakes
    lakes.seed()
    seeded = lakes.head
    lakes.sql(*ALTERED)
    site.put(evolution={"policy": "freeze"})
    lakes.add("a", evolution="freeze")
    refused = site.ask()["refused"]
    (parked,) = lakes.run(ItemKind.ADVANCE, "a", expected=seeded, after=lakes.head)
    assert parked.outcome is Outcome.PARKED
    assert parked.error is not None
    assert refused == parked.error.model_dump(mode="json")
    site.put()
    lakes.add("a", evolution=None)
    lakes.write("a", "ALTER TABLE dst.main.t ADD COLUMN mine INTEGER")
    found = site.ask()
    (parked,) = lakes.run(ItemKind.ADVANCE, "a", expected=seeded, after=lakes.head)
    assert parked.error is not None
    assert (found["refused"]["type"], parked.error.type) == ("table_mismatch", "table_mismatch")
    assert {each["source_id"] for each in found["columns"]} == {None}
    lakes.write("a", "ALTER TABLE dst.main.t DROP COLUMN mine", "ALTER TABLE dst.main.t DROP COLUMN s")
    found = site.ask()
    (parked,) = lakes.run(ItemKind.ADVANCE, "a", expected=seeded, after=lakes.head)
    assert parked.error is not None
    assert found["refused"] == parked.error.model_dump(mode="json")
    assert "has dropped its column s" in found["refused"]["message"]


def test_lakes_that_are_away_and_a_table_that_is_gone_are_told_apart(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.lakes.seed()
    site.lakes.sql(f"DROP TABLE {T}")
    gone = site.ask(code=503)
    assert "source: source_gone: it has no table main.t" in gone["detail"]
    site.lakes.sql(f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR)")
    recreated = site.ask()
    assert (recreated["refused"]["type"], recreated["steps"]) == ("source_recreated", [])
    monkeypatch.setitem(site.control.environ, "LAKE_A", "postgres:host=127.0.0.1 port=1 dbname=nowhere")
    away = site.ask(code=503)
    assert away["type"].endswith("#unavailable")
    monkeypatch.delitem(site.control.environ, "LAKE_A")
    assert site.ask(code=409)["type"].endswith("#not_visible")


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_two_thousand_columns_are_shown_and_one_more_is_followed(site: Site) -> None:
    lakes, columns = site.lakes, [f"c{number}" for number in range(1_998)]
    lakes.sql(
        "CALL src.set_option('data_inlining_row_limit', 0)",  # neither catalog has a table of so many columns
        f"DROP TABLE {T}",
        f"CREATE TABLE {T} (id BIGINT, tenant VARCHAR, {', '.join(f'{each} INTEGER' for each in columns)})",
        f"INSERT INTO {T} (id, tenant, c1997) VALUES (1, 'a', 7)",
    )
    (seeded,) = lakes.seed()
    assert (seeded.outcome, seeded.error) == (Outcome.APPLIED, None)
    position = lakes.head
    lakes.sql(f"ALTER TABLE {T} ADD COLUMN one_more INTEGER DEFAULT 5", f"INSERT INTO {T} (id, tenant) VALUES (2, 'a')")
    found = site.ask()
    assert paths(found["columns"]) == ["id", "tenant", *columns]
    assert (found["steps"], found["refused"]) == (["add one_more INTEGER"], None)
    (answer,) = lakes.changes(position, "a")
    assert (answer.outcome, answer.error) == (Outcome.APPLIED, None)
    assert lakes.described("a")[0][-1] == ("one_more", "INTEGER")
    assert lakes.rows("a") == lakes.expected("a")
    assert site.ask()["steps"] == []
