"""What stays the same of a destination's table and cursor table for as long as no DDL comes between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.errors import DestinationError
from shared.lake.catalog.tables import inlined_table
from shared.lake.columns.history import ColumnVersion, Field, fields_at, terms_of
from shared.lake.columns.owners import LOOKS, NEWEST_LOOK, Altered, altered_since
from shared.lake.columns.terms import NO_COMMENTS, Comments
from shared.lake.connection.dialect import Dialect
from shared.lake.connection.query import Question

_LIVE = (
    " FROM {}ducklake_table t JOIN {}ducklake_schema s ON s.schema_id = t.schema_id"
    " WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
)
_TABLE = f"{_LIVE} AND lower(t.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)"
_CURSOR = f"{_LIVE} AND lower(t.table_name) = lower(:cursor) AND lower(s.schema_name) = lower(:cursor_schema)"

STRUCTURE = (
    "SELECT {array}("
    " (SELECT {array}(snapshot_id, schema_version) FROM {}ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1),"
    f" (SELECT {{collect}}({{array}}(t.table_id, t.path, t.path_is_relative, s.path, s.path_is_relative)){_TABLE}),"
    f" (SELECT {{collect}}({{array}}(t.table_id)){_CURSOR}),"
    " (SELECT {collect}({array}(c.table_id, c.column_id, c.parent_column, c.column_name, c.column_type,"
    "   c.initial_default, c.nulls_allowed, c.column_order, c.begin_snapshot, c.default_value, c.default_value_type))"
    "   FROM {}ducklake_column c WHERE c.end_snapshot IS NULL"
    f"   AND c.table_id IN (SELECT t.table_id{_TABLE} UNION ALL SELECT t.table_id{_CURSOR})),"
    " (SELECT {collect}({array}(i.table_id, i.schema_version, i.table_name)) FROM {}ducklake_inlined_data_tables i"
    f"   WHERE i.table_id IN (SELECT t.table_id{_TABLE} UNION ALL SELECT t.table_id{_CURSOR})),"
    " (SELECT {collect}({array}(NULL, g.value)) FROM {}ducklake_tag g WHERE g.key = 'comment'"
    f"   AND g.end_snapshot IS NULL AND g.object_id IN (SELECT t.table_id{_TABLE})),"
    " (SELECT {collect}({array}(g.column_id, g.value)) FROM {}ducklake_column_tag g WHERE g.key = 'comment'"
    f"   AND g.end_snapshot IS NULL AND g.table_id IN (SELECT t.table_id{_TABLE})),"
    " (SELECT {collect}({array}(w.column_id)) FROM (SELECT c.column_id FROM {}ducklake_column c"
    f"   WHERE c.table_id IN (SELECT t.table_id{_TABLE})"
    "   GROUP BY c.column_id HAVING count(DISTINCT c.column_type) > 1) w),"
    " (SELECT {collect}({array}(c.column_id, c.parent_column, c.column_name, c.column_type, c.initial_default,"
    "   c.column_order, c.begin_snapshot, c.end_snapshot)) FROM {}ducklake_column c"
    f"   WHERE c.end_snapshot IS NOT NULL AND c.table_id IN (SELECT t.table_id{_TABLE})),"
    f" ({NEWEST_LOOK})"
    ") AS found"
)


@dataclass(frozen=True)
class Structure:
    """A destination's table and its cursor's, as one schema version of their lake has them.

    ``folder``: the parts from the data path to the table's files; an absolute one replaces those before it.
    """

    schema_version: int
    table_id: int
    cursor_id: int
    folder: tuple[str, ...]
    fields: tuple[Field, ...]
    columns: frozenset[tuple[int, str, str, int]]
    """Of the table, fields of nested ones among them: id, name, type, and the snapshot that made it so. A lake that was
    restored from a backup may have the same schema version again, with other columns (H20)."""
    inlined: tuple[str, ...]
    """The catalog's own tables for inlined rows of the table."""
    cursor_inlined: tuple[str, ...]
    cursor_columns: tuple[Field, ...]
    declared: tuple[str, ...] = ()
    """The types of the table's columns as DuckDB spells them, once it was asked."""
    comments: Comments = NO_COMMENTS
    """Of the table and its columns."""
    widened: frozenset[int] = frozenset()
    """Columns and fields that had another type before: no bounds are kept of them (H27)."""
    optional: frozenset[str] = frozenset()
    """Those of the catalog's two tables of inlined deletes that a look has found there."""
    altered: Altered | None = field(default=None, compare=False)
    """What the lake's owner has made of the columns since we last committed to them, if anything."""

    @property
    def catalog_tables(self) -> frozenset[str]:
        """The catalog's own tables of inlined rows and deletes that a look asks."""
        return self.optional | {*self.inlined, *self.cursor_inlined}

    @property
    def inlined_deletes(self) -> str:
        """The catalog's own table for deletes of single rows of the table's files, which need not be there."""
        return f"ducklake_inlined_delete_{self.table_id}"

    @property
    def cursor_inlined_deletes(self) -> str:
        return f"ducklake_inlined_delete_{self.cursor_id}"


