"""docs/reference/configuration.md names every key with its true default, and its examples load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic.fields import FieldInfo

from shared.config.coercion import keys_of
from shared.config.model import Config, Section, TopicSource
from shared.config.store_access import PROPERTIES
from shared.lake.connection.store_secrets import IDENTITY_SETTINGS, KEY_SETTINGS, S3_SETTINGS
from shared.lake.direct.eligibility import ExtensionReason
from tests.fast.shared.config.conftest import Load

ROOT = Path(__file__).parents[4]
PAGE = (Path(__file__).parents[4] / "docs" / "reference/configuration.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| `([\w.\[\]]+)` \| (.+?) \| (.*?) ?\| (.+) \|$", re.MULTILINE)

IN_WORDS = {
    "pipeline": "the source table's name",
    "state_dir": '`".viaduck"`',
    "destinations[].table": "the source's table",
    "destinations[].seed_mode": "the pipeline's",
    "template.table": "the source's table",
    **{
        f"{section}.layout.{key}": "the pipeline's"
        for section in ("destinations[]", "template")
        for key in ("partitioned_by", "sorted_by", "encrypted")
    },
    **{
        f"{section}.evolution.{key}": "the pipeline's"
        for section in ("destinations[]", "template")
        for key in ("policy", "comments")
    },
    "upkeep.compact_after_applies": "that of `reader.upkeep_after_applies`",
    "template.seed_mode": "the pipeline's",
}
"""Defaults that follow from the rest of the file."""

VARIABLES = {
    "SOURCE_POSTGRES_URI": "dbname=source",
    "QUACKSWORTH_CATALOG": "dbname=quacksworth",
    "TENANTS_POSTGRES_URI": "dbname=tenants",
    "S3_ACCESS_KEY_ID": "x",
    "S3_SECRET_ACCESS_KEY": "x",
    "VIADUCK_TOKEN": "x",
    "KAFKA_PASSWORD": "x",
    "VIADUCK_SIGNING_KEY": "x" * 32,
    "VIADUCK_FORMER_SIGNING_KEY": "y" * 32,
    "REGISTRY_URL": "postgresql://db/registry",
}

NOT_BESIDE = {"source.catalog", "source.catalog_env", "destinations[].postgres_uri_env", "registry.url",
              "template.catalog", "template.catalog_env", "kafka.signing_key_file",
              "kafka.former_signing_key_file", "flush.rows", "flush.bytes", "flush.seconds"}  # fmt: skip
"""Keys that can't stand in a file that has their alternative."""


OF_BOTH_KINDS = {"source.kind", "source.properties"}
"""Keys that a lake and a topic have."""


def leaves(model: type[Section], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for key, info in keys_of(model).items():
        inner = info.annotation
        place = f"{path}{key}"
        if get_origin(inner) is tuple and isinstance(item := get_args(inner)[0], type) and issubclass(item, Section):
            yield from leaves(item, f"{place}[].")
        elif isinstance(inner, type) and issubclass(inner, Section):
            yield from leaves(inner, f"{place}.")
        else:
            yield place, info


def as_documented(path: str, info: FieldInfo) -> str:
    if path in IN_WORDS:
        return IN_WORDS[path]
    if info.is_required():
        return "required"
    default = info.default.value if isinstance(info.default, Enum) else info.default
    return "" if default is None else f"`{json.dumps(default)}`"


def examples() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_key_is_documented_once_with_its_default_and_no_other_key_is() -> None:
    documented = [(path, default) for path, _, default, _ in ROW.findall(PAGE)]
    of_topics = ((path, info) for path, info in leaves(TopicSource, "source.") if path not in OF_BOTH_KINDS)
    known = [*leaves(Config), *of_topics]
    assert sorted(documented) == sorted((path, as_documented(path, info)) for path, info in known)


def test_the_small_example_loads(load_text: Load) -> None:
    small, _ = examples()
    assert load_text(small).routing.key_columns == ("event_id",)


def test_the_full_example_loads_and_shows_every_key_that_can_stand_together(load_text: Load) -> None:
    _, full = examples()
    assert len(load_text(full, VARIABLES).destinations) == 2
    shown = set(_shown(yaml.safe_load(full)))
    assert {path for path, _ in leaves(Config)} - shown <= NOT_BESIDE


PARTS = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name != "configuration.md"
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("text", PARTS)
def test_every_example_of_the_other_pages_loads_beside_the_smallest_file(load_text: Load, text: str) -> None:
    smallest, _ = examples()
    whole = {**yaml.safe_load(smallest), **yaml.safe_load(text)}
    named = {value for path, value in _values(whole) if path.endswith("_env")}
    assert load_text(yaml.safe_dump(whole), {name: VARIABLES.get(name, f"dbname={name.lower()}") for name in named})


def test_every_property_is_documented_and_means_something_to_duckdb() -> None:
    assert all(f"`{name}`" in PAGE for name in PROPERTIES)
    assert set(PROPERTIES) == {*S3_SETTINGS, *KEY_SETTINGS, *IDENTITY_SETTINGS}


def _values(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _values(value, f"{path}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from _values(value, path)
    else:
        yield path, tree


def _shown(tree: Any, path: str = "") -> Iterator[str]:
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _shown(value, f"{path}.{key}" if path else key)
    if isinstance(tree, list):
        for value in tree:
            yield from _shown(value, f"{path}[]")


def test_every_reason_why_the_extension_commits_is_explained() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE[PAGE.index("#### Who commits") :], re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {reason.value for reason in ExtensionReason} <= explained
