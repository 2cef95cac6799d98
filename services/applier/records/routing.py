"""Whose each record of a batch is: told by the text of the routing column, as a row would have it.

Only that column is staged, by the statement that stages rows, so a record's value is the same here and in its row. A
record that is bad otherwise is told by its value too, and found to be bad by who reads it for its destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb

from services.applier.records import examination, readable
from services.applier.records.decoding import Decoded, Schemas, decode
from services.applier.records.examination import Refusals
from services.applier.records.memory import Memory
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import Infer, KeyFormat, RecordFormat
from services.applier.records.rejection import Reason, Rejected, rejected
from services.applier.records.staging import Staging, Target
from services.applier.records.targets import targets_of
from shared.lake.routing_value import spelled


@dataclass(frozen=True)
class Routed:
    """A batch by routing values. ``places`` are those of the records of each value, in order.

    ``unreadable``: records of which no value can be told, so that they may belong to any destination. ``nowhere``: how
    many have none.
    """

    batch: RecordBatch
    places: Mapping[str, Sequence[int]]
    unreadable: tuple[Rejected, ...]
    nowhere: int

    def of(self, value: str) -> RecordBatch | None:
        """The records of one value; None where there is none."""
        places = self.places.get(value)
        return None if places is None else self.batch.taken(places)


def route(
    con: duckdb.DuckDBPyConnection,
    batch: RecordBatch,
    form: RecordFormat,
    column: str,
    schemas: Schemas | None = None,
) -> Routed:
    """By ``column``, which ``form`` declares. Raises ``source_unreachable`` where no schema can be asked for.

    ``con`` is in no transaction, which a record that is not JSON would end.
    """
    declared = tuple(each for each in form.columns if each.name == column)
    only = replace(form, columns=declared, key=KeyFormat.NONE, key_columns=(), infer=Infer.FREEZE, metadata=())
    decoded = decode(batch, only, schemas) if only.is_decoded else Decoded(batch)
    memory, (target,) = Memory(), targets_of(only, ())
    try:
        bad = _staged(con, memory, decoded, only, target)
        bad.update(_without_value(con, memory, target))
        text = spelled("c0", target.type)
        groups = con.execute(
            f"SELECT {text} AS value, list(i ORDER BY i) FROM {memory.staged} WHERE c0 IS NOT NULL GROUP BY value"
        ).fetchall()
    finally:
        memory.drop(con)
        con.unregister(memory.registered)
    places = {str(value): found for value, found in groups}
    wrong = tuple(rejected(batch, place, *why) for place, why in sorted(bad.items()))
    return Routed(batch, places, wrong, len(batch) - len(bad) - sum(map(len, places.values())))


def _staged(
    con: duckdb.DuckDBPyConnection, memory: Memory, decoded: Decoded, form: RecordFormat, target: Target
) -> Refusals:
    """Stages the routing column of all records that can be read; the others, and why."""
    bad: Refusals = {**decoded.bad, **readable.not_text(decoded.batch, form)}
    usual = readable.fields_in(readable.first_value(decoded.batch))
    staging = Staging(
        memory.staged, memory.scanned, memory.unwrapped, form, (target,), datetime.now(UTC), usual
    )  # fmt: skip
    while True:
        con.register(memory.registered, readable.arrow_table(decoded.batch, form, bad))
        try:
            con.execute(staging.statement(), staging.parameters())
        except duckdb.InvalidInputException:
            found = examination.not_json(con, staging)
            if not found:
                raise
            bad.update(found)
        else:
            return bad


def _without_value(con: duckdb.DuckDBPyConnection, memory: Memory, target: Target) -> Refusals:
    """Records that are no objects, and those that have a value which is not of the routing column's type."""
    there = "map_extract_value(rest, $n) IS NOT NULL" if target.is_field else "coalesce(x0, false)"
    rows = con.execute(
        f"SELECT i, unread FROM {memory.staged} WHERE unread OR (c0 IS NULL AND {there})",
        {"n": target.path[0]} if target.is_field else {},
    ).fetchall()
    mismatch = (Reason.TYPE_MISMATCH, target.name)
    return {place: (Reason.NOT_OBJECT, "") if unread else mismatch for place, unread in rows}
