"""Where a batch is in an instance's memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import duckdb

from shared.lake.sql import ident, path

_numbers = itertools.count(1)


@dataclass(frozen=True)
class BatchNames:
    """The quoted names of what one batch becomes, in every connection of the instance but for ``scanned``."""

    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def registered(self) -> str:
        """The batch's name in the connection that reads it."""
        return f"records_{self.number:d}"

    @property
    def scanned(self) -> str:
        return ident(self.registered)

    @property
    def unwrapped(self) -> str:
        return self._path("unwrapped")

    @property
    def asking(self) -> str:
        return self._path("asking")

    @property
    def owned(self) -> str:
        return self._path("owned")

    @property
    def staged(self) -> str:
        return self._path("staged")

    @property
    def parsed_rows(self) -> str:
        return self._path("parsed")

    @property
    def parsed_keys(self) -> str:
        return self._path("keys")

    def drop(self, con: duckdb.DuckDBPyConnection) -> None:
        con.execute(f"DROP VIEW IF EXISTS {self.parsed_rows}")
        con.execute(f"DROP VIEW IF EXISTS {self.parsed_keys}")
        for name in (self.staged, self.unwrapped, self.asking, self.owned):
            con.execute(f"DROP TABLE IF EXISTS {name}")

    def _path(self, name: str) -> str:
        return path("memory", "main", f"{name}_{self.number:d}")
