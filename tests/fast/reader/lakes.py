"""A real source lake with a SQLite catalog, and a configuration that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.config.catalogs import ResolvedLake
from shared.config.model import Config
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

COLUMNS = "id BIGINT, tenant VARCHAR, v VARCHAR"


def config(folder: Path, *, keys: tuple[str, ...] = ("id",), **sections: Any) -> Config:
    written = {
        "path": folder / "viaduck.yaml",
        "state_dir": folder / "state",
        "pipeline": "p",
        "source": {"catalog": f"sqlite:{folder}/source.sqlite", "data_path": f"{folder}/data", "table": "t"},
        "routing": {"field": "tenant", "key_columns": keys},
    }
    return Config.model_validate({**written, **sections})


class Lake:
    """Writes to the source, a commit for each statement."""

    def __init__(self, folder: Path) -> None:
        self.lake = ResolvedLake(f"sqlite:{folder}/source.sqlite", None, f"{folder}/data")
        self.con = connect()
        attach(self.con, "lake", self.lake, read_only=False, create=True)
        self.sql(f"CREATE TABLE lake.t ({COLUMNS})")

    def sql(self, *statements: str) -> int:
        """The head snapshot after the statements; several of them in one transaction if they begin with BEGIN."""
        for statement in statements:
            self.con.execute(statement).fetchall()
        return self.head

    def insert(self, tenant: str | None, first: int, rows: int) -> int:
        value = "NULL" if tenant is None else f"'{tenant}'"
        return self.sql(f"INSERT INTO lake.t SELECT {first} + i, {value}, 'v' FROM range({rows}) r(i)")

    @property
    def head(self) -> int:
        return int(self.con.execute("SELECT id FROM lake.current_snapshot()").fetchall()[0][0])

    def close(self) -> None:
        self.con.close()