def structure_question(
    dialect: Dialect, prefix: str, table: tuple[str, str], cursor: tuple[str, str], stamped: str
) -> Question:
    """The statement that asks for the structure of a table and a cursor's table, each (schema, name). ``stamped``: a
    pattern of the stamps of their commits."""
    names = {"schema": table[0], "table": table[1], "cursor_schema": cursor[0], "cursor": cursor[1]}
    return Question(STRUCTURE, {"": prefix, **dialect.functions}, {**names, "stamped": stamped, **LOOKS})


def parse_structure(text: str) -> Structure | None:
    """The structure in the statement's answer; None where the table or the cursor's is not there, or not once.

    Raises ``ViaduckError`` (``lake_incompatible``) for a catalog that names what DuckLake never would.
    """
    snapshot, tables, cursors, columns, inlined, of_table, of_columns, *history = json.loads(text)
    widened, ended, looked = history
    if snapshot is None or len(tables or ()) != 1 or len(cursors or ()) != 1:
        return None
    (table_id, path, relative, schema_path, schema_relative), ((cursor_id,),) = tables[0], cursors
    at = int(snapshot[0])
    names = {wanted: _inlined_names(inlined, wanted) for wanted in (table_id, cursor_id)}
    return Structure(
        schema_version=int(snapshot[1]),
        table_id=int(table_id),
        cursor_id=int(cursor_id),
        folder=folder_of((schema_path, schema_relative), (path, relative)),
        fields=_fields(columns, table_id, at),
        columns=frozenset((int(c[1]), c[3], c[4], int(c[8])) for c in columns if c[0] == table_id),
        inlined=names[table_id],
        cursor_inlined=names[cursor_id],
        cursor_columns=_fields(columns, cursor_id, at),
        comments=_comments(of_table or (), of_columns or ()),
        widened=frozenset(int(column) for (column,) in widened or ()),
        altered=_altered([c for c in columns if c[0] == table_id], ended or (), looked, at),
    )


def _altered(
    live: Sequence[Sequence[Any]], ended: Sequence[Sequence[Any]], looked: int | None, at: int
) -> Altered | None:
    """By every version that a column of the table ever had."""
    rows = [*((*c[1:6], *c[7:9], None) for c in live), *ended]
    versions = [
        ColumnVersion(int(id_), parent, name, kind, default, int(begin), None if end is None else int(end))
        for id_, parent, name, kind, default, _, begin, end in sorted(rows, key=lambda row: int(row[5]))
    ]
    return altered_since(versions, looked, at)


def folder_of(schema: tuple[str, Any], table: tuple[str, Any]) -> tuple[str, ...]:
    """The folder of a table's files; each path is (text, whether it is relative). An absolute path replaces what stands
    before it."""
    if not isinstance(table[0], str) or not isinstance(schema[0], str):
        raise ValueError("a path is no text")
    if not table[1]:
        return ("", table[0])
    return (schema[0], table[0]) if schema[1] else ("", schema[0], table[0])


def _fields(columns: Sequence[Sequence[Any]], table_id: int, at: int) -> tuple[Field, ...]:
    own = sorted((column for column in columns if column[0] == table_id), key=lambda column: int(column[7]))
    if not own:
        raise ValueError("a table without columns")
    return fields_at(
        [ColumnVersion(int(c[1]), c[2], c[3], c[4], c[5], 0, None, terms_of(c[6], c[9], c[10])) for c in own], at
    )


def _comments(of_table: Sequence[Sequence[Any]], of_columns: Sequence[Sequence[Any]]) -> Comments:
    columns = {int(column): str(said) for column, said in of_columns if said is not None}
    return Comments(next((str(said) for _, said in of_table if said is not None), None), columns)


def _inlined_names(inlined: Sequence[Sequence[Any]] | None, table_id: int) -> tuple[str, ...]:
    """Table names become identifiers of statements, and any client that may write to the catalog can invent them."""
    own = sorted(tuple(row) for row in inlined or () if row[0] == table_id)
    for owner, version, name in own:
        if name != inlined_table(owner, version):
            raise DestinationError(
                "lake_incompatible",
                f"the catalog calls {str(name)[:80]!r} a table of inlined rows, which DuckLake never does",
                "another program wrote to the catalog's own tables: restore ducklake_inlined_data_tables, then resume",
            )
    return tuple(str(name) for _, _, name in own)
