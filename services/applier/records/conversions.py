"""The expressions that make a column's value of a field's raw JSON text, exactly or not at all.

The raw text is what DuckDB's parser makes of a value: strings quoted, integers of any size digit by digit, other
numbers as the shortest decimal of their IEEE double, objects and arrays without spaces. Every expression is NULL where
the value doesn't fit the type, so "there is a raw text and no value" says that it has to be rescued.

Numbers with a fraction or an exponent are doubles, as in every common JSON parser, and never integers: 1.0 does not
fit BIGINT.
"""

from __future__ import annotations

import re

INTEGERS = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"},
)
TIMESTAMPS = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"})
OTHERS = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", "JSON", "DATE", "TIME", "UUID", "BLOB"})
DECIMAL = re.compile(r"DECIMAL\((\d{1,2}),(\d{1,2})\)")

WIDER = {
    "TINYINT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INTEGER": "BIGINT",
    "UTINYINT": "UBIGINT",
    "USMALLINT": "UBIGINT",
    "UINTEGER": "UBIGINT",
    "FLOAT": "DOUBLE",
}
"""What DuckLake promotes without loss, to the widest at once: the next value may need it."""

LARGEST_SURE = "9007199254740991"
"""2**53 - 1: a double that is not greater is that of one integer alone."""

TIME = "'^[0-9]+:[0-9]+(:[0-9]+([.][0-9]{0,6}0*)?)?$'"
STRINGS = r'''"(?:[^"\\]|\\.)*"'''
"""A string in JSON, as a regular expression."""


def is_supported(declared: str) -> bool:
    """Whether a field can be converted to this type, in DuckDB's own spelling."""
    return declared in INTEGERS | TIMESTAMPS | OTHERS or DECIMAL.fullmatch(declared) is not None


def as_double(raw: str) -> str:
    """The double nearest to a raw text; NULL for what is no number."""
    return f"try_cast({raw} AS DOUBLE)"


def converted(raw: str, declared: str, double: str = "", *, rounds: bool = True) -> str:
    """The expression of a column's value; ``raw`` is one of its field's raw JSON text, NULL where there is none.

    ``double`` is a column that holds ``as_double(raw)``, if there is one. ``rounds`` lets FLOAT take what it can't hold
    exactly, which a declaration of that type asks for. A type that is not supported takes nothing.
    """
    if declared in INTEGERS:
        return _integer(raw, declared)
    if declared == "FLOAT":
        return _float(raw) if rounds else _exact_float(raw)
    if declared == "DOUBLE":
        return _double(raw, double or as_double(raw))
    if found := DECIMAL.fullmatch(declared):
        return _decimal(raw, declared, int(found[2]))
    if declared in ("BOOLEAN", "BLOB"):
        return _boolean(raw) if declared == "BOOLEAN" else _bytes(raw)
    return _json(raw) if declared == "JSON" else _of_text(raw, declared)


def _of_text(raw: str, declared: str) -> str:
    """What JSON has no values of its own for."""
    if declared == "VARCHAR":
        return _text(raw)
    if declared in TIMESTAMPS:
        return _timestamp(raw, declared)
    if declared == "DATE":
        return _date(raw)
    if declared == "TIME":
        return _time(raw)
    return _uuid(raw) if declared == "UUID" else "NULL"


def integer_form(raw: str) -> str:
    """Whether a raw number is an integer; what is no number passes too."""
    return f"NOT contains({raw}, '.') AND NOT contains({raw}, 'e')"


def is_json(raw: str) -> str:
    """Whether no NaN or Infinity, which the parser admits, stands outside of the strings of a raw text."""
    return (
        f"CASE WHEN NOT contains(lower({raw}), 'nan') AND NOT contains(lower({raw}), 'inf') THEN true"
        f" ELSE NOT regexp_matches(regexp_replace({raw}, '{STRINGS}', '', 'g'), '(?i)nan|inf') END"
    )


def _integer(raw: str, declared: str) -> str:
    return f"CASE WHEN {integer_form(raw)} THEN try_cast({raw} AS {declared}) END"


def _boolean(raw: str) -> str:
    return f"CASE {raw} WHEN 'true' THEN true WHEN 'false' THEN false END"


def _bytes(raw: str) -> str:
    """Of an object whose one field says in base64 what they are, as ``avro_types`` spells them. A text is no bytes."""
    found = f"json_extract_string({raw}, '/$base64')"
    is_spelled = f"starts_with({raw}, '{{\"$base64\":') AND len(json_keys({raw})) = 1"
    return f"CASE WHEN {is_spelled} THEN try(from_base64({found})) END"


def _double(raw: str, double: str) -> str:
    """Integers beyond 2**53 only if a double holds them; nothing infinite."""
    return (
        f"CASE WHEN abs({double}) <= {LARGEST_SURE} THEN {double} WHEN isfinite({double}) AND"
        f" (NOT ({integer_form(raw)}) OR CAST({double} AS HUGEINT) = try_cast({raw} AS HUGEINT)) THEN {double} END"
    )


def _float(raw: str) -> str:
    value = f"try_cast({_double(raw, as_double(raw))} AS FLOAT)"
    return f"CASE WHEN isfinite({value}) THEN {value} END"


def _exact_float(raw: str) -> str:
    return f"CASE WHEN CAST({_float(raw)} AS DOUBLE) = {as_double(raw)} THEN {_float(raw)} END"


def _text(raw: str) -> str:
    return f"CASE WHEN ascii({raw}) = 34 THEN json_extract_string({raw}, '$') END"


def _json(raw: str) -> str:
    return f"CASE WHEN {is_json(raw)} THEN {raw} END"


def _decimal(raw: str, declared: str, scale: int) -> str:
    """Of a number or of a string, without an exponent and with no digit that would be cut off."""
    text = f"coalesce({_text(raw)}, {raw})"
    form = f"'^-?[0-9]+([.][0-9]{{0,{scale:d}}}0*)?$'"
    return f"CASE WHEN regexp_matches({text}, {form}) THEN try_cast({text} AS {declared}) END"


def _timestamp(raw: str, declared: str) -> str:
    """Of a string that begins with a digit, as words such as ``epoch`` don't, and with no digit beyond microseconds."""
    text = _text(raw)
    return (
        f"CASE WHEN regexp_matches({text}, '^[0-9]') AND NOT regexp_matches({text}, '[.][0-9]{{6}}[0-9]*[1-9]')"
        f" THEN try_cast({text} AS {declared}) END"
    )


def _date(raw: str) -> str:
    """Spelled as DuckDB would: of a text with a time of day the time would be lost."""
    return (
        f"CASE WHEN CAST(try_cast({_text(raw)} AS DATE) AS VARCHAR) = {_text(raw)} THEN CAST({_text(raw)} AS DATE) END"
    )


def _time(raw: str) -> str:
    text = _text(raw)
    return f"CASE WHEN regexp_matches({text}, {TIME}) THEN try_cast({text} AS TIME) END"


def _uuid(raw: str) -> str:
    return (
        f"CASE WHEN CAST(try_cast({_text(raw)} AS UUID) AS VARCHAR) = lower({_text(raw)})"
        f" THEN CAST({_text(raw)} AS UUID) END"
    )
