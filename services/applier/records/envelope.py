"""Debezium's envelope as decoded JSON: a change event becomes the image of a row, or the key of one to delete.

The columns of what is unwrapped are those of the batch, and:

``v``         the row's fields after the event, before it where it deletes; null where only the record's key is known
``s``         1, and 0 for the row that an update which changes its key deletes
``nothing``   whether the row is deleted
``begins``    whether what the key had before is void
``left_out``  names of fields that the event has no value of, because the update did not change them; null if none
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import duckdb

from services.applier.records.record_format import KeyFormat, RecordFormat
from services.applier.records.rejection import RejectionReason
from services.applier.records.staging import SHAPE, TargetColumn, pointer
from shared.contracts.errors import DestinationError

PLACEHOLDER = "__debezium_unavailable_value"
"""Debezium's ``unavailable.value.placeholder``, unless it is set to another one."""

NUMBERS = "[" + ",".join(str(byte) for byte in PLACEHOLDER.encode()) + "]"
NEEDLES = (
    PLACEHOLDER,
    b64encode(PLACEHOLDER.encode()).decode(),
    PLACEHOLDER.encode().hex(),
    "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
    NUMBERS,
)
"""Of which one stands in each value that was left out. The UUID is that of the placeholder's MD5."""

IN_BYTES = f'{{"$base64":"{NEEDLES[1]}"}}'
HSTORE = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'
SPELLINGS = (
    *(f'"{each}"' for each in NEEDLES[:3]),
    *(f'["{each}"]' for each in NEEDLES[:4]),
    IN_BYTES,
    f"[{IN_BYTES}]",
    NUMBERS,
    HSTORE,
    json.dumps(HSTORE),
)
"""How it stands for texts and bytes (of JSON, of Avro), in arrays of them, of UUIDs and of integers, and for hstore."""

PARTS = "['/op', '/before', '/after', '/payload']"
PUTS = "('\"c\"', '\"r\"', '\"u\"')"


def unwrap(
    con: duckdb.DuckDBPyConnection, scanned: str, unwrapped: str, form: RecordFormat, targets: Sequence[TargetColumn]
) -> dict[int, tuple[RejectionReason, str]]:
    """Makes the table ``unwrapped`` of the batch ``scanned``; places of the records that are no change events.

    Raises ``value_refused`` for an event that truncates the table, and ``duckdb.InvalidInputException`` for a record
    that is not JSON.
    """
    keys = [] if form.key_is_the_row_s else [pointer(target.path) for target in targets if target.is_key]
    con.execute(_statement(scanned, unwrapped, form, len(keys)), _parameters(keys))
    faults = con.execute(f"SELECT i, p, o, truncates FROM {unwrapped} WHERE fault").fetchall()
    for _, partition, offset, truncates in faults:
        if truncates:
            raise _truncated(partition, offset)
    if faults:
        con.execute(f"DELETE FROM {unwrapped} WHERE fault")
    return {place: (RejectionReason.NOT_EVENT, "") for place, *_ in faults}


