"""Finds what an untrusted catalog must not hold, before anything is read: files outside the lake, and code.

A writer of a catalog can have it name any file. The instance that has the lake open reaches no other folder
(``confine``), so nothing of such a file is read; this check reports it clearly. A catalog can also
hold SQL that DuckLake binds as soon as a table is used, and functions of extensions open files and hosts
directly, past DuckDB's sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.lake import table
from shared.lake.catalog.reader import CatalogReader

HINT = "the lake's owner removes these entries from its catalog, or creates a new lake; then resume"

COLUMN = re.compile(r'[A-Za-z_]\w*|"(?:[^"]|"")+"')
"""A sort expression that is a column's name and nothing else."""


def require_own_files(catalog: CatalogReader, lake: ResolvedLake) -> None:
    """Raises ``foreign_files`` where a file, table or schema of the lake lies elsewhere than below its data path."""
    found = path_elsewhere(catalog)
    if found is not None:
        kind, path = found
        raise DestinationError(
            "foreign_files", f"the catalog of {lake} names a {kind} outside its data path: {_shown(path)}", HINT
        )


def path_elsewhere(catalog: CatalogReader) -> tuple[str, str] | None:
    """What the lake names outside its own data path, and where; None where there is no such thing.

    A path that climbs up, or that a store's URL reads otherwise, is elsewhere, too. (``replace`` sees what stands
    behind a NUL, too, where LIKE ends; an unknown ``path_is_relative`` is no yes.)
    """
    root = catalog.data_path().rstrip("/") + "/"
    rows = catalog.select(
        "SELECT kind, path FROM ("
        "SELECT 'data file' AS kind, path, path_is_relative FROM {}ducklake_data_file"
        " UNION ALL SELECT 'delete file', path, path_is_relative FROM {}ducklake_delete_file"
        " UNION ALL SELECT 'table', path, path_is_relative FROM {}ducklake_table"
        " UNION ALL SELECT 'schema', path, path_is_relative FROM {}ducklake_schema) named"
        " WHERE ((path_is_relative IS NULL OR NOT path_is_relative) AND substr(path, 1, length(:root)) <> :root)"
        " OR replace('/' || path || '/', '/../', '') <> '/' || path || '/'"
        " OR (:store = 1 AND replace(replace(path, '?', ''), '#', '') <> path) LIMIT 1",
        root=root,
        store=int("://" in root),
    )
    return (str(rows[0]["kind"]), str(rows[0]["path"])) if rows else None


def require_no_code(catalog: CatalogReader, lake: ResolvedLake, tables: Iterable[tuple[str, str]]) -> None:
    """Raises ``unsafe_catalog`` where using one of the ``tables``, each (schema, table), would run SQL of its catalog:
    a view of the same name, a default that is no value, an order by something else than columns.

    What becomes of the catalog afterwards ``require_table`` sees; of expressions nothing but their binding is left.
    """
    for schema, name in tables:
        rows = catalog.select(
            "SELECT 'view' AS kind, v.view_name AS said FROM {}ducklake_view v"
            " JOIN {}ducklake_schema s ON s.schema_id = v.schema_id"
            " WHERE lower(v.view_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND (v.end_snapshot IS NULL OR v.end_snapshot > (SELECT max(snapshot_id) FROM {}ducklake_snapshot))"
            " UNION ALL SELECT 'default', c.default_value FROM {}ducklake_column c"
            " JOIN {}ducklake_table t ON t.table_id = c.table_id"
            " JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND c.default_value <> 'NULL'"  # of nested columns, whose defaults have no type
            " AND coalesce(c.default_value_type, '') <> 'literal'"
            " AND (c.end_snapshot IS NULL OR c.end_snapshot > (SELECT max(snapshot_id) FROM {}ducklake_snapshot))"
            " AND (t.end_snapshot IS NULL OR t.end_snapshot > (SELECT max(snapshot_id) FROM {}ducklake_snapshot))"
            " UNION ALL SELECT 'order', e.expression FROM {}ducklake_sort_expression e"
            " JOIN {}ducklake_sort_info i ON i.sort_id = e.sort_id"
            " JOIN {}ducklake_table t ON t.table_id = i.table_id OR t.table_id = e.table_id"
            " JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
            " WHERE lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
            " AND (i.end_snapshot IS NULL OR i.end_snapshot > (SELECT max(snapshot_id) FROM {}ducklake_snapshot))"
            " AND (t.end_snapshot IS NULL OR t.end_snapshot > (SELECT max(snapshot_id) FROM {}ducklake_snapshot))",
            schema=schema,
            table=name,
        )
        for row in rows:
            kind, said = str(row["kind"]), str(row["said"])
            if kind != "order" or COLUMN.fullmatch(said) is None:
                what = {"view": "a view in the place of", "default": "an expression as a default of"}.get(kind)
                raise DestinationError(
                    "unsafe_catalog",
                    f"the catalog of {lake} has {what or 'an expression that orders'} the table {schema}.{name}:"
                    f" {_shown(said)}",
                    table.HINT,
                )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:199] + "…")
