"""A lake's catalog put back to what it was: what a restore from a backup does to everybody who has seen more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach, detach


class Backup:
    """Of a lake that ``con`` has attached as ``alias``, as it is now. Data files stay where they are."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake) -> None:
        self._con, self._alias, self._lake = con, alias, lake
        self._detached(self._keep)

    def restore(self, *, forgets: bool = True) -> None:
        """``forgets``: this process's worker lets go of its lakes first; else it goes on with what it has attached."""
        self._detached(self._put_back, forgets=forgets)

    def _detached(self, work: Callable[[], None], *, forgets: bool = True) -> None:
        if forgets:
            worker_state.forget()
        detach(self._con, self._alias)
        work()
        attach(self._con, self._alias, self._lake, read_only=False)

    def _keep(self) -> None:
        file = self._lake.sqlite_file
        if file is None:
            self._copy_database(self._name, f"{self._name}_backup")
        else:
            shutil.copyfile(file, f"{file}.backup")

    def _put_back(self) -> None:
        file = self._lake.sqlite_file
        if file is None:
            self._copy_database(f"{self._name}_backup", self._name)
        else:
            for beside in ("-wal", "-shm"):
                Path(f"{file}{beside}").unlink(missing_ok=True)
            copy = Path(f"{file}.copy")
            shutil.copyfile(f"{file}.backup", copy)
            copy.replace(file)

    @property
    def _name(self) -> str:
        return str(conninfo_to_dict(self._lake.conninfo)["dbname"])

    def _copy_database(self, of: str, name: str) -> None:
        with psycopg.connect(make_conninfo(self._lake.conninfo, dbname="postgres"), autocommit=True) as con:
            con.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY(%s)", [[of, name]]
            ).fetchall()
            con.execute(SQL("DROP DATABASE IF EXISTS {}").format(Identifier(name)))
            con.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(of)))
