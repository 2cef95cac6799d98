"""What is wrong with staged records, what is new in them, and where the rest of them goes.

An ordinary batch has no row with a rest, and so nothing new and nothing to rescue.
"""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from services.applier.records.conversions import integer_form, is_json
from services.applier.records.inference import InferredKind, join
from services.applier.records.record_format import Metadata
from services.applier.records.rejection import RejectionReason
from services.applier.records.staging import Staging, TargetColumn
from shared.lake.pruning import holds_text, is_uncarried

Refusals = dict[int, tuple[RejectionReason, str]]
"""By the place of a record: the reason, and the column at fault, if it is one."""


def fields(con: duckdb.DuckDBPyConnection, staging: Staging) -> frozenset[str]:
    """All fields of a batch. Raises ``duckdb.InvalidInputException`` for a record that is not JSON."""
    names = f"SELECT DISTINCT unnest(json_keys(v)) FROM {staging.parsed_from} WHERE v IS NOT NULL"
    return frozenset(name for (name,) in con.execute(names).fetchall())


def has_rest(con: duckdb.DuckDBPyConnection, staging: Staging) -> bool:
    """Whether anything is left to be done about a staged record."""
    return bool(con.execute(f"SELECT count(rest) FROM {staging.staged}").fetchall()[0][0])


def not_json(con: duckdb.DuckDBPyConnection, staging: Staging) -> Refusals:
    """Records of the batch that the parser refuses: for one of them the whole statement failed."""
    found: Refusals = {}
    values = f"SELECT i FROM {staging.scanned} WHERE NOT json_valid(v)"
    found.update((place, (RejectionReason.NOT_JSON, "")) for (place,) in con.execute(values).fetchall())
    if found and staging.is_unwrapped:
        return found  # there are no events yet
    if staging.reads_keys and staging.format.key.is_json:
        keys = f"SELECT i FROM {staging.parsed_from} WHERE v IS NULL AND NOT json_valid(k)"
        found.update((place, (RejectionReason.KEY_INVALID, "")) for (place,) in con.execute(keys).fetchall())
    return found


def refused(con: duckdb.DuckDBPyConnection, staging: Staging, first: int = 0) -> Refusals:
    """Staged records from the place ``first`` on that have no row, by what only their values show."""
    rows = con.execute(
        f"SELECT i, reason, fault FROM (SELECT i, {_reason(staging)} AS reason, {_fault(staging)} AS fault"
        f" FROM {staging.staged} WHERE i >= {first:d}) WHERE reason IS NOT NULL",
        {
            f"n{number}": target.path[0]
            for number, target in enumerate(staging.targets)
            if _is_only_required(target) and (target.is_field or (staging.is_unwrapped and target.path))
        },
    ).fetchall()
    found = ((place, RejectionReason(reason), fault) for place, reason, fault in rows)
    return {
        place: (reason, staging.targets[fault].name if reason in ABOUT_COLUMNS and fault is not None else "")
        for place, reason, fault in found
    }


ABOUT_COLUMNS = (RejectionReason.KEY_MISSING, RejectionReason.REQUIRED_MISSING, RejectionReason.TYPE_MISMATCH)


def _reason(staging: Staging) -> str:
    any_nan = f"len(list_filter(map_values(rest), lambda x: NOT ({is_json('x')}))) > 0"
    return (
        f"CASE WHEN unread THEN 'not_object' WHEN rest IS NOT NULL AND {any_nan} THEN 'not_json'"
        f" WHEN rest IS NOT NULL AND len(list_distinct({NAMES})) < len({NAMES}) THEN 'duplicate_field'"
        f" WHEN {_is_uncarried(staging)} THEN 'not_carried'"
        f"{_invalid_keys(staging)}{_missing_keys(staging)}{_missing(staging)} END"
    )


NAMES = "list_transform(list_filter(map_entries(rest), lambda e: e.value IS NOT NULL), lambda e: e.key)"
"""Those of the fields of a rest that have a value."""


def _is_uncarried(staging: Staging) -> str:
    """Whether a text, of a column or of what is to be rescued, holds a word that DuckLake replaces (H16)."""
    columns = "".join(
        f" OR {_holds_word(f'c{number:d}', target.type)}"
        for number, target in enumerate(staging.targets)
        if holds_text(target.type)
    )
    values = f"list_filter(map_values(rest), lambda x: {_holds_word('CAST(x AS VARCHAR)', 'JSON')})"
    names = f"list_filter({NAMES}, lambda x: {_holds_word('x', 'VARCHAR')})"
    return f"rest IS NOT NULL AND len({values}) + len({names}) > 0{columns}"


def _holds_word(text: str, declared: str) -> str:
    """Of JSON it is told first whether there is more in its braces than its own quotes."""
    if declared != "JSON":
        return is_uncarried(text, declared)
    begins = " OR ".join(f"contains({text}, '{{{letter}')" for letter in INITIALS)
    return f"(({begins}) AND {is_uncarried(text, declared)})"