def _parameters(keys: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {f"key{number}": path for number, path in enumerate(keys)}
    needles = {f"needle{number}": each for number, each in enumerate(NEEDLES)}
    return {**found, **needles, "spellings": list(SPELLINGS)}


def _truncated(partition: int, offset: int) -> DestinationError:
    return DestinationError(
        "value_refused",
        f"offset {offset} of partition {partition} says that the table was truncated, which no key tells",
        "let Debezium leave truncates out (skipped.operations: t, its default); to go on behind this one, reseed with"
        " source.start.offsets",
    )


def _statement(scanned: str, unwrapped: str, form: RecordFormat, keys: int) -> str:
    """The event is parsed once, and once more where it stands within ``payload``."""
    opened = f"SELECT *, json_extract(v, {PARTS}) AS parts FROM {scanned}"
    entered = (
        f"SELECT *, CASE WHEN parts[1] IS NULL THEN json_extract(parts[4], {PARTS}) ELSE parts END AS event,"
        " v IS NULL OR (parts[1] IS NULL AND coalesce(CAST(parts[4] AS VARCHAR) = 'null', false)) AS is_tombstone"
        f" FROM ({opened})"
    )
    read = (
        "SELECT * EXCLUDE (v, event, parts), CAST(event[1] AS VARCHAR) AS op,"
        f" {_object('event[2]')} AS old, {_object('event[3]')} AS new FROM ({entered})"
    )
    judged = (
        f"SELECT *, is_tombstone OR coalesce(op = '\"d\"', false) AS nothing,"
        f" coalesce(op IN {PUTS}, false) AND new IS NOT NULL AS puts,"
        f" coalesce(op = '\"t\"', false) AS truncates, {_left_out()} AS left_names, {_moves(keys)} AS moves"
        f" FROM ({read})"
    )
    shown = f"i, p, o, t, {_key(form)} AS k, h, truncates, NOT nothing AND NOT puts AS fault"
    return (
        f"CREATE OR REPLACE TABLE {unwrapped} AS WITH judged AS MATERIALIZED ({judged})"
        f" SELECT {shown}, 1 AS s, nothing, moves OR coalesce(op <> '\"u\"', true) AS begins,"
        f" CASE WHEN nothing THEN old WHEN left_names IS NOT NULL THEN {_without_left_out()} ELSE new END AS v,"
        " left_names AS left_out FROM judged UNION ALL"
        f" SELECT {shown}, 0, true, true, old, NULL FROM judged WHERE moves AND puts"
    )


def _object(part: str) -> str:
    """A part's raw text if it is an object."""
    return f"CASE WHEN ascii(CAST({part} AS VARCHAR)) = 123 THEN CAST({part} AS VARCHAR) END"


def _moves(keys: int) -> str:
    """Whether an update gives its row another key: then the old one is deleted."""
    if not keys:
        return "false"
    known = " AND ".join(f"coalesce(json_extract(old, $key{n:d}), 'null') <> 'null'" for n in range(keys))
    differs = " OR ".join(
        f"json_extract(old, $key{n:d}) IS DISTINCT FROM json_extract(new, $key{n:d})" for n in range(keys)
    )
    return f"coalesce(op = '\"u\"', false) AND old IS NOT NULL AND {known} AND ({differs})"


def _left_out() -> str:
    """Names of the fields whose value is the placeholder; null where there is none."""
    fields = f"map_entries(from_json(new, {SHAPE}))"
    names = f"list_transform(list_filter({fields}, lambda e: {_is_left_out('e')}), lambda e: e.key)"
    is_there = " OR ".join(f"contains(new, $needle{number:d})" for number in range(len(NEEDLES)))
    return f"CASE WHEN {is_there} THEN nullif({names}, []) END"


def _without_left_out() -> str:
    """The fields that have values, in their own spelling; two of one name stay two."""
    fields = f"list_filter(map_entries(from_json(new, {SHAPE})), lambda e: NOT {_is_left_out('e')})"
    spelled = "CAST(to_json(e.key) AS VARCHAR) || ':' || coalesce(CAST(e.value AS VARCHAR), 'null')"
    return f"'{{' || array_to_string(list_transform({fields}, lambda e: {spelled}), ',') || '}}'"


def _is_left_out(entry: str) -> str:
    return f"coalesce(list_contains(CAST($spellings AS VARCHAR[]), CAST({entry}.value AS VARCHAR)), false)"


def _key(form: RecordFormat) -> str:
    """A key in JSON may have a schema beside it, too; either way it is spelled without spaces."""
    if form.key not in (KeyFormat.JSON, KeyFormat.JSON_SCHEMA):
        return "k"
    schema, payload = "json_extract(k, '/schema/type')", "json_extract(k, '/payload')"
    return (
        f"CASE WHEN NOT json_valid(k) THEN k WHEN {schema} IS NOT NULL AND {payload} IS NOT NULL"
        f" AND len(json_keys(k)) = 2 THEN CAST({payload} AS VARCHAR) ELSE CAST(json_extract(k, '$') AS VARCHAR) END"
    )
