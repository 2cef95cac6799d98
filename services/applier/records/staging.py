"""One statement that makes typed rows of a batch, and says of each what it has left over.

The columns of a staged table:

``i``          the record's place in its batch
``p``, ``o``   partition and offset
``nothing``    the record has no value, or deletes its row
``unread``     its value is JSON, and no object
``c0``, …      the values of the targets, by their numbers
``x0``, …      of targets within a field, whether there was a value that did not fit
``rest``       all fields of the record, by name, as raw JSON texts, where not all that are not null found their place
``rescued``    null at first

Of unwrapped events also ``s``, ``begins`` and ``left_out`` (``envelope``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.applier.records.conversions import INTEGERS, as_double, converted
from services.applier.records.record_format import KeyFormat, Metadata, RecordFormat, ValueFormat

SHAPE = "'\"MAP(VARCHAR,JSON)\"'"

WHOLE_NUMBER = "'^-?(0|[1-9][0-9]*)$'"


@dataclass(frozen=True)
class TargetColumn:
    """A column that records fill: with a field, found along ``path``, or with what Kafka knows of a record."""

    name: str
    type: str
    path: tuple[str, ...] = ()
    metadata: Metadata | None = None
    declared: bool = False
    required: bool = False
    is_key: bool = False

    @property
    def is_field(self) -> bool:
        """Whether it takes a field of the record itself, rather than one within a field."""
        return len(self.path) == 1


@dataclass(frozen=True)
class Staging:
    """What the statement is made of. ``staged``, ``scanned`` (the batch) and ``unwrapped`` (the events in it) are
    quoted paths."""

    staged: str
    scanned: str
    unwrapped: str
    format: RecordFormat
    targets: tuple[TargetColumn, ...]
    inserted_at: datetime
    usual: tuple[str, ...] = ()
    """The fields of some record of the batch, in their order."""
    absent: frozenset[str] = frozenset()
    """Fields that no record of the batch has, as far as that is known."""

    @property
    def is_unwrapped(self) -> bool:
        return self.format.value is ValueFormat.DEBEZIUM

    @property
    def parsed_from(self) -> str:
        """Where the values are that have a row's fields."""
        return self.unwrapped if self.is_unwrapped else self.scanned

    def statement(self) -> str:
        """Makes the staged table of the scanned batch."""
        return f"CREATE OR REPLACE TABLE {self.staged} AS {self._query()}"

    def addition(self) -> str:
        """Adds the scanned batch to the staged table, which has the same targets."""
        return f"INSERT INTO {self.staged} {self._query()}"

    def _query(self) -> str:
        event = "s, begins, left_out, " if self.is_unwrapped else ""
        nothing = "" if self.is_unwrapped else "v IS NULL AS nothing, "
        return (
            f"SELECT i, p, o, {event} nothing, NOT nothing AND m IS NULL AND {self._is_read} AS unread,"
            f" {self._values()}"
            f" CASE WHEN {self._has_rest()} THEN m END AS rest, CAST(NULL AS VARCHAR) AS rescued"
            f" FROM (SELECT i, p, o, {event} nothing, m, {self._converted()} {self._misfits()} 0 AS z"
            f" FROM (SELECT *, {self._doubles()} 0 AS y FROM (SELECT *, {nothing} {self._raw()} 0 AS x"
            f" FROM (SELECT *, {self._alike()} FROM (SELECT *, {self._fields()} FROM {self.parsed_from})))))"
        )

    def has_value(self, number: int) -> str:
        """That an event did not leave the field of a target out."""
        if not self.is_unwrapped or not self.targets[number].path:
            return ""
        return f" AND NOT coalesce(list_contains(left_out, $n{number:d}), false)"

    def parameters(self) -> dict[str, Any]:
        """What both bind: names of fields, paths within fields, the time of the insertion."""
        # As one text: DuckDB asks of each bound value, and twice, whether it is one of pandas'.
        found: dict[str, Any] = {"usual": json.dumps(self.usual, ensure_ascii=False)}
        for number, target in enumerate(self.targets):
            if self._reads(target):
                found[f"n{number}"] = target.path[0]
            if self._reads(target) and not target.is_field:
                found[f"within{number}"] = pointer(target.path[1:])
            if target.is_key and self.reads_keys and self.format.key.is_json:
                found[f"key{number}"] = target.path[-1]
            if target.metadata is Metadata.INSERTED_AT:
                found["inserted_at"] = self.inserted_at
        return found

    def field_names(self) -> dict[str, str]:
        """What ``landed`` binds."""
        return {f"n{number}": target.path[0] for number, target in enumerate(self.targets) if target.is_field}

    @property
    def reads_fields(self) -> bool:
        return self.format.value.has_fields

    def _reads(self, target: TargetColumn) -> bool:
        """Whether records of the batch can have a value for the target. Keys may come from where no value is."""
        return self.reads_fields and bool(target.path) and (target.is_key or target.path[0] not in self.absent)

    @property
    def _is_read(self) -> str:
        return "true" if self.reads_fields else "false"

    @property
    def reads_keys(self) -> bool:
        """Whether the key of a record without a value says which row it deletes."""
        return bool(self.format.key_columns) and not self.format.key_is_the_row_s

    def _fields(self) -> str:
        """The maps of a record's fields, and of its key's if need be."""
        values = f"from_json(v, {SHAPE})" if self.reads_fields else "CAST(NULL AS MAP(VARCHAR, JSON))"
        if self.reads_keys and self.format.key.is_json:
            return f"{values} AS m, from_json(CASE WHEN v IS NULL THEN k END, {SHAPE}) AS key_m"
        return f"{values} AS m"

    def _alike(self) -> str:
        """Whether a record's fields are the usual ones in their order, so that a field's place tells its value."""
        return "map_values(m) AS at_places, map_keys(m) = CAST(CAST($usual AS JSON) AS VARCHAR[]) AS alike"

    def _raw(self) -> str:
        """``r0``, …: the raw texts of fields."""
        return "".join(
            f"{self._raw_field(number, target)} AS r{number:d}, "
            for number, target in enumerate(self.targets)
            if self._reads(target)
        )

    def _raw_field(self, number: int, target: TargetColumn) -> str:
        found = self._field(number, target)
        if not target.is_field:
            found = f"nullif(CAST(json_extract({found}, $within{number:d}) AS VARCHAR), 'null')"
        if target.is_key and self.reads_keys:
            found = f"CASE WHEN v IS NULL THEN {self._raw_key(number, target)} ELSE CAST({found} AS VARCHAR) END"
        elif self.is_unwrapped and not target.is_key:
            found = f"CASE WHEN NOT nothing THEN {found} END"
        return f"CAST({found} AS VARCHAR)"

    def _field(self, number: int, target: TargetColumn) -> str:
        by_name = f"map_extract_value(m, $n{number:d})"
        if target.path[0] not in self.usual:
            return by_name
        place = self.usual.index(target.path[0]) + 1
        return f"CASE WHEN alike THEN list_extract(at_places, {place:d}) ELSE {by_name} END"

    def _doubles(self) -> str:
        return "".join(
            f"{as_double(f'r{number:d}')} AS d{number:d}, "
            for number, target in enumerate(self.targets)
            if self._has_double(target)
        )

    def _has_double(self, target: TargetColumn) -> bool:
        return self._reads(target) and target.type == "DOUBLE"

    def _raw_key(self, number: int, target: TargetColumn) -> str:
        """The raw text of a key column where there is no value: a field of the key, or a text as a whole."""
        if self.format.key.is_json:
            found = f"CAST(map_extract_value(key_m, $key{number:d}) AS VARCHAR)"
            if self.format.key in (KeyFormat.JSON, KeyFormat.JSON_SCHEMA) or len(self.format.key_columns) > 1:
                return found
            return f"CASE WHEN key_m IS NULL THEN nullif(k, 'null') ELSE {found} END"
        if self.format.key is not KeyFormat.TEXT or len(self.format.key_columns) > 1:
            return "NULL"
        if target.type in INTEGERS:
            return f"CASE WHEN regexp_matches(k, {WHOLE_NUMBER}) THEN k END"
        return "CAST(to_json(k) AS VARCHAR)"

    def _converted(self) -> str:
        return "".join(f"{self._value(number, target)} AS c{number:d}, " for number, target in enumerate(self.targets))

    def _value(self, number: int, target: TargetColumn) -> str:
        if target.metadata is not None:
            return METADATA[target.metadata]
        if not target.path:
            return "NULL"
        if not self.reads_fields:
            return "v"
        if not self._reads(target):
            return f"CAST(NULL AS {'VARCHAR' if target.type == 'JSON' else target.type})"
        double = f"d{number:d}" if self._has_double(target) else ""
        return converted(f"r{number:d}", target.type, double, rounds=target.declared)

    def _misfits(self) -> str:
        """``x0``, …: whether a field within a field does not fit; that of a record's own field shows in ``rest``."""
        return "".join(
            f"r{number:d} IS NOT NULL AND {self._value(number, self.targets[number])} IS NULL AS x{number:d}, "
            if self._reads(self.targets[number])
            else f"false AS x{number:d}, "
            for number in self._within
        )

    def landed(self) -> str:
        """The list of the names of a staged record's fields that need not be rescued."""
        names = "".join(
            f"CASE WHEN c{number:d} IS NOT NULL{self._none_within(target)} THEN $n{number:d} END, "
            for number, target in enumerate(self.targets)
            if target.is_field
        )
        return f"CAST([{names}NULL] AS VARCHAR[])"

    def _none_within(self, field: TargetColumn) -> str:
        return "".join(
            f" AND NOT x{number:d}" for number in self._within if self.targets[number].path[0] == field.path[0]
        )

    @property
    def _within(self) -> list[int]:
        return [number for number, target in enumerate(self.targets) if len(target.path) > 1]

    def _values(self) -> str:
        return "".join(f"c{number:d}, " for number in range(len(self.targets))) + "".join(
            f"x{number:d}, " for number in self._within
        )

    def _has_rest(self) -> str:
        if not self.reads_fields:
            return "false"
        landed = [
            f"CAST(c{number:d} IS NOT NULL AS INTEGER)"
            for number, target in enumerate(self.targets)
            if target.is_field and self._reads(target)
        ]
        rest = f"list_count(map_values(m)) <> {_sum(landed)}" + "".join(f" OR x{n:d}" for n in self._within)
        return f"NOT nothing AND ({rest})" if self.is_unwrapped else rest


def _sum(terms: Sequence[str]) -> str:
    """As a tree that is no deeper than it must be: the time to plan a statement grows with the square of its depth."""
    if len(terms) <= 1:
        return "".join(terms) or "0"
    half = len(terms) // 2
    return f"({_sum(terms[:half])} + {_sum(terms[half:])})"


METADATA = {
    "partition": "p",
    "offset": "o",
    "timestamp": "t",
    "key": "k",
    "headers": "h",
    "inserted_at": "CAST($inserted_at AS TIMESTAMP WITH TIME ZONE)",
}
"""Where a batch has what the names of ``Metadata`` mean."""


def pointer(path: Sequence[str]) -> str:
    """A JSON pointer (RFC 6901) to a field within fields."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
