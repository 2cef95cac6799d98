"""Where a case is measured: its size, a folder of its own, and fresh lakes on one kind of catalog."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.lakes import Lakes, PostgresLakes, SqliteLakes
from bench.outcome import Size
from tests.servers.postgres import Postgres

T = TypeVar("T")
CATALOGS = ("postgres", "sqlite")


@dataclass(frozen=True)
class Setting:
    """``runs`` are those that count, after one for warmth."""

    size: Size
    runs: int
    folder: Path
    lakes: Lakes

    def sized(self, *, quick: T, full: T) -> T:
        return quick if self.size is Size.QUICK else full

    @property
    def on_postgres(self) -> PostgresLakes:
        """For what only Postgres can tell; such a case is not played on other catalogs."""
        if not isinstance(self.lakes, PostgresLakes):
            raise TypeError("this case needs catalogs on Postgres")
        return self.lakes


@contextmanager
def prepared(size: Size, runs: int, catalog: str) -> Iterator[Setting]:
    """A setting with a server of its own, gone with everything in it at the end."""
    with tempfile.TemporaryDirectory(prefix="viaduck-bench-") as folder, _lakes(catalog, Path(folder)) as lakes:
        yield Setting(size, runs, Path(folder), lakes)


@contextmanager
def _lakes(catalog: str, root: Path) -> Iterator[Lakes]:
    if catalog == "sqlite":
        yield SqliteLakes(root)
        return
    with Postgres(settings=PostgresLakes.settings) as server:
        yield PostgresLakes(root, server)
