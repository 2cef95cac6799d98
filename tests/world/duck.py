"""A DuckDB instance for the world: its own, so that a mistake in the services' connections is not shared."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

EXTENSIONS = ("sqlite_scanner", "postgres_scanner", "httpfs", "ducklake")

SETTINGS = (
    # H1, H16, H17: else looking back lies, and files are left out by what metadata say of them.
    "SET GLOBAL disabled_optimizers ="
    " 'statistics_propagation,compressed_materialization,filter_pushdown,join_filter_pushdown'",
    "SET GLOBAL threads = 1",
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL python_enable_replacements = false",
    "SET GLOBAL catalog_error_max_schemas = 0",  # else a name that is not there is looked for in every attached lake
)


def connect() -> duckdb.DuckDBPyConnection:
    """A fresh in-memory instance that can attach lakes."""
    # To look at the extensions' signatures costs a second of CPU each time; pip has checked the wheels' hashes.
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "allow_unsigned_extensions": True,
    }
    con = duckdb.connect(":memory:", config=config)
    for name in EXTENSIONS:
        con.execute(f"LOAD {quote(str(extension(name)))}")
    for setting in SETTINGS:
        con.execute(setting)
    return con


def extension(name: str) -> Path:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"the wheel duckdb-extension-{name} is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    return folder / f"{name}.duckdb_extension"


def quote(text: str) -> str:
    """A string as SQL; NUL, which would end the statement, is spliced in."""
    quoted = "'" + text.replace("'", "''") + "'"
    return "(" + quoted.replace("\x00", "' || chr(0) || '") + ")" if "\x00" in text else quoted


def name(*parts: str) -> str:
    """A dotted path of quoted identifiers."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
