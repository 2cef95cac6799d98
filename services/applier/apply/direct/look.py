"""A destination's table and cursor as they are now, if Viaduck may commit to them itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
import psycopg

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor
from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.destination.table_options import tables_of
from services.applier.model.task import Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import Error
from shared.contracts.positions import UNSPELLED
from shared.lake.catalog import paths
from shared.lake.catalog.reader import Column
from shared.lake.catalog.stamps import stamped_for
from shared.lake.columns.followed import named, whose
from shared.lake.connection.attach import is_beside
from shared.lake.connection.query import Question
from shared.lake.direct import files, positions
from shared.lake.direct.catalogs import RivalCommitted
from shared.lake.direct.eligibility import ExtensionReason, commit_refusal, structure_refusal
from shared.lake.direct.lakes import DirectLake, DirectLakes, TableKey
from shared.lake.direct.state import SPELLING, Option, TableState, lake_option, parse_state, state_question
from shared.lake.direct.structure import Structure, parse_structure, structure_question
from shared.lake.pruning import PLAIN, may_prune

LOOK_TRIES = 3
"""Tables of inlined rows come and go without a new schema version; each such look is repeated."""


class Declined(Error):
    """The extension has to commit, or to answer."""

    def __init__(self, reason: ExtensionReason | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class CommitBasis:
    """What a commit rests on. ``folder`` is the table's, with a slash at its end."""

    structure: Structure
    state: TableState
    data_path: str
    folder: str
    files: tuple[positions.OpenFile, ...]


def key_of(target: Target) -> TableKey:
    cursor, data = tables_of(target.destination)
    return target.lake, data, cursor


def look_at(
    lakes: DirectLakes, lake: DirectLake, target: Target, change: DestinationChange | None = None
) -> CommitBasis:
    """``change`` is what is to be committed on it, if anything. TLA: ``LookDirect``."""
    return look_for(
        lakes,
        lake,
        target,
        lambda found: _refusal(found, target, change),
        lambda found: () if change is None else keys_of(found, change),
    )


def look_for(
    lakes: DirectLakes,
    lake: DirectLake,
    target: Target,
    refusal: Callable[[Structure], ExtensionReason | None],
    keys: Callable[[Structure], Sequence[positions.Key]],
) -> CommitBasis:
    """``refusal`` says why a table of a structure is left to the extension; of ``keys`` bounds are asked."""
    key = key_of(target)
    for tried in range(LOOK_TRIES):
        known = lakes.structure(key)
        if not tried and known is not None and known.altered is not None:
            known = None  # another worker may have judged that by now
        structure = known or _structure(lakes, lake, target)
        refused = refusal(structure)
        if refused is not None and known is not None:
            lakes.forget(key)  # what is remembered may be what the table was before the extension altered it
            continue
        decline(refused)
        state = _state(lake, structure, keys(structure))
        if state is not None and _is_of(structure, state):
            if state.catalog_tables == structure.catalog_tables:
                return _looked(lake, structure, state)
            lakes.remember(key, replace(structure, optional=_optional(structure, state)))
        else:
            lakes.forget(key)
    raise RivalCommitted("the catalog's own tables change while they are looked at")


def columns_of(lakes: DirectLakes, lake: DirectLake, target: Target) -> tuple[Column, ...]:
    """The columns that the table has now, which is asked in one statement, whatever is remembered of it."""
    key = key_of(target)
    now, known = _asked_structure(lake, target), lakes.structure(key)
    if known is None or replace(known, declared=(), optional=frozenset()) != now:
        known = _remembered(lakes, lake, key, now)
    both = zip(known.fields, known.declared, strict=True)
    return tuple(Column(field.name, declared, not_null=field.terms.required) for field, declared in both)


def _refusal(structure: Structure, target: Target, change: DestinationChange | None) -> ExtensionReason | None:
    """Where columns are followed, the table has those that the source had at its position, or all of them by now."""
    evolution = None if change is None else change.evolution
    if change is None or evolution is None:
        wanted = None if change is None else wanted_columns(change)
        return structure_refusal(structure, wanted, spelled=target.is_spelled)
    known = whose(structure.fields, evolution.then, evolution.now) is not None
    return structure_refusal(structure, None, spelled=target.is_spelled) or (
        None if known else ExtensionReason.SCHEMA_CHANGE
    )


def wanted_columns(change: DestinationChange) -> list[tuple[str, str]] | None:
    """The columns that the table has after the change; None where it brings none."""
    return None if change.reading is None else [(each.name, each.type) for each in change.reading.columns]


def _structure(lakes: DirectLakes, lake: DirectLake, target: Target) -> Structure:
    return _remembered(lakes, lake, key_of(target), _asked_structure(lake, target))