INITIALS = "SNACMD"
"""With which the words begin (``SUBSTITUTED``)."""


def _fault(staging: Staging) -> str:
    """The number of the first column, of the key or required, that has no value."""
    numbers = [(not target.is_key, n) for n, target in enumerate(staging.targets) if target.required or target.is_key]
    cases = "".join(f" WHEN c{number:d} IS NULL THEN {number:d}" for _, number in sorted(numbers))
    return f"CASE WHEN unread THEN NULL{cases} END"


def _missing_keys(staging: Staging) -> str:
    return "".join(
        f" WHEN c{number:d} IS NULL THEN 'key_missing'"
        for number, target in enumerate(staging.targets)
        if target.is_key
    )


def _missing(staging: Staging) -> str:
    """Of required columns; what only deletes its key needs none."""
    deletes = "nothing" if staging.format.key_columns else "false"
    return "".join(
        f" WHEN c{number:d} IS NULL AND NOT {deletes}{staging.has_value(number)}"
        f" THEN CASE WHEN {_is_there(number, target)} THEN 'type_mismatch' ELSE 'required_missing' END"
        for number, target in enumerate(staging.targets)
        if _is_only_required(target)
    )


def _is_only_required(target: TargetColumn) -> bool:
    """Whether a column has to have a value, and is none of the key."""
    return target.required and not target.is_key


def _is_there(number: int, target: TargetColumn) -> str:
    """Whether a required column's field has a value."""
    return f"map_extract_value(rest, $n{number:d}) IS NOT NULL" if target.is_field else f"coalesce(x{number:d}, false)"


def _invalid_keys(staging: Staging) -> str:
    """Of keys that are shown as JSON."""
    return "".join(
        f" WHEN c{number:d} IS NOT NULL AND NOT"
        f" CASE WHEN json_valid(c{number:d}) THEN {is_json(f'c{number:d}')} ELSE false END THEN 'key_invalid'"
        for number, target in enumerate(staging.targets)
        if target.metadata is Metadata.KEY and staging.format.key.is_json
    )


def kinds(con: duckdb.DuckDBPyConnection, staging: Staging, known: Collection[str]) -> list[tuple[str, InferredKind]]:
    """Fields that no target takes, in the order of their first records, and what their values are."""
    text = "CAST(e.value AS VARCHAR)"
    rows = con.execute(
        "SELECT name, min((i, list_position(names, name))) AS first, array_agg(DISTINCT kind)"
        f" FROM (SELECT i, names, e.key AS name, {_kind(text)} AS kind"
        f" FROM (SELECT i, map_keys(rest) AS names, unnest(map_entries(rest)) AS e FROM {staging.staged}"
        " WHERE rest IS NOT NULL) WHERE e.value IS NOT NULL AND NOT list_contains($known, e.key))"
        " GROUP BY name ORDER BY first",
        {"known": list(known)},
    ).fetchall()
    return [(name, join(InferredKind[kind] for kind in found)) for name, _, found in rows]


def _kind(raw: str) -> str:
    return (
        f"CASE ascii({raw}) WHEN 34 THEN 'VARCHAR' WHEN 116 THEN 'BOOLEAN' WHEN 102 THEN 'BOOLEAN'"
        f" WHEN 123 THEN 'JSON' WHEN 91 THEN 'JSON' ELSE CASE"
        f" WHEN {integer_form(raw)} AND try_cast({raw} AS BIGINT) IS NOT NULL THEN 'BIGINT'"
        f" WHEN NOT ({integer_form(raw)}) AND isfinite(try_cast({raw} AS DOUBLE)) THEN 'DOUBLE'"
        f" ELSE 'NOTHING' END END"
    )


def rescue(con: duckdb.DuckDBPyConnection, staging: Staging) -> dict[str, int]:
    """Puts what found no place into ``rescued``; the number of values by column, "" for fields that have none."""
    rest = f"lambda e: e.value IS NOT NULL AND NOT list_contains({staging.landed()}, e.key)"
    con.execute(
        f"UPDATE {staging.staged} SET rescued = to_json(map_from_entries(list_filter(map_entries(rest), {rest})))"
        " WHERE rest IS NOT NULL",
        staging.field_names(),
    )
    rows = con.execute(
        f"SELECT name, count(*) FROM (SELECT unnest(json_keys(rescued)) AS name FROM {staging.staged}"
        " WHERE rescued IS NOT NULL) GROUP BY name"
    ).fetchall()
    by_field = {target.path[0]: target.name for target in staging.targets if target.is_field}
    found: dict[str, int] = {}
    for name, count in rows:
        column = by_field.get(name, "")
        found[column] = found.get(column, 0) + count
    return found
