"""Destinations as resources: what PUT, DELETE and the actions do, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from services.control.model.lifecycle import Revision
from services.control.model.reconciliation import reconcile
from services.control.view.destination_status import State
from shared.contracts.messages import DesiredState, ItemKind, Outcome
from shared.contracts.routed_by import RoutedBy
from tests.fast.control.examples import START, problem, progress
from tests.fast.control.fakes import FakeSource
from tests.fast.control.files import make_source, with_lake
from tests.fast.control.rig import V1, ControlRig, D, entry
from tests.servers.postgres import Postgres


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    sections = {"server": {"port": 0, "allowed_variables": ["LAKE"]}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        yield rig


def test_put_creates_publishes_and_shows_a_destination(rig: ControlRig) -> None:
    answer = rig.http.put(f"{D}/a?check=false", entry("a", name="for people", properties={"s3_use_ssl": False}))
    said = answer.json()
    assert (answer.status_code, answer.headers["location"], answer.headers["etag"]) == (201, f"{D}/a", '"2"')
    assert (said["id"], said["state"], said["generation"], said["managed_by"]) == ("a", "seeding", 1, "api")
    assert (said["author"], said["name"], said["version"]) == ("loopback", "for people", 2)
    published = rig.published("a")
    assert published is not None
    assert published.lake.catalog == f"sqlite:{rig.folder}/lakes/a.sqlite"
    assert published.lake.properties == {"s3_use_ssl": "false"}
    assert rig.http.get(f"{D}/a").json() == said


def test_the_same_again_changes_nothing(rig: ControlRig) -> None:
    rig.add("a")
    sent = len(rig.topic.sent)
    again = rig.http.put(f"{D}/a?check=false", entry("a", id="a"))
    assert (again.status_code, again.headers["etag"], len(rig.topic.sent)) == (200, '"2"', sent)


def test_other_properties_are_the_same_life_and_another_value_is_the_next(rig: ControlRig) -> None:
    rig.add("a")
    assert rig.add("a", properties={"s3_region": "eu"})["generation"] == 1
    assert rig.add("a", routing_value="another")["generation"] == 2


def test_a_control_with_an_older_file_leaves_the_column_that_another_one_routes_by(rig: ControlRig) -> None:
    """Else each PUT to either of them would begin another life."""
    rig.add("a")
    revision = Revision("newer", START)
    newer, names = RoutedBy(field="tenant"), frozenset({"tenant", "company"})
    rig.registry.change(lambda held: reconcile(held, [held["filed"].declared], revision, (), newer, names), revision)
    rig.reconciler.refresh()
    assert rig.add("a", name="for people")["generation"] == 1
    assert rig.registry.destinations()["a"].declared.routed_by == newer


def test_a_removed_id_comes_back_above_all_of_its_former_lives(rig: ControlRig) -> None:
    for generation in range(1, 6):
        assert rig.add("a")["generation"] == generation
        assert rig.http.delete(f"{D}/a").status_code == 204
        assert rig.published("a") is None
        assert rig.http.get(f"{D}/a").status_code == 404
    rig.add("a")
    rig.http.post(f"{D}/a/reseed")
    rig.http.delete(f"{D}/a")
    assert rig.add("a")["generation"] == 8


def test_after_the_registry_was_lost_the_cursor_tells_the_life(rig: ControlRig) -> None:
    rig.add("a")
    rig.said(progress(Outcome.FENCED, generation=9, position=5))
    assert rig.http.get(f"{D}/a").json()["generation"] == 9


def test_pause_resume_stop_and_restart(rig: ControlRig) -> None:
    rig.add("a")
    states: list[tuple[str, State]] = [("pause", "paused"), ("resume", "seeding"), ("stop", "stopped")]
    for action, state in [*states, ("restart", "seeding")]:
        said = rig.http.post(f"{D}/a/{action}").json()
        assert (said["state"], said["generation"]) == (state, 1)
        assert rig.http.get(f"{D}/a/status").json()["state"] == state
    published = rig.published("a")
    assert published is not None
    assert published.state is DesiredState.RUNNING


def test_what_is_stopped_is_restarted_not_resumed(rig: ControlRig) -> None:
    rig.add("a")
    rig.http.post(f"{D}/a/stop")
    for action in ("pause", "resume"):
        answer = rig.http.post(f"{D}/a/{action}")
        assert (answer.status_code, answer.json()["type"]) == (409, "/docs/errors#conflict")


def test_pausing_twice_is_pausing_once(rig: ControlRig) -> None:
    rig.add("a")
    first = rig.http.post(f"{D}/a/pause").json()
    assert rig.http.post(f"{D}/a/pause").json() == first


def test_a_parked_destination_is_tried_again_on_resume(rig: ControlRig) -> None:
    rig.add("a")
    before = rig.published("a")
    rig.said(progress(Outcome.PARKED, error=problem("access_denied")))
    rig.http.post(f"{D}/a/resume")
    after = rig.published("a")
    assert before is not None
    assert after is not None
    assert after.revision != before.revision


def test_a_reseed_is_an_operation_that_ends_with_the_new_life_in_place(rig: ControlRig) -> None:
    rig.add("a")
    rig.applied("a", 1, 10)
    begun = rig.http.post(f"{D}/a/reseed")
    place = begun.headers["location"]
    assert (begun.status_code, begun.json()["state"], begun.json()["generation"]) == (202, "running", 2)
    published = rig.published("a")
    assert published is not None
    assert (published.generation, published.replace) == (2, True)

    rig.applied("a", 1, 11)  # a late answer of the old life
    assert rig.http.get(place).json()["state"] == "running"
    rig.said(progress(Outcome.PARKED, generation=2, error=problem("access_denied", retryable=False)))
    failed = rig.http.get(place).json()
    assert (failed["state"], failed["error"]["type"], failed["finished_at"]) == ("failed", "access_denied", None)
    rig.applied("a", 2, 12)
    done = rig.http.get(place).json()
    assert (done["state"], done["error"]) == ("succeeded", None)
    assert done["finished_at"] is not None
    assert [each["id"] for each in rig.http.get(f"{V1}/operations").json()["items"]] == [done["id"]]


@pytest.mark.parametrize(("method", "path"), [("POST", "/reseed"), ("DELETE", "?data=drop")])
def test_a_registry_that_fails_between_life_and_operation_has_kept_neither(
    rig: ControlRig, method: str, path: str
) -> None:
    """«Nothing has changed» is true then, and a new life without its operation could not be followed."""
    before = rig.add("a")
    with rig.registry.database.transaction() as con:
        con.execute(text("ALTER TABLE operations RENAME TO away"))
    sent = len(rig.topic.sent)
    answer = rig.http.request(method, f"{D}/a{path}")
    assert (answer.status_code, answer.json()["type"]) == (503, "/docs/errors#unavailable")
    assert rig.http.get(f"{D}/a").json() == before
    assert rig.registry.destinations()["a"].generation == 1
    assert (len(rig.topic.sent), rig.http.get(f"{V1}/audit").json()["items"][0]["deed"]) == (sent, "added")
    with rig.registry.database.transaction() as con:
        con.execute(text("ALTER TABLE away RENAME TO operations"))
    assert rig.http.request(method, f"{D}/a{path}").json()["generation"] == 2


def test_a_rewind_begins_a_life_at_a_snapshot_that_the_source_still_has(tmp_path: Path) -> None:
    make_source(tmp_path)
    with_lake(tmp_path, "INSERT INTO lake.events SELECT 1, 'x', 1, NULL")
    with closing(ControlRig(tmp_path, source=FakeSource(lake=f"sqlite:{tmp_path}/source.sqlite"))) as rig:
        rig.add("a")
        begun = rig.http.post(f"{D}/a/rewind", {"to": 1})
        assert (begun.status_code, begun.json()["to"], begun.json()["generation"]) == (202, 1, 2)
        published = rig.published("a")
        assert published is not None
        assert (published.seed_at, published.replace) == (1, False)
        for wrong in (0, 3):
            answer = rig.http.post(f"{D}/a/rewind", {"to": wrong})
            assert (answer.status_code, answer.json()["type"]) == (409, "/docs/errors#not_retained")
            assert answer.json()["hint"] == "choose 1 to 2"


def test_a_later_life_forgets_that_one_was_rewound(rig: ControlRig) -> None:
    rig.add("a")
    rig.service._checks.require_retained = lambda snapshot: None  # type: ignore[method-assign]
    rig.http.post(f"{D}/a/rewind", {"to": 1})
    rig.http.post(f"{D}/a/reseed")
    published = rig.published("a")
    assert published is not None
    assert (published.generation, published.seed_at) == (3, None)


def test_dropping_the_data_waits_for_an_applier_and_fences_the_life_before(rig: ControlRig) -> None:
    rig.add("a")
    begun = rig.http.delete(f"{D}/a?data=drop")
    published = rig.published("a")
    assert (begun.status_code, begun.json()["kind"]) == (202, "drop")
    assert published is not None
    assert (published.drop, published.state, published.generation) == (True, DesiredState.STOPPED, 2)
    assert rig.http.get(f"{D}/a").json()["state"] == "removing"
    for refused in (rig.http.put(f"{D}/a?check=false", entry("a")), rig.http.post(f"{D}/a/resume")):
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs/errors#being_removed")

    rig.said(progress(Outcome.APPLIED, kind=ItemKind.CHANGES, generation=2, position=9))
    rig.said(progress(Outcome.APPLIED, kind=ItemKind.DROP, generation=1, position=-1))
    assert rig.published("a") is not None
    rig.said(progress(Outcome.APPLIED, kind=ItemKind.DROP, generation=2, position=-1))
    assert rig.published("a") is None
    assert rig.http.get(begun.headers["location"]).json()["state"] == "succeeded"
    assert rig.add("a")["generation"] == 3


def test_a_drop_that_does_not_succeed_can_be_given_up(rig: ControlRig) -> None:
    rig.add("a")
    rig.http.delete(f"{D}/a?data=drop")
    assert rig.http.delete(f"{D}/a").status_code == 204
    assert rig.published("a") is None


def test_what_the_file_declares_is_changed_by_the_file_alone_and_may_be_paused(rig: ControlRig) -> None:
    for answer in (rig.http.put(f"{D}/filed?check=false", entry("filed")), rig.http.delete(f"{D}/filed")):
        assert (answer.status_code, answer.json()["type"]) == (409, "/docs/errors#declared_by_file")
    assert rig.http.post(f"{D}/filed/pause").json()["state"] == "paused"
    rig.reconciler.apply(rig.config)
    assert rig.http.get(f"{D}/filed").json()["state"] == "paused"


def test_if_match_refuses_what_changed_meanwhile(rig: ControlRig) -> None:
    seen = rig.http.put(f"{D}/a?check=false", entry("a")).headers["etag"]
    rig.http.post(f"{D}/a/pause")
    headers = {"If-Match": seen}
    for answer in (
        rig.http.put(f"{D}/a?check=false", entry("a", name="x"), headers),
        rig.http.post(f"{D}/a/resume", headers=headers),
        rig.http.post(f"{D}/a/reseed", headers=headers),
        rig.http.delete(f"{D}/a", headers),
    ):
        assert (answer.status_code, answer.json()["type"]) == (412, "/docs/errors#precondition_failed")
    now = rig.http.get(f"{D}/a").headers["etag"]
    assert rig.http.delete(f"{D}/a", {"If-Match": f"{seen}, {now}"}).status_code == 204


def test_if_match_never_creates_and_if_none_match_never_changes(rig: ControlRig) -> None:
    assert rig.http.put(f"{D}/a?check=false", entry("a"), {"If-Match": "*"}).status_code == 412
    assert rig.http.put(f"{D}/a?check=false", entry("a"), {"If-None-Match": "*"}).status_code == 201
    assert rig.http.put(f"{D}/a?check=false", entry("a"), {"If-None-Match": "*"}).status_code == 412


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"catalog": None}, "catalog", "invalid"),
    ({"catalog_env": "LAKE"}, "catalog_env", "invalid"),
    ({"catalog": "lake.duckdb"}, "catalog", "invalid"),
    ({"catalog": "postgres:dbname=x password=s3cret"}, "catalog", "secret_in_request"),
    ({"catalog": "postgresql://u:s3cret@db/x"}, "catalog", "secret_in_request"),
    ({"properties": {"s3_secret_access_key": "s3cret"}}, "properties.s3_secret_access_key", "secret_in_request"),
    ({"properties": {"S3_ACCESS_KEY_ID": "s3cret"}}, "properties.S3_ACCESS_KEY_ID", "secret_in_request"),
    ({"data_path": "s3://key:s3cret@bucket/"}, "data_path", "invalid"),
    ({"properties": {"s3_regoin": "eu"}}, "properties.s3_regoin", "invalid"),
    ({"routing_value": "value of filed"}, "routing_value", "invalid"),
    ({"catalog": "sqlite:lakes/../lakes/filed.sqlite"}, "table", "invalid"),
    ({"id": "b"}, "id", "invalid"),
    ({"routing_value": "nul\x00"}, "routing_value", "invalid"),
    ({"table": "nul\x00"}, "table", "invalid"),
    ({"data_path": "/nul\x00"}, "data_path", "invalid"),
    ({"data_path": "/lakes/*{DATA_PATH}*/"}, "data_path", "invalid"),
    ({"catalog": "sqlite:/lakes/{DATA_PATH}"}, "catalog", "invalid"),
    ({"metadata_schema": "{AUTHOR}"}, "metadata_schema", "invalid"),
    ({"schema": "{DATA_PATH}"}, "schema", "invalid"),
    ({"table": "{SNAPSHOT_ID}"}, "table", "invalid"),
    ({"unknown": 1}, "unknown", "invalid"),
    ({"routing_value": {"$gt": ""}}, "routing_value", "invalid"),
    ({"seed_mode": "later"}, "seed_mode", "invalid"),
    ({"schema": ""}, "schema", "invalid"),
]


@pytest.mark.parametrize(("change", "path", "kind"), WRONG)
def test_an_entry_that_can_not_be_used_is_refused_by_its_field(
    rig: ControlRig, change: dict[str, Any], path: str, kind: str
) -> None:
    body = {key: value for key, value in entry("a", **change).items() if value is not None}
    answer = rig.http.put(f"{D}/a?check=false", body)
    said = answer.json()
    assert (answer.status_code, said["type"]) == (422, f"/docs/errors#{kind}")
    assert any(field["path"].startswith(path) for field in said["fields"])
    assert not any(field["path"].startswith("body") for field in said["fields"])
    assert "s3cret" not in answer.text
    assert "a" not in rig.registry.destinations()


def test_the_sources_own_table_is_nobodys_destination(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, source=FakeSource(lake=f"sqlite:{tmp_path}/source.sqlite"))) as rig:
        answer = rig.http.put(f"{D}/a", entry("a", catalog="sqlite:deeper/../source.sqlite", table="EVENTS"))
        assert [field["path"] for field in answer.json()["fields"]] == ["table"]


def test_no_secret_of_the_files_defaults_travels_with_what_comes_over_rest(tmp_path: Path) -> None:
    defaults = {"properties": {"s3_secret_access_key": "s3cret", "s3_region": "eu"}}
    with closing(ControlRig(tmp_path, sections={"defaults": defaults})) as rig:
        rig.add("a")
        published = rig.published("a")
        assert published is not None
        assert "s3cret" not in published.to_bytes().decode()
        assert (published.lake.properties, published.lake.from_defaults) == ({"s3_region": "eu"}, True)


ALLOWED = {"port": 0, "allowed_hosts": ["*.db.internal", "tenants.s3.*.amazonaws.com"],
           "allowed_paths": ["s3://tenants/", "/lakes"], "allowed_variables": ["TENANT_*"]}  # fmt: skip
STRANGERS: list[tuple[dict[str, Any], str]] = [
    ({"catalog": "postgres:dbname=x host=evil.example"}, "catalog"),
    ({"catalog": "postgres:dbname=x"}, "catalog"),
    ({"catalog": "postgres:dbname=x host=a.db.internal,evil.example"}, "catalog"),
    ({"catalog": "postgres:dbname=x host=a.db.internal hostaddr=10.0.0.1"}, "catalog"),
    ({"catalog": "sqlite:/etc/x.sqlite"}, "catalog"),
    ({"catalog": "sqlite:/lakes/../etc/x.sqlite"}, "catalog"),
    ({"catalog": "sqlite:/lakes-of-others/x.sqlite"}, "catalog"),
    ({"data_path": "s3://tenants-of-others/x"}, "data_path"),
    ({"data_path": "s3://tenants/../x"}, "data_path"),
    ({"properties": {"s3_endpoint": "evil.example:9000"}}, "properties.s3_endpoint"),
    ({"properties": {"s3_access_key_id_env": "REGISTRY_URL"}}, "properties.s3_access_key_id_env"),
]


@pytest.mark.parametrize(("change", "path"), STRANGERS)
def test_what_is_not_on_the_servers_lists_is_refused(tmp_path: Path, change: dict[str, Any], path: str) -> None:
    with closing(ControlRig(tmp_path, sections={"server": ALLOWED})) as rig:
        answer = rig.http.put(f"{D}/a?check=false", entry("a", **{"catalog": "sqlite:/lakes/a.sqlite", **change}))
        assert (answer.status_code, answer.json()["type"]) == (422, "/docs/errors#not_allowed")
        assert [field["path"] for field in answer.json()["fields"]] == [path]


def test_what_is_on_the_servers_lists_is_taken(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, sections={"server": ALLOWED})) as rig:
        rig.add("a", catalog="sqlite:/lakes/deeper/a.sqlite", data_path="s3://tenants/a/")
        rig.add("b", catalog="postgres:dbname=x host=eu.db.internal user=u")
        del (rest := entry("c", catalog_env="TENANT_C"))["catalog"]
        assert rig.http.put(f"{D}/c?check=false", rest).status_code == 201


def test_while_the_source_was_not_seen_nothing_can_be_added(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        rig.reconciler.seen = None
        answer = rig.http.put(f"{D}/a", entry("a"))
        assert (answer.status_code, answer.json()["type"]) == (503, "/docs/errors#unavailable")


def ndjson(*lines: object) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)


def test_an_import_says_what_became_of_each_line(rig: ControlRig) -> None:
    rig.add("old")
    body = ndjson(
        entry("a", id="a"), b"", entry("old", id="old", name="new name"), b"{", entry("b"), entry("a", id="a"),
        entry("filed", id="filed"), entry("c", id="c", routing_value="value of a"),
        entry("d", id="d", catalog="postgres:dbname=x password=s3cret"),
    )  # fmt: skip
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"})
    said = answer.json()
    assert [(line["line"], line["id"], line["status"]) for line in said["lines"]] == [
        (1, "a", 201), (3, "old", 200), (4, None, 422), (5, None, 422), (6, "a", 422), (7, "filed", 409),
        (8, "c", 422), (9, "d", 422),
    ]  # fmt: skip
    assert [line["fields"][0]["path"] if line["fields"] else None for line in said["lines"]] == [
        None, None, "", "id", "id", None, "routing_value", "catalog"
    ]  # fmt: skip
    kinds = [None, None, "invalid", "invalid", "invalid", "declared_by_file", "invalid", "secret_in_request"]
    assert [line["type"] for line in said["lines"]] == [kind and f"/docs/errors#{kind}" for kind in kinds]
    assert all(bool(line["hint"]) == bool(line["detail"]) == (line["status"] >= 400) for line in said["lines"])
    assert (said["applied"], said["created"], said["changed"], said["failed"]) == (True, 1, 1, 6)
    assert "s3cret" not in answer.text
    assert rig.registry.destinations().keys() == {"filed", "old", "a"}


def test_a_line_that_fails_is_told_as_a_put_would_be(rig: ControlRig) -> None:
    for bad in (
        {"seed_mode": "later"},
        {"properties": {"s3_regoin": "eu"}},
        {"catalog": "sqlite:x", "catalog_env": "Y"},
    ):
        put = rig.http.put(f"{D}/a?check=false", entry("a", **bad)).json()
        body = ndjson(entry("a", id="a", **bad))
        (line,) = rig.http.request(
            "POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"}
        ).json()["lines"]
        assert {name: line[name] for name in ("type", "status", "detail", "hint", "fields")} == {
            name: put[name] for name in ("type", "status", "detail", "hint", "fields")
        }


def test_a_body_that_is_no_json_is_refused_as_a_whole(rig: ControlRig) -> None:
    answer = rig.http.request("PUT", f"{D}/a", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, [field["path"] for field in answer.json()["fields"]]) == (422, ["body"])
    assert [field["path"] for field in rig.http.request("PUT", f"{D}/a").json()["fields"]] == ["body"]


def test_the_import_that_the_schema_shows_is_one(rig: ControlRig) -> None:
    shown = rig.http.get("/openapi.json").json()["paths"]["/v1/pipelines/{pipeline}/destinations:import"]["post"]
    body = shown["requestBody"]["content"]["application/x-ndjson"]["example"].encode()
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert (answer.json()["created"], answer.json()["failed"]) == (2, 0)


def test_all_or_nothing_is_nothing_where_a_line_fails(rig: ControlRig) -> None:
    for bad in (b"{", ndjson(entry("filed", id="filed"))):
        answer = rig.http.request(
            "POST", f"{D}:import?all_or_nothing=true", content=ndjson(entry("a", id="a"), bad),
            headers={"Content-Type": "application/x-ndjson"},
        )  # fmt: skip
        assert (answer.json()["applied"], answer.json()["created"]) == (False, 0)
        assert len(answer.json()["lines"]) == 2
    assert rig.registry.destinations().keys() == {"filed"}


def test_all_or_nothing_tells_what_became_of_every_line(rig: ControlRig) -> None:
    lines = (entry("a", id="a"), b"{", entry("filed", id="filed"), entry("b", id="b"))
    answer = rig.http.request(
        "POST", f"{D}:import?all_or_nothing=true", content=ndjson(*lines),
        headers={"Content-Type": "application/x-ndjson"},
    )  # fmt: skip
    said = answer.json()
    kinds = [(line["line"], line["id"], line["status"], line["type"].partition("#")[2]) for line in said["lines"]]
    assert kinds == [
        (1, "a", 424, "not_applied"), (2, None, 422, "invalid"), (3, "filed", 409, "declared_by_file"),
        (4, "b", 424, "not_applied"),
    ]  # fmt: skip
    assert (said["applied"], said["created"], said["changed"], said["failed"]) == (False, 0, 0, 2)
    assert rig.registry.destinations().keys() == {"filed"}


def test_five_thousand_come_in_one_call_and_one_version(rig: ControlRig) -> None:
    body = ndjson(*(entry(f"t{number}", id=f"t{number}") for number in range(5_000)))
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.json()["created"] == 5_000
    assert {each.version for each in rig.registry.destinations().values()} == {1, 2}
    assert len(rig.topic.kept) == 5_001


def test_the_trail_is_read_page_by_page(rig: ControlRig) -> None:
    rig.add("a")
    for action in ("pause", "resume", "stop"):
        rig.http.post(f"{D}/a/{action}")
    first = rig.http.get(f"{V1}/audit?limit=2&destination=a").json()
    second = rig.http.get(f"{V1}/audit?limit=2&destination=a&after={first['next']}").json()
    deeds = [each["deed"] for each in [*first["items"], *second["items"]]]
    assert (deeds, second["next"]) == (["stopped", "resumed", "paused", "added"], None)


# -- a look at the lake -----------------------------------------------------------------------------------------------


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[ControlRig]:
    sections = {"server": {"port": 0, "allowed_variables": ["WRONG", "RIGHT", "ONLY_THERE"]}}
    with closing(ControlRig(tmp_path, sections=sections)) as rig:
        yield rig


def checks(rig: ControlRig, **keys: Any) -> dict[str, tuple[bool | None, str | None]]:
    answer = rig.http.post(f"{D}:validate", {**entry("a", id="a"), **keys})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["valid"] == all(each["ok"] is not False for each in said["checks"])
    return {each["check"]: (each["ok"], each["type"]) for each in said["checks"]}


def test_a_lake_that_is_still_to_be_made_is_fine_and_nothing_is_left_behind(looking: ControlRig) -> None:
    before = sorted(looking.folder.rglob("*"))
    found = checks(looking, data_path=f"{looking.folder}/data/a")
    assert found == {"duplicates": (True, None), "catalog": (True, None), "data_path": (True, None)}
    assert sorted(looking.folder.rglob("*")) == before


def test_a_folder_that_can_not_be_written_is_told(looking: ControlRig) -> None:
    (looking.folder / "a file").write_text("in the way")
    found = checks(looking, data_path=f"{looking.folder}/a file/data")
    assert found["data_path"] == (False, "storage_refused")


def test_a_table_with_rows_of_somebody_else_is_told_and_put_refuses_it(looking: ControlRig) -> None:
    with_lake(looking.folder, "CREATE TABLE lake.others AS SELECT 'x' AS company")
    where = {"catalog": "sqlite:source.sqlite", "table": "others"}
    assert checks(looking, **where)["table"] == (False, "table_not_empty")
    answer = looking.http.put(f"{D}/a", entry("a", **where))
    assert (answer.status_code, answer.json()["type"]) == (422, "/docs/errors#check_failed")
    assert "table_not_empty" in answer.json()["fields"][0]["message"]
    assert looking.http.put(f"{D}/a?check=false", entry("a", **where)).status_code == 201


def test_a_table_with_other_columns_is_told(looking: ControlRig) -> None:
    with_lake(looking.folder, "CREATE TABLE lake.others (n INTEGER)")
    found = checks(looking, catalog="sqlite:source.sqlite", table="others")
    assert found["table"] == (False, "table_mismatch")


def test_a_database_that_does_not_answer_is_told(looking: ControlRig) -> None:
    found = checks(looking, catalog="postgres:dbname=x host=127.0.0.1 port=1 user=x")
    assert found["catalog"] == (False, "destination_unreachable")


def test_credentials_are_tried(looking: ControlRig, postgres: Postgres) -> None:
    looking.environ["WRONG"] = f"{postgres.words('postgres')} password=wrong"
    looking.environ["RIGHT"] = postgres.dsn("postgres")
    body = {"id": "a", "routing_value": "x", "data_path": f"{looking.folder}/d"}
    for variable, expected in (("WRONG", (False, "access_denied")), ("RIGHT", (True, None))):
        said = looking.http.post(f"{D}:validate", {**body, "catalog_env": variable}).json()
        found = {each["check"]: (each["ok"], each["type"]) for each in said["checks"]}
        assert found["catalog"] == expected


def test_a_variable_that_only_the_appliers_have_is_unchecked_and_no_mistake(looking: ControlRig) -> None:
    body = {"routing_value": "x", "catalog_env": "ONLY_THERE"}
    said = looking.http.post(f"{D}:validate", {**body, "id": "a"}).json()
    assert said["valid"]
    assert [each["ok"] for each in said["checks"] if each["check"] == "catalog"] == [None]
    assert looking.http.put(f"{D}/a", body).status_code == 201