def _asked_structure(lake: DirectLake, target: Target) -> Structure:
    _, table, cursor = key_of(target)
    stamped = stamped_for(target.destination.pipeline, target.destination.destination)
    question = structure_question(lake.catalog.dialect, lake.catalog.prefix, table, cursor, stamped)
    said = answer_of(lake, question)
    structure = None if said is None else parse_structure(said)
    if structure is None:
        raise Declined(ExtensionReason.FIRST_COMMIT)
    return structure


def _remembered(lakes: DirectLakes, lake: DirectLake, key: TableKey, asked: Structure) -> Structure:
    structure = replace(asked, declared=files.duckdb_types(lake.con, asked.fields))
    lakes.remember(key, structure)
    return structure


def decline(reason: ExtensionReason | None) -> None:
    if reason is not None:
        raise Declined(reason)


def keys_of(structure: Structure, change: DestinationChange) -> tuple[positions.Key, ...]:
    """The key columns by which touched rows are looked for. A table's own bounds are believed as those of any lake."""
    reading = change.reading
    if reading is None or not reading.keys or not change.counts.touched:
        return ()
    wanted = named(structure.fields, change.evolution, reading.keys)
    decline(ExtensionReason.SCHEMA_CHANGE if wanted is None else None)
    assert wanted is not None  # noqa: S101 - declined
    decline(ExtensionReason.KEY_DEFAULT if any(field.default is not None for field in wanted) else None)
    return tuple(
        positions.Key(field, may_prune(field.declared, PLAIN, harmless=harmless) and not reading.null_keys)
        for field, harmless in zip(wanted, change.counts.harmless_keys, strict=True)
    )


def _state(lake: DirectLake, structure: Structure, keys: Sequence[positions.Key]) -> TableState | None:
    """None where the catalog no longer has the tables that the structure names."""
    asked = [key.field.id for key in keys]
    question = state_question(lake.catalog.dialect, lake.catalog.prefix, structure, asked)
    said = answer_of(lake, question)
    return None if said is None else parse_state(said, lake.catalog.dialect, structure)


def answer_of(lake: DirectLake, question: Question) -> str | None:
    """What the catalog says; None where it does not have the tables that it is asked of."""
    try:
        return lake.catalog.ask(question)
    except psycopg.errors.UndefinedTable:
        return None
    except duckdb.Error as error:
        if "no such table" in str(error):
            return None
        raise


def _is_of(structure: Structure, state: TableState) -> bool:
    """Whether the table still has the structure that the worker remembers of it."""
    return state.snapshot.schema_version == structure.schema_version and state.fields == structure.columns


def _optional(structure: Structure, state: TableState) -> frozenset[str]:
    return state.catalog_tables & {structure.inlined_deletes, structure.cursor_inlined_deletes}


def _looked(lake: DirectLake, structure: Structure, state: TableState) -> CommitBasis:
    """Raises ``Declined`` where the extension has to commit."""
    decline(commit_refusal(structure, state))
    data_path = data_path_of(lake.lake, state.options)
    folder = paths.table_folder(data_path, structure.folder)
    decline(ExtensionReason.FOREIGN_FILES if folder is None else None)
    assert folder is not None  # noqa: S101 - declined
    opened = []
    for file in state.files:
        path = paths.resolved(folder, file.path, data_path)
        deletes = [paths.resolved(folder, each.path, data_path) for each in file.deletes]
        decline(ExtensionReason.FOREIGN_FILES if path is None or None in deletes else None)
        opened.append(positions.OpenFile(file, str(path), deletes[0] if deletes else None))
    return CommitBasis(structure, state, data_path, folder, tuple(opened))


def data_path_of(lake: ResolvedLake, options: Sequence[Option]) -> str:
    """The lake's data path, if the catalog and the declaration of the lake agree about it."""
    said = lake_option(options, "data_path") or ""
    known = lake.data_path is None or paths.root(lake.data_path) == paths.root(said)
    sure = lake.data_path is not None or not lake.untrusted or is_beside(said, lake)
    decline(None if said and known and sure and ("://" in said or said.startswith("/")) else ExtensionReason.DATA_PATH)
    return paths.root(said)


def cursor_of(state: TableState, target: Target) -> Cursor:
    row = state.cursors[0]
    said = row.values
    stored = Cursor(
        generation=said["generation"],
        position=said["position"],
        source_lake=said["source_lake"],
        table_id=said["source_table_id"],
        table_uuid=said["source_table_uuid"],
        routing_value=said["routing_value"],
        item=said["item"],
        rows_applied=said["rows_applied"],
        snapshot=row.begin_snapshot,
        source_position=UNSPELLED if (spelled := said.get(SPELLING)) is None else spelled,
    )
    return fence.intact(stored, target.destination)
