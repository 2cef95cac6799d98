"""Texts of layouts: what is a partition or a sort order, and that nothing else passes."""

from __future__ import annotations

import pytest

from shared.config.table_layout import LayoutRefused, PartitionField, SortKey, faults, partitions, sort_keys
from shared.contracts.errors import ConfigError
from shared.contracts.layout import TableLayout
from tests.fast.shared.config.conftest import Load

PIPELINE = """
source: {catalog: "sqlite:source.sqlite", table: events}
routing: {field: tenant, key_columns: [id]}
"""


def test_partitions_are_columns_and_transforms_of_them() -> None:
    assert partitions('year(ts), Month ( "T ""s" ),tenant , "a,b(c)"') == (
        PartitionField("year", "ts"),
        PartitionField("month", 'T "s'),
        PartitionField("identity", "tenant"),
        PartitionField("identity", "a,b(c)"),
    )
    assert partitions("") == partitions("  ") == ()
    assert partitions("größe") == (PartitionField("identity", "größe"),)


def test_sort_keys_are_columns_with_a_direction() -> None:
    assert sort_keys('ts desc nulls first, "order" ASC, n NULLS  LAST') == (
        SortKey("ts", descending=True, nulls_first=True),
        SortKey("order"),
        SortKey("n"),
    )


NO_PARTITIONS = [
    *("year(ts", "a b", "a,", ",a", "a; DROP TABLE t", "a) --", "lower(a)", "year(a, b)", "year(lower(a))", "1", "a.b"),
    *("bucket(4, a)", "BUCKET(4,a)", 'bucket(4, "a")', "truncate(3, a)", "a, A", "'a'", '"', '""', "a\x00", "a/**/"),
    *("{AUTHOR}", '"{DATA_PATH}"', "(SELECT 1)", "year(a) year(b)", "x" * 2_001),
    ", ".join(f"c{number}" for number in range(17)),
]


@pytest.mark.parametrize("text", NO_PARTITIONS)
def test_anything_else_is_no_partition(text: str) -> None:
    with pytest.raises(LayoutRefused):
        partitions(text)


@pytest.mark.parametrize("text", ["lower(a)", "a DESC ASC", "a NULLS", "a, a DESC", "a; b", "random()", '"a', "a\n, b"])
def test_anything_else_is_no_sort_key(text: str) -> None:
    with pytest.raises(LayoutRefused):
        sort_keys(text)


def test_bucket_is_refused_with_its_reason() -> None:
    assert [key for key, said in faults({"partitioned_by": "bucket(8, id)"}) if "bucket()" in said] == [
        "partitioned_by"
    ]


def test_same_needs_no_parsing() -> None:
    assert not list(faults({"partitioned_by": "same", "sorted_by": "same", "encrypted": True}))


def test_a_destination_s_keys_cover_the_pipeline_s_one_by_one(load_text: Load) -> None:
    text = (
        PIPELINE
        + """
layout: {partitioned_by: "year(ts)", sorted_by: id, encrypted: true}
destinations:
  - {id: a, routing_value: a, catalog: "sqlite:a.sqlite", layout: {partitioned_by: "", sorted_by: same}}
  - {id: b, routing_value: b, catalog: "sqlite:b.sqlite"}
"""
    )
    config = load_text(text)
    own, common = (each.layout.over(config.table_layout) for each in config.destinations)
    assert own == TableLayout(sorted_by="same", encrypted=True)
    assert common == TableLayout(partitioned_by="year(ts)", sorted_by="id", encrypted=True)


def test_mistakes_are_told_by_their_paths(load_text: Load) -> None:
    text = (
        PIPELINE
        + """
layout: {partitioned_by: "decade(ts)", sorted_by: "random()"}
template:
  catalog: "sqlite:{routing_value}.sqlite"
  data_path: "data/{routing_value}"
  layout: {sorted_by: "a b"}
destinations:
  - {id: a, routing_value: a, catalog: "sqlite:a.sqlite", layout: {partitioned_by: "bucket(2, id)", encrypted: maybe}}
"""
    )
    with pytest.raises(ConfigError) as refused:
        load_text(text)
    said = "\n".join(refused.value.mistakes)
    for path in (
        "layout.partitioned_by: has an unknown transform",
        "layout.sorted_by: is no list",
        "template.layout.sorted_by: is no list",
        "destinations[0].layout.partitioned_by: holds bucket()",
        "destinations[0].layout.encrypted: must be true or false",
    ):
        assert path in said, said
