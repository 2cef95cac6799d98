"""A pipeline over REST has the sections that a file has but the deployment's, and the page of the API lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared.config.deployment import NOT_ITS_OWN
from shared.config.model import Config
from tests.fast.control.api.test_put_pipeline import P, document, topic
from tests.fast.control.rig import ControlRig

PAGE = Path(__file__).parents[4] / "docs/reference/rest-api.md"
NOT_WRITTEN = {"path", "reserved", "topic", "pipeline"}
"""What is no key of a document: two are the file's place, a topic is a source, and the address names the pipeline."""

SECTIONS: dict[str, Any] = {
    "template": {"catalog": "sqlite:/lakes/{routing_value}.sqlite", "data_path": "/lakes/{routing_value}/"},
    "appear": {"policy": "off", "per_hour": 7},
    "layout": {"partitioned_by": "id", "sorted_by": "company", "encrypted": False},
    "evolution": {"policy": "additive", "comments": False},
    "upkeep": {"every": "2d"},
    "defaults": {"properties": {"s3_region": "eu-west-1"}},
    "poll": {"interval_seconds": 3},
    "flush": {"rows": 7},
    "state": {"table": "_where_we_are"},
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, file=("filed",), sections={"server": {"port": 0}})) as rig:
        yield rig


def listed() -> set[str]:
    [named] = re.findall(
        r"^The document has the keys of a file (.+?)\. The source may be", PAGE.read_text(), re.M | re.S
    )
    return set(re.findall(r"`(\w+)`", named))


def test_the_page_lists_every_section_that_is_a_pipelines_own() -> None:
    assert listed() == set(Config.model_fields) - NOT_WRITTEN - {*NOT_ITS_OWN}
    assert listed() == {*document(), *SECTIONS}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_is_taken_as_it_is_written_and_is_in_force(rig: ControlRig, section: str) -> None:
    sent = {**(topic() if section == "flush" else document()), section: SECTIONS[section]}
    answer = rig.http.put(P, sent)
    assert (answer.status_code, answer.json().get("document")) == (201, sent), answer.text
    held = getattr(rig.manager.deployment.of("orders"), section).model_dump(mode="json")
    assert {key: held[key] for key in SECTIONS[section]} == SECTIONS[section]
