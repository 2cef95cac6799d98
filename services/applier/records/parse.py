"""Records of a topic become typed rows in an instance's memory; nothing of them is lost or changed in silence.

Records come in parts. Each is staged by one statement, which parses each value once. What it finds wrong is dealt with
after the fact, and all parts are staged again where that changes the columns: records that are not JSON are taken out,
new fields become columns, and what has no place is rescued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import duckdb

from services.applier.records import envelope, examination, left_out, readable
from services.applier.records.column_names import RESCUED
from services.applier.records.conversions import WIDER, converted
from services.applier.records.decoding import Decoded, Schemas, decode
from services.applier.records.inference import new_columns
from services.applier.records.left_out import Asking
from services.applier.records.memory import BatchNames
from services.applier.records.parsed_records import PLACE_COLUMN, ParsedRecords
from services.applier.records.record_batch import RecordBatch, together
from services.applier.records.record_format import Infer, RecordFormat, ValueFormat
from services.applier.records.rejection import Rejection, RejectionReason, rejected
from services.applier.records.staging import Staging, TargetColumn
from services.applier.records.targets import targets_of
from shared.contracts.errors import Error
from shared.lake.catalog.reader import Column
from shared.lake.sql import ident

WIDE = 30
"""So many fields are looked for without asking first which of them a batch has."""

RESCUED_VALUE = "CAST(rescued AS JSON)"


def parse(
    con: duckdb.DuckDBPyConnection,
    batch: RecordBatch,
    form: RecordFormat,
    present: Sequence[Column],
    inserted_at: datetime,
    incomplete: Collection[int] = (),
    schemas: Schemas | None = None,
) -> ParsedRecords:
    """The rows of one batch, as ``RecordParser`` makes them; ``incomplete`` are places of records that rows of the
    destination were found not to complete."""
    parser = RecordParser(con, form, present, inserted_at, schemas)
    parser.bad.update(dict.fromkeys(incomplete, (RejectionReason.LEFT_OUT, "")))
    try:
        parser.add(batch)
        return parser.finish()
    except BaseException:
        parser.drop()
        raise


class ColumnsChange(Error):
    """Records need columns that are not there, or wider ones, so all of them have to be staged again."""


@dataclass(frozen=True)
class _BatchPart:
    """Records that are staged by one statement, from the place ``first`` on."""

    first: int
    batch: RecordBatch
    decoded: RecordBatch

    @property
    def places(self) -> range:
        return range(self.first, self.first + len(self.batch))


class RecordParser:
    """Makes rows of records that come in parts. Threads may take turns with it."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        form: RecordFormat,
        present: Sequence[Column],
        inserted_at: datetime,
        schemas: Schemas | None = None,
        *,
        lets_go: bool = False,
    ) -> None:
        """``present`` are the destination's columns, none where its table is still to be made. ``schemas`` are needed
        where they say what values or keys are. ``lets_go``: records are not kept once they are staged.

        ``con`` is in no transaction, which a record that is not JSON would end.
        """
        self.con = con
        self.form = form
        self.present = tuple(present)
        self.inserted_at = inserted_at
        self.schemas = schemas
        self.memory = BatchNames()
        self.bad: dict[int, tuple[RejectionReason, str]] = {}
        """By the place of a record: why it is rejected, and the column at fault."""
        self.usual: tuple[str, ...] = ()
        self.absent: frozenset[str] = frozenset()
        self.completes = False
        self.targets = targets_of(form, self.present)
        self.types: dict[str, str] = {}
        self._lets_go = lets_go and not self._is_whole
        self.whole = together(())
        """All records, where they were staged by one statement; else none."""
        self._waiting: list[RecordBatch] = []
        self._parts: list[_BatchPart] = []
        self._rejected: dict[int, Rejection] = {}
        """Those of records that were let go."""
        self._count = 0
        self._has_staged = False

    def add(self, batch: RecordBatch) -> None:
        """Records in the order of their batches. Raises ``value_refused`` for an event that has no key, and
        ``source_unreachable`` where no schema can be asked for."""
        if self._is_whole:
            self._waiting.append(batch)
        else:
            self._take(batch)

    def finish(self) -> ParsedRecords:
        """What all of them have become. Raises what ``add`` does, and ``ColumnsChange`` where records were let go."""
        if self._is_whole or not self._has_staged:
            self.whole = together(self._waiting)
            self._waiting.clear()
            self._take(self.whole)
        while (rest := examination.has_rest(self.con, self.staging)) and self._adopt():
            if self._lets_go:
                raise ColumnsChange
            self._has_staged = False
            for part in self._parts:
                self._stage(part)
        rescued = examination.rescue(self.con, self.staging) if rest else {}
        self._complete()
        return self._parsed(rescued)

    def drop(self) -> None:
        self.memory.drop(self.con)

    @property
    def _is_whole(self) -> bool:
        """Whether records are staged by one statement: those that schemas describe, of which each has its types, and
        change events, which may need earlier ones."""
        return self.form.is_decoded or self.form.value is ValueFormat.DEBEZIUM

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

    def _take(self, batch: RecordBatch) -> None:
        decoded = decode(batch, self.form, self.schemas) if self.form.is_decoded else Decoded(batch)
        self.types = decoded.types
        part = _BatchPart(self._count, batch, decoded.batch)
        for found in (
            decoded.bad,
            readable.not_text(decoded.batch, self.form),
            readable.too_large(batch, self.form),
        ):
            self.bad.update({part.first + place: why for place, why in found.items()})
        self._count += len(batch)
        if not self.usual and self.form.value.has_fields and self.form.value is not ValueFormat.DEBEZIUM:
            self.usual = readable.fields_in(readable.first_value(part.decoded))
        self._stage(part)
        if self._lets_go:
            self._rejected.update(self._rejections([part]))
        else:
            self._parts.append(part)

    def _stage(self, part: _BatchPart) -> None:
        """Stages the records of a part that are not bad, and finds those that are."""
        while True:
            without = [place for place in self.bad if place in part.places]
            table = readable.arrow_table(part.decoded, self.form, without, part.first)
            self.con.register(self.memory.registered, table)
            try:
                if self.staging.is_unwrapped:
                    self._unwrap()
                self.absent = self._absent()
                staging = self.staging
                statement = staging.addition() if self._has_staged else staging.statement()
                self.con.execute(statement, staging.parameters())
                break
            except duckdb.InvalidInputException:
                found = examination.not_json(self.con, self.staging)
                if not found.keys() - self.bad.keys():
                    raise
                self.bad.update(found)
            finally:
                self.con.unregister(self.memory.registered)
        self._has_staged = True
        self._refuse(examination.refused(self.con, self.staging, part.first))

    def _rejections(self, parts: Sequence[_BatchPart]) -> dict[int, Rejection]:
        return {
            place: rejected(part.batch, place - part.first, *self.bad[place])
            for part in parts
            for place in self.bad
            if place in part.places
        }

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
            self._refuse(dict.fromkeys(lost, (RejectionReason.LEFT_OUT, "")))

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
            told = self.types
            self.targets += tuple(
                TargetColumn(name, told.get(name, kind.name), (name,)) for name, kind in new_columns(found, names, room)
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
            rejected=tuple(each for _, each in sorted((self._rejected | self._rejections(self._parts)).items())),
            landed=self._count - len(self.bad),
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
            taken += f", CASE WHEN left_out IS NOT NULL THEN i END AS {PLACE_COLUMN}"
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
