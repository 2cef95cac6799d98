"""Files that the single-process Viaduck's loader takes: each is taken here, or refused by its place with what to write.

What that loader does, found by reading it (github.com/PostHog/viaduck at be4079a; ``single_process/config.py.txt`` is
its ``viaduck/config.py``) and by loading this corpus with it, which a test here does again:

===========================  ==========================================================================================
unknown keys                 are passed over, anywhere
a key that is written twice  the last one counts
``table``                    any text; SCHEMA.TABLE by its first dot when it is opened, else the schema is ``main``
a destination's ``table``    the source's, schema included, where there is none
``id``, ``routing_value``    ``str()`` of whatever YAML makes of them; NULL "None", 007 "7", NO "False", 1.10 "1.1"
``name``, ``data_path``      required, text
``postgres_uri_env``         required, any text; the variable is looked up when it is used
``properties``               text by text, any key; NAME_env beside NAME: the later one counts
``routing.seed_mode``        ``scan`` or ``cdc_replay``
``routing.key_columns``      a list of text, repeated ones too
``poll``, ``server``,        any value of any type
``web``, ``state``
``instance.id``              any value of any type
``partition.total``          a whole number; held against 1 and ``ordinal`` in mode ``hash`` alone
``partition.include``        anything that is not empty in mode ``explicit``
ids, routing values          may not repeat; lakes, tables and data paths may
===========================  ==========================================================================================
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError

BASE = """
source:
  name: shared
  postgres_uri_env: SOURCE_URI
  data_path: s3://source/data
  table: events
routing:
  field: company
destinations:
  - id: quack
    routing_value: quacksworth
    name: quack
    postgres_uri_env: QUACK_URI
    data_path: s3://quack/
"""
ENVIRON = {
    "SOURCE_URI": "postgres:host=db user=u dbname=source",
    "QUACK_URI": "postgres:host=db user=u dbname=quack",
    "KEY": "k",
}
SECOND = """  - id: {id}
    routing_value: mallardine
    name: mallard
    postgres_uri_env: MALLARD_URI
    data_path: {data_path}
