"""Destinations of a topic whose tables are laid out: each is seeded empty, and has its columns with the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.applier.worker import worker_state
from shared.contracts.layout import TableLayout
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.lake.rig import MakeLake
from tests.lake.topic_rig import TopicRig

LAYOUTS = {
    "by offset": TableLayout(partitioned_by="_kafka_offset"),
    "by a column": TableLayout(partitioned_by="id"),
    "sorted": TableLayout(sorted_by="v DESC"),
    "both": TableLayout(partitioned_by="id", sorted_by="_kafka_offset"),
}


@pytest.fixture
def topic(tmp_path: Path, make_lake: MakeLake) -> Iterator[TopicRig]:
    yield TopicRig(tmp_path, make_lake)
    worker_state.forget()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_records_land_in_a_table_that_is_laid_out(topic: TopicRig, layout: TableLayout) -> None:
    topic.layout = layout
    topic.add("a")
    topic.broker.send({"id": 1, "new": 7})
    topic.broker.send({"id": 2, "v": "y"})
    topic.broker.send(b"no JSON")
    assert (done := topic.land("a")).outcome == "applied", done.error
    topic.broker.send({"id": 3, "v": "z"}, partition=1)
    assert (done := topic.land("a")).outcome == "applied", done.error
    rows = topic.look("a", "SELECT id, v, new FROM dst.main.t ORDER BY id")
    assert rows == [(1, None, 7), (2, "y", None), (3, "z", None)]


@pytest.mark.parametrize("layout", [LAYOUTS["by a column"], LAYOUTS["both"]], ids=["by a column", "both"])
def test_a_stock_reader_finds_what_the_first_records_held(topic: TopicRig, layout: TableLayout) -> None:
    """H24: they are the first rows of the table."""
    topic.layout = layout
    topic.add("a")
    for number, v in ((1, None), (2, "m"), (3, "c")):
        topic.broker.send({"id": number, "v": v, "n": number * 10 if v else None})
    topic.land("a")
    topic.broker.send({"id": 4, "v": "z", "n": 1000})
    topic.land("a")
    with closing(connect()) as con:
        attach(con, "dst", topic.lakes["a"], read_only=True)
        con.execute("SET disabled_optimizers = ''")
        for asked in ("v = 'm'", "v < 'd'", "n = 20", "n < 500 AND n > 20", "v = 'z'"):
            assert con.execute(f"SELECT count(*) FROM dst.main.t WHERE {asked}").fetchall() == [(1,)], asked
