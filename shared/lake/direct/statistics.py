"""Statistics of columns, in the text that DuckLake keeps: never narrower than the values, or filters lose rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from shared.lake.columns.history import Field
from shared.lake.direct.state import ColumnStats
from shared.lake.sql import ident

NESTED = frozenset({"list", "struct", "map"})

MOMENT = re.compile(r"(?P<year>\d{4,7})(?P<day>-\d\d-\d\d)(?P<bc> \(BC\))?(?P<time> \d\d:\d\d:\d\d(\.\d+)?)?(\+00)?")
TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")

ENDLESS = {"-infinity": float("-inf"), "infinity": float("inf")}


def _moment(text: str) -> tuple[float, str]:
    """A date or a timestamp in UTC: its year, negative before Christ, and what is left, which compares as text."""
    if text in ENDLESS:
        return ENDLESS[text], ""
    found = MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year = int(found["year"])
    return (-year if found["bc"] else year), f"{found['day']}{found['time'] or ''}"


def _time(text: str) -> str:
    if not TIME.fullmatch(text):
        raise ValueError(text)
    return text


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
    **dict.fromkeys(("date", "timestamp", "timestamp_us", "timestamp_s", "timestamp_ms", "timestamp_ns"), _moment),
    "timestamptz": _moment,
    "time": _time,
    "interval": _plain,
}
"""DuckLake's types → what a text of such a column's statistics compares by. These types were held against the
extension's own statistics; a table with a column of another one is left to the extension."""

WIDEST: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("varchar", "json"), ("", None)),
    **dict.fromkeys(("float32", "float64"), ("-inf", "inf")),
}
"""Bounds that hold for whatever a column had, by types of which a value may have no bounds: texts with a NUL, and NaN.
"""


def kind_of(declared: str) -> str:
    """A type without its parameters."""
    return declared.lower().partition("(")[0]


@dataclass(frozen=True)
class FileColumn:
    """What a file that was written holds of a column without parts."""

    column_id: int
    kind: str
    bytes: int
    values: int
    """Without NULLs."""
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
    """What COPY reported of a file's columns. A column that it did not report is left out: nothing is known of it."""
    return tuple(_file_column(field, told[path]) for path, field in leaves(fields).items() if path in told)


def _file_column(field: Field, said: Mapping[str, str]) -> FileColumn:
    nan = said.get("has_nan")
    values, nulls = int(said.get("num_values", 0)), int(said.get("null_count", 0))
    return FileColumn(
        column_id=field.id,
        kind=kind_of(field.type),
        bytes=int(said.get("column_size_bytes", 0)),
        values=values - nulls if values else 0,
        nulls=nulls if values else None,
        least=without_nul(said.get("min"), ""),
        greatest=without_nul(said.get("max"), "\x01"),
        has_nan=None if nan is None else nan == "true",
    )


def without_nul(text: str | None, end: str) -> str | None:
    """No catalog keeps a NUL: what is before it is the lesser text, and with ``end`` the greater."""
    if text is None or "\x00" not in text:
        return text
    return text.partition("\x00")[0] + end


def are_comparable(stats: ColumnStats, declared: str) -> bool:
    """Whether kept bounds can be told from others. Bounds that no version writes may stand for anything."""
    order = ORDERS[kind_of(declared)]
    try:
        for bound in (stats.least, stats.greatest):
            if bound is not None:
                order(bound)
    except (ValueError, InvalidOperation):
        return False
    return True


def merged(old: ColumnStats | None, new: FileColumn, *, was_empty: bool) -> ColumnStats | None:
    """The statistics of a column that gained the values of a file; None where nothing is known, and nothing is kept.

    Two absent bounds say that a column had no value so far: the extension takes the next file's for them. So they are
    never written for a column that had one (H24). ``was_empty``: its table never had a row before.
    """
    has_null = None if new.nulls is None else new.nulls > 0
    if was_empty:
        return ColumnStats(has_null, new.has_nan, new.least, new.greatest)
    if old is None:
        return None
    least, greatest = _bounds(old, new)
    return ColumnStats(
        contains_null=_either(old.contains_null, has_null),
        contains_nan=_either(old.contains_nan, new.has_nan),
        least=least,
        greatest=greatest,
        extra=old.extra,
    )


def _either(old: bool | None, new: bool | None) -> bool | None:
    return None if old is None or new is None else old or new


def _bounds(old: ColumnStats, new: FileColumn) -> tuple[str | None, str | None]:
    if new.least is None and new.greatest is None:
        return old.least, old.greatest
    if old.least is None and old.greatest is None:
        return WIDEST.get(new.kind, (new.least, new.greatest))
    return _bound(old.least, new.least, new.kind, min), _bound(old.greatest, new.greatest, new.kind, max)


def _bound(old: str | None, new: str | None, kind: str, choose: Callable[..., str]) -> str | None:
    return None if old is None or new is None else choose(old, new, key=ORDERS[kind])
