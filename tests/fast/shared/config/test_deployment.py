"""Several files: what they share, what each has for itself, and where they contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.config.deployment import OF_THE_DEPLOYMENT, Deployment, load_all
from shared.contracts.errors import ConfigError
from shared.kafka.source_settings import topic_settings


def write(folder: Path, name: str, **sections: Any) -> Path:
    """A pipeline's file, called ``name``, whose destination is one of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.partition(".")[0]
    document = {
        "source": {"catalog": f"sqlite:{stem}.sqlite", "table": stem},
        "routing": {"field": "company"},
        "destinations": [{"id": "d", "routing_value": "d", "catalog": f"sqlite:{stem}-d.sqlite"}],
        **sections,
    }
    file = folder / name
    file.write_text(yaml.safe_dump(document))
    return file


def mistakes(*places: Path, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_all(places, environ or {})
    return list(raised.value.mistakes)


def load(*places: Path) -> Deployment:
    return load_all(places, {})


def test_a_folder_is_all_its_yaml_files_by_name_and_nothing_hidden(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", ".hidden.yaml", "notes.txt", "c.yaml.swp"):
        write(tmp_path, name)
    (tmp_path / "folder.yaml").mkdir()
    found = load(tmp_path)
    assert (found.names, found.may_grow) == (("a", "b"), True)


def test_files_and_folders_may_be_named_together(tmp_path: Path) -> None:
    write(tmp_path / "folder", "b.yaml")
    found = load(write(tmp_path, "z.yaml"), tmp_path / "folder")
    assert found.names == ("z", "b")


def test_one_file_alone_is_what_it_always_was(tmp_path: Path) -> None:
    found = load(write(tmp_path, "a.yaml", server={"port": 9}))
    assert (found.may_grow, found.common.server.port, found.common.state_dir) == (False, 9, tmp_path / ".viaduck")
    assert found.of(None) is found.common


def test_what_belongs_to_the_deployment_may_stand_in_any_of_the_files(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", server={"port": 9}, kafka={"properties": {"a": "1"}})
    write(tmp_path, "b.yaml", server={"host": "::1"}, kafka={"topic_prefix": "v", "properties": {"b": "2"}})
    write(tmp_path, "c.yaml", state_dir="state", applier={"max_open_lakes": 7}, server={"port": 9})
    for config in load(tmp_path).configs:
        assert (config.server.host, config.server.port) == ("::1", 9)
        assert (config.kafka.topic_prefix, config.kafka.properties) == ("v", {"a": "1", "b": "2"})
        assert (config.state_dir, config.applier.max_open_lakes) == (tmp_path / "state", 7)


def test_everything_else_is_each_pipelines_own(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", poll={"interval_seconds": 1})
    write(tmp_path, "b.yaml", poll={"interval_seconds": 2})
    assert [config.poll.interval_seconds for config in load(tmp_path).configs] == [1, 2]
    assert [config.source.table for config in load(tmp_path).configs] == ["a", "b"]


def test_the_state_folder_is_beside_the_first_file_where_nobody_says(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one", "a.yaml"), write(tmp_path / "two", "b.yaml")
    assert {config.state_dir for config in load(first, second).configs} == {tmp_path / "one" / ".viaduck"}


CONTRADICTIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"server": {"port": 1}}, {"server": {"port": 2}}, "server.port"),
    ({"state_dir": "x"}, {"state_dir": "y"}, "state_dir"),
    ({"kafka": {"properties": {"n": "1"}}}, {"kafka": {"properties": {"n": "2"}}}, "kafka.properties.n"),
    (
        {"instance": {"partition": {"mode": "hash", "total": 2}}},
        {"instance": {"partition": {"mode": "hash", "total": 3}}},
        "instance.partition.total",
    ),
    ({"registry": {"url": "sqlite:///a"}}, {"registry": {"url": "sqlite:///b"}}, "registry.url"),
    ({"reader": {"segment_rows": 1}}, {"reader": {"segment_rows": 2}}, "reader.segment_rows"),
]


@pytest.mark.parametrize(("one", "other", "path"), CONTRADICTIONS, ids=[path for _, _, path in CONTRADICTIONS])
def test_two_files_that_say_different_things_of_the_deployment_are_both_named(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], path: str
) -> None:
    a, b = write(tmp_path, "a.yaml", **one), write(tmp_path, "b.yaml", **other)
    assert mistakes(tmp_path) == [
        f"{b}: {path}: is written otherwise in {a}; write it in one of them, or alike in both"
    ]


def test_what_only_both_together_get_wrong_names_both(tmp_path: Path) -> None:
    a = write(tmp_path, "a.yaml", registry={"url": "sqlite:///x"})
    b = write(tmp_path, "b.yaml", registry={"url_env": "REGISTRY"})
    (line,) = mistakes(tmp_path, environ={"REGISTRY": "sqlite:///y"})
    assert line.startswith(f"{a} and {b}: registry.url_env: is given beside url")


def test_two_pipelines_of_one_name_are_refused(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.yaml", pipeline="events"), write(tmp_path, "b.yaml", pipeline="events")
    assert mistakes(a, b) == [f'{b}: pipeline: "events" is that of {a} too; write another name']


def test_two_pipelines_with_one_destination_table_are_refused(tmp_path: Path) -> None:
    there = {"id": "x", "routing_value": "x", "catalog": "sqlite:./shared.sqlite", "table": "t"}
    again = {"id": "y", "routing_value": "y", "catalog_env": "SHARED", "schema": "MAIN", "table": "T"}
    a, b = write(tmp_path, "a.yaml", destinations=[there]), write(tmp_path, "b.yaml", destinations=[again])
    assert mistakes(tmp_path, environ={"SHARED": f"sqlite:{tmp_path}/shared.sqlite"}) == [
        f"{b}: destinations[0].table: lake and table are those of destinations[0] in {a} too;"
        " choose another catalog, schema or table"
    ]


AZURE = {"azure_connection_string_env": "AZURE"}


def test_lakes_in_azure_are_told_apart_by_their_catalogs(tmp_path: Path) -> None:
    environ = {"AZURE": "DefaultEndpointsProtocol=https;AccountName=lakes;AccountKey=a2V5"}
    own = {"data_path": "az://box/b/", "properties": AZURE}
    lake = {"id": "x", "routing_value": "x", "catalog": "sqlite:shared.sqlite", **own}
    first = {"catalog": "sqlite:s.sqlite", "table": "t", "data_path": "az://box/s/", "properties": AZURE}
    write(tmp_path, "a.yaml", pipeline="a", source=first, destinations=[{**lake, "table": "one"}])
    write(tmp_path, "b.yaml", destinations=[{**lake, "table": "two"}])
    assert load_all((tmp_path,), environ).names == ("a", "b")
    write(tmp_path, "b.yaml", destinations=[{**lake, "table": "one"}])
    assert "lake and table are those of destinations[0]" in mistakes(tmp_path, environ=environ)[0]


@pytest.mark.parametrize(
    ("one", "other", "own", "key"),
    [
        ({"expire_after": "30d"}, {}, {}, "expire_after"),
        ({"clean_after": "2d"}, {"clean_after": "3d"}, {}, "clean_after"),
        ({"orphans_after": "7d"}, {"orphans_after": "7d"}, {"orphans_after": "off"}, "orphans_after"),
        ({}, {}, {"keep_snapshots": 5}, "keep_snapshots"),
        ({"whole_lake": True}, {}, {}, "whole_lake"),
    ],
)
def test_two_pipelines_that_keep_one_lake_otherwise_are_refused(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], own: dict[str, Any], key: str
) -> None:
    lake = {"id": "x", "routing_value": "x", "catalog": "sqlite:shared.sqlite"}
    a = write(tmp_path, "a.yaml", upkeep=one, destinations=[{**lake, "id": "first", "table": "one"}])
    b = write(tmp_path, "b.yaml", upkeep=other, destinations=[{**lake, "table": "two", "upkeep": own}])
    assert mistakes(tmp_path) == [
        f"{b}: destinations[0].upkeep.{key}: differs from that of destinations[0] (first) in {a}, which is in the"
        " same lake; write the same for both"
    ]


def test_what_two_pipelines_may_say_otherwise_of_one_lake(tmp_path: Path) -> None:
    """Equal ages that are spelled otherwise, and what concerns a table or a run alone."""
    lake = {"id": "x", "routing_value": "x", "catalog": "sqlite:shared.sqlite"}
    write(tmp_path, "a.yaml", upkeep={"expire_after": "30d", "most_files": 7}, destinations=[{**lake, "table": "one"}])
    own = {"expire_after": "720h", "compact_files": 9}
    write(tmp_path, "b.yaml", upkeep={"every": "2d"}, destinations=[{**lake, "table": "two", "upkeep": own}])
    assert len(load(tmp_path).configs) == 2


def test_ages_of_upkeep_are_held_against_the_deadlines_of_any_of_the_files(tmp_path: Path) -> None:
    lake = {"id": "x", "routing_value": "x", "catalog": "sqlite:x.sqlite", "table": "one"}
    write(tmp_path, "a.yaml", applier={"deadline_seconds": 30, "seed_deadline_seconds": 60})
    b = write(
        tmp_path, "b.yaml", upkeep={"expire_after": "11m"}, destinations=[{**lake, "upkeep": {"clean_after": "1h"}}]
    )
    assert load(tmp_path).find("b") is not None, "the deadlines are those of a.yaml"
    write(tmp_path, "b.yaml", upkeep={"expire_after": "9m"}, destinations=[{**lake, "upkeep": {"clean_after": "8m"}}])
    why = "ten times the longest deadline (applier.seed_deadline_seconds); write for example 7d, or off"
    assert mistakes(tmp_path) == [
        f"{b}: upkeep.expire_after: must be 600s or more, {why}",
        f"{b}: destinations[0].upkeep.clean_after: must be 600s or more, {why}",
    ]
    write(tmp_path, "a.yaml", applier={"seed_deadline_seconds": 7200})
    write(tmp_path, "b.yaml", upkeep={"expire_after": "19h"})
    assert mistakes(tmp_path) == [f"{b}: upkeep.expire_after: must be 72000s or more, {why}"]
    write(tmp_path, "b.yaml", upkeep={"expire_after": "soon"})
    assert len(mistakes(tmp_path)) == 1


def test_one_lake_may_hold_tables_of_two_pipelines(tmp_path: Path) -> None:
    there = {"id": "x", "routing_value": "x", "catalog": "sqlite:shared.sqlite"}
    write(tmp_path, "a.yaml", destinations=[there])
    write(tmp_path, "b.yaml", destinations=[there])
    assert len(load(tmp_path).configs) == 2


def test_every_mistake_of_every_file_is_one_line_that_begins_with_its_file(tmp_path: Path) -> None:
    a, b = write(tmp_path, "a.yaml", nonsense=1, poll={"interval_seconds": 0}), tmp_path / "b.yaml"
    b.write_text("{")
    c = write(tmp_path, "c.yaml")
    found = mistakes(a, b, c, tmp_path / "nowhere.yaml")
    assert [line.partition(": ")[0] for line in found] == [str(a), str(a), str(b), str(tmp_path / "nowhere.yaml")]
    assert not any("\n" in line for line in found)


def test_one_file_s_mistakes_are_told_as_they_always_were(tmp_path: Path) -> None:
    (line,) = mistakes(write(tmp_path, "a.yaml", poll={"interval_seconds": 0}))
    assert line.startswith("poll.interval_seconds: ")


def test_a_folder_without_files_is_a_mistake(tmp_path: Path) -> None:
    assert mistakes(tmp_path) == [
        f"{tmp_path}: has no file that ends in .yaml or .yml; write one, or name another folder"
    ]


def test_read_again_a_folder_has_new_files_and_lacks_old_ones(tmp_path: Path) -> None:
    gone = write(tmp_path, "a.yaml")
    write(tmp_path, "b.yaml")
    found = load(tmp_path)
    gone.unlink()
    write(tmp_path, "c.yaml")
    assert found.again().names == ("b", "c")


def test_read_again_a_file_alone_can_not_be_another_pipeline(tmp_path: Path) -> None:
    found = load(write(tmp_path, "a.yaml"))
    write(tmp_path, "a.yaml", pipeline="other")
    with pytest.raises(ConfigError, match="pipeline: was a"):
        found.again()


def test_a_command_for_one_pipeline_needs_its_name_where_there_are_several(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    write(tmp_path, "b.yaml")
    found = load(tmp_path)
    assert found.of("b").pipeline == "b"
    for asked in (None, "c"):
        with pytest.raises(ConfigError, match="--pipeline: choose one of a, b"):
            found.of(asked)


def test_who_starts_again_leaves_out_files_that_got_mistakes_while_it_ran(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", server={"port": 9})
    broken = write(tmp_path, "b.yaml")
    accepted = load(tmp_path).digest
    broken.write_text("{")
    found = load_all([tmp_path], {}, accepted)
    assert (found.names, len(found.left_out)) == (("a",), 1)
    assert found.left_out[0].startswith(f"{broken}: ")
    with pytest.raises(ConfigError, match="is not YAML"):
        found.of("b")
    with pytest.raises(ConfigError):
        found.again()


def test_but_not_where_the_others_say_something_else_of_the_deployment_or_nothing_is_left(tmp_path: Path) -> None:
    only = write(tmp_path, "a.yaml")
    broken = write(tmp_path, "b.yaml", kafka={"topic_prefix": "mine"})
    accepted = load(tmp_path).digest
    broken.write_text("{")
    for lost in (broken, only):
        lost.write_text("{")
        with pytest.raises(ConfigError):
            load_all([tmp_path], {}, accepted)


# -- what came over REST ----------------------------------------------------------------------------------------------


def document(name: str, **sections: Any) -> dict[str, Any]:
    """A pipeline as it is put over REST."""
    return {
        "source": {"catalog": f"sqlite:/lakes/{name}.sqlite", "table": name},
        "routing": {"field": "company"},
        "destinations": [{"id": "d", "routing_value": "d", "catalog": f"sqlite:/lakes/{name}-d.sqlite"}],
        **sections,
    }


def test_a_copy_is_a_pipeline_with_what_the_files_say_of_the_deployment(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", server={"port": 9}, poll={"interval_seconds": 1})
    before = load(tmp_path)
    before.copies.write("over-rest", document("over-rest"), 1)
    found = before.with_copies({})
    (file, put) = found.configs
    assert (found.names, found.declared) == (("a", "over-rest"), (file,))
    assert (file.over_rest, put.over_rest) == (False, True)
    assert (put.server.port, put.state_dir, put.poll.interval_seconds) == (9, file.state_dir, 5.0)
    assert found == load(tmp_path)
    assert before.copies_changed()
    assert not found.copies_changed()
    found.copies.remove("over-rest")
    assert found.copies_changed()
    assert found.with_copies({}).names == ("a",)


def test_beside_one_file_alone_a_copy_needs_a_reader_that_looks_after_several(tmp_path: Path) -> None:
    found = load(write(tmp_path, "a.yaml"))
    found.copies.write("over-rest", document("over-rest"), 1)
    after = found.with_copies({})
    assert (found.reads_alone, after.reads_alone, after.may_grow) == (True, False, False)
    assert after.again().names == ("a", "over-rest")


def test_a_copy_reads_a_topic_of_the_deployments_broker_or_of_another_one(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", kafka={"bootstrap_servers": "kafka:9092"})
    copies = load(tmp_path).copies
    for name, more in (("ours", {}), ("theirs", {"bootstrap_servers": "elsewhere:9092"})):
        copies.write(name, {"source": {"kind": "kafka", "topic": "clicks", **more}, "routing": {}}, 1)
    found = load(tmp_path)
    assert (found.names, found.withheld) == (("a", "ours", "theirs"), {})
    settings = [topic_settings(found.of(name), {}).bootstrap for name in ("ours", "theirs")]
    assert settings == ["kafka:9092", "elsewhere:9092"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"bootstrap_servers": "elsewhere:9092"}, "source.bootstrap_servers: elsewhere is not among the hosts"),
        ({"bootstrap_servers": "a.internal:1", "properties": {"ssl.ca.location": "/"}}, "source.properties.ssl.ca"),
        ({"topic": "viaduck.work"}, "source.topic: begins with viaduck."),
    ],
)
def test_a_copy_whose_topic_names_what_it_may_not_is_withheld(tmp_path: Path, source: Any, said: str) -> None:
    """Its writer would choose files and hosts for librdkafka."""
    write(tmp_path, "a.yaml", kafka={"bootstrap_servers": "kafka:9092"}, server={"allowed_hosts": ["*.internal"]})
    copies = load(tmp_path).copies
    copies.write("clicks", {"source": {"kind": "kafka", "topic": "clicks", **source}, "routing": {}}, 1)
    found = load(tmp_path)
    assert found.names == ("a",)
    assert found.withheld["clicks"][0].startswith(said)


def test_a_copy_with_a_mistake_is_withheld_and_is_nobody_elses_trouble(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml")
    copies = load(tmp_path).copies
    copies.write("good", document("good"), 1)
    copies.write("bad", document("bad", destinations=[{"id": "d", "routing_value": "d", "catalog_env": "NOT_SET"}]), 1)
    copies.write("greedy", document("greedy", server={"port": 7}, state_dir="/elsewhere"), 1)
    copies.file("good").rename(copies.file("renamed"))
    copies.write("good", document("good"), 1)
    found = load(tmp_path)
    assert found.names == ("a", "good")
    assert found.withheld == {
        "bad": (
            "destinations[0].catalog_env: the environment variable NOT_SET is not set; set it, or correct the name",
        ),
        "greedy": (f"server: {OF_THE_DEPLOYMENT}", f"state_dir: {OF_THE_DEPLOYMENT}"),
        "renamed": ('pipeline: is "good", and the file is called renamed.yaml',),
    }
    with pytest.raises(ConfigError, match="NOT_SET is not set"):
        found.of("bad")


def test_a_name_or_a_table_that_a_file_has_is_the_files(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml")
    copies = load(tmp_path).copies
    copies.write("a", document("a"), 1)
    copies.write("b", document("b"), 1)
    taken = [{"id": "x", "routing_value": "x", "catalog": f"sqlite:{tmp_path}/a-d.sqlite", "table": "A"}]
    copies.write("c", document("c", destinations=taken), 1)
    copies.write(
        "d", document("d", destinations=[{**taken[0], "catalog": "sqlite:/lakes/b-d.sqlite", "table": "b"}]), 1
    )
    found = load(tmp_path)
    assert found.names == ("a", "b")
    assert [config.path for config in found.declared] == [file]
    advice = "choose another catalog, schema or table"
    said = "destinations[0].table: lake and table are those of destinations[0] in {} too; " + advice
    assert found.withheld == {"c": (said.format(file),), "d": (said.format(copies.file("b")),)}


def test_to_look_at_copies_takes_no_file_over(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml")
    found = load(tmp_path)
    file.write_text("{")
    write(tmp_path, "b.yaml")
    found.copies.write("over-rest", document("over-rest"), 1)
    assert found.with_copies({}).names == ("a", "over-rest")
    with pytest.raises(ConfigError, match="is not YAML"):
        found.again()
