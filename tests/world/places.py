"""Where a history's lakes are made, and what happens to an applier's open lakes when the source is restored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from psycopg.sql import SQL, Identifier

from tests.servers.postgres import Postgres
from tests.world.history import RECOVERY_RATE
from tests.world.lake import Lake


class Places(Protocol):
    @property
    def recovers(self) -> float:
        """How many of the unusual histories have a source that is restored or replaced, if it does not expire."""

    @property
    def recovery_rate(self) -> float:
        """How many of the steps of such a history that are."""

    @property
    def acts(self) -> float:
        """How often appliers do something between two steps of the source."""

    @property
    def stays_warm(self) -> bool:
        """The applier keeps its open lakes while the source is backed up, restored or replaced."""

    def lake(self, folder: Path, *, encrypted: bool = False) -> Lake:
        """A lake that is still to be made, with its data in ``folder``."""

    def clear(self) -> None:
        """Remove what was made and does not lie in a folder. Nothing has a lake open."""


class Folders:
    """SQLite catalogs, each beside its data. Its copies are made while nobody has it attached."""

    recovers = 0.25
    recovery_rate = RECOVERY_RATE
    acts = 0.5
    stays_warm = False

    def lake(self, folder: Path, *, encrypted: bool = False) -> Lake:
        return Lake.in_folder(folder, encrypted=encrypted)

    def clear(self) -> None:
        pass


class Database:
    """Catalogs on Postgres, each a schema of one database."""

    recovers = 0.9
    recovery_rate = 0.4
    acts = 0.9
    stays_warm = True

    def __init__(self, server: Postgres) -> None:
        self._server, self._name = server, f"histories_{os.getpid()}"
        self._made = 0
        server.create_database(self._name)

    def lake(self, folder: Path, *, encrypted: bool = False) -> Lake:
        self._made += 1
        folder.mkdir(parents=True, exist_ok=True)
        options = ("ENCRYPTED",) if encrypted else ()
        return Lake(f"postgres:{self._server.dsn(self._name)}", str(folder / "data"), f"lake_{self._made}", options)

    def clear(self) -> None:
        with self._server.connect(self._name) as con:
            made = con.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'lake_%'").fetchall()
            for (schema,) in made:
                con.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(schema)))

    def drop(self) -> None:
        self._server.drop_database(self._name)
