"""Statistics of columns, in the text that DuckLake keeps: never narrower than the values, or filters lose rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from shared.lake.column_history import Field
from shared.lake.direct.state import ColumnStats
from shared.lake.sql import ident

NESTED = frozenset({"list", "struct", "map"})

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_MOMENT_UTC = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00")
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")


def _shaped(pattern: re.Pattern[str]) -> Callable[[str], str]:
    """Texts of one shape compare as their moments do; other spellings (infinity, years of five digits, BC) do not."""

    def parsed(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(text)
        return text

    return parsed


def _number(text: str) -> float:
    if (number := float(text)) != number:
        raise ValueError("NaN is neither less nor greater")
    return number


def _plain(text: str) -> str:
    return text


ORDERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), int),
    **dict.fromkeys(("float32", "float64"), _number),
    **dict.fromkeys(("varchar", "json", "blob", "uuid", "boolean"), _plain),
    "decimal": Decimal,
    "date": _shaped(_DATE),
    **dict.fromkeys(("timestamp", "timestamp_us", "timestamp_s", "timestamp_ms", "timestamp_ns"), _shaped(_MOMENT)),
    "timestamptz": _shaped(_MOMENT_UTC),
    "time": _shaped(_TIME),
    "interval": _plain,
}
"""DuckLake's types → what a text of such a column's statistics compares by. These types were held against the
extension's own statistics; a table with a column of another one is left to the extension."""


def kind_of(type: str) -> str:
    """A type without its parameters."""
    return type.lower().partition("(")[0]


@dataclass(frozen=True)
class FileColumn:
    """What a file that was written holds of a column without parts."""

    column_id: int
    kind: str
    bytes: int
    values: int
    nulls: int | None
    """None where COPY looked at no value: of INTERVAL it tells nothing."""
    least: str | None
    greatest: str | None
    has_nan: bool | None


def leaves(fields: Sequence[Field], above: str = "") -> dict[str, Field]:
    """The fields without parts, by the path under which COPY tells their statistics."""
    found: dict[str, Field] = {}
    for field in fields:
        path = f"{above}.{ident(field.name)}" if above else ident(field.name)
        if kind_of(field.type) in NESTED:
            found |= leaves(field.fields, path)
        else:
            found[path] = field
    return found


def file_columns(fields: Sequence[Field], told: Mapping[str, Mapping[str, str]]) -> tuple[FileColumn, ...]:
    """What COPY told of a file's columns; a column that it did not tell of is left out, as nothing is known then."""
    return tuple(_file_column(field, told[path]) for path, field in leaves(fields).items() if path in told)


def _file_column(field: Field, said: Mapping[str, str]) -> FileColumn:
    least, greatest, nan = said.get("min"), said.get("max"), said.get("has_nan")
    kept = least is not None and greatest is not None and "\x00" not in least + greatest  # no catalog keeps a NUL
    values = int(said.get("num_values", 0))
    return FileColumn(
        column_id=field.id,
        kind=kind_of(field.type),
        bytes=int(said.get("column_size_bytes", 0)),
        values=values,
        nulls=int(said.get("null_count", 0)) if values else None,
        least=least if kept else None,
        greatest=greatest if kept else None,
        has_nan=None if nan is None else nan == "true",
    )


def merged(old: ColumnStats | None, new: FileColumn, *, was_empty: bool) -> ColumnStats | None:
    """The statistics of a column that gained the values of a file; None where nothing is known, and nothing is kept.

    ``was_empty``: its table never had a row before.
    """
    has_null = None if new.nulls is None else new.nulls > 0
    if was_empty:
        return ColumnStats(has_null, new.has_nan, new.least, new.greatest)
    if old is None:
        return None
    nothing_but_nulls = new.values == (new.nulls or 0)
    return ColumnStats(
        contains_null=_either(old.contains_null, has_null),
        contains_nan=_either(old.contains_nan, new.has_nan),
        least=old.least if nothing_but_nulls else _bound(old.least, new.least, new.kind, min),
        greatest=old.greatest if nothing_but_nulls else _bound(old.greatest, new.greatest, new.kind, max),
        extra=old.extra,
    )


def _either(old: bool | None, new: bool | None) -> bool | None:
    return None if old is None or new is None else old or new


def _bound(old: str | None, new: str | None, kind: str, choose: Callable[..., str]) -> str | None:
    """The lesser, or the greater, of two texts; None where one of them is not known, or does not compare."""
    if old is None or new is None:
        return None
    try:
        return choose(old, new, key=ORDERS[kind])
    except (ValueError, InvalidOperation):
        return None
