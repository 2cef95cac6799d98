"""``python -m bench.records``: what CPU it takes to make typed rows of JSON records, beside two plain loops.

The records are of some 370 bytes in 13 fields, in this process and on one thread; no broker and no lake. The plain
loops parse each record by orjson, which has to be installed for them. They know the columns beforehand, and neither
look for new fields nor notice a value of another type; ``pylist`` hands rows to pyarrow's ``from_pylist``, ``columns``
fills a list for each column itself.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
from rich.console import Console
from rich.table import Table

from services.applier.records.parse import parse
from services.applier.records.record_batch import batch_of
from services.applier.records.record_format import RecordFormat
from shared.lake.connection.engine import connect

FETCH = 8_192
"""Records of a plain loop's chunk."""

SCHEMA = pa.schema(
    [
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("ms", "UTC")),
        ("event_id", pa.int64()),
        ("user_id", pa.int64()),
        ("session", pa.string()),
        ("timestamp", pa.string()),
        ("url", pa.string()),
        ("referrer", pa.string()),
        ("price", pa.float64()),
        ("quantity", pa.int64()),
        ("is_mobile", pa.bool_()),
        ("country", pa.string()),
        ("tags", pa.string()),
        ("device", pa.string()),
        ("duration_ms", pa.float64()),
    ]
)


def record(number: int, rng: random.Random) -> dict[str, Any]:
    return {
        "event_id": number,
        "user_id": rng.randrange(1 << 40),
        "session": f"{rng.getrandbits(128):032x}",
        "timestamp": f"2026-11-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:07:{rng.randrange(60):02}.000Z",
        "url": f"https://example.com/{rng.choice(['shop', 'blog', 'about/us'])}/{rng.randrange(10**6)}",
        "referrer": rng.choice([None, "https://search.example/?q=duck"]),
        "price": round(rng.random() * 1000, 2),
        "quantity": rng.randrange(10),
        "is_mobile": rng.random() < 0.5,
        "country": rng.choice(["DE", "FR", "US"]),
        "tags": ["a", "b"],
        "device": {"os": "linux", "version": rng.randrange(20)},
        "duration_ms": rng.random() * 1000,
    }


class Ours:
    """Batch after batch of a table that has its columns; the same rows as those of the plain loops."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._con = connect(catalogs=())
        self._format = RecordFormat()
        self._now = datetime.now(UTC)
        first = parse(self._con, batch_of(messages[:FETCH]), self._format, (), self._now)
        self._columns = first.columns
        first.drop()

    def __call__(self, messages: Sequence[Message]) -> int:
        parsed = parse(self._con, batch_of(messages), self._format, self._columns, self._now)
        assert not parsed.new_columns
        assert not parsed.rescued
        parsed.drop()
        return parsed.landed


def pylist(messages: Sequence[Message]) -> int:
    orjson = importlib.import_module("orjson")
    chunks = []
    for first in range(0, len(messages), FETCH):
        rows = []
        for message in messages[first : first + FETCH]:
            row = orjson.loads(message.value())
            for name, value in row.items():
                if isinstance(value, dict | list):
                    row[name] = orjson.dumps(value).decode()
            row["_kafka_partition"] = message.partition()
            row["_kafka_offset"] = message.offset()
            row["_kafka_timestamp"] = message.timestamp()[1]
            rows.append(row)
        chunks.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return int(pa.concat_tables(chunks).num_rows)


def columns(messages: Sequence[Message]) -> int:
    orjson = importlib.import_module("orjson")
    chunks = []
    for first in range(0, len(messages), FETCH):
        fetched = messages[first : first + FETCH]
        found: dict[str, list[Any]] = {name: [] for name in SCHEMA.names[3:]}
        for message in fetched:
            row = orjson.loads(message.value())
            for name, values in found.items():
                value = row.get(name)
                values.append(orjson.dumps(value).decode() if type(value) in (dict, list) else value)
        metadata = {
            "_kafka_partition": [message.partition() for message in fetched],
            "_kafka_offset": [message.offset() for message in fetched],
            "_kafka_timestamp": [message.timestamp()[1] for message in fetched],
        }
        chunks.append(pa.table(metadata | found, schema=SCHEMA))
    return int(pa.concat_tables(chunks).num_rows)


def cpu_seconds(work: Callable[[Sequence[Message]], int], messages: Sequence[Message]) -> float:
    """Seconds of CPU of one run."""
    began = time.process_time()
    assert work(messages) == len(messages)
    return time.process_time() - began


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=100_000)
    words.add_argument("--runs", type=int, default=5)
    asked = words.parse_args()
    rng = random.Random(1)
    messages = [
        Message(
            topic="t",
            partition=0,
            offset=n,
            value=json.dumps(record(n, rng)).encode(),
            timestamp=(1, 1_764_000_000_000),
        )
        for n in range(asked.records)
    ]
    gc.freeze()  # a consumer holds those of one fetch alone
    works: dict[str, Callable[[Sequence[Message]], int]] = {"Viaduck": Ours(messages)}
    if importlib.util.find_spec("orjson") is not None:
        works |= {"plain loop, pylist": pylist, "plain loop, columns": columns}
    runs = [{name: cpu_seconds(work, messages) for name, work in works.items()} for _ in range(asked.runs)]
    seconds = {name: min(run[name] for run in runs) for name in works}
    table = Table(title=f"{asked.records} records, one thread: the least CPU of {asked.runs} runs")
    for head in ("", "µs a record", "records/s", "times Viaduck's CPU"):
        table.add_column(head, justify="right")
    for name, spent in seconds.items():
        each = 1e6 * spent / asked.records
        table.add_row(name, f"{each:.2f}", f"{1e6 / each:,.0f}", f"{spent / seconds['Viaduck']:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
