"""DuckLake's names of types → DuckDB's, and which of them can't be kept without loss."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.contracts.errors import ViaduckError
from shared.lake.sql import ident

SIMPLE = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "time_ns": "TIME_NS",
    "timetz": "TIME WITH TIME ZONE",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL",
    "varchar": "VARCHAR",
    "blob": "BLOB",
    "uuid": "UUID",
    "json": "JSON",
    "variant": "VARIANT",
    "geometry": "GEOMETRY",
}

PARTS = {"list": 1, "struct": 1, "map": 2}
"""At least so many parts have nested types."""

TIMETZ = SIMPLE["timetz"]

DECIMAL = re.compile(r"decimal\(\d{1,2}, ?\d{1,2}\)")

QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A part's name in a declared type."""

RESERVED_COLUMNS = ("snapshot_id", "rowid", "change_type")
"""Names that the change feed uses itself: a column of such a name makes it join on the user's data."""

RESERVED_PREFIX = "_ducklake_"


def duckdb_type(ducklake_type: str, children: Sequence[tuple[str, str]] = ()) -> str:
    """The type as DuckDB declares it; ``children`` are the (name, declared type) of a nested type's parts.

    It becomes SQL, and a catalog is untrusted: raises ``ViaduckError`` (``lake_incompatible``) for any other text.
    """
    kind = ducklake_type.lower()
    if len(children) < PARTS.get(kind, 0):
        raise ViaduckError(
            "lake_incompatible",
            f"a catalog lists a {kind} without its parts",
            "correct the catalog, or drop the column",
        )
    if kind == "list":
        return f"{children[0][1]}[]"
    if kind == "struct":
        return "STRUCT(" + ", ".join(f"{ident(name)} {declared}" for name, declared in children) + ")"
    if kind == "map":
        return f"MAP({children[0][1]}, {children[1][1]})"
    if kind not in SIMPLE and not DECIMAL.fullmatch(kind):
        raise ViaduckError(
            "lake_incompatible",
            f"a catalog lists a column of the type {ducklake_type[:80]!r}",
            "it is none that this version of DuckLake has: correct the catalog, or drop the column",
        )
    return SIMPLE.get(kind, kind.upper())


def not_carried(column: str, declared: str) -> str | None:
    """Why a column of this name and declared type, nested or not, can't be replicated; None if it can."""
    if is_reserved(column):
        return (
            f"the column {column} has a name that DuckLake's change feed uses itself; rename it"
            f" ({', '.join(RESERVED_COLUMNS)} and names that begin with _ducklake_ can't be used)"
        )
    kinds = QUOTED.sub("", declared).upper()
    if "HUGEINT" in kinds:
        # 9007199254740993 comes back as …992 (docs/explanation/hazards.md)
        return (
            f"the column {column} is {declared}, which DuckLake stores as DOUBLE and so loses digits;"
            " make it DECIMAL(38,0) or VARCHAR"
        )
    if "VARIANT" in kinds:
        # Arrow has no such type, and instances share no file
        return f"the column {column} is {declared}, which can't be carried from lake to lake; make it JSON or VARCHAR"
    if "TIME_NS" in kinds:
        # to write one invalidates the whole instance (docs/explanation/hazards.md)
        return f"the column {column} is {declared}, which DuckLake can't write to a file; make it TIME or VARCHAR"
    if kinds != TIMETZ and TIMETZ in kinds:
        # a list equals no other spelling of itself, and a struct can't be read while it is inlined
        return (
            f"the column {column} is {declared}, in which DuckLake keeps the zone of a time until the row is in a file;"
            " make it TIME or VARCHAR, or a column of its own"
        )
    return None


def is_reserved(column: str) -> bool:
    return column.lower() in RESERVED_COLUMNS or column.lower().startswith(RESERVED_PREFIX)
