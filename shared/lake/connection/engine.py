"""A DuckDB instance as every part of Viaduck wants it: pinned extensions, hazards switched off, one thread."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import duckdb

from shared.config.secrets import told
from shared.contracts.errors import DestinationError
from shared.lake.connection import spill
from shared.lake.sql import literal

SQLITE, POSTGRES = "sqlite_scanner", "postgres_scanner"
CATALOGS = (SQLITE, POSTGRES)
"""Extensions by which DuckLake reaches a catalog. What they open themselves, DuckDB's sandbox knows nothing of."""

AWS, AZURE = "aws", "azure"
STORES = (AWS, AZURE)
"""Extensions by which credentials are looked for around the process, or files are reached that are not on S3."""

EXTENSIONS = ("sqlite_scanner", "postgres_scanner", "httpfs", "ducklake")

OPTIMIZERS_OFF = "statistics_propagation,compressed_materialization"
"""H1: DuckLake applies a table's present statistics to its past, so rows vanish and values change."""

SETTINGS: tuple[str, ...] = (
    f"SET GLOBAL disabled_optimizers = '{OPTIMIZERS_OFF}'",
    "SET GLOBAL threads = 1",  # parallelism comes from Spark's tasks; more threads here only contend
    "SET GLOBAL TimeZone = 'UTC'",  # texts of TIMESTAMPTZ routing values must not depend on the machine
    "SET GLOBAL arrow_lossless_conversion = true",  # rows travel from one instance to another
    "SET GLOBAL python_enable_replacements = false",  # a missing table must not be found among our own variables
)
"""GLOBAL, since threads work in cursors: some of these hold for the connection alone otherwise."""

POSTGRES_SETTINGS: tuple[str, ...] = (
    "SET GLOBAL pg_pool_enable_reaper_thread = false",  # else one thread for each attached Postgres lake
    # Idle connections stay open; closed after a minute, they would only be opened again for the next use.
    "SET GLOBAL pg_pool_idle_timeout_millis = 0",
)

UNCHECKED = "SET pg_pool_health_check_query = ''"
"""For an instance whose user tries again where a connection has ended: each use of one costs two round trips less."""

AMBIENT = {
    "s3_access_key_id": ("AWS_ACCESS_KEY_ID",),
    "s3_secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "s3_session_token": ("AWS_SESSION_TOKEN",),
    "s3_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "s3_endpoint": ("DUCKDB_S3_ENDPOINT",),
    "s3_use_ssl": ("DUCKDB_S3_USE_SSL",),
}
"""What httpfs takes for every file from the environment as it is loaded, under the names of our properties."""

FORGOTTEN = (
    "SET GLOBAL s3_access_key_id = ''",
    "SET GLOBAL s3_secret_access_key = ''",
    "SET GLOBAL s3_session_token = ''",
    "SET GLOBAL s3_region = 'us-east-1'",
    "SET GLOBAL s3_endpoint = 's3.amazonaws.com'",
    "SET GLOBAL s3_use_ssl = true",
    "SET GLOBAL s3_kms_key_id = ''",
    "SET GLOBAL s3_requester_pays = false",
)
"""An instance may hold lakes of different tenants: keys belong to a data path, or to none."""


