"""No client has the machine's own identity used for it: not by a destination, not by a pipeline of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fast.control.api.test_put_pipeline import document, faults
from tests.fast.control.rig import ControlRig, D, entry

ROLE = "arn:aws:iam::123456789012:role/lakes"
CHAIN = {"s3_provider": "credential_chain"}
ON_S3 = {"data_path": "s3://bucket/a/", "properties": CHAIN}
IN_AZURE = {"data_path": "az://lake/a/",
            "properties": {"azure_provider": "credential_chain", "azure_account": "acme1"}}  # fmt: skip
NOT_THEIRS = "is the identity of this deployment's own machines"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    sections = {"server": {"port": 0, "allowed_variables": ["*"]}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        yield rig


@pytest.mark.parametrize("lake", [ON_S3, IN_AZURE, {**ON_S3, "properties": {**CHAIN, "s3_assume_role_arn": ROLE}}])
def test_a_destination_that_is_put_gets_no_identity(rig: ControlRig, lake: dict[str, Any]) -> None:
    answer = rig.http.put(f"{D}/a?check=false", entry("a", **lake))
    assert (answer.status_code, answer.json()["type"]) == (422, "/docs/errors#not_allowed"), answer.text
    (field,) = answer.json()["fields"]
    assert NOT_THEIRS in field["message"]
    assert "name keys of your own" in field["message"]
    assert "a" not in rig.topic.kept


@pytest.mark.parametrize(("sections", "place"), [
    ({"source": {"catalog": "sqlite:/lakes/orders.sqlite", "table": "orders", **ON_S3}}, "source"),
    ({"destinations": [{"id": "a", "routing_value": "a", "catalog": "sqlite:/lakes/a.sqlite", **ON_S3}]},
     "destinations[0]"),
    ({"defaults": {"properties": CHAIN}}, "defaults"),
    ({"template": {"catalog": "sqlite:/lakes/{routing_value}", **ON_S3, "data_path": "s3://b-1/{routing_value}/"}},
     "template"),
])  # fmt: skip
def test_nor_does_a_pipeline(rig: ControlRig, sections: dict[str, Any], place: str) -> None:
    found = faults(rig, document(**sections), kind="not_allowed")
    assert NOT_THEIRS in found[f"{place}.properties.s3_provider"]


def test_keys_of_other_stores_are_secrets_in_a_request(rig: ControlRig) -> None:
    for name, path in (("gcs_secret", "gs://bucket/a/"), ("azure_connection_string", "az://lake/a/")):
        answer = rig.http.put(f"{D}/a?check=false", entry("a", data_path=path, properties={name: "s3cret"}))
        assert (answer.status_code, answer.json()["type"]) == (422, "/docs/errors#secret_in_request"), answer.text
        assert "s3cret" not in answer.text


def test_a_destination_inherits_what_the_files_defaults_give_to_every_lake(tmp_path: Path) -> None:
    sections = {"server": {"port": 0}, "defaults": {"properties": CHAIN}}
    with closing(ControlRig(tmp_path, file=("filed",), sections=sections)) as rig:
        answer = rig.http.put(f"{D}/a?check=false", entry("a", data_path="s3://bucket/a/"))
        assert answer.status_code == 201, answer.text
        published = rig.published("a")
        assert published is not None
        assert published.lake.properties == CHAIN
        other = {"data_path": "s3://bucket/b/", "properties": {"s3_assume_role_arn": ROLE}}
        assert rig.http.put(f"{D}/b?check=false", entry("b", **other)).status_code == 422


def test_control_does_not_try_an_identity_that_is_not_its_own(tmp_path: Path) -> None:
    """The appliers' machine may have another role than control's."""
    sections = {"server": {"port": 0}, "defaults": {"properties": CHAIN}}
    with closing(ControlRig(tmp_path, sections=sections)) as rig:
        said = rig.http.post(f"{D}:validate", entry("a", id="a", data_path="s3://bucket/a/")).json()
    (found,) = [each for each in said["checks"] if each["check"] == "data_path"]
    assert (found["ok"], "credentials that the appliers have" in found["message"]) == (None, True)