"""
MALLARD = {"MALLARD_URI": "postgres:host=db user=u dbname=mallard"}


@dataclass(frozen=True)
class Case:
    """A file as the base with ``old`` replaced by ``new``, or with ``new`` at its end."""

    name: str
    new: str
    old: str = ""
    taken: tuple[str, Any] | None = None
    """What must then be so: a path in the configuration and its value."""
    refused: str = ""
    """Or the line that says what to write instead."""
    environ: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        assert self.old in BASE
        return BASE.replace(self.old, self.new, 1) if self.old else BASE + self.new


QUACK = "destinations[0]"
CASES = [
    Case("the base", "", taken=("source.table", "events")),
    # tables
    Case("a schema before the table", "table: analytics.events", "table: events", ("source.schema_name", "analytics")),
    Case("the table behind a schema", "table: analytics.events", "table: events", ("source.table", "events")),
    Case("a destination has the source's schema", "table: a.events", "table: events",
         ("destinations.0.schema_name", "a")),
    Case("a destination has the source's table", "table: a.b.c", "table: events", ("destinations.0.table", "b.c")),
    Case("a schema of the destination's own", "id: quack\n    table: own.t", "id: quack",
         ("destinations.0.schema_name", "own")),
    Case("a table of the destination's own is in main", "id: quack\n    table: t", "id: quack",
         ("destinations.0.schema_name", "main")),
    Case("a dot with nothing before it", "table: .events", "table: events",
         refused="source.table: has nothing on one side of its dot; write schema: and table: apart, or schema: main"),
    Case("no value for a table", "id: quack\n    table:", "id: quack",
         refused=f"{QUACK}.table: has no value; write one, or leave the key out"),
    # keys that nobody knows, and keys twice
    Case("an unknown section", "logging: {level: debug}\n",
         refused="logging: is not a key; remove it, or write one of"),
    Case("an unknown key that is near one", "field: company\n  key_column: [id]", "field: company",
         refused="routing.key_column: is not a key; did you mean key_columns?"),
    Case("an unknown key of a destination", "id: quack\n    region: eu", "id: quack",
         refused=f"{QUACK}.region: is not a key; remove it, or write one of"),
    Case("a key of another section", "server: {interval_seconds: 3}\n",
         refused="server.interval_seconds: is not a key here; move it to poll"),
    Case("a key twice", "id: quack\n    id: quack2", "id: quack", refused=f"{QUACK}.id: is given twice, on lines"),
    # ids and routing values
    Case("a number for an id", "id: 7", "id: quack", ("destinations.0.id", "7")),
    Case("an id that is no name", "id: quack / west", "id: quack", refused=f"{QUACK}.id: must be 1 to 200 letters"),
    Case("no id", "id:", "id: quack", refused=f"{QUACK}.id: "),
    Case("a number for a routing value", "routing_value: 42", "routing_value: quacksworth",
         ("destinations.0.routing_value", "42")),
    Case("a boolean for a routing value", "routing_value: True", "routing_value: quacksworth",
         ("destinations.0.routing_value", "True")),
    Case("a number with a point, as it is written", "routing_value: 1.10", "routing_value: quacksworth",
         ("destinations.0.routing_value", "1.10")),
    Case("a date for a routing value", "routing_value: 2024-01-31", "routing_value: quacksworth",
         ("destinations.0.routing_value", "2024-01-31")),
    Case("a word that YAML takes for a boolean", "routing_value: NO", "routing_value: quacksworth",
         refused=f"{QUACK}.routing_value: is read as a boolean by YAML; put it in quotes"),
    Case("a number with a zero before it", "routing_value: 007", "routing_value: quacksworth",
         refused=f"{QUACK}.routing_value: is read as another number than it looks by YAML; put it in quotes"),
    Case("no routing value", "routing_value:", "routing_value: quacksworth", refused=f"{QUACK}.routing_value: "),
    # lakes
    Case("a variable that is not set", "", environ=(("QUACK_URI", ""),),
         refused=f"{QUACK}.postgres_uri_env: the environment variable QUACK_URI is empty; set it, or correct the name"),
    Case("a variable that no shell could set", "postgres_uri_env: quack uri", "postgres_uri_env: QUACK_URI",
         refused=f"{QUACK}.postgres_uri_env: must be the name of an environment variable, not a value"),
    Case("two destinations in one data path", SECOND.format(id="mallard", data_path="s3://quack/"),
         refused="destinations[1].data_path: ", environ=tuple(MALLARD.items())),
    Case("two destinations", SECOND.format(id="mallard", data_path="s3://mallard/"),
         taken=("destinations.1.id", "mallard"), environ=tuple(MALLARD.items())),
    # properties
    Case("properties of the store", "defaults: {properties: {s3_endpoint: 'minio:9000', s3_access_key_id_env: KEY}}\n",
         taken=("destinations.0.properties", {"s3_endpoint": "minio:9000", "s3_access_key_id_env": "KEY"})),
    Case("another setting of DuckDB", "defaults: {properties: {memory_limit: 1GB}}\n",
         refused="defaults.properties.memory_limit: is not a property; remove it, or write one of: s3_access_key_id"),
    Case("a property both ways",
         "defaults: {properties: {s3_region: eu, s3_region_env: KEY}}\n",
         refused="defaults.properties.s3_region_env: is given beside s3_region; keep one of them"),
    # routing
    Case("keys", "field: company\n  key_columns: [id, day]", "field: company", ("routing.key_columns", ("id", "day"))),
    Case("a key twice over", "field: company\n  key_columns: [id, id]", "field: company",
         refused='routing.key_columns[1]: "id" is a key column already; name each column once'),
    Case("a replay", "field: company\n  seed_mode: cdc_replay", "field: company", ("routing.seed_mode", "cdc_replay")),
    # the rest
    Case("an interval in quotes", "poll: {interval_seconds: '5'}\n", taken=("poll.interval_seconds", 5.0)),
    Case("no pause between two polls", "poll: {interval_seconds: 0}\n",
         refused="poll.interval_seconds: must be 0.05 or more"),
    Case("an interval in words", "poll: {interval_seconds: soon}\n",
         refused="poll.interval_seconds: must be a number; write it in decimal digits"),
    Case("a port in quotes", "server: {port: '9000'}\n", taken=("server.port", 9000)),
    Case("a port that is none", "server: {port: 99999}\n", refused="server.port: must be 65535 or less"),
    Case("the page switched off", "web: {enabled: false, port: 8001}\n", taken=("web.enabled", False)),
    Case("the page switched off in words", "web: {enabled: never}\n",
         refused="web.enabled: must be true or false; write one of them"),
    Case("a table of positions", "state: {table: ops._state}\n", taken=("state.table", "ops._state")),
    Case("a number for an instance", "instance: {id: 3}\n", taken=("instance.id", "3")),
    Case("an instance with a slash", "instance: {id: a/b}\n", refused="instance.id: holds a slash"),
    Case("a share by hash", "instance: {partition: {mode: hash, total: 4, ordinal: 3}}\n",
         taken=("instance.partition.ordinal", 3)),
    Case("a share by a list", "instance: {partition: {mode: explicit, include: [quack, 7]}}\n",
         taken=("instance.partition.include", ("quack", "7"))),
    Case("a share by one name", "instance: {partition: {mode: explicit, include: quack}}\n",
         refused="instance.partition.include: must be a list; write it in brackets, even if it is one"),
    Case("no readers, which nobody asks", "instance: {partition: {total: 0}}\n",
         refused="instance.partition.total: must be 1 or more"),
    Case("anchors", "defaults: &d\n  properties: {s3_region: eu}\n",
         taken=("defaults.properties", {"s3_region": "eu"})),
]  # fmt: skip


MEANT_OTHERWISE = {"a number with a point, as it is written": "1.1", "an interval in quotes": "5"}
"""What that loader makes of a file that is taken with another meaning here: it does not see the zero at the end of a
number, and takes a text for an interval until it waits for as long."""


@pytest.fixture(scope="module")
def single_process() -> Iterator[ModuleType]:
    """The single-process Viaduck's own loader."""
    name, place = "single_process_config", Path(__file__).parent / "single_process" / "config.py.txt"
    loader = SourceFileLoader(name, str(place))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up there
    loader.exec_module(module)
    yield module
    del sys.modules[name]


