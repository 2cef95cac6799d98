"""Wherever a destination comes from, its lake's files lie in nobody else's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared.contracts.errors import ConfigError
from tests.fast.control.files import config, destination
from tests.fast.control.rig import V1, ControlRig, D, entry, offered

SECTIONS = {
    "source": {"catalog": "sqlite:source.sqlite", "table": "events", "data_path": "s3://shared/source/"},
    "template": {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "s3://tenants/{routing_value}/"},
    "appear": {"policy": "create"},
}
CLASHING = [
    ("s3://tenants/a", "is that of a, which is another lake"),
    ("s3://tenants/a/deeper/", "lies within that of a, which is another lake"),
    ("s3://tenants/", "holds that of a, which is another lake"),
    ("s3://shared/source/b", "lies within that of the source, which is another lake"),
]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, sections=SECTIONS)) as rig:
        rig.add("a", data_path="s3://tenants/a/")
        yield rig


@pytest.mark.parametrize(("path", "said"), CLASHING)
def test_a_put_into_the_place_of_another_lake_is_refused(rig: ControlRig, path: str, said: str) -> None:
    answer = rig.http.put(f"{D}/b?check=false", entry("b", data_path=path))
    assert answer.status_code == 422
    (field,) = answer.json()["fields"]
    assert (field["path"], field["message"].partition(";")[0]) == ("data_path", said)
    assert set(rig.registry.destinations()) == {"a"}


@pytest.mark.parametrize(("path", "said"), CLASHING)
def test_so_is_a_line_of_an_import_and_two_lines_of_one(rig: ControlRig, path: str, said: str) -> None:
    lines = [entry("b", id="b", data_path=path), entry("c", id="c", data_path="s3://tenants/c"),
             entry("d", id="d", data_path="s3://tenants/c/d")]  # fmt: skip
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"content-type": "application/x-ndjson"})
    found = answer.json()["lines"]
    assert [each["status"] for each in found] == [422, 201, 422]
    assert said in found[0]["fields"][0]["message"]
    assert "lies within that of c" in found[2]["fields"][0]["message"]


def test_so_is_what_a_template_makes(rig: ControlRig) -> None:
    rig.add("b", data_path="s3://tenants/acme/deeper/")
    rig.offers([offered("acme"), offered("other")])
    assert set(rig.registry.destinations()) == {"a", "b", "other"}
    assert "holds that of b" in rig.proposals()["acme"]["message"]


def test_so_is_a_pipeline_whose_destinations_lie_in_anothers(rig: ControlRig) -> None:
    sent = {
        "source": {"catalog": "sqlite:/lakes/orders.sqlite", "table": "orders"},
        "routing": {"field": "company", "key_columns": ["id"]},
        "destinations": [
            {"id": "x", "routing_value": "x", "catalog": "sqlite:/lakes/x.sqlite", "data_path": "s3://tenants/a/x"}
        ],
    }
    answer = rig.http.put("/v1/pipelines/orders?check=false", sent)
    assert answer.status_code == 422
    (field,) = answer.json()["fields"]
    assert field["path"] == "destinations[0].data_path"
    assert "lies within that of a in the pipeline events" in field["message"]


def test_so_is_a_file_that_changes_into_the_place_of_what_came_over_rest(rig: ControlRig, tmp_path: Path) -> None:
    given = [destination("filed", data_path="s3://tenants/a/filed/")]
    with pytest.raises(ConfigError) as caught:
        rig.reconciler.apply(config(tmp_path, given, **SECTIONS))
    (line,) = caught.value.mistakes
    assert line.startswith("destinations: filed: data_path: lies within that of a (over REST)")


def test_the_same_lake_may_be_named_again_and_the_same_destination_put_again(rig: ControlRig) -> None:
    before = rig.http.get(f"{D}/a").json()
    lake = {"catalog": before["lake"]["catalog"], "data_path": "s3://tenants/a/"}
    assert rig.http.put(f"{D}/b?check=false", entry("b", table="other", **lake)).status_code == 201
    assert rig.http.put(f"{D}/a?check=false", entry("a", data_path="s3://tenants/a/")).status_code == 200
    assert rig.http.get(f"{V1}/destinations").json()["items"]
