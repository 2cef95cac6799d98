"""Pipelines as resources: what PUT and DELETE do, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from services.control.web.guard import Denied, GuardedRequest
from shared.config.pipeline_files import Copy
from shared.contracts.errors import ConfigError
from tests.fast.control.fakes import UNREACHABLE
from tests.fast.control.rig import V1, ControlRig, entry
from tests.fast.control.web.test_hostile import HOSTILE, TOO_MUCH

PIPELINES = "/v1/pipelines"
P = f"{PIPELINES}/orders"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    sections = {"server": {"port": 0, "allowed_variables": ["ORDERS*"]}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        yield rig


def document(**sections: Any) -> dict[str, Any]:
    return {
        "source": {"catalog": "sqlite:/lakes/orders.sqlite", "table": "orders"},
        "routing": {"field": "company", "key_columns": ["id"]},
        "destinations": [{"id": "a", "routing_value": "a", "catalog": "sqlite:/lakes/a.sqlite"}],
        **sections,
    }


def faults(rig: ControlRig, sent: Any, path: str = P, kind: str = "invalid") -> dict[str, str]:
    """What is said of which field; and that nothing changed."""
    answer = rig.http.put(path, sent)
    assert (answer.status_code, answer.json()["type"]) == (422, f"/docs/errors#{kind}"), answer.text
    assert (rig.pipeline_store.all, rig.pipelines_topic.sent) == ({}, [])
    assert rig.pipeline_store.is_new() is False  # the file's own pipeline is in it
    return {field["path"]: field["message"] for field in answer.json()["fields"]}


def test_put_creates_shows_and_copies_a_pipeline(rig: ControlRig) -> None:
    answer = rig.http.put(P, document(pipeline="orders"))
    said = answer.json()
    assert (answer.status_code, answer.headers["location"], answer.headers["etag"]) == (201, P, '"1"')
    assert (said["name"], said["managed_by"], said["version"], said["author"]) == ("orders", "api", 1, "loopback")
    assert said["document"] == document()
    shown = rig.http.get(P)
    assert (shown.json(), shown.headers["etag"]) == (said, '"1"')
    assert rig.manager.deployment.copies.read("orders") == Copy(document(), 1)
    config = rig.manager.deployment.of("orders")
    assert (config.source.table, config.server) == ("orders", rig.config.server)


def topic(flush: Any = None, **source: Any) -> dict[str, Any]:
    """A pipeline that reads a topic of another cluster."""
    return {
        "source": {"kind": "kafka", "topic": "clicks", "bootstrap_servers": "kafka:9092", **source},
        "routing": {},
        **({} if flush is None else {"flush": flush}),
        "destinations": [{"id": "c", "catalog": "sqlite:/lakes/c.sqlite", "data_path": "/lakes/c", "table": "clicks"}],
    }


SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "viaduck"}


@pytest.mark.parametrize("kind", ["pulsar", ["lake"], "Kafka", None, 1])
def test_a_source_is_a_lake_or_a_topic(rig: ControlRig, kind: Any) -> None:
    assert "source.kind" in faults(rig, topic(kind=kind))


def test_a_pipeline_that_reads_a_topic_can_say_all_that_a_file_can(rig: ControlRig) -> None:
    rig.environ["ORDERS_PASSWORD"] = "s3cret"
    sent = topic(
        {"rows": 5, "bytes": "2MiB", "seconds": 0.5},
        properties={**SCRAM, "sasl.password_env": "ORDERS_PASSWORD"},
        start={"offsets": {"0": 12}},
        format={"value": "json", "key": "text"},
        columns=[{"name": "id", "path": "$.id", "type": "bigint", "required": True}],
        infer="freeze",
        metadata=["partition", "offset", "key"],
        max_columns=9,
        on_bad="park",
        on_gap="skip",
    )
    sent["routing"] = {"key_columns": ["id"]}
    answer = rig.http.put(P, sent)
    assert (answer.status_code, answer.json().get("document")) == (201, sent), answer.text
    assert rig.http.put(P, sent).status_code == 200
    assert rig.manager.deployment.copies.read("orders") == Copy(sent, 1)
    assert "s3cret" not in json.dumps(rig.pipelines_topic.sent, default=str)


def test_a_topic_that_is_routed_to_tenants_is_put_as_it_is_written(rig: ControlRig) -> None:
    sent = topic(columns=[{"name": "tenant", "path": "$.tenant", "type": "VARCHAR"}])
    sent["routing"] = {"field": "tenant"}
    (one,) = sent["destinations"]
    other = {"id": "d", "catalog": "sqlite:/lakes/d.sqlite", "data_path": "/lakes/d"}
    sent["destinations"] = [{**one, "routing_value": "acme"}, {**one, **other, "routing_value": "acme"}]
    assert "each routing value goes to one destination" in faults(rig, sent)["destinations[1].routing_value"]
    sent["destinations"][1]["routing_value"] = "globex"
    answer = rig.http.put(P, sent)
    assert (answer.status_code, answer.json().get("document")) == (201, sent), answer.text
    assert {each.routing_value for each in rig.manager.deployment.of("orders").destinations} == {"acme", "globex"}


def test_two_pipelines_may_read_one_topic(rig: ControlRig) -> None:
    one, other = topic(), topic()
    other["destinations"][0] |= {"id": "d", "catalog": "sqlite:/lakes/d.sqlite", "data_path": "/lakes/d"}
    assert [rig.http.put(f"{PIPELINES}/{name}", sent).status_code for name, sent in (("one", one), ("two", other))] == [
        201, 201,
    ]  # fmt: skip
    assert rig.manager.deployment.of("two").topic == rig.manager.deployment.of("one").topic


@pytest.mark.parametrize(
    ("sent", "place", "said"),
    [
        (topic(format={"value": "xml"}), "source.format.value", "must be one of"),
        (topic(format={"value": "avro"}), "source.format.registry.url_env", "is missing"),
        (topic(nonsense=1), "source.nonsense", "is not a key"),
        (topic(bootstrap_servers=None), "source.bootstrap_servers", ""),
        (topic({"seconds": 0}), "flush.seconds", "must be greater than 0"),
        (topic(start={"timestamp": "yesterday"}), "source.start.timestamp", "must be a time with its zone"),
        ({**topic(), "appear": {"policy": "create"}}, "appear", "write routing.field"),
        ({**topic(), "routing": {"field": "tenant"}}, "routing.field", "is not declared among source.columns"),
        ({**topic(), "kafka": {"bootstrap_servers": "x:1"}}, "kafka", "belongs to the deployment"),
    ],
)
def test_what_a_file_could_not_say_of_a_topic_is_refused_by_its_place(
    rig: ControlRig, sent: dict[str, Any], place: str, said: str
) -> None:
    assert said in faults(rig, sent)[place]


@pytest.mark.parametrize(
    ("source", "place", "kind"),
    [
        ({"properties": {"sasl.password": "s3cret"}}, "properties.sasl.password", "secret_in_request"),
        ({"format": {"registry": {"url": "https://r", "properties": {"bearer.auth.token": "s3cret"}}}},
         "format.registry.properties.bearer.auth.token", "secret_in_request"),
        ({"properties": {"sasl.password_env": "s3cret"}}, "properties.sasl.password_env", "not_allowed"),
        ({"properties": {"sasl.username_env": "ORDERS"}}, "properties.sasl.username_env", "not_allowed"),
        ({"properties": {"ssl.ca.location": "/etc/passwd"}}, "properties.ssl.ca.location", "not_allowed"),
        ({"properties": {"sasl.kerberos.kinit.cmd": "id"}}, "properties.sasl.kerberos.kinit.cmd", "not_allowed"),
        ({"properties": {"plugin.library.paths": "/x.so"}}, "properties.plugin.library.paths", "not_allowed"),
        ({"properties": {"bootstrap.servers": "evil:1"}}, "properties.bootstrap.servers", "not_allowed"),
        ({"format": {"value": "avro", "registry": {"url_env": "ORDERS"}}}, "format.registry.url_env", "not_allowed"),
        ({"format": {"registry": {"url": "https://r", "properties": {"ssl.key.location": "/k"}}}},
         "format.registry.properties.ssl.key.location", "not_allowed"),
    ],
)  # fmt: skip
def test_no_secret_file_command_or_variable_of_the_deployment_comes_with_a_topic(
    rig: ControlRig, source: dict[str, Any], place: str, kind: str
) -> None:
    rig.environ["ORDERS"] = "http://registry"
    found = faults(rig, topic(**source), kind=kind)
    assert f"source.{place}" in found
    assert "s3cret" not in json.dumps({name: said for name, said in found.items() if kind == "secret_in_request"})


@pytest.mark.parametrize(
    "source",
    [
        {"bootstrap_servers": "a.internal:9092,evil:9092"},
        {"bootstrap_servers": "a.internal:9092", "format": {"value": "avro", "registry": {"url": "http://evil"}}},
    ],
)
def test_brokers_and_registries_are_among_the_hosts_that_the_server_allows(tmp_path: Path, source: Any) -> None:
    sections = {"server": {"port": 0, "allowed_hosts": ["*.internal"]}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        (said,) = faults(rig, topic(**source), kind="not_allowed").values()
        assert said.startswith("evil is not among the hosts")


def test_a_topic_of_the_deployments_broker_is_reached_as_its_file_says_and_is_none_of_viaducks(tmp_path: Path) -> None:
    sections = {"kafka": {"bootstrap_servers": "kafka:9092"}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        sent = topic()
        del sent["source"]["bootstrap_servers"]
        for changed, place, kind in (
            ({"topic": "viaduck.work"}, "source.topic", "invalid"),
            ({"topic": "viaduck.work", "bootstrap_servers": "KAFKA:9092"}, "source.topic", "invalid"),
            ({"properties": {"security.protocol": "PLAINTEXT"}}, "source.properties.security.protocol", "not_allowed"),
        ):
            assert place in faults(rig, {**sent, "source": {**sent["source"], **changed}}, kind=kind)
        assert rig.http.put(P, sent).status_code == 201
        assert rig.manager.deployment.of("orders").kafka.bootstrap_servers == "kafka:9092"


def test_the_list_tells_who_may_change_which(rig: ControlRig) -> None:
    rig.http.put(P, document())
    found = rig.http.get(PIPELINES).json()["items"]
    assert [(each["name"], each["managed_by"]) for each in found] == [("events", "file"), ("orders", "api")]
    shown = rig.http.get(V1)
    assert (shown.json()["managed_by"], shown.json()["document"], shown.json()["version"]) == ("file", None, None)
    assert "etag" not in shown.headers


def test_the_same_again_changes_nothing_and_asks_nobody(rig: ControlRig) -> None:
    rig.http.put(P, document())
    looks, sent = rig.source.looks, len(rig.pipelines_topic.sent)
    again = rig.http.put(P, document())
    assert (again.status_code, again.headers["etag"]) == (200, '"1"')
    assert (rig.source.looks, len(rig.pipelines_topic.sent)) == (looks, sent)
    assert rig.http.put(P, document(poll={"interval_seconds": 1})).headers["etag"] == '"2"'


def test_destinations_may_come_later(rig: ControlRig) -> None:
    sent = document()
    del sent["destinations"]
    assert rig.http.put(P, sent).status_code == 201
    assert rig.manager.deployment.of("orders").destinations == ()


def test_an_etag_is_for_who_means_what_he_saw(rig: ControlRig) -> None:
    assert rig.http.put(P, document(), {"If-Match": '"1"'}).status_code == 412
    assert rig.http.put(P, document(), {"If-None-Match": "*"}).status_code == 201
    assert rig.http.put(P, document(state={"table": "x"}), {"If-None-Match": "*"}).status_code == 412
    assert rig.http.put(P, document(state={"table": "x"}), {"If-Match": '"1"'}).status_code == 200
    assert rig.http.put(P, document(), {"If-Match": '"1"'}).status_code == 412
    assert rig.http.delete(P, {"If-Match": '"1"'}).status_code == 412
    assert rig.http.delete(P, {"If-Match": 'W/"2", "7"'}).status_code == 204


def test_delete_forgets_it_and_only_once(rig: ControlRig) -> None:
    rig.http.put(P, document())
    assert rig.http.delete(P).status_code == 204
    assert (rig.http.get(P).status_code, rig.http.delete(P).status_code) == (404, 404)
    assert rig.manager.deployment.names == ("events",)
    assert rig.http.put(P, document()).status_code == 201


def test_what_a_file_declares_is_the_files(rig: ControlRig) -> None:
    for answer in (rig.http.put(V1, document()), rig.http.delete(V1)):
        assert (answer.status_code, answer.json()["type"]) == (409, "/docs/errors#declared_by_file")


def test_beside_one_file_alone_there_is_no_room(rig: ControlRig) -> None:
    rig.manager.room = False
    answer = rig.http.put(P, document())
    assert (answer.status_code, answer.json()["type"]) == (409, "/docs/errors#one_file_alone")
    assert "-c FOLDER" in answer.json()["hint"]


def test_every_mistake_is_told_by_the_path_that_it_has_in_a_file(rig: ControlRig) -> None:
    sent = document(
        pipeline="another", server={"port": 1}, kafka={}, state_dir="/x", nonsense=1, poll={"interval_seconds": 0},
        routing={"field": "company", "key_colums": []},
    )  # fmt: skip
    sent["destinations"] += [{"id": "a", "routing_value": None, "catalog": "duck.db", "data_path": "s3://bkt"}]
    said = faults(rig, sent)
    assert said["pipeline"] == 'is "another", and the path names orders; leave it out'
    for key in ("server", "kafka", "state_dir"):
        assert said[key].startswith("belongs to the deployment; leave it out")
    assert said["nonsense"].startswith("is not a key")
    assert said["poll.interval_seconds"] == "must be 0.05 or more"
    assert said["routing.key_colums"] == "is not a key; did you mean key_columns?"
    assert said["destinations[1].id"] == '"a" is that of destinations[0] too; ids must differ'
    assert said["destinations[1].routing_value"] == "is required and has no value; write one"
    assert said["destinations[1].catalog"].startswith("can't be used: it is a DuckDB file")
    assert len(said) == 10


def test_what_only_the_source_shows_is_told_too_unless_nobody_wants_it_looked_at(rig: ControlRig) -> None:
    rig.source.error = ConfigError(["routing.field: the source table has no column company; did you mean firm?"])
    assert faults(rig, document()) == {"routing.field": "the source table has no column company; did you mean firm?"}
    rig.source.error = UNREACHABLE
    said = faults(rig, document(), kind="check_failed")
    assert said == {"source": "source_unreachable: the source: connection refused; start it"}
    assert rig.http.put(f"{P}?check=false", document()).status_code == 201


def test_a_password_is_refused_and_not_repeated(rig: ControlRig) -> None:
    sent = document(
        defaults={"properties": {"s3_secret_access_key": "s3cret"}},
        template={
            "catalog": "postgres:dbname={routing_value} password=s3cret",
            "data_path": "s3://bkt/{routing_value}",
        },
    )
    sent["source"]["catalog"] = "postgresql://u:s3cret@db/x"
    sent["destinations"] = [{"id": "a", "routing_value": "s3cret", "catalog": "postgres:dbname=x password='s3cret'",
                             "properties": {"s3_access_key_id": "s3cret"}}]  # fmt: skip
    said = faults(rig, sent, kind="secret_in_request")
    assert set(said) == {
        "source.catalog", "template.catalog", "defaults.properties.s3_secret_access_key", "destinations[0].catalog",
        "destinations[0].properties.s3_access_key_id",
    }  # fmt: skip
    assert "s3cret" not in json.dumps(said)


def test_a_relative_path_means_something_else_to_every_service(tmp_path: Path) -> None:
    sections = {"server": {"port": 0, "allowed_variables": ["HERE"]}}
    with closing(ControlRig(tmp_path, sections=sections, environ={"HERE": "sqlite:here.sqlite"})) as rig:
        sent = document(template={"catalog": "sqlite:t/{routing_value}.sqlite", "data_path": "t/{routing_value}"})
        sent["source"] = {"catalog": "sqlite:source.sqlite", "data_path": "~/data", "table": "t"}
        sent["destinations"] = [{"id": "a", "routing_value": "a", "catalog_env": "HERE", "data_path": "./x"}]
        said = faults(rig, sent)
        assert set(said) == {
            "source.catalog", "source.data_path", "template.catalog", "template.data_path",
            "destinations[0].catalog_env", "destinations[0].data_path",
        }  # fmt: skip
        assert all("write an absolute path" in each for each in said.values())


def test_only_what_the_lists_of_the_server_allow_may_be_named(tmp_path: Path) -> None:
    lists = {"allowed_hosts": ["*.internal"], "allowed_paths": ["/lakes"], "allowed_variables": ["TENANT_*"]}
    environ = {"AWS_KEY": "x", "OTHER": "dbname=x", "TENANT_A": "dbname=y"}
    with closing(ControlRig(tmp_path, sections={"server": {"port": 0, **lists}}, environ=environ)) as rig:
        sent = document(defaults={"properties": {"s3_endpoint": "evil:9000", "s3_access_key_id_env": "AWS_KEY"}})
        sent["source"] = {"catalog": "postgres:host=evil dbname=x", "data_path": "/lakes/../etc", "table": "t"}
        sent["destinations"] = [
            {"id": "a", "routing_value": "a", "catalog_env": "OTHER", "data_path": "/etc/"},
            {"id": "b", "routing_value": "b", "catalog": "sqlite:/var/x.sqlite"},
            {"id": "c", "routing_value": "c", "catalog_env": "TENANT_A", "data_path": "/lakes/c"},
        ]
        assert set(faults(rig, sent, kind="not_allowed")) == {
            "source.catalog", "source.data_path", "defaults.properties.s3_endpoint", "destinations[0].data_path",
            "defaults.properties.s3_access_key_id_env", "destinations[0].catalog_env", "destinations[1].catalog",
        }  # fmt: skip


def test_a_table_of_another_pipeline_is_taken(rig: ControlRig) -> None:
    theirs = rig.config.destinations[0]
    sent = document(destinations=[{"id": "x", "routing_value": "x", "catalog": theirs.catalog, "table": theirs.table}])
    assert faults(rig, sent) == {
        "destinations[0].table": "lake and table are those of filed in the pipeline events too;"
        " choose another catalog, schema or table"
    }  # fmt: skip


def test_ages_of_upkeep_are_held_against_the_deployments_deadlines(tmp_path: Path) -> None:
    lower = {
        "server": {"port": 0, "allowed_paths": ["/lakes"]},
        "applier": {"deadline_seconds": 30, "seed_deadline_seconds": 60},
    }
    with closing(ControlRig(tmp_path, sections=lower)) as rig:
        assert set(faults(rig, document(upkeep={"expire_after": "9m"}))) == {"upkeep.expire_after"}
        assert rig.http.put(f"{P}?check=false", document(upkeep={"expire_after": "11m"})).status_code == 201
        assert rig.pipeline_service.trouble("orders") == ()


def test_a_policy_that_contradicts_another_pipelines_on_one_lake_is_refused(rig: ControlRig) -> None:
    theirs = rig.config.destinations[0]
    there = {"id": "x", "routing_value": "x", "catalog": theirs.catalog, "table": "another"}
    assert faults(rig, document(destinations=[there], upkeep={"clean_after": "2d"})) == {
        "destinations[0].upkeep.clean_after": "differs from that of filed in the pipeline events, which is in the same"
        " lake; write the same for both"
    }
    refused = faults(rig, document(destinations=[{**there, "upkeep": {"keep_snapshots": 3}}]))
    assert set(refused) == {"destinations[0].upkeep.keep_snapshots"}


def test_a_document_that_no_broker_would_take_is_too_large(rig: ControlRig) -> None:
    answer = rig.http.put(P, document(state={"table": "x" * 600_000}))
    assert (answer.status_code, answer.json()["type"]) == (413, "/docs/errors#too_large")


@pytest.mark.parametrize("body", ["[]", '"x"', "null", "7", "{", "[" * 100_000, '{"a":' * 5_000, '{"poll": NaN}', ""])
def test_what_is_no_document_is_refused(rig: ControlRig, body: str) -> None:
    answer = rig.http.request("PUT", P, content=body.encode(), headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert rig.pipeline_store.all == {}


@pytest.mark.parametrize("name", [*(each for each in HOSTILE if each != "NULL"), *TOO_MUCH, "a/b", "%2e%2e", "é", ".."])
def test_a_name_is_a_name_or_nothing_and_no_file_comes_of_it(rig: ControlRig, name: str) -> None:
    before = sorted(rig.folder.rglob("*"))
    path = f"{PIPELINES}/{quote(name, safe='')}"
    for answer in (rig.http.put(path, document()), rig.http.get(path), rig.http.delete(path)):
        assert answer.status_code in (404, 405, 422)
        assert "set-cookie" not in answer.headers
    assert sorted(rig.folder.rglob("*")) == before
    assert rig.pipeline_store.all == {}


PLACES = [
    ("source", "table"), ("source", "schema"), ("source", "name"), ("source", "metadata_schema"), ("source", "catalog"),
    ("source", "catalog_env"), ("source", "data_path"), ("routing", "field"), ("state", "table"), ("template", "id"),
]  # fmt: skip


@pytest.mark.parametrize(
    "value", [*HOSTILE, *TOO_MUCH, "half \ud800", {"a": ["b"]}, ["x"], 1e300, -(10**30), True, None]
)
@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_value_is_kept_as_it_is_or_refused_by_its_field(rig: ControlRig, place: tuple[str, str], value: Any) -> None:
    section, key = place
    sent = document()
    sent[section] = {**sent.get(section, {}), key: value}
    if key == "catalog_env":
        del sent["source"]["catalog"]
    answer = rig.http.request("PUT", P, content=json.dumps(sent).encode(), headers={"content-type": "application/json"})
    if answer.status_code == 201:
        assert rig.http.get(P).json()["document"] == sent
        assert rig.manager.deployment.withheld == {}
        assert "orders" in rig.manager.deployment.names
    else:
        assert answer.status_code == 422, answer.text
        assert any(each["path"].startswith(section) for each in answer.json()["fields"])
        assert len(answer.content) < 20_000
        assert rig.pipeline_store.all == {}


@pytest.mark.parametrize("value", [*HOSTILE, *TOO_MUCH, "half \ud800"])
def test_a_key_is_a_key_or_nothing(rig: ControlRig, value: str) -> None:
    for sent in (document(**{value: 1}), document(source={value: 1}), document(defaults={"properties": {value: "x"}})):
        body = json.dumps(sent).encode()
        answer = rig.http.request("PUT", P, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422, answer.text
        assert len(answer.content) < 40_000
    assert rig.pipeline_store.all == {}


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_whole_pipelines_are_for_admins(tmp_path: Path, method: str) -> None:
    with closing(ControlRig(tmp_path, token="admin")) as rig:
        write = rig.tokens.create("w", "write", rig.now, None)[1]
        asked = GuardedRequest(method, P, authorization=f"Bearer {write}")
        verdict = rig.guard.judge(asked)
        assert isinstance(verdict, Denied)
        assert verdict.kind == "forbidden"
        answer = rig.http.request(method, P, headers={"authorization": f"Bearer {write}"}, json=document())
        assert answer.status_code == 403
        answer = rig.http.request(method, P, headers={"authorization": "Bearer admin"}, json=document())
        assert answer.status_code in (201, 404)


def test_one_that_can_not_run_here_is_listed_with_the_reason_and_can_be_removed(rig: ControlRig) -> None:
    rig.environ["ORDERS"] = "sqlite:/lakes/orders.sqlite"
    sent = document(source={"catalog_env": "ORDERS", "table": "orders"})
    assert rig.http.put(P, sent).status_code == 201
    shown = rig.http.get(P).json()  # the fleet of this rig has not the variable
    assert shown["refused"] == [
        "source.catalog_env: the environment variable ORDERS is not set; set it, or correct the name"
    ]
    assert not shown["caught_up"]
    assert [each["name"] for each in rig.http.get(PIPELINES).json()["items"]] == ["events", "orders"]
    assert rig.http.delete(P).status_code == 204


def test_what_is_put_into_a_pipeline_without_a_file_has_no_relative_path(rig: ControlRig, tmp_path: Path) -> None:
    rig.http.put(P, document())
    rig.reconciler.config = rig.manager.deployment.of("orders")
    answer = rig.http.put(f"{V1}/destinations/x?check=false", entry("x", data_path="/data/x"))
    assert answer.status_code == 422
    assert [each["path"] for each in answer.json()["fields"]] == ["catalog"]
