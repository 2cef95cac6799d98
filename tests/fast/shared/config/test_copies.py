"""Pipelines that came over REST, as files in each service's own folder."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.config_errors import Mistakes
from shared.config.document import from_json, read, to_json
from shared.config.loading import load, load_tree
from shared.config.pipeline_files import Copy, PipelineFiles
from shared.contracts.errors import ConfigError

ORDERS: dict[str, Any] = {
    "source": {"catalog": "sqlite:/lakes/orders.sqlite", "table": "orders"},
    "routing": {"field": "company", "key_columns": ["id"]},
    "poll": {"interval_seconds": 0.5},
    "template": {"catalog": "sqlite:/lakes/{routing_value}.sqlite", "data_path": "s3://bkt/{routing_value}/",
                 "create_database": False},
}  # fmt: skip

AWKWARD = [
    "NO",
    "007",
    "12:30",
    "<<",
    "=",
    "~",
    "2024-01-31",
    "- a",
    "# c",
    "a: b",
    "\x07\x85\u2028\ufeff",
    "🦆",
    " x ",
]


@pytest.fixture
def copies(tmp_path: Path) -> PipelineFiles:
    return PipelineFiles(tmp_path / "state")


def test_a_copy_is_a_file_of_its_pipelines_name_and_version(copies: PipelineFiles) -> None:
    copies.write("orders", ORDERS, 7)
    assert copies.names() == ["orders"]
    assert (copies.version("orders"), copies.read("orders")) == (7, Copy(ORDERS, 7))
    config = load(copies.file("orders"), {})
    assert (config.pipeline, config.poll.interval_seconds) == ("orders", 0.5)


def test_one_that_went_is_gone_and_going_again_is_nothing(copies: PipelineFiles) -> None:
    assert copies.names() == []
    copies.write("orders", ORDERS, 1)
    copies.remove("orders")
    copies.remove("orders")
    assert (copies.names(), copies.version("orders"), copies.read("orders")) == ([], 0, None)


def test_the_same_again_writes_nothing_and_everything_else_is_noticed(copies: PipelineFiles) -> None:
    seen = [copies.fingerprint()]
    copies.write("orders", ORDERS, 1)
    seen.append(copies.fingerprint())
    copies.write("orders", ORDERS, 1)
    assert copies.fingerprint() == seen[-1]
    copies.write("orders", ORDERS, 2)
    seen.append(copies.fingerprint())
    copies.write("more", ORDERS, 3)
    seen.append(copies.fingerprint())
    copies.remove("orders")
    seen.append(copies.fingerprint())
    assert len(set(seen)) == len(seen)


def test_what_is_half_written_or_somebody_elses_is_no_copy(copies: PipelineFiles) -> None:
    copies.write("orders", ORDERS, 1)
    for name in (".unfinished.new", ".hidden.yaml", "notes.txt", "no name.yaml"):
        (copies.folder / name).write_text("{")
    assert copies.names() == ["orders"]
    assert len(list(copies.folder.iterdir())) == 5


@pytest.mark.parametrize("text", ["", "{", "pipeline: orders\n", "# anything, version 7.\npipeline: other\n", "# x"])
def test_what_somebody_else_wrote_is_not_taken_for_what_was_put(copies: PipelineFiles, text: str) -> None:
    copies.write("orders", ORDERS, 1)
    copies.file("orders").write_text(text)
    assert copies.read("orders") is None


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "a/b", "a\\b", "/etc/x", "a\n", "\x00", "-rf", "é", "x" * 201])
def test_no_name_leads_out_of_the_folder(copies: PipelineFiles, name: str) -> None:
    for act in (copies.file, copies.remove, copies.version, lambda name: copies.write(name, ORDERS, 1)):
        with pytest.raises(ValueError, match="no pipeline can be called"):
            act(name)
    assert not copies.folder.exists()


def test_the_longest_name_and_one_with_every_sign_are_file_names(copies: PipelineFiles) -> None:
    for name in ("x" * 200, "a._:@+-.yaml", "con.yaml.yaml"):
        copies.write(name, ORDERS, 1)
        assert load(copies.file(name), {}).pipeline == name
    assert len(copies.names()) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(AWKWARD),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(AWKWARD), inner, max_size=3)
    ),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {"id": st.sampled_from(["a", "b"]), "routing_value": JSON, "catalog": st.just("sqlite:/lakes/t.sqlite")},
    optional={"name": JSON, "schema": JSON, "table": JSON, "seed_mode": JSON, "data_path": JSON},
)
DOCUMENT = st.fixed_dictionaries(
    {"source": st.just(ORDERS["source"]), "routing": st.just(ORDERS["routing"])},
    optional={
        "destinations": st.lists(ENTRY, max_size=2),
        "poll": st.fixed_dictionaries({"interval_seconds": JSON}),
        "defaults": st.fixed_dictionaries({"properties": st.fixed_dictionaries({"s3_region": JSON})}),
        "appear": JSON,
        "state": JSON,
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DOCUMENT)
def test_what_is_accepted_as_json_is_read_from_its_copy_as_the_same(
    copies: PipelineFiles, document: dict[str, Any]
) -> None:
    mistakes = Mistakes()
    tree = from_json({**document, "pipeline": "orders"}, mistakes)
    accepted = load_tree(tree, copies.file("orders"), {}, mistakes)
    if accepted is None:
        assert mistakes
        return
    copies.write("orders", document, 1)
    assert load(copies.file("orders"), {}) == accepted.config


def test_json_that_no_file_could_hold_is_refused_by_its_place() -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    mistakes = Mistakes()
    from_json({"a": {"b": ["fine", "nul\x00"]}, "c": deep, "\ud800": 1}, mistakes)
    said = dict(mistakes.items())
    assert said["a.b[1]"] == said['"\\ud800"'] == "holds a null character or half of a surrogate pair; remove it"
    assert said["c" + "[0]" * 31] == "is nested more than 32 deep; no key needs that"


def test_a_file_is_sent_as_it_was_written_whatever_yaml_makes_of_it(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(
        "a: NO\nb: 007\nc: 12:30\nd: 2024-01-31\ne: 5\nf: 0.5\ng: true\nh: ~\ni: [x, {j: 1_000, k: 12.50}]\n"
    )
    tree = read(file, Mistakes()).tree
    assert json.loads(json.dumps(to_json(tree))) == {
        "a": "NO", "b": "007", "c": "12:30", "d": "2024-01-31", "e": 5, "f": 0.5, "g": True, "h": None,
        "i": ["x", {"j": "1_000", "k": "12.50"}],
    }  # fmt: skip


def test_a_copy_that_can_not_be_read_is_a_mistake_like_any_files(copies: PipelineFiles) -> None:
    copies.write("orders", {"source": {"table": "t"}}, 1)
    with pytest.raises(ConfigError, match=r"source\.catalog: is missing"):
        load(copies.file("orders"), {})


def test_a_failing_disk_collects_nothing_and_what_a_killed_process_left_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again ten times a second."""
    copies = PipelineFiles(tmp_path)
    copies.folder.mkdir(parents=True, exist_ok=True)
    left = copies.folder / ".of a killed process.new"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    being_written = copies.folder / ".of another.new"
    being_written.write_bytes(b"half")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for version in range(1, 101):
        with pytest.raises(OSError, match="No space left"):
            copies.write("events", {"a": 1}, version)
    assert list(copies.folder.iterdir()) == [being_written]
