"""Whose each record of a batch is: told by the text of the routing column, as a row would have it.

The column is staged by the statement that stages rows, so a record's value is the same here and in its row. Where rows
have no keys, it is staged alone: a record that is bad otherwise is told by its value too, and found to be bad by who
reads it for its destination. Where they have, one record deletes the row of another one's destination, so all of them
have to agree on which records are bad: whatever a destination could refuse is refused here, before anyone reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb

from services.applier.records import examination, readable
from services.applier.records.decoding import Decoded, Schemas, decode
from services.applier.records.examination import Refusals
from services.applier.records.key_owners import KeyOwners, find_owners, keys_of, owners
from services.applier.records.memory import BatchNames
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import Infer, KeyFormat, RecordFormat
from services.applier.records.rejection import Rejection, RejectionReason, rejected
from services.applier.records.staging import Staging, TargetColumn
from services.applier.records.targets import targets_of
from shared.lake.pruning import TEXT, is_uncarried
from shared.lake.routing_value import spelled


@dataclass(frozen=True)
class Routed:
    """A batch by routing values. ``places`` are those of the records of each value, in order.

    ``unreadable``: records of which no value can be told, so that they may belong to any destination; with keys all
    that are bad. ``nowhere``: how many have none, but for those without any value that delete their key. ``keys`` tells
    whose each key is, where there are key columns.
    """

    batch: RecordBatch
    places: Mapping[str, Sequence[int]]
    unreadable: tuple[Rejection, ...]
    nowhere: int
    keys: KeyOwners | None = None

    def of(self, value: str) -> RecordBatch | None:
        """The records of one value, without those whose key has gone elsewhere since; None where there is none."""
        places = (self.places if self.keys is None else self.keys.staying).get(value)
        return None if places is None else self.batch.taken(places)


@dataclass(frozen=True)
class Told:
    """The readable records of a batch in ``memory``; ``bad`` are the others. ``owner_text`` is SQL for the text of a
    staged record's routing value."""

    memory: BatchNames
    targets: tuple[TargetColumn, ...]
    owner_text: str
    bad: Refusals


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
    with told(con, batch, form, column, schemas) as found:
        groups = con.execute(
            f"SELECT value, list(i ORDER BY i) FROM (SELECT i, {found.owner_text} AS value FROM {found.memory.staged})"
            " WHERE value IS NOT NULL GROUP BY value"
        ).fetchall()
        places = {str(value): mine for value, mine in groups}
        nowhere, keys = len(batch) - len(found.bad) - sum(map(len, places.values())), None
        if form.key_columns:
            columns = keys_of(found.targets, form.key_columns)
            find_owners(con, found.memory, columns, found.owner_text)
            keys = owners(con, found.memory, columns)
            nowhere -= keys.tombstones
    wrong = tuple(rejected(batch, place, *why) for place, why in sorted(found.bad.items()))
    return Routed(batch, places, wrong, nowhere, keys)


@contextmanager
def told(
    con: duckdb.DuckDBPyConnection,
    batch: RecordBatch,
    form: RecordFormat,
    column: str,
    schemas: Schemas | None = None,
) -> Iterator[Told]:
    """As ``route``."""
    is_keyed = bool(form.key_columns)
    only = form if is_keyed else _alone(form, column)
    decoded = decode(batch, only, schemas) if only.is_decoded else Decoded(batch)
    memory, targets = BatchNames(), targets_of(only, ())
    number = next(place for place, target in enumerate(targets) if target.name == column)
    try:
        bad: Refusals = {**decoded.bad, **readable.not_text(decoded.batch, only)}
        if is_keyed:
            bad.update(readable.too_large(batch, only))
        staging = _staged(con, memory, decoded, only, targets, bad)
        bad.update(_without_value(con, staging, number))
        owner_text = spelled(f"c{number:d}", targets[number].type)
        if is_keyed:
            bad.update(_with_words(con, staging))
            bad.update(examination.refused(con, staging))
            gone = f"DELETE FROM {memory.staged} WHERE i IN (SELECT unnest($places))"
            con.execute(gone, {"places": list(bad)})
            owner_text = f"CASE WHEN NOT nothing THEN {owner_text} END"
        yield Told(memory, targets, owner_text, bad)
    finally:
        memory.drop(con)
        con.unregister(memory.registered)


def _alone(form: RecordFormat, column: str) -> RecordFormat:
    declared = tuple(each for each in form.columns if each.name == column)
    return replace(form, columns=declared, key=KeyFormat.NONE, key_columns=(), infer=Infer.FREEZE, metadata=())


def _staged(
    con: duckdb.DuckDBPyConnection,
    memory: BatchNames,
    decoded: Decoded,
    form: RecordFormat,
    targets: tuple[TargetColumn, ...],
    bad: Refusals,
) -> Staging:
    """Stages the targets of all records that can be read; adds the others to ``bad``."""
    usual = readable.fields_in(readable.first_value(decoded.batch))
    staging = Staging(memory.staged, memory.scanned, memory.unwrapped, form, targets, datetime.now(UTC), usual)
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
            return staging


def _without_value(con: duckdb.DuckDBPyConnection, staging: Staging, number: int) -> Refusals:
    """Records that are no objects, and those that have a value which is not of the routing column's type."""
    target = staging.targets[number]
    there = "map_extract_value(rest, $n) IS NOT NULL" if target.is_field else f"coalesce(x{number:d}, false)"
    rows = con.execute(
        f"SELECT i, unread FROM {staging.staged} WHERE unread OR (c{number:d} IS NULL AND {there})",
        {"n": target.path[0]} if target.is_field else {},
    ).fetchall()
    mismatch = (RejectionReason.TYPE_MISMATCH, target.name)
    return {place: (RejectionReason.NOT_OBJECT, "") if unread else mismatch for place, unread in rows}


def _with_words(con: duckdb.DuckDBPyConnection, staging: Staging) -> Refusals:
    """Records with a text that DuckLake would change, once it is a column of its own in some destination: as JSON, in
    which it is left over here, it may hide the word behind escapes."""
    text = is_uncarried("json_extract_string(x, '$')", TEXT)
    is_text = "json_type(x) = 'VARCHAR' AND contains(CAST(x AS VARCHAR), '\\')"
    rows = con.execute(
        f"SELECT i FROM {staging.staged} WHERE rest IS NOT NULL"
        f" AND len(list_filter(map_values(rest), lambda x: coalesce({is_text} AND {text}, false))) > 0"
    ).fetchall()
    return {place: (RejectionReason.NOT_CARRIED, "") for (place,) in rows}
