"""The events of the demo's topic."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice

from shared.lake.connection.engine import connect
from viaduck_demo.flight_events import events


def test_a_year_is_a_million_events_in_the_order_of_their_days() -> None:
    with closing(connect(catalogs=())) as con:
        found = events(con)
        first = list(islice(found, 2_000))
        assert len(first) + sum(1 for _ in found) == 1_001_615
    records = [json.loads(record) for _, record in first]
    assert [key for key, _ in first] == [str(record["flight_id"]) for record in records]
    assert {record["event"] for record in records} == {"scheduled", "departed", "cancelled", "landed"}
    assert all(record["flight_date"] == "2013-01-01" for record in records)
