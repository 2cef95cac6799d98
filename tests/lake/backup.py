"""A lake's catalog put back to what it was: what a restore from a backup does to everybody who has seen more."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.lake.attach import attach, detach


class Backup:
    """Of a lake that ``con`` has attached as ``alias``, as it is now. Data files stay where they are."""

    def __init__(self, con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake) -> None:
        self._con, self._alias, self._lake = con, alias, lake
        self._detached(self._keep)

    def restore(self) -> None:
        self._detached(self._put_back)

    def _detached(self, work: object) -> None:
        assert callable(work)
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
            shutil.copyfile(f"{file}.backup", file)

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
