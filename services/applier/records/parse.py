"""Records of a topic become typed rows in an instance's memory; nothing of them is lost or changed in silence.

A batch is staged by one statement, which parses each value once. What it finds wrong is dealt with after the fact, and
it runs again where that changes the columns: records that are not JSON are taken out, new fields become columns, and
what has no place is rescued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import duckdb

from services.applier.records import envelope, examination, left_out, readable
from services.applier.records.column_names import RESCUED
from services.applier.records.conversions import WIDER, converted
from services.applier.records.decoding import Decoded, Schemas, decode
from services.applier.records.inference import new_columns
from services.applier.records.left_out import Asking
from services.applier.records.memory import Memory
from services.applier.records.record_batch import RecordBatch
from services.applier.records.record_format import Infer, RecordFormat, ValueFormat
from services.applier.records.rejection import Reason, Rejected, rejected
from services.applier.records.staging import Staging, Target
from services.applier.records.targets import targets_of
from shared.lake.catalog import Column
from shared.lake.sql import ident

WIDE = 30
"""So many fields are looked for without asking first which of them a batch has."""

PLACE = "_viaduck_place"
"""Tells which rows of ``rows`` are incomplete; no column can have this name."""

RESCUED_VALUE = "CAST(rescued AS JSON)"


@dataclass
class ParsedRecords:
    """The rows of a batch, in the instance of ``con``, until ``drop``.

    ``rows`` is a view of all ``columns``: those of the destination in their order, then the new ones. With key columns
    it holds the newest record of each key, and ``touched``, a view of the key columns, the keys of all records.
    """

    con: duckdb.DuckDBPyConnection
    memory: Memory
    is_keyed: bool
    columns: tuple[Column, ...]
    new_columns: tuple[Column, ...]
    promotions: tuple[Column, ...]
    """Columns of the destination that are to have a wider type."""
    rejected: tuple[Rejected, ...]
    landed: int
    """Records that are not rejected, those that a newer one of their key replaces included."""
    tombstones: int
    """Of these, records without a value that delete their key."""
    rescued: dict[str, int]
    """Values in ``_rescued`` by the column that did not take them; under "" those of fields that have no column."""
    asking: Asking | None = None
    """The rows that the destination's own ones have to complete; the column ``PLACE`` of ``rows`` tells which."""

    @property
    def rows(self) -> str:
        return self.memory.parsed_rows

    @property
    def touched(self) -> str | None:
        return self.memory.parsed_keys if self.is_keyed else None

    def drop(self) -> None:
        self.memory.drop(self.con)


def parse(
    con: duckdb.DuckDBPyConnection,
    batch: RecordBatch,
    form: RecordFormat,
    present: Sequence[Column],
    inserted_at: datetime,
    incomplete: Collection[int] = (),
    schemas: Schemas | None = None,
) -> ParsedRecords:
    """``present`` are the destination's columns, none where its table is still to be made; ``incomplete`` places of
    records that its rows were found not to complete. ``schemas`` are needed where they say what values or keys are.

    Raises ``value_refused`` for an event that has no key, and ``source_unreachable`` where no schema can be asked for.
    ``con`` is in no transaction, which a record that is not JSON would end.
    """
    decoded = decode(batch, form, schemas) if form.is_decoded else Decoded(batch)
    parsing = _Parsing(con, batch, form, tuple(present), inserted_at, decoded)
    parsing.bad.update(dict.fromkeys(incomplete, (Reason.LEFT_OUT, "")))
    try:
        return parsing.run()
    except BaseException:
        parsing.memory.drop(con)
        raise
    finally:
        con.unregister(parsing.memory.registered)


