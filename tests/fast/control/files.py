"""Configuration files and source lakes for control's tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import yaml

from shared.config.catalogs import ResolvedLake
from shared.config.loading import load
from shared.config.model import Config
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

COLUMNS = 'event_id BIGINT, company VARCHAR, amount DECIMAL(10, 2), "Day" DATE'


def destination(id: str, **changes: Any) -> dict[str, Any]:
    return {"id": id, "routing_value": f"value of {id}", "catalog": f"sqlite:lakes/{id}.sqlite", **changes}


def write(folder: Path, destinations: Sequence[dict[str, Any]] = (), **sections: Any) -> Path:
    """A file in ``folder`` whose source is ``source.sqlite`` beside it."""
    document: dict[str, Any] = {
        "pipeline": "events",
        "source": {"catalog": "sqlite:source.sqlite", "table": "events"},
        "routing": {"field": "company", "key_columns": ["event_id"]},
        "destinations": list(destinations),
        "server": {"port": 0},
        **sections,
    }
    file = folder / "viaduck.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def config(folder: Path, destinations: Sequence[dict[str, Any]] = (), **sections: Any) -> Config:
    return load(write(folder, destinations, **sections), {})


def make_source(folder: Path, columns: str = COLUMNS, table: str = "events") -> None:
    with_lake(folder, f"CREATE TABLE lake.{table} ({columns})")


def with_lake(folder: Path, *statements: str) -> None:
    """Run statements on ``source.sqlite``, attached as ``lake``."""
    con: duckdb.DuckDBPyConnection = connect()
    try:
        lake = ResolvedLake(f"sqlite:{folder}/source.sqlite", data_path=f"{folder}/data/")
        attach(con, "lake", lake, read_only=False, create=True)
        for statement in statements:
            con.execute(statement)
    finally:
        con.close()
