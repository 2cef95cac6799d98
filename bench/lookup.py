"""``python -m bench.lookup``: what it costs to find the rows of random keys in a table's files where no bound helps.

Files lie on the local disk, each with as many rows and with keys at random, so that every file may hold every key.
With ``--bloom`` they are written once more with a bloom filter for the key, which Parquet has where a column is kept
by dictionary. CPU and peak memory are those of a process of its own for each kind of file.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from shared.config.catalogs import ResolvedLake
from shared.lake.columns.history import Field
from shared.lake.direct.file_memory import FileMemory, LakeMemory
from shared.lake.direct.positions import Key, OpenFile, Touched, find_positions
from shared.lake.direct.state import DataFile
from shared.lake.sql import literal

ROW_GROUP = 122_880
WORKER_MEMORY = "1GB"
TYPES = {"BIGINT": ("int64", "(hash(i::BIGINT) >> 1)::BIGINT"), "VARCHAR": ("varchar", "md5(i::VARCHAR)")}
"""A key's type → DuckLake's name of it, and the key of row ``i``."""


@dataclass(frozen=True)
class Layout:
    """A table's files, and how many keys a lookup seeks; ``bloom``: whether the key has a bloom filter."""

    files: int
    rows: int
    type: str
    keys: int
    bloom: bool


@dataclass(frozen=True)
class Found:
    """Milliseconds of CPU of the first lookup and of the median of later ones, each for other keys."""

    layout: Layout
    megabytes: int
    first_ms: float
    later_ms: float
    peak_mb: int


def write(folder: Path, layout: Layout) -> list[OpenFile]:
    """Write the files of a layout, with a payload of eight bytes beside the key."""
    by_dictionary = f", DICTIONARY_SIZE_LIMIT {ROW_GROUP:d}" if layout.bloom else ""
    _, key = TYPES[layout.type]
    written = []
    with duckdb.connect() as con:
        for number in range(layout.files):
            name = str(folder / f"{number}.parquet")
            begin = number * layout.rows
            con.execute(
                f"COPY (SELECT {key} AS k, random() AS v FROM range({begin:d}, {begin + layout.rows:d}) t(i))"
                f" TO {literal(name)} (FORMAT parquet, FIELD_IDS {{k: 1, v: 2}}{by_dictionary})"
            )
            size = Path(name).stat().st_size
            file = DataFile(number, name, layout.rows, size, True, (), ((None, None),))
            written.append(OpenFile(file, name, None))
    return written


def measure(folder: Path, layout: Layout, lookups: int) -> Found:
    """Look up ``lookups`` times other keys, of which all are there."""
    ducklakes, key = TYPES[layout.type]
    files = write(folder, layout)
    with get_context("spawn").Pool(1) as pool:
        took, peak_mb = pool.apply(_lookups, (files, layout, ducklakes, key, lookups))
    megabytes = sum(each.file.bytes for each in files) // 1_000_000
    return Found(layout, megabytes, took[0], median(took[1:] or took), peak_mb)


def _lookups(files: list[OpenFile], layout: Layout, ducklakes: str, key: str, lookups: int) -> tuple[list[float], int]:
    known = LakeMemory(FileMemory(), ResolvedLake("sqlite:lookup"))
    sought = [Key(Field(1, "k", ducklakes, ()), prunes=False)]
    took = []
    with duckdb.connect(config={"threads": 1, "memory_limit": WORKER_MEMORY}) as con:
        step = layout.files * layout.rows // layout.keys
        for number in range(lookups):
            rows = ", ".join(f"({each * step + number:d})" for each in range(layout.keys))
            keys: pa.Table = con.execute(f"SELECT {key} AS k0 FROM (VALUES {rows}) t(i)").to_arrow_table()
            began = time.process_time()
            losing = find_positions(files, Touched(con, keys), sought, known, nulls=False)
            took.append(1_000 * (time.process_time() - began))
            found = sum(len(each.positions) for each in losing.values())
            assert found == layout.keys, f"{found} of {layout.keys} keys were found"
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_000


def shown(found: list[Found]) -> Table:
    columns = ("files", "rows each", "key", "bloom filter", "MB", "first, ms", "later, ms", "peak, MB")
    table = Table(*columns, title=f"A lookup of {found[0].layout.keys} keys, ms of CPU")
    for each in found:
        kind = each.layout
        table.add_row(
            f"{kind.files:,}", f"{kind.rows:,}", kind.type, "yes" if kind.bloom else "no", f"{each.megabytes:,}",
            f"{each.first_ms:.1f}", f"{each.later_ms:.1f}", f"{each.peak_mb:,}",
        )  # fmt: skip
    return table


def main() -> None:
    """Read the options, measure, and print a row for each kind of file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100_000, help="of each file")
    parser.add_argument("--keys", type=int, default=20, help="of a lookup")
    parser.add_argument("--lookups", type=int, default=4)
    parser.add_argument("--type", choices=TYPES, default="BIGINT", help="of the key")
    parser.add_argument("--bloom", action="store_true", help="the same again, with bloom filters")
    given = parser.parse_args()
    found = []
    for bloom in (False, True)[: 1 + given.bloom]:
        layout = Layout(given.files, given.rows, given.type, given.keys, bloom)
        with tempfile.TemporaryDirectory(prefix="viaduck-lookup-") as folder:
            found.append(measure(Path(folder), layout, given.lookups))
    Console().print(shown(found))


if __name__ == "__main__":
    main()
