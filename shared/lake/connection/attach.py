"""Attaching a lake to a DuckDB instance, with its credentials and the options that its kind of catalog needs."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import duckdb

from shared.config.catalogs import POSTGRES, ResolvedLake, patient, with_statement_timeout
from shared.config.path_overlap import FILES
from shared.contracts.errors import DestinationError
from shared.lake.connection.engine import POSTGRES as POSTGRES_SCANNER
from shared.lake.connection.engine import SQLITE as SQLITE_SCANNER
from shared.lake.connection.store_secrets import below, expire, forget_keys, store_extensions, undeclared, use_keys
from shared.lake.failure import classify
from shared.lake.sql import ident, literal

READ_STATEMENT_S, WRITE_STATEMENT_S = 120.0, 600.0
"""After how long Postgres ends one of DuckLake's statements: another client may hold a lock on the catalog, and DuckDB
has no timeout of its own. A transaction that writes is given time to wait for other writers of the same lake; if one of
its statements is ended, COMMIT included, it has written nothing."""


def scanners(*lakes: ResolvedLake) -> frozenset[str]:
    """The extensions that an instance needs to attach those lakes, and may load: functions of other kinds of catalogs
    and stores would only serve an attacker whose expression is executed."""
    catalogs = frozenset(POSTGRES_SCANNER if lake.sqlite_file is None else SQLITE_SCANNER for lake in lakes)
    return catalogs.union(*(store_extensions(lake) for lake in lakes))


def attach(
    con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake, *, read_only: bool, create: bool = False
) -> None:
    """Attach ``lake`` as ``alias``. With ``create`` a lake that does not exist yet is made, folder included.

    Raises a ``ViaduckError`` that says why the lake can't be opened, without its secrets.
    """
    sqlite_file = lake.sqlite_file
    try:
        if sqlite_file is not None:
            _prepare_sqlite(con, alias, sqlite_file, read_only=read_only, create=create)
        try:
            _attach(con, _statement(alias, lake, read_only=read_only, create=create))
        except duckdb.Error as error:
            if not _refuses_options(error):
                raise
            _attach(con, _statement(alias, lake, read_only=read_only, create=create, limited=False))
        _create_secret(con, alias, lake)
        _require_declared(con, alias, lake)
    except (duckdb.Error, OSError, DestinationError) as error:
        with contextlib.suppress(duckdb.Error):  # an instance that has been invalidated refuses even this
            detach(con, alias)
        if isinstance(error, DestinationError):
            raise
        raise classify(error, f"opening the lake at {lake}") from None


def _attach(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        con.execute(statement)
    except duckdb.Error as error:
        if not _stored_relative(error):
            raise
        con.execute(statement.removesuffix(")") + ", OVERRIDE_DATA_PATH true)")


def _refuses_options(error: duckdb.Error) -> bool:
    """Whether a pooler is between us and Postgres that lets no options through; then its own limits hold."""
    return "unsupported startup parameter" in str(error)


def _stored_relative(error: duckdb.Error) -> bool:
    """Whether a data path is refused only because the lake was made with a relative one.

    DuckLake would look for that below each process's own folder; ours is absolute already (relative to the file).
    """
    stored = re.search(r'does not match existing data path in the catalog "([^"]*)"', str(error))
    return stored is not None and "://" not in stored[1] and not stored[1].startswith("/")


def metadata_of(alias: str) -> str:
    """The database as which an instance has the catalog of a lake that is attached as ``alias``."""
    return f"__ducklake_metadata_{alias}"


def detach(con: duckdb.DuckDBPyConnection, alias: str) -> None:
    """Let go of a lake; nothing happens where it is not attached any more."""
    con.execute(f"DETACH DATABASE IF EXISTS {ident(alias)}")
    with contextlib.suppress(duckdb.Error):  # an instance that has been invalidated refuses even this
        forget_keys(con, alias)


def confine(con: duckdb.DuckDBPyConnection, *aliases: str, writing: bool = False) -> None:
    """Restrict an instance to the files of its attached lakes and its own temporary ones.

    Whatever else an untrusted catalog names (a file, a view, an expression), DuckDB then refuses to open; no statement
    on this instance can lift the restriction. ``writing``: create missing folders now, since DuckLake
    would look at their parents then, which it may not.
    """
    data_paths = [_data_path(con, alias) for alias in aliases]
    for local in (path for path in data_paths if writing and "://" not in path):
        with contextlib.suppress(OSError):  # a later write reports why it fails
            Path(local).mkdir(parents=True, exist_ok=True)
    con.execute(f"SET allowed_directories = [{', '.join(literal(below(path)) for path in data_paths)}]")
    con.execute("SET enable_external_access = false")


def _data_path(con: duckdb.DuckDBPyConnection, alias: str) -> str:
    return str(con.execute("SELECT data_path FROM ducklake_settings(?)", [alias]).fetchall()[0][0])


def _prepare_sqlite(con: duckdb.DuckDBPyConnection, alias: str, file: Path, *, read_only: bool, create: bool) -> None:
    if not file.exists():
        if not create:
            # DuckDB would leave an empty file behind, even if it is told not to create a lake.
            raise FileNotFoundError(f"there is no catalog file {file}")
        file.parent.mkdir(parents=True, exist_ok=True)
    elif read_only:
        _use_wal(con, alias, file)


def _use_wal(con: duckdb.DuckDBPyConnection, alias: str, file: Path) -> None:
    """Switch a SQLite catalog to write-ahead logging (H8): else our reading could fail its writers' commits for good.

    Changes no snapshot. A catalog that we may not write to, or that is in use this moment, is left as it is.
    """
    target, name = literal(f"ducklake:sqlite:{file}"), ident(alias)
    with contextlib.suppress(duckdb.Error):
        con.execute(f"ATTACH {target} AS {name} (META_JOURNAL_MODE 'WAL', CREATE_IF_NOT_EXISTS false)")
        con.execute(f"DETACH {name}")


def _statement(alias: str, lake: ResolvedLake, *, read_only: bool, create: bool, limited: bool = True) -> str:
    options = []
    if read_only:
        options.append("READ_ONLY")
    else:
        options.append(f"CREATE_IF_NOT_EXISTS {str(create).lower()}")
        if lake.sqlite_file is not None:
            options.append("META_JOURNAL_MODE 'WAL'")
    data_path = lake.data_path or (_beside(lake.sqlite_file) if create else None)
    if create and lake.encrypted and _is_new(lake.sqlite_file):
        options.append("ENCRYPTED")
    if data_path is not None:
        options.append(f"DATA_PATH {literal(data_path)}")
    if lake.metadata_schema is not None:
        options.append(f"METADATA_SCHEMA {literal(lake.metadata_schema)}")
    if lake.sqlite_file is None:
        # Else the extension loads, and keeps in memory, the catalog of the whole database: ten times as many rows.
        options.append(f"META_SCHEMA {literal(lake.schema)}")
    target = lake.catalog if lake.sqlite_file is not None else POSTGRES + _words(lake, read_only, limited)
    return f"ATTACH {literal('ducklake:' + target)} AS {ident(alias)} ({', '.join(options)})"


def _words(lake: ResolvedLake, read_only: bool, limited: bool) -> str:
    words = patient(lake.conninfo)
    return with_statement_timeout(words, READ_STATEMENT_S if read_only else WRITE_STATEMENT_S) if limited else words


def _is_new(sqlite_file: Path | None) -> bool:
    """Whether the file holds no lake yet: DuckLake refuses ENCRYPTED for a lake that exists. On Postgres,
    ``create_catalog`` has created the lake by then."""
    return sqlite_file is not None and not (sqlite_file.exists() and sqlite_file.stat().st_size > 0)


def _beside(sqlite_file: Path | None) -> str | None:
    """Where the files of a lake go that is about to be made and was given no place for them; else None."""
    if sqlite_file is None or not _is_new(sqlite_file):
        return None
    return f"{sqlite_file}{FILES}"


def _create_secret(con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake) -> None:
    data_path = _data_path(con, alias)
    if "://" in data_path:
        use_keys(con, alias, lake, data_path)


def renew_keys(con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake) -> bool:
    """Fetch the credentials of an attached lake again if they are for a time only; whether they are.

    Raises a ``ViaduckError`` where none can be had; those that are there stay until they expire.
    """
    data_path = _data_path(con, alias)
    if not expire(lake, data_path):
        return False
    try:
        use_keys(con, alias, lake, data_path)
    except duckdb.Error as error:
        raise classify(error, f"renewing the credentials of the lake at {lake}") from None
    return True


def _require_declared(con: duckdb.DuckDBPyConnection, alias: str, lake: ResolvedLake) -> None:
    """Raises ``not_allowed`` if only an untrusted catalog says where the lake's files are.

    Its owner may change that at any time: to another lake's folder, or to a prefix that the keys of both open.
    """
    if not lake.untrusted or lake.data_path is not None:
        return
    said = _data_path(con, alias)
    if not is_beside(said, lake):
        raise undeclared(said, lake)


def is_beside(data_path: str, lake: ResolvedLake) -> bool:
    """Whether it is the folder beside a SQLite catalog in which a lake's files are where nothing is said."""
    return lake.sqlite_file is not None and below(data_path) == below(f"{lake.sqlite_file}{FILES}")
