"""Columns that a direct commit adds, renames or drops: the net of the steps, and the rows of metadata that it takes.

A column keeps its id for as long as it is there, and a new one gets an id that the table has never given: rows of older
files show its default, whatever they hold of other columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.config.substituted_words import SUBSTITUTED_WORD
from shared.lake.columns.evolution import ColumnStep, StepKind
from shared.lake.columns.history import NO_DEFAULT, NO_TERMS, Field, Terms
from shared.lake.connection.query import UNWRITABLE, Question, Value
from shared.lake.direct.new_table import flat
from shared.lake.direct.rows import FLAG, PLAIN, Names, places_of, values_of
from shared.lake.direct.statistics import NESTED, kind_of
from shared.lake.direct.structure import Structure

NEW_COLUMN = (
    PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, FLAG, PLAIN, PLAIN, "'duckdb'",
)  # fmt: skip
RENAMED = ("CAST({} AS BIGINT)", "CAST({} AS VARCHAR)")


@dataclass(frozen=True)
class Alteration:
    """What becomes of a table's columns in one commit, after which they are ``fields``.

    ``gone`` are ids of columns that are dropped and of all fields within them, ``renamed`` new names by id.
    """

    fields: tuple[Field, ...]
    gone: frozenset[int]
    renamed: Mapping[int, str]
    added: tuple[Field, ...]


def altered(have: Sequence[Field], steps: Sequence[ColumnStep], now: Sequence[Field], last: int) -> Alteration | None:
    """What the steps make of a table's columns; None where the extension has to take them.

    ``now`` are the source's columns that the steps lead to, and ``last`` is the highest id that the table ever gave.
    """
    columns = _taken(have, steps, {field.id: field for field in now}, itertools.count(last + 1))
    if columns is None or not _are_writable(columns):
        return None
    before, after = {field.id: field for field in have}, {field.id for field in columns}
    return Alteration(
        fields=tuple(columns),
        gone=frozenset(part.id for part in flat([field for field in have if field.id not in after])),
        renamed={f.id: f.name for f in columns if f.id in before and before[f.id].name != f.name},
        added=tuple(field for field in columns if field.id not in before),
    )


def _taken(
    have: Sequence[Field], steps: Sequence[ColumnStep], wanted: Mapping[int, Field], ids: Iterator[int]
) -> list[Field] | None:
    columns = list(have)
    for step in steps:
        if len(step.path) != 1 or step.kind is StepKind.WIDEN:
            return None
        if step.kind is StepKind.ADD:
            columns.append(_added(wanted[step.column], ids))
            continue
        place = next((n for n, field in enumerate(columns) if field.name == step.path[0]), None)
        if place is None:
            return None
        columns[place : place + 1] = [] if step.kind is StepKind.DROP else [replace(columns[place], name=step.name)]
    return columns


def with_defaults(alteration: Alteration, defaults: Mapping[str, str | None]) -> Alteration | None:
    """The same with other defaults for rows to come, by name; None where one is of a column that is not new."""
    if not defaults.keys() <= {field.name for field in alteration.added}:
        return None

    def said(fields: Sequence[Field]) -> tuple[Field, ...]:
        return tuple(
            replace(field, terms=Terms(default=defaults[field.name])) if field.name in defaults else field
            for field in fields
        )

    return replace(alteration, fields=said(alteration.fields), added=said(alteration.added))


def _added(field: Field, ids: Iterator[int]) -> Field:
    """A column as DuckLake adds it: older rows and rows to come have the same default, fields within it have none."""
    own = next(ids)
    return replace(field, id=own, terms=Terms(default=field.default), fields=_within(field.fields, ids))


def _within(fields: Sequence[Field], ids: Iterator[int]) -> tuple[Field, ...]:
    return tuple(
        replace(field, id=next(ids), default=None, terms=NO_TERMS, fields=_within(field.fields, ids))
        for field in fields
    )


def _are_writable(fields: Sequence[Field]) -> bool:
    """Whether the names are different ones, and no text holds a word that DuckLake would replace as it alters the
    table again (H16)."""
    texts = [text for field in flat(fields) for text in (field.name, field.default) if text is not None]
    if any(SUBSTITUTED_WORD.search(text) or UNWRITABLE.search(text) for text in texts):
        return False
    return all(_are_different(each) for each in (fields, *(field.fields for field in flat(fields))))


def _are_different(fields: Sequence[Field]) -> bool:
    return len({field.name.lower() for field in fields}) == len(fields)


def structure_after(
    structure: Structure, alteration: Alteration, snapshot: int, declared: Mapping[int, str]
) -> Structure:
    """The table once ``snapshot`` has altered it; ``declared`` are the added columns' types as DuckDB spells them."""
    gone, renamed = alteration.gone, alteration.renamed
    columns = {each for each in structure.columns if each[0] not in gone and each[0] not in renamed}
    columns |= {(id_, renamed[id_], kind, snapshot) for id_, _, kind, _ in structure.columns if id_ in renamed}
    columns |= {(field.id, field.name, field.type, snapshot) for field in flat(alteration.added)}
    spelled = {**dict(zip((field.id for field in structure.fields), structure.declared, strict=True)), **declared}
    return replace(
        structure,
        schema_version=structure.schema_version + 1,
        fields=alteration.fields,
        columns=frozenset(columns),
        declared=tuple(spelled[field.id] for field in alteration.fields),
    )


