"""``python -m bench.plain_consumer``: a single loop that lands a topic in a lake, written as well as we can.

Records become columns of a known schema: parsed one by one, collected by column, handed to DuckDB as Arrow, and
inserted by name. Offsets are committed after the rows, so a crash doubles rows; nothing is rescued or rejected.
JSON is parsed by orjson where that is installed, else by ``pydantic_core.from_json``, which the lock file has.

Prints one line of JSON: ``seconds`` from the first poll to the last commit, ``records``, ``peak_mb`` and ``json``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_STORED, Consumer, Message, TopicPartition
from pydantic_core import from_json, to_json

from bench.processes import MEGABYTE
from bench.records import FETCH, SCHEMA
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

ALIAS, TABLE = "dst", "dst.main.records"
GROUP = "plain-loop"
PATIENCE_S = 60.0

CLIENT = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.message.max.bytes": 4_194_304,
    "fetch.wait.max.ms": 100,
}


@dataclass(frozen=True)
class Json:
    """A library: what it is called, and what reads a record and writes a nested value."""

    name: str
    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]


def fastest_json() -> Json:
    if importlib.util.find_spec("orjson") is not None:
        orjson = importlib.import_module("orjson")
        return Json("orjson", orjson.loads, orjson.dumps)
    return Json("pydantic_core", from_json, to_json)


def table_of(messages: Sequence[Message], lib: Json) -> pa.Table:
    """A chunk of records as the schema has them; nested values as texts."""
    found: dict[str, list[Any]] = {name: [] for name in SCHEMA.names[3:]}
    loads, dumps = lib.loads, lib.dumps
    for message in messages:
        row = loads(message.value() or b"")
        for name, values in found.items():
            value = row.get(name)
            values.append(dumps(value).decode() if type(value) in (dict, list) else value)
    metadata = {
        "_kafka_partition": [message.partition() for message in messages],
        "_kafka_offset": [message.offset() for message in messages],
        "_kafka_timestamp": [message.timestamp()[1] for message in messages],
    }
    return pa.table(metadata | found, schema=SCHEMA)


class PlainLoop:
    """``con`` has the lake attached as ``ALIAS``; ``consumer`` is assigned to the topic."""

    def __init__(self, consumer: Consumer, con: duckdb.DuckDBPyConnection, batch: int, lib: Json) -> None:
        self._consumer, self._con, self._batch, self._lib = consumer, con, batch, lib

    def run(self, records: int) -> int:
        """Land so many records. Raises ``TimeoutError`` where they do not come."""
        landed = 0
        while landed < records:
            landed += self._once(min(self._batch, records - landed))
        return landed

    def _once(self, wanted: int) -> int:
        chunks, taken, deadline = list[pa.Table](), 0, time.monotonic() + PATIENCE_S
        while taken < wanted:
            messages = self._consumer.consume(min(FETCH, wanted - taken), timeout=1.0)
            if messages:
                chunks.append(table_of(messages, self._lib))
                taken += len(messages)
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{taken} of {wanted} records came within {PATIENCE_S:.0f} s")
        self._insert(pa.concat_tables(chunks))
        self._consumer.commit(asynchronous=False)
        return taken

    def _insert(self, rows: pa.Table) -> None:
        self._con.register("batch", rows)
        self._con.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} AS SELECT * FROM batch LIMIT 0")
        self._con.execute(f"INSERT INTO {TABLE} BY NAME SELECT * FROM batch")
        self._con.unregister("batch")


def main() -> int:
    asked, lib = _arguments(), fastest_json()
    lake = ResolvedLake(asked.catalog, None, asked.data_path)
    with closing(connect()) as con, closing(Consumer({**CLIENT, "bootstrap.servers": asked.bootstrap})) as consumer:
        attach(con, ALIAS, lake, read_only=False, create=True)
        known = consumer.list_topics(asked.topic, PATIENCE_S).topics[asked.topic].partitions
        consumer.assign([TopicPartition(asked.topic, number, OFFSET_STORED) for number in known])
        began = time.monotonic()
        landed = PlainLoop(consumer, con, asked.batch, lib).run(asked.records)
        seconds = time.monotonic() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
    said = {"seconds": round(seconds, 3), "records": landed, "peak_mb": round(peak_mb, 1), "json": lib.name}
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def command(bootstrap: str, topic: str, lake: ResolvedLake, records: int, batch: int) -> list[str]:
    """What runs it as a process of its own."""
    words = {"--bootstrap": bootstrap, "--topic": topic, "--catalog": lake.catalog, "--data-path": lake.data_path}
    numbers = {"--records": str(records), "--batch": str(batch)}
    options = [word for pair in (words | numbers).items() for word in pair if word is not None]
    return [sys.executable, "-m", "bench.plain_consumer", *options]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "topic", "catalog"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--data-path", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--batch", type=int, default=250_000, help="rows of one insert")
    found = parser.parse_args()
    found.data_path = str(found.data_path)
    return found


if __name__ == "__main__":
    sys.exit(main())
