"""A destination's table and its cursor's in a lake that has neither: the numbers, names and paths that they get."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shared.lake.catalog.tables import inlined_table
from shared.lake.columns.history import Field
from shared.lake.columns.terms import NO_COMMENTS, Comments, Described
from shared.lake.connection.dialect import Dialect
from shared.lake.connection.query import Question
from shared.lake.direct.state import CURSOR_TYPES, NewestSnapshot, Option
from shared.lake.direct.structure import Structure, folder_of

SAFE_IN_PATHS = re.compile(r"[A-Za-z0-9_-]+")
"""Names that DuckLake makes folders of; other names get a random one."""

_LIVE = " JOIN {}ducklake_schema s ON s.schema_id = o.schema_id WHERE o.end_snapshot IS NULL AND s.end_snapshot IS NULL"

PLACE = (
    "SELECT {array}("
    " (SELECT {array}(snapshot_id, schema_version, next_catalog_id, next_file_id) FROM {}ducklake_snapshot"
    "   ORDER BY snapshot_id DESC LIMIT 1),"
    " (SELECT count(*) FROM {}ducklake_snapshot),"
    " (SELECT {collect}({array}(key, value, scope)) FROM {}ducklake_metadata WHERE scope IS NULL OR scope = 'schema'),"
    " (SELECT {collect}({array}(schema_id, schema_name, path, path_is_relative)) FROM {}ducklake_schema"
    "   WHERE end_snapshot IS NULL AND lower(schema_name) IN (lower(:schema), lower(:cursor_schema))),"
    f" (SELECT count(*) FROM {{}}ducklake_table o{_LIVE}"
    "   AND lower(o.table_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)),"
    f" (SELECT count(*) FROM {{}}ducklake_view o{_LIVE}"
    "   AND lower(o.view_name) = lower(:table) AND lower(s.schema_name) = lower(:schema)),"
    " (SELECT count(*) FROM {}ducklake_table WHERE lower(table_name) = lower(:cursor))"
    ") AS found"
)


@dataclass(frozen=True)
class LakeSchema:
    """A schema of a lake, with the folder of its tables, which is below the data path if it is ``relative``."""

    id: int
    name: str
    path: str
    relative: bool = True


@dataclass(frozen=True)
class NewTablePlace:
    """What a lake says of where the two tables are to be.

    ``whole``: it retains every snapshot that it ever had, so nothing of its past is forgotten. ``taken``: a table or a
    view has the name already, or the destination has had a cursor here.
    """

    snapshot: NewestSnapshot
    whole: bool
    options: tuple[Option, ...]
    schemas: tuple[LakeSchema, ...]
    taken: bool


@dataclass(frozen=True)
class NewTable:
    """A table that a commit makes; ``path`` is its folder's, below the schema's."""

    id: int
    schema: LakeSchema
    name: str
    path: str
    fields: tuple[Field, ...]
    comments: Comments = NO_COMMENTS


@dataclass(frozen=True)
class NewTables:
    """What a first commit makes: schemas, the table, and the cursor's. ``structure`` is theirs from then on."""

    schemas: tuple[LakeSchema, ...]
    table: NewTable
    cursor: NewTable
    next_catalog_id: int
    structure: Structure


def place_question(dialect: Dialect, prefix: str, table: tuple[str, str], cursor: tuple[str, str]) -> Question:
    """The statement that looks whether a table and a cursor's table, each (schema, name), can be made."""
    values = {"schema": table[0], "table": table[1], "cursor_schema": cursor[0], "cursor": cursor[1]}
    return Question(PLACE, {"": prefix, **dialect.functions}, values)


def parse_place(text: str) -> NewTablePlace:
    """What the statement's answer says. Raises ``ValueError`` and its kind where DuckLake did not write the catalog."""
    newest, count, options, schemas, tables, views, cursors = json.loads(text)
    snapshot = NewestSnapshot(*(int(number) for number in newest))
    if not all(isinstance(row[1], str) and isinstance(row[2], str) for row in schemas or ()):
        raise ValueError("a schema's name or path is no text")
    return NewTablePlace(
        snapshot=snapshot,
        whole=int(count) == snapshot.id + 1,
        options=tuple(Option(*row) for row in options or ()),
        schemas=tuple(LakeSchema(int(row[0]), row[1], row[2], bool(row[3])) for row in schemas or ()),
        taken=int(tables) + int(views) + int(cursors) > 0,
    )


def new_tables(
    dialect: Dialect, place: NewTablePlace, table: tuple[str, str], cursor: tuple[str, str], described: Described
) -> NewTables:
    """What the next snapshot makes of two tables, each (schema, name). The first is ``described``, by any ids."""
    ids = itertools.count(place.snapshot.next_catalog_id)
    made, there = list[LakeSchema](), {schema.name.lower(): schema for schema in place.schemas}
    for name in (cursor[0], table[0]):
        if name.lower() not in there:
            made.append(LakeSchema(next(ids), name, _folder_name(name)))
            there[name.lower()] = made[-1]
    fields = numbered(described.fields)
    comments = _renumbered(described, fields)
    data = NewTable(next(ids), there[table[0].lower()], table[1], _folder_name(table[1]), fields, comments)
    own = numbered([Field(0, name, kind, ()) for name, kind in CURSOR_TYPES.items()])
    position = NewTable(next(ids), there[cursor[0].lower()], cursor[1], _folder_name(cursor[1]), own)
    return NewTables(tuple(made), data, position, next(ids), _structure(dialect, place, data, position))


def numbered(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The fields with the ids that DuckLake gives those of a new table: from 1, each before the fields within it."""
    return _numbered(fields, itertools.count(1))


def _numbered(fields: Sequence[Field], ids: Iterator[int]) -> tuple[Field, ...]:
    return tuple(replace(field, id=next(ids), default=None, fields=_numbered(field.fields, ids)) for field in fields)


def _renumbered(described: Described, fields: Sequence[Field]) -> Comments:
    """The comments by the new ids."""
    ids = {old.id: new.id for old, new in zip(described.fields, fields, strict=True)}
    comments = described.comments or NO_COMMENTS
    return Comments(comments.table, {ids[column]: said for column, said in comments.columns.items() if column in ids})


def _folder_name(name: str) -> str:
    return f"{name if SAFE_IN_PATHS.fullmatch(name) else uuid.uuid4()}/"


def _structure(dialect: Dialect, place: NewTablePlace, table: NewTable, cursor: NewTable) -> Structure:
    """Rows of the table are never inlined, so it has no table of inlined rows."""
    version, snapshot = place.snapshot.schema_version + 1, place.snapshot.id + 1
    bare = Structure(
        schema_version=version,
        table_id=table.id,
        cursor_id=cursor.id,
        folder=folder_of((table.schema.path, table.schema.relative), (table.path, True)),
        fields=table.fields,
        columns=frozenset((field.id, field.name, field.type, snapshot) for field in flat(table.fields)),
        inlined=(),
        cursor_inlined=(str(inlined_table(cursor.id, version)),),
        cursor_columns=cursor.fields,
        comments=table.comments,
    )
    if not dialect.looks_for_deletes:
        return bare
    return replace(bare, optional=frozenset({bare.inlined_deletes, bare.cursor_inlined_deletes}))


def flat(fields: Sequence[Field]) -> Iterator[Field]:
    """All fields, each before those within it."""
    for field in fields:
        yield field
        yield from flat(field.fields)
