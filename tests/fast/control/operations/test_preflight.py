"""What only a look at the source can tell about a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError, SourceError
from shared.kafka.source_look import look
from shared.lake.catalog.reader import Column, TableInfo
from shared.lake.checks.source import canonical_values, column_mistakes
from tests.fast.control.files import config, destination, make_source, with_lake, write


def mistakes(config: Config) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        look(config, {})
    return list(caught.value.mistakes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source that no test changes."""
    folder = tmp_path_factory.mktemp("source")
    make_source(folder)
    return folder


def test_a_file_that_fits_is_told_what_it_needs(folder: Path) -> None:
    seen = look(config(folder, [destination("a"), destination("b")], routing={"field": "COMPANY"}), {})
    assert (seen.head.snapshot, seen.routing.name, seen.routing.type) == (1, "company", "VARCHAR")
    assert seen.routing_values == {"a": "value of a", "b": "value of b"}


def test_the_look_writes_nothing(folder: Path) -> None:
    before = look(config(folder), {}).head
    assert look(config(folder), {}).head.snapshot == before.snapshot


CANONICAL = [
    ("VARCHAR", "", ""),
    ("VARCHAR", " Ünï ", " Ünï "),
    ("INTEGER", "007", "7"),
    ("INTEGER", "-0", "0"),
    ("TINYINT", "128", None),
    ("UBIGINT", "18446744073709551615", "18446744073709551615"),
    ("UBIGINT", "-1", None),
    ("BIGINT", "1.0", "1"),
    ("BIGINT", "1.5", None),
    ("BIGINT", "a", None),
    ("BOOLEAN", "True", "true"),
    ("BOOLEAN", "maybe", None),
    ("DATE", "2024-1-2", "2024-01-02"),
    ("DATE", "2024-01-02 10:00", None),
    ("DATE", "yesterday", None),
    ("UUID", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("DECIMAL(10,2)", "1", "1.00"),
    ("DECIMAL(10,2)", "1.005", None),
    ("DECIMAL(38,0)", "9" * 38, "9" * 38),
    ("DOUBLE", "-0.0", "0.0"),
    ("DOUBLE", "-0", "0.0"),
    ("FLOAT", "-0.0", "0.0"),
    ("DOUBLE", "0.10", "0.1"),
    ("DOUBLE", "NaN", "nan"),
    ("TIMESTAMP WITH TIME ZONE", "2024-01-01 10:00:00+02", "2024-01-01 08:00:00+00"),
]


@pytest.mark.parametrize(("type", "written", "canonical"), CANONICAL)
def test_a_routing_value_is_spelled_as_the_columns_type_spells_it(
    type: str, written: str, canonical: str | None
) -> None:
    assert canonical_values(type, [written]) == [canonical]


def test_no_values_are_no_query_at_all() -> None:
    assert canonical_values("INTEGER", []) == []


def test_a_value_that_is_none_of_the_type_is_refused_by_its_path(folder: Path) -> None:
    file = config(folder, [destination("a", routing_value="x")], routing={"field": "event_id"})
    assert mistakes(file) == ["destinations[0].routing_value: 'x' is no BIGINT, the type of event_id; change it"]


def test_duplicates_are_looked_for_after_the_cast(folder: Path) -> None:
    both = [destination("a", routing_value="7"), destination("b", routing_value="007")]
    [line] = mistakes(config(folder, both, routing={"field": "event_id"}))
    assert line.startswith("destinations[1].routing_value: '007' is the same BIGINT as '7' of destinations[0]")


def test_every_missing_column_is_named_with_the_nearest_one(folder: Path) -> None:
    file = config(folder, routing={"field": "compny", "key_columns": ["event_id", "nothing like it"]})
    field, key = mistakes(file)
    assert field == "routing.field: the source table has no column compny; did you mean company?"
    assert key.startswith("routing.key_columns[1]: the source table has no column nothing like it; its columns are: ")


def test_a_missing_table_is_named_with_the_nearest_one(folder: Path) -> None:
    source = {"catalog": "sqlite:source.sqlite", "table": "event"}
    assert mistakes(config(folder, source=source)) == [
        "source.table: the source has no table main.event; did you mean main.events?"
    ]


def test_a_source_without_tables_says_so(tmp_path: Path) -> None:
    make_source(tmp_path)
    with_lake(tmp_path, "DROP TABLE lake.events")
    assert mistakes(config(tmp_path)) == ["source.table: the source has no table main.events; it has no tables yet"]


def table(*columns: Column) -> TableInfo:
    return TableInfo("main", "events", 1, "a table", "a lake", 1, columns)


@pytest.mark.parametrize("name", ["snapshot_id", "RowId", "change_type", "_ducklake_x"])
def test_a_column_with_a_name_of_the_change_feed_is_refused(name: str) -> None:
    [line] = column_mistakes(table(Column("fine", "BIGINT"), Column(name, "BIGINT")))
    assert line.startswith(f"source.table: the column {name} has a name that DuckLake's change feed uses itself")


@pytest.mark.parametrize("type", ["HUGEINT", "UHUGEINT", "HUGEINT[]", 'STRUCT("a" HUGEINT)'])
def test_a_column_that_ducklake_itself_can_not_keep_is_refused_by_its_name(type: str) -> None:
    [line] = column_mistakes(table(Column("fine", "BIGINT"), Column("big", type)))
    assert line.startswith(f"source.table: the column big is {type}, ")


@pytest.mark.parametrize("type", ["INTERVAL", "TIMETZ", "FLOAT[]"])
def test_a_routing_column_whose_values_have_several_spellings_is_refused(tmp_path: Path, type: str) -> None:
    make_source(tmp_path, f"event_id BIGINT, company {type}")
    [line] = mistakes(config(tmp_path))
    assert line.startswith("routing.field: the routing column company is ")


def test_all_that_is_wrong_with_a_table_is_told_at_once(tmp_path: Path) -> None:
    make_source(tmp_path, "event_id BIGINT, rowid BIGINT, big HUGEINT[]")
    lines = mistakes(config(tmp_path))
    assert [line.split(" ")[3] for line in lines[:2]] == ["rowid", "big"]
    assert lines[2].startswith("routing.field: the source table has no column company")


def test_a_source_that_is_not_there_is_no_mistake_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="source"):
        look(config(tmp_path), {})


def test_a_source_that_does_not_answer_is_unreachable_and_its_password_is_not_shown(tmp_path: Path) -> None:
    source = {"catalog_env": "SOURCE", "table": "events"}
    words = "postgres:dbname=lake host=127.0.0.1 port=1 user=u password=s3cret"
    file = config_with(tmp_path, source, words)
    with pytest.raises(SourceError) as caught:
        look(file, {"SOURCE": words})
    assert caught.value.type == "source_unreachable"
    assert "s3cret" not in caught.value.message + caught.value.hint


def config_with(folder: Path, source: dict[str, str], catalog: str) -> Config:
    return load(write(folder, source=source), {"SOURCE": catalog})


def test_a_variable_that_is_gone_is_a_mistake_with_its_name(tmp_path: Path) -> None:
    source = {"catalog_env": "SOURCE", "table": "events"}
    file = config_with(tmp_path, source, "sqlite:source.sqlite")
    with pytest.raises(ConfigError, match=r"^source: the environment variable SOURCE is not set"):
        look(file, {})