def original_value(config: Any, path: str) -> Any:
    """What the single-process Viaduck makes of the key that ``path`` names here."""
    parent, _, last = path.rpartition(".")
    if path == "defaults.properties":
        return config.destinations[0].properties
    if last in ("schema_name", "table") and parent != "state":
        before, dot, after = value(config, f"{parent}.table").partition(".")
        return (before if dot else "main") if last == "schema_name" else (after if dot else before)
    return value(config, path)


def alike(one: Any) -> Any:
    """The words of a file, whatever types a loader made of them."""
    return tuple(map(alike, one)) if isinstance(one, list | tuple) else one if isinstance(one, dict) else str(one)


def value(config: Any, path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return found


def loaded(case: Case, folder: Path) -> Config:
    file = folder / "original.yaml"
    file.write_text(case.text)
    return load(file, ENVIRON | dict(case.environ))


@pytest.mark.parametrize("case", [case for case in CASES if case.taken is not None], ids=lambda case: case.name)
def test_a_file_of_the_original_is_taken(case: Case, tmp_path: Path) -> None:
    assert case.taken is not None
    path, expected = case.taken
    assert value(loaded(case, tmp_path), path) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_single_process_viaduck_takes_the_file_and_means_the_same(
    case: Case, single_process: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (ENVIRON | dict(case.environ)).items():
        monkeypatch.setenv(name, content)
    file = tmp_path / "original.yaml"
    file.write_text(case.text)
    config = single_process.load(file)
    if case.taken is not None:
        path, expected = case.taken
        assert alike(original_value(config, path)) == alike(MEANT_OTHERWISE.get(case.name, expected))


@pytest.mark.parametrize("case", [case for case in CASES if case.taken is None], ids=lambda case: case.name)
def test_a_file_that_is_not_taken_is_refused_by_its_place_with_what_to_write(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(case, tmp_path)
    (line,) = refused.value.mistakes
    assert line.startswith(case.refused)
    assert ";" in line or ": must be " in line or "; write" in case.refused


def test_a_dot_is_part_of_a_name_beside_a_schema_or_another_spelling_of_the_catalog(tmp_path: Path) -> None:
    beside = Case("", "table: a.b\n  schema: main", "table: events")
    assert (loaded(beside, tmp_path).source.schema_name, loaded(beside, tmp_path).source.table) == ("main", "a.b")
    ours = Case("", "catalog_env: SOURCE_URI\n  data_path: s3://source/data\n  table: a.b",
                "postgres_uri_env: SOURCE_URI\n  data_path: s3://source/data\n  table: events")  # fmt: skip
    config = loaded(ours, tmp_path)
    assert (config.source.schema_name, config.source.table) == ("main", "a.b")
    assert (config.destinations[0].schema_name, config.destinations[0].table) == ("main", "a.b")
