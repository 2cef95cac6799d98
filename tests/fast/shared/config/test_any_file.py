"""Whatever stands in a file: it loads, or it has mistakes. Never a traceback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError

FULL = {
    "pipeline": "events",
    "source": {"catalog": "sqlite:s.db", "schema": "main", "table": "t", "properties": {"s3_region": "r"}},
    "routing": {"field": "f", "key_columns": ["a", "b"], "seed_mode": "scan", "on_gap": "park"},
    "destinations": [
        {"id": "a", "routing_value": "a", "catalog": "postgresql://u:hunter2@h/a", "data_path": "s3://bkt"},
        {"id": "b", "routing_value": 5, "catalog_env": "LAKE", "metadata_schema": "m", "seed_mode": "latest"},
    ],
    "template": {
        "id": "t-{routing_value}",
        "catalog": "postgres:dbname={routing_value}",
        "data_path": "s3://bkt/{routing_value}",
        "properties": {"s3_region": "r"},
        "create_database": True,
    },
    "appear": {"policy": "create", "allow": "[a-z]+", "per_hour": 3, "total": 4},
    "defaults": {"properties": {"s3_secret_access_key_env": "KEY", "s3_use_ssl": False}},
    "poll": {"interval_seconds": 0.5},
    "server": {"host": "::", "port": 1, "token_env": "KEY"},
    "instance": {"id": "i", "partition": {"mode": "hash", "total": 2, "ordinal": 1, "include": ["a"]}},
    "kafka": {"bootstrap_servers": "h:1", "properties": {"a.b_env": "KEY"}},
    "spark": {"master": "local[2]", "conf": {"spark.x": "y"}},
    "registry": {"url": "sqlite:///r.db"},
    "state_dir": "state",
}

ENVIRON = {"LAKE": "dbname=b host=h password=hunter2", "KEY": "hunter2"}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["KEY", "LAKE", "MISSING", "a", "sqlite:a.db", "postgres:", "dbname=x", "hash", "~", "%", "x" * 300]
    ),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3))


def places(tree: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield from places(value, (*path, key))


def replaced(tree: object, path: tuple[str | int, ...], value: object) -> object:
    if not path:
        return value
    copy: dict[object, object] | list[object]
    if isinstance(tree, dict):
        copy = dict(tree)
        copy[path[0]] = replaced(tree[path[0]], path[1:], value)
        return copy
    assert isinstance(tree, list)
    index = path[0]
    assert isinstance(index, int)
    copy = list(tree)
    copy[index] = replaced(tree[index], path[1:], value)
    return copy


def outcome(content: bytes) -> Config | ConfigError:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "viaduck.yaml"
        file.write_bytes(content)
        try:
            return load(file, ENVIRON)
        except ConfigError as error:
            return error


def check(content: bytes) -> None:
    found = outcome(content)
    if isinstance(found, ConfigError):
        assert found.mistakes
        assert all(line.strip() and "\n" not in line for line in found.mistakes)
        found.args[0].encode()
    else:
        repr(found).encode()


def test_the_file_that_is_mutated_is_valid() -> None:
    assert isinstance(outcome(yaml.safe_dump(FULL).encode()), Config)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(list(places(FULL))), values), min_size=1, max_size=3))
def test_values_of_any_type_at_any_place(changes: list[tuple[tuple[str | int, ...], object]]) -> None:
    tree: object = FULL
    for path, value in changes:
        if path in set(places(tree)):
            tree = replaced(tree, path, value)
    check(yaml.safe_dump(tree, allow_unicode=True).encode())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_bytes_cut_out_put_in_or_moved(data: st.DataObject) -> None:
    content = yaml.safe_dump(FULL).encode()
    for _ in range(data.draw(st.integers(1, 4))):
        start, end = sorted(data.draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
        end = min(end, start + 20)
        put_in = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"\n", b": ", b"- ", b"*a", b"&a ", b"<<: ", b"!!set "])
        )
        content = content[:start] + put_in + content[end:]
    check(content)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
@example("<<: *a")
@example('a: "\\ud800"')
@example('a: "\\UFFFFFFFF"')
@example("&a [*a, *a]")
@example("&a {<<: *a}")
@example("!!set {a, b}")
@example("!!omap [a: b]")
@example("!!binary x")
@example("--- >\n")
@example("source: !!null x")
@example("source: &a {table: *a}")
def test_any_text_at_all(text: str) -> None:
    check(text.encode(errors="replace"))


@pytest.mark.parametrize(
    "value", ["hunter2", "hunter2\n", "postgresql://u:hunter2@h:x/d", "x password=hunter2 y", "'hunter2"]
)
def test_no_mistake_anywhere_shows_the_value_of_a_property_or_catalog(value: str) -> None:
    secret_places: list[tuple[str | int, ...]] = [
        ("source", "catalog"),
        ("source", "properties", "s3_region"),
        ("destinations", 0, "catalog"),
        ("destinations", 1, "catalog_env"),
        ("defaults", "properties", "s3_secret_access_key_env"),
        ("kafka", "properties", "a.b_env"),
        ("registry", "url"),
        ("server", "token_env"),
    ]
    for path in secret_places:
        if value == "hunter2" and path[-1] in ("catalog_env", "s3_secret_access_key_env", "a.b_env", "token_env"):
            continue  # the name of a variable as far as anybody can tell
        broken = replaced(replaced(FULL, path, value), ("poll",), "broken")
        found = outcome(yaml.safe_dump(broken).encode())
        assert isinstance(found, ConfigError)
        assert "hunter2" not in str(found)