def ambient_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The S3 properties that this process's environment gives to a lake of the operator's own without any."""
    found = {
        name: next((environ[each] for each in given if environ.get(each)), None) for name, given in AMBIENT.items()
    }
    return {name: value for name, value in found.items() if value is not None}


class _WithoutPandas:
    """A finder of modules that is asked before any other, and has imports of pandas fail at once.

    DuckDB tries to import it twice for each value that is bound, to see whether it is one of pandas'; none of ours is.
    Where pandas is missing, each try would search every folder of modules; where it is installed, the first costs 75 MB
    and 0.4 s of CPU.
    """

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("Viaduck's processes do without it", name=fullname)


def connect(*, memory_limit: str | None = None, catalogs: Collection[str] = CATALOGS) -> duckdb.DuckDBPyConnection:
    """A fresh in-memory instance that can attach lakes with those ``catalogs``; ``cursor()`` shares what is attached.
    Extensions for stores stand among them.

    What does not fit into its memory goes to a folder of its own, which ends with it.

    Extensions from their wheels are loaded without a check of their signatures, which costs a second of CPU for each
    instance: pip has checked the wheels against the lock's hashes, as it has DuckDB's own library, which is unsigned.
    """
    if _WithoutPandas not in sys.meta_path:
        sys.meta_path.insert(0, _WithoutPandas)
    wanted = [name for name in (*EXTENSIONS, *STORES) if name in catalogs or name not in (*CATALOGS, *STORES)]
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,  # else threads are started for each processor, only to be ended by ``SETTINGS``
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_unsigned_extensions": all(_bundled(name) is not None for name in wanted),
        "temp_directory": str(spill.folder()),
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    con = duckdb.connect(":memory:", config=config)
    for name in wanted:
        _load(con, name)
    con.execute("SET allow_unsigned_extensions = false")
    for setting in (*SETTINGS, *FORGOTTEN, *(POSTGRES_SETTINGS if POSTGRES in catalogs else ())):
        con.execute(setting)
    return con


@contextlib.contextmanager
def instance(
    *, memory_limit: str | None = None, catalogs: Collection[str] = CATALOGS
) -> Iterator[duckdb.DuckDBPyConnection]:
    """What ``connect`` makes, let go of as ``release`` does."""
    con = connect(memory_limit=memory_limit, catalogs=catalogs)
    try:
        yield con
    finally:
        release(con)


def read_whole(con: duckdb.DuckDBPyConnection) -> None:
    """Read every file of a table from now on, whatever is asked of it: DuckLake never receives a filter.

    It leaves files out by what its metadata say of them, and they may say too little. For proofs, where what is proven
    must not rest on how it was made.
    """
    con.execute(f"SET disabled_optimizers = '{OPTIMIZERS_OFF},filter_pushdown,join_filter_pushdown'")


@cache
def memory_of(limit: str) -> int:
    """What an instance of that limit may use, in bytes; asked of an instance of its own, which costs as much as a
    statement on a lake."""
    with contextlib.closing(duckdb.connect(":memory:", config={"memory_limit": limit})) as con:
        return int(con.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()[0][0])


def is_lost(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the instance was invalidated (H4, H12): nothing works on it any more."""
    try:
        with contextlib.closing(con.cursor()) as cursor:
            cursor.execute("SELECT 1")
    except duckdb.FatalException:
        return True
    except duckdb.Error:
        return False
    return False


def release(con: duckdb.DuckDBPyConnection) -> None:
    """Close a connection or a cursor, unless its instance was invalidated: that one is left alone for good.

    To end the transaction that is open in it raises where nothing can catch it, and the process is aborted (H12). The
    reference that is given away here keeps even the interpreter's own end from doing so. The same happens where the
    transaction's connection to Postgres has ended, so a transaction is ended before, by a statement that may fail.
    """
    try:
        con.execute("SELECT 1")
    except duckdb.FatalException:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(con))
        return
    except duckdb.Error:
        pass  # a transaction that has failed
    with contextlib.suppress(duckdb.Error):  # none is open, or its connection has ended
        con.execute("ROLLBACK")
    con.close()


def _load(con: duckdb.DuckDBPyConnection, name: str) -> None:
    bundled = _bundled(name)
    if bundled is not None:
        con.execute(f"LOAD {literal(str(bundled))}")
        return
    try:
        _install(con, name)
        con.execute(f"LOAD {name}")
    except duckdb.Error as error:
        if name not in STORES:
            raise
        con.close()
        raise _lacks(name, error) from None


def _install(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """From DuckDB's own server of extensions."""
    con.execute(f"INSTALL {name}")


def _lacks(name: str, error: duckdb.Error) -> DestinationError:
    package = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
    said = f"the lake needs DuckDB's extension {name}, which is not here and can't be fetched: {told(str(error), 300)}"
    return DestinationError("invalid_destination", said, f"install {package} where this service runs, then resume")


@cache
def _bundled(name: str) -> Path | None:
    """The signed extension inside its wheel, which needs no download and no home directory."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is None or not spec.submodule_search_locations:
        return None
    file = (
        Path(spec.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    )
    return file if file.exists() else None