# -- rows of metadata -------------------------------------------------------------------------------------------------


def alter(names: Names, alteration: Alteration, table: int, snapshot: int, version: int) -> Iterator[Question]:
    """What the catalog is to say of an alteration by ``snapshot``, which has the schema's ``version``.

    Rows of renamed columns are made of those before, so they come before these end. TLA: ``CommitColumns``.
    """
    yield Question(
        "INSERT INTO {}ducklake_schema_versions (begin_snapshot, schema_version, table_id)"
        " VALUES (:new, :version, :table)",
        names,
        {"new": snapshot, "version": version, "table": table},
    )
    if alteration.renamed:
        yield _renamed(names, alteration.renamed, table, snapshot)
    if ended := sorted({*alteration.gone, *alteration.renamed}):
        yield _ended(names, ended, table, snapshot)
    if alteration.added:
        yield new_columns(names, [(table, alteration.added)], snapshot)


def _renamed(names: Names, renamed: Mapping[int, str], table: int, snapshot: int) -> Question:
    """All else of a column stays, but that the extension calls the default of one with fields a literal, too."""
    kept = "c.table_id, c.column_order, said.name, c.column_type, c.initial_default, c.default_value, c.nulls_allowed,"
    return Question(
        "INSERT INTO {}ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type,"
        " initial_default, default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect)"
        f" SELECT c.column_id, CAST(:new AS BIGINT), {kept} c.parent_column,"
        " CASE WHEN c.default_value_type = '' THEN 'literal' ELSE c.default_value_type END, c.default_value_dialect"
        " FROM {}ducklake_column AS c"
        f" JOIN (VALUES {places_of(RENAMED, len(renamed))}) AS said (id, name) ON c.column_id = said.id"
        " WHERE c.table_id = :table AND c.end_snapshot IS NULL AND c.begin_snapshot < :new",
        names,
        values_of(list(renamed.items())) | {"new": snapshot, "table": table},
    )


def _ended(names: Names, columns: Sequence[int], table: int, snapshot: int) -> Question:
    places = ", ".join(f":id{number:d}" for number in range(len(columns)))
    values: dict[str, Value] = {f"id{number}": column for number, column in enumerate(columns)}
    return Question(
        f"UPDATE {{}}ducklake_column SET end_snapshot = :new WHERE table_id = :table AND column_id IN ({places})"
        " AND end_snapshot IS NULL AND begin_snapshot < :new",
        names,
        values | {"new": snapshot, "table": table},
    )


def new_columns(names: Names, tables: Sequence[tuple[int, Sequence[Field]]], snapshot: int) -> Question:
    """What the catalog is to say of columns, by the ids of their tables, that ``snapshot`` adds."""
    lines = [line for table, fields in tables for line in _lines(table, fields, snapshot)]
    return Question(
        "INSERT INTO {}ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type,"
        " initial_default, default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect)"
        " VALUES " + places_of(NEW_COLUMN, len(lines)),
        names,
        values_of(lines),
    )


def _lines(table: int, fields: Sequence[Field], snapshot: int) -> Iterator[tuple[Value, ...]]:
    parents = {part.id: field.id for field in flat(fields) for part in field.fields}
    for field in flat(fields):
        yield (
            field.id, snapshot, table, field.id, field.name, field.type, field.default,
            NO_DEFAULT if field.terms.default is None else field.terms.default, int(not field.terms.required),
            parents.get(field.id), "" if kind_of(field.type) in NESTED else "literal",
        )  # fmt: skip
