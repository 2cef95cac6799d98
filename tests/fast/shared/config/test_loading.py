"""What a file without mistakes means."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.catalogs import resolve
from shared.config.loading import load, pipeline_name
from shared.contracts.messages import SeedMode
from tests.fast.shared.config.conftest import MINIMAL, Load

DESTINATION = """\
destinations:
  - {id: d, routing_value: %s, catalog: "sqlite:d.sqlite"}
"""


def test_a_file_needs_a_source_and_a_routing_column_and_nothing_else(load_text: Load, tmp_path: Path) -> None:
    config = load_text(MINIMAL)
    assert config.pipeline == "events"
    assert config.path == tmp_path / "viaduck.yaml"
    assert config.state_dir == tmp_path / ".viaduck"
    assert config.routing.append_only
    assert config.destinations == ()
    assert (config.source.schema_name, config.server.host, config.server.port) == ("main", "127.0.0.1", 8000)


@pytest.mark.parametrize("nothing", ["destinations:", "destinations: []", "destinations: null", "poll:", "poll: {}"])
def test_a_section_with_nothing_in_it_is_as_if_it_were_not_there(load_text: Load, nothing: str) -> None:
    assert load_text(f"{MINIMAL}\n{nothing}\n") == load_text(MINIMAL)


def test_relative_paths_are_relative_to_the_file(
    load_text: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    config = load_text(
        """
source: {catalog: "sqlite:lake/source.sqlite", data_path: lake/data/, table: events}
routing: {field: company}
destinations: [{id: d, routing_value: x, catalog_env: LAKE, data_path: "s3://bucket/d"}]
state_dir: state
registry: {url: "sqlite:///registry.db"}
""",
        {"LAKE": "sqlite:d.sqlite"},
    )
    assert config.source.catalog == f"sqlite:{tmp_path}/lake/source.sqlite"
    assert config.source.data_path == f"{tmp_path}/lake/data/"
    assert config.state_dir == tmp_path / "state"
    assert config.registry.url == f"sqlite:///{tmp_path}/registry.db"
    lake = resolve(config.destinations[0].lake, {"LAKE": "sqlite:d.sqlite"}, config.path.parent)
    assert (lake.sqlite_file, lake.data_path) == (tmp_path / "d.sqlite", "s3://bucket/d")


def test_a_file_named_by_a_relative_path_has_an_absolute_one(
    load_text: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_text(MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert load("viaduck.yaml", {}).path == tmp_path / "viaduck.yaml"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("quack", "quack"),
        ('"NO"', "NO"),
        ("true", "true"),
        ("False", "False"),
        ("5", "5"),
        ("-5", "-5"),
        ("0", "0"),
        ('"007"', "007"),
        ("12.50", "12.50"),
        ("2024-02-30", "2024-02-30"),
        ("2024-01-02 03:04:05", "2024-01-02 03:04:05"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("'null'", "null"),
        ("ducks & Söhne", "ducks & Söhne"),
        ("!!str 5", "5"),
        ("'  '", "  "),
        ("''", ""),
    ],
)
def test_a_routing_value_is_the_text_that_was_written(load_text: Load, written: str, text: str) -> None:
    assert load_text(MINIMAL + DESTINATION % written).destinations[0].routing_value == text


def test_properties_may_be_what_yaml_makes_of_them(load_text: Load) -> None:
    config = load_text(
        MINIMAL + "defaults: {properties: {s3_use_ssl: false, s3_region: 1}}\nkafka: {properties: {a: 5}}"
    )
    assert config.defaults.properties == {"s3_use_ssl": "false", "s3_region": "1"}
    assert config.kafka.properties == {"a": "5"}


def test_destinations_inherit_default_properties_and_their_own_win_in_either_spelling(load_text: Load) -> None:
    config = load_text(
        MINIMAL
        + """
defaults: {properties: {s3_region: r, s3_endpoint_env: ENDPOINT, s3_access_key_id: shared, s3_url_style: path}}
destinations:
  - id: a
    routing_value: a
    catalog: sqlite:a.db
    properties: {s3_region: mine, s3_endpoint: mine, s3_access_key_id_env: KEY}
  - {id: b, routing_value: b, catalog: "sqlite:b.db"}
