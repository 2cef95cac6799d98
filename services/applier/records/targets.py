"""Which column takes which field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.applier.records.column_names import RESCUED, may_be_column
from services.applier.records.conversions import WIDER
from services.applier.records.record_format import (
    KEY_TYPES,
    METADATA_TYPES,
    Metadata,
    RecordFormat,
    ValueFormat,
    fields_of,
)
from services.applier.records.staging import TargetColumn
from shared.contracts.errors import DestinationError
from shared.lake.catalog.reader import Column

VALUE = "value"
"""The column of values that are texts or bytes."""

VALUE_TYPES = {ValueFormat.TEXT: "VARCHAR", ValueFormat.BYTES: "BLOB"}


def targets_of(form: RecordFormat, present: Sequence[Column]) -> tuple[TargetColumn, ...]:
    """Those of the columns that are there, in their order, then those that the format asks for and are missing.

    Raises ``schema_change`` for a column whose type is not what is asked for.
    """
    wanted = {target.name: target for target in _wanted(form)}
    fields = {target.path[0] for target in wanted.values() if target.is_field}
    there = []
    for column in present:
        if column.name in wanted:
            there.append(_of_its_type(wanted.pop(column.name), column))
        elif column.name != RESCUED:
            there.append(_inferred_before(column, fields, form))
    return (*there, *wanted.values())


def _wanted(form: RecordFormat) -> Iterator[TargetColumn]:
    for column in form.columns:
        yield TargetColumn(
            column.name,
            column.duckdb_type,
            fields_of(column.path),
            declared=True,
            required=column.required,
            is_key=column.name in form.key_columns,
        )
    for each in form.metadata:
        declared = KEY_TYPES[form.key] if each is Metadata.KEY else METADATA_TYPES[each]
        yield TargetColumn(each.column, declared, metadata=each, is_key=each.column in form.key_columns)
    if form.value in VALUE_TYPES:
        yield TargetColumn(VALUE, VALUE_TYPES[form.value], (VALUE,), declared=True)


def _inferred_before(column: Column, fields: set[str], form: RecordFormat) -> TargetColumn:
    """A column of the destination that is not asked for; it takes the field of its name unless another one does."""
    takes = form.value.has_fields and column.name not in fields and may_be_column(column.name)
    return TargetColumn(column.name, column.type, (column.name,) if takes else ())


def _of_its_type(target: TargetColumn, column: Column) -> TargetColumn:
    if column.type not in (target.type, *(kind for kind, wider in WIDER.items() if wider == target.type)):
        raise DestinationError(
            "schema_change",
            f"the column {column.name} of the destination is {column.type}, and is declared to be {target.type}",
            "declare it as it is, give the declared column another name, or reseed the destination, then resume",
        )
    return target
