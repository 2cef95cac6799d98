"""Where the rows of a life began that is compared with its topic."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import duckdb
import pytest

from services.cli.verify.comparison import Subject
from services.cli.verify.topic_proof import _newest, _start_of
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import SeedMode
from shared.contracts.positions import Vector


def seed(generation: int, at: str, **more: Any) -> str:
    told = {
        "viaduck": 1, "pipeline": "p", "destination": "d", "kind": "seed", "generation": generation, "after": -1,
        "through": Vector.parse(at).records, "item": "i", "token": "t", "deleted": 0, "inserted": 0, "through_at": at,
    }  # fmt: skip
    return json.dumps({**told, **more})


FIRST, SECOND = seed(1, '{"0":5,"1":3}'), seed(3, '{"0":9}', rewound=True)


@pytest.mark.parametrize(
    ("stamps", "generation", "begins"),
    [
        ([FIRST], 1, '{"0":5,"1":3}'),
        ([FIRST, SECOND], 3, '{"0":5}'),
        ([SECOND, FIRST, seed(4, '{"0":4}', rewound=True)], 4, '{"0":4}'),
        ([SECOND], 3, '{"0":9}'),
        ([FIRST, SECOND, seed(4, '{"0":7}')], 4, '{"0":7}'),
        ([FIRST], 2, "{}"),
        ([seed(1, '{"0":5}', destination="another"), None, "no stamp"], 1, "{}"),
    ],
    ids=["a seed", "a rewind", "two rewinds", "a rewind alone", "a reseed", "a lost seed", "of another one"],
)
def test_a_rewind_leaves_the_rows_from_where_the_life_before_it_began(
    stamps: list[str | None], generation: int, begins: str
) -> None:
    subject = Subject("p", "d", "", ResolvedLake("sqlite:x", None), "main", "t", SeedMode.REPLAY)
    assert _start_of(stamps, subject, generation).text == begins


def test_where_rows_have_keys_the_newest_record_of_each_counts_that_was_not_rejected() -> None:
    """Of a key in two partitions, each one's newest may be the row."""
    with closing(duckdb.connect()) as con:
        con.execute("CREATE TEMP TABLE keys (p INTEGER, o BIGINT, k VARCHAR, v VARCHAR)")
        con.execute("CREATE TEMP TABLE rejected (_kafka_partition INTEGER, _kafka_offset BIGINT)")
        con.execute(
            "INSERT INTO keys VALUES (0, 0, 'moves', 'a'), (0, 1, 'moves', 'b'), (0, 2, 'goes', 'a'),"
            " (0, 3, 'goes', NULL), (1, 0, 'stays', 'a'), (1, 1, 'stays', 'b'), (1, 2, 'new', 'a'), (1, 3, 'new', 'a'),"
            " (0, 4, 'both', 'a'), (0, 5, 'both', 'b'), (1, 4, 'both', 'a'), (1, 5, 'both', 'c')"
        )
        con.execute("INSERT INTO rejected VALUES (1, 1), (0, 9)")
        assert [sorted(_newest(con, value)) for value in "abc"] == [
            [(1, 0, True), (1, 3, True)], [(0, 1, True), (0, 5, False)], [(1, 5, False)]
        ]  # fmt: skip