@dataclass
class _Parsing:
    con: duckdb.DuckDBPyConnection
    batch: RecordBatch
    form: RecordFormat
    present: tuple[Column, ...]
    inserted_at: datetime
    decoded: Decoded
    memory: Memory = field(default_factory=Memory)
    bad: dict[int, tuple[Reason, str]] = field(default_factory=dict)
    """By the place of a record: why it is rejected, and the column at fault."""

    def __post_init__(self) -> None:
        self.usual: tuple[str, ...] = ()
        if self.form.value.has_fields and self.form.value is not ValueFormat.DEBEZIUM:
            self.usual = readable.fields_in(readable.first_value(self.decoded.batch))
        self.absent: frozenset[str] = frozenset()
        self.completes = False
        self.targets = targets_of(self.form, self.present)

    @property
    def staging(self) -> Staging:
        return Staging(
            self.memory.staged,
            self.memory.scanned,
            self.memory.unwrapped,
            self.form,
            self.targets,
            self.inserted_at,
            self.usual,
            self.absent,
        )

    def run(self) -> ParsedRecords:
        self.bad.update(self.decoded.bad)
        self.bad.update(readable.not_text(self.decoded.batch, self.form))
        self.bad.update(readable.too_large(self.batch, self.form))
        self._stage()
        while (rest := examination.has_rest(self.con, self.staging)) and self._adopt():
            self._stage()
        rescued = examination.rescue(self.con, self.staging) if rest else {}
        self._complete()
        return self._parsed(rescued)

    def _stage(self) -> None:
        """Stages all records that are not bad, and finds those that are."""
        while True:
            self.con.register(self.memory.registered, readable.arrow_table(self.decoded.batch, self.form, self.bad))
            try:
                if self.staging.is_unwrapped:
                    self._unwrap()
                self.absent = self._absent()
                self.con.execute(self.staging.statement(), self.staging.parameters())
                break
            except duckdb.InvalidInputException:
                found = examination.not_json(self.con, self.staging)
                if not found:
                    raise
                self.bad.update(found)
        self._refuse(examination.refused(self.con, self.staging))

    def _refuse(self, found: examination.Refusals) -> None:
        if found:
            self.bad.update(found)
            self.con.execute(
                f"DELETE FROM {self.memory.staged} WHERE i IN (SELECT unnest($places))", {"places": list(found)}
            )

    def _unwrap(self) -> None:
        memory = self.memory
        self.bad.update(envelope.unwrap(self.con, memory.scanned, memory.unwrapped, self.form, self.targets))
        first = self.con.execute(f"SELECT v FROM {memory.unwrapped} WHERE NOT nothing LIMIT 1").fetchall()
        self.usual = readable.fields_in(first[0][0]) if first else ()

    def _complete(self) -> None:
        """Values that updates left out, from earlier records; those of which nothing is there to have them are bad."""
        self.completes = self.staging.is_unwrapped and left_out.is_any(self.con, self.memory)
        if not self.completes:
            return
        left_out.complete(self.con, self.memory, self.targets)
        while lost := left_out.lost(self.con, self._newest()):
            self._refuse(dict.fromkeys(lost, (Reason.LEFT_OUT, "")))

    def _absent(self) -> frozenset[str]:
        """Of a wide table most columns have nothing in a batch, and those that are left out cost nothing."""
        names = {target.path[0] for target in self.targets if target.path}
        if not self.form.value.has_fields or len(names) <= WIDE:
            return frozenset()
        return frozenset(names - examination.fields(self.con, self.staging))

    def _adopt(self) -> bool:
        """Gives columns to fields that have none, and wider types to columns that have met one; whether it did."""
        if self.form.infer is Infer.FREEZE:
            return False
        before = self.targets
        self._widen()
        room = self.form.max_columns - len(self.targets)
        if room > 0:
            names = [target.name for target in self.targets]
            fields = [target.path[0] for target in self.targets if target.is_field]
            found = examination.kinds(self.con, self.staging, fields)
            told = self.decoded.types
            self.targets += tuple(
                Target(name, told.get(name, kind.name), (name,)) for name, kind in new_columns(found, names, room)
            )
        return self.targets != before

    def _widen(self) -> None:
        self.targets = tuple(
            replace(target, type=WIDER[target.type])
            if target.type in WIDER and not target.declared and target.is_field and self._needs_wider(number)
            else target
            for number, target in enumerate(self.targets)
        )

    def _needs_wider(self, number: int) -> bool:
        target = self.targets[number]
        raw = "CAST(map_extract_value(rest, $field) AS VARCHAR)"
        return bool(
            self.con.execute(
                f"SELECT count(*) FROM {self.memory.staged} WHERE c{number:d} IS NULL"
                f" AND {converted(raw, WIDER[target.type])} IS NOT NULL",
                {"field": target.path[0]},
            ).fetchall()[0][0]
        )

    def _parsed(self, rescued: dict[str, int]) -> ParsedRecords:
        types = {target.name: target.type for target in self.targets}
        there = tuple(replace(column, type=types.get(column.name, column.type)) for column in self.present)
        names = {column.name for column in self.present}
        new = [Column(target.name, target.type) for target in self.targets if target.name not in names]
        if rescued and RESCUED not in names:
            new.append(Column(RESCUED, "JSON"))
        all_columns = (*there, *new)
        asking = self._ask(all_columns)
        self._view_rows(all_columns, shows_place=asking is not None)
        if self.form.key_columns:
            self._view_touched()
        return ParsedRecords(
            con=self.con,
            memory=self.memory,
            is_keyed=bool(self.form.key_columns),
            columns=all_columns,
            new_columns=tuple(new),
            promotions=tuple(now for now, was in zip(there, self.present, strict=True) if now != was),
            rejected=tuple(
                rejected(self.batch, place, reason, column) for place, (reason, column) in sorted(self.bad.items())
            ),
            landed=len(self.batch) - len(self.bad),
            tombstones=self._tombstones(),
            rescued=rescued,
            asking=asking,
        )

    def _ask(self, columns: Sequence[Column]) -> Asking | None:
        if not self.completes:
            return None
        keys = self.form.key_columns
        return left_out.ask(self.con, self.memory, self._newest(), self.targets, columns, keys)

    def _view_rows(self, wanted: Iterable[Column], *, shows_place: bool) -> None:
        numbers = {target.name: number for number, target in enumerate(self.targets)}
        taken = ", ".join(
            f"{RESCUED_VALUE if column.name == RESCUED else self._shown(numbers[column.name])} AS {ident(column.name)}"
            for column in wanted
        )
        if shows_place:
            taken += f", CASE WHEN left_out IS NOT NULL THEN i END AS {PLACE}"
        self.con.execute(f"CREATE VIEW {self.memory.parsed_rows} AS SELECT {taken} FROM {self._newest()}")

    def _shown(self, number: int) -> str:
        """JSON is staged as the text that it is."""
        return f"CAST(c{number:d} AS JSON)" if self.targets[number].type == "JSON" else f"c{number:d}"

    def _newest(self) -> str:
        if not self.form.key_columns:
            return self.memory.staged
        step = ", s DESC" if self.staging.is_unwrapped else ""
        return (
            f"(SELECT * FROM (SELECT * FROM {self.memory.staged} QUALIFY"
            f" row_number() OVER (PARTITION BY {self._keys()} ORDER BY p DESC, o DESC{step}) = 1) WHERE NOT nothing)"
        )

    def _keys(self) -> str:
        return ", ".join(f"c{number:d}" for number, target in enumerate(self.targets) if target.is_key)

    def _view_touched(self) -> None:
        keys = ", ".join(
            f"{self._shown(number)} AS {ident(target.name)}"
            for number, target in enumerate(self.targets)
            if target.is_key
        )
        self.con.execute(f"CREATE VIEW {self.memory.parsed_keys} AS SELECT DISTINCT {keys} FROM {self.memory.staged}")

    def _tombstones(self) -> int:
        if not self.form.key_columns:
            return 0
        own = " AND s = 1" if self.staging.is_unwrapped else ""
        found = self.con.execute(f"SELECT count(*) FROM {self.memory.staged} WHERE nothing{own}").fetchall()
        return int(found[0][0])