""",
        {"ENDPOINT": "e", "KEY": "k"},
    )
    a, b = (resolve(each.lake, {"ENDPOINT": "e", "KEY": "k"}).properties for each in config.destinations)
    assert a == {"s3_region": "mine", "s3_endpoint": "mine", "s3_access_key_id": "k", "s3_url_style": "path"}
    assert b == {"s3_region": "r", "s3_endpoint": "e", "s3_access_key_id": "shared", "s3_url_style": "path"}
    assert config.source.properties == {}


def test_replay_is_another_spelling_of_cdc_replay(load_text: Load) -> None:
    text = MINIMAL.replace("field: company", "field: company, seed_mode: replay")
    assert load_text(text).routing.seed_mode is SeedMode.REPLAY
    assert load_text(text.replace("replay", "cdc_replay")).routing.seed_mode is SeedMode.REPLAY


def test_anchors_aliases_and_merges_are_what_they_repeat(load_text: Load) -> None:
    config = load_text(
        MINIMAL
        + """
destinations:
  - &first {id: a, routing_value: a, catalog: "sqlite:a.db", properties: &s3 {s3_region: r}}
  - {<<: *first, id: b, routing_value: b, table: other, properties: *s3}
"""
    )
    assert [(each.id, each.catalog == config.destinations[0].catalog) for each in config.destinations] == [
        ("a", True),
        ("b", True),
    ]
    assert config.destinations[1].properties == {"s3_region": "r"}


def test_numbers_and_booleans_may_be_quoted_as_templates_leave_them(load_text: Load) -> None:
    config = load_text(
        MINIMAL
        + """
poll: {interval_seconds: "0.05"}
server: {port: "9000"}
web: {enabled: "false"}
reader: {max_rows_in_flight: 1_000_000}
"""
    )
    assert (config.poll.interval_seconds, config.server.port, config.web.enabled) == (0.05, 9000, False)
    assert config.reader.max_rows_in_flight == 1_000_000


def test_destinations_may_share_a_lake_if_schema_or_table_differ(load_text: Load) -> None:
    one = '{id: %s, routing_value: %s, catalog: "sqlite:d.db", schema: %s, table: %s}'
    rows = [one % ("a", "a", "s", "t"), one % ("b", "b", "s", "u"), one % ("c", "c", "r", "t")]
    assert len(load_text(MINIMAL + f"destinations: [{', '.join(rows)}]").destinations) == 3


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text("\ufeff" + MINIMAL, encoding="utf-8")
    assert load(tmp_path / "v.yaml", {}).pipeline == "events"


def test_a_dollar_sign_is_a_dollar_sign(load_text: Load) -> None:
    text = MINIMAL + DESTINATION % '"${TENANT}"'
    assert load_text(text, {"TENANT": "x"}).destinations[0].routing_value == "${TENANT}"


def test_an_explicit_share_may_name_destinations_that_come_over_rest(load_text: Load) -> None:
    text = MINIMAL + "instance: {partition: {mode: explicit, include: [later, 7]}}"
    assert load_text(text).instance.partition.include == ("later", "7")


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("events", "events"),
        ("My Events", "My-Events"),
        ("_hidden", "hidden"),
        ("a/b\nc", "a-b-c"),
        ("x" * 300, "x" * 200),
        ("v1.events", "v1.events"),
    ],
)
def test_the_default_name_of_a_pipeline_is_its_table_as_far_as_it_fits(load_text: Load, table: str, name: str) -> None:
    assert pipeline_name(table) == name


def test_a_table_without_one_plain_letter_still_names_its_pipeline(load_text: Load) -> None:
    assert load_text(MINIMAL.replace("events", "日本")).pipeline.startswith("table-")
    assert pipeline_name("日本") != pipeline_name("中国")


@pytest.mark.parametrize("written", ["true", "True", "TRUE", "false", "42", "12.50", "2024-01-31"])
def test_a_routing_value_without_quotes_is_taken_as_it_is_written(load_text: Load, written: str) -> None:
    entry = f"{{id: d, routing_value: {written}, catalog: 'sqlite:d.db', properties: {{s3_use_ssl: TRUE}}}}"
    (found,) = load_text(MINIMAL + f"destinations: [{entry}]\n").destinations
    assert (found.routing_value, found.properties) == (written, {"s3_use_ssl": "true"})
