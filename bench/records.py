"""``python -m bench.records``: what CPU it takes to make typed rows of JSON records, beside two plain loops.

The records are of some 370 bytes in 13 fields, in this process and on one thread; no broker and no lake. The plain
loops parse each record by orjson, which has to be installed for them. They know the columns beforehand, and neither
look for new fields nor notice a value of another type; ``pylist`` hands rows to pyarrow's ``from_pylist``, ``columns``
fills a list for each column itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from services.applier.records.parse import parse
from services.applier.records.record_batch import batch_of
from services.applier.records.record_format import RecordFormat
from shared.lake.engine import connect

FETCH = 8_192
"""Records of a plain loop's chunk."""

SCHEMA = pa.schema(
    [
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


class Message:
    """A record as librdkafka hands it over."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._offset = offset
        self._value = value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_764_000_000_000)

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None


class Ours:
    """Batch after batch of a table that has its columns."""

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
        rows = [orjson.loads(message.value()) for message in messages[first : first + FETCH]]
        for row in rows:
            for name, value in row.items():
                if isinstance(value, dict | list):
                    row[name] = orjson.dumps(value).decode()
        chunks.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return int(pa.concat_tables(chunks).num_rows)


def columns(messages: Sequence[Message]) -> int:
    orjson = importlib.import_module("orjson")
    chunks = []
    for first in range(0, len(messages), FETCH):
        found: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        for message in messages[first : first + FETCH]:
            row = orjson.loads(message.value())
            for name, values in found.items():
                value = row.get(name)
                values.append(orjson.dumps(value).decode() if type(value) in (dict, list) else value)
        chunks.append(pa.table(found, schema=SCHEMA))
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
    messages = [Message(number, json.dumps(record(number, rng)).encode()) for number in range(asked.records)]
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
