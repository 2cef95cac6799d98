"""The catalog of a new lake on Postgres, in one round trip.

It is exactly what DuckLake's extension makes, which takes two statements for each table, a hundred milliseconds
in all. Of another version of DuckLake it would be something else: DuckDB and its extensions are pinned, and a test
compares.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
import psycopg

from shared.config.catalogs import ResolvedLake
from shared.lake.connection.postgres import PostgresConnections
from shared.lake.connection.query import Question
from shared.lake.connection.statements import ask
from shared.lake.sql import ident

VERSION = "1.0"
"""Of the catalog's own tables."""

TABLES = {
    "ducklake_metadata": "key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT",
    "ducklake_snapshot": (
        "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id "
        "BIGINT, next_file_id BIGINT"
    ),
    "ducklake_snapshot_changes": (
        "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, "
        "commit_extra_info VARCHAR"
    ),
    "ducklake_schema": (
        "schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, "
        "schema_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN"
    ),
    "ducklake_table": (
        "table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, "
        "table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN"
    ),
    "ducklake_view": (
        "view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, "
        "view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR"
    ),
    "ducklake_tag": "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR",
    "ducklake_column_tag": (
        "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR"
    ),
    "ducklake_data_file": (
        "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
        "file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, "
        "file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key "
        "VARCHAR, mapping_id BIGINT, partial_max BIGINT"
    ),
    "ducklake_file_column_stats": (
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count "
        "BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats "
        "VARCHAR"
    ),
    "ducklake_file_variant_stats": (
        "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, shredded_type VARCHAR, "
        "column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value "
        "VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR"
    ),
    "ducklake_delete_file": (
        "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
        "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, "
        "file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT"
    ),
    "ducklake_column": (
        "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, "
        "column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, "
        "nulls_allowed BOOLEAN, parent_column BIGINT, default_value_type VARCHAR, default_value_dialect "
        "VARCHAR"
    ),
    "ducklake_table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT",
    "ducklake_table_column_stats": (
        "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR, "
        "max_value VARCHAR, extra_stats VARCHAR"
    ),
    "ducklake_partition_info": "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "ducklake_partition_column": (
        "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, transform VARCHAR"
    ),
    "ducklake_file_partition_value": (
        "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR"
    ),
    "ducklake_files_scheduled_for_deletion": (
        "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ"
    ),
    "ducklake_inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
    "ducklake_column_mapping": "mapping_id BIGINT, table_id BIGINT, type VARCHAR",
    "ducklake_name_mapping": (
        "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column "
        "BIGINT, is_partition BOOLEAN"
    ),
    "ducklake_schema_versions": "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT",
    "ducklake_macro": (
        "schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT"
    ),
    "ducklake_macro_impl": "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR",
    "ducklake_macro_parameters": (
        "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR, "
        "default_value VARCHAR, default_value_type VARCHAR"
    ),
    "ducklake_sort_info": "sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "ducklake_sort_expression": (
        "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, "
        "sort_direction VARCHAR, null_order VARCHAR"
    ),
}
"""Each table with its columns, in DuckLake's order. Tables of inlined rows come with the tables that they are of."""


def create_catalog(connections: PostgresConnections, lake: ResolvedLake) -> bool:
    """Create the lake's catalog where its database holds none, all of it or nothing; whether it is there then.

    Where that can't be done nothing is raised: the extension, which creates what it does not find, says why. Of two
    that create one at the same time the second waits for the first, and then finds it there.
    """
    if lake.sqlite_file is not None or lake.data_path is None:
        return False
    with contextlib.suppress(psycopg.Error), connections.use(lake.conninfo) as con:
        if not _is_there(con, lake):
            with con.pipeline(), psycopg.RawCursor(con) as cursor:  # autocommit: its end is the COMMIT
                for text, values in (question.rendered("$") for question in _creation(lake, lake.data_path)):
                    cursor.execute(text.encode(), values)
        return True
    return False


def _is_there(con: psycopg.Connection[Any], lake: ResolvedLake) -> bool:
    name = f"{ident(lake.schema)}.ducklake_metadata"
    return bool(ask(con, Question("SELECT to_regclass(:name) IS NOT NULL AS there", {}, {"name": name}))[0]["there"])


def _creation(lake: ResolvedLake, data_path: str) -> Iterator[Question]:
    names = {"": f"{ident(lake.schema)}.", "schema": ident(lake.schema)}
    if lake.metadata_schema is not None:
        yield Question("CREATE SCHEMA IF NOT EXISTS {schema}", names, {})
    for table, columns in TABLES.items():
        yield Question(f"CREATE TABLE {{}}{table} ({columns})", names, {})
    yield Question("INSERT INTO {}ducklake_snapshot VALUES (0, now(), 0, 1, 0)", names, {})
    yield Question(
        "INSERT INTO {}ducklake_snapshot_changes VALUES (0, 'created_schema:\"main\"', NULL, NULL, NULL)", names, {}
    )
    yield Question(
        "INSERT INTO {}ducklake_metadata (key, value) VALUES ('version', :version), ('created_by', :creator),"
        " ('data_path', :data_path), ('encrypted', :encrypted)",
        names,
        {
            "version": VERSION,
            "creator": f"DuckDB {duckdb.__git_revision__}",
            "data_path": data_path.rstrip("/") + "/",
            "encrypted": str(lake.encrypted).lower(),
        },
    )
    yield Question(
        "INSERT INTO {}ducklake_schema VALUES (0, CAST(:uuid AS uuid), 0, NULL, 'main', 'main/', TRUE)",
        names,
        {"uuid": str(uuid.uuid4())},
    )
