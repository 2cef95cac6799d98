"""Whatever events come in whatever batches: rows are those of a dictionary that takes one event after the other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.records.parsed_records import PLACE_COLUMN
from tests.fast.applier.records.encoded_events import ENCODINGS
from tests.fast.applier.records.records import Table
from tests.fast.applier.records.test_debezium import EVENTS, LEFT_OUT, event, key_of

ASKS, LOST, GONE = "asks", "lost", "gone"

KEYS, PER_KEY = 200, 5
OPERATIONS = ("c", "r", "u", "u", "u", "u", "d", "tombstone")


def states_of(events: list[tuple[int, str, bool]]) -> tuple[dict[int, Any], set[int]]:
    """What a key's newest record that is not rejected leaves: its number, and where its ``big`` is from; rejected ones.

    ``events`` are a key, an operation, and whether ``big`` is left out.
    """
    after: dict[int, list[tuple[int, Any]]] = {}
    for number, (key, operation, is_left) in enumerate(events):
        states = after.setdefault(key, [])
        before = states[-1][1] if states else ASKS
        if operation in ("d", "tombstone"):
            states.append((number, GONE))
        elif not is_left:
            states.append((number, f"big {number}"))
        else:
            states.append((number, LOST if operation in ("c", "r") or before in (GONE, LOST) else before))
    rejected = set()
    for states in after.values():
        while states and states[-1][1] == LOST:
            rejected.add(states.pop()[0])
    return {key: states[-1] for key, states in after.items() if states}, rejected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "seed"),
    [*((encoding, seed) for seed in range(3) for encoding in ("json", "avro")), ("json_schema", 0), ("protobuf", 0)],
)
def test_rows_are_those_of_events_one_after_the_other_in_any_encoding(
    con: duckdb.DuckDBPyConnection, encoding: str, seed: int
) -> None:
    rng = random.Random(seed)
    events = [(rng.randrange(KEYS), rng.choice(OPERATIONS), rng.random() < 0.5) for _ in range(KEYS * PER_KEY)]
    values: list[Any] = []
    for number, (key, operation, is_left) in enumerate(events):
        image = {"id": key, "n": number, "big": LEFT_OUT if is_left else f"big {number}"}
        deleted = event("d", None, {"id": key}) if operation == "d" else None
        values.append(event(operation, image) if operation in "cru" else deleted)
    how = ENCODINGS[encoding]
    table = Table(con, replace(EVENTS, encoding=how.value, key=how.key))
    keys = [how.write_key(key_of(key)) for key, _, _ in events]
    rows = table.take([how.write_value(value) for value in values], keys=keys, schemas=how.schemas())
    assert table.types == {"id": "BIGINT", "n": "BIGINT", "big": "VARCHAR"}
    wanted, rejected = states_of(events)
    assert {row["id"]: (row["n"], ASKS if PLACE_COLUMN in row else row["big"]) for row in rows} == {
        key: state for key, state in wanted.items() if state[1] != GONE
    }
    assert table.reasons == dict.fromkeys(rejected, "left_out")
    assert {each["id"] for each in table.touched or ()} == set(wanted)
    assert {ASKS in state for state in wanted.values()} == {True, False}
