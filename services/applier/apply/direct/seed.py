"""A seed as a direct commit: where the destination's table is to be, and that it may be made there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.destination.table_schema import require_names
from services.applier.apply.direct.look import Declined, answer_of, data_path_of, decline, key_of
from services.applier.apply.source.reading import Reading
from shared.lake.catalog.paths import table_folder
from shared.lake.checks.layout_keys import keys_of
from shared.lake.columns.terms import Described, of_new, to_carry, without_terms
from shared.lake.direct import files
from shared.lake.direct.eligibility import ExtensionReason, lake_refusal, structure_refusal
from shared.lake.direct.lakes import DirectLake
from shared.lake.direct.new_table import NewTables, new_tables, parse_place, place_question
from shared.lake.direct.state import NewestSnapshot, Option
from shared.lake.direct.structure import Structure

INLINING_LIMIT = "data_inlining_row_limit"

MOST_ROWS = 1_000_000
"""Of a seed, which is one file: the extension divides a larger table."""


class NoCatalog(Declined):
    """The lake's database, or its file, holds no catalog."""

    def __init__(self) -> None:
        super().__init__(ExtensionReason.FIRST_COMMIT)


@dataclass(frozen=True)
class Site:
    """Where a seed makes its tables. ``seen`` is the lake's newest snapshot."""

    seen: NewestSnapshot
    tables: NewTables
    data_path: str
    folder: str
    left: tuple[str, ...] = ()
    """What the new table does not get of the source's terms, in words."""


def require_plain(change: DestinationChange, reading: Reading) -> None:
    """Raises ``Declined`` for what the extension has to write, whatever the lake is."""
    require_names(change.target.destination)
    by, order = keys_of(change.target.destination.layout, reading.columns, reading.arrangement)
    decline(ExtensionReason.PARTITIONED if by else None)
    decline(ExtensionReason.SORTED if order else None)
    decline(ExtensionReason.ENCRYPTED if change.target.lake.encrypted else None)
    decline(ExtensionReason.LARGE_SEED if change.counts.upserts > MOST_ROWS else None)


def site_of(lake: DirectLake, change: DestinationChange, reading: Reading) -> Site | None:
    """Where to make the tables; None where a later life finds some, of which it needs no file: they may be gone (H7).
    Raises ``Declined`` where the extension has to seed. TLA: ``LookDirect``."""
    _, table, cursor = key_of(change.target)
    said = answer_of(lake, place_question(lake.catalog.dialect, lake.catalog.prefix, table, cursor))
    if said is None:
        raise NoCatalog
    place = parse_place(said)
    if place.taken:
        return None
    decline(None if place.whole else ExtensionReason.TABLE_EXISTS)
    decline(lake_refusal(place.options))
    described, left = _of_new(change, reading)
    made = new_tables(lake.catalog.dialect, place, table, cursor, described)
    structure = replace(made.structure, declared=files.duckdb_types(lake.con, made.structure.fields))
    decline(structure_refusal(structure, [(column.name, column.type) for column in reading.columns]))
    data_path = data_path_of(lake.lake, place.options)
    folder = table_folder(data_path, structure.folder)
    decline(ExtensionReason.FOREIGN_FILES if folder is None else None)
    assert folder is not None  # noqa: S101 - declined
    return Site(place.snapshot, replace(made, structure=structure), data_path, folder, left)


def require_terms(change: DestinationChange, structure: Structure) -> tuple[str, ...]:
    """What a table that a later life fills does not get of the source's terms, in words. Raises ``Declined`` where it
    is to have other terms, which the extension gives it."""
    wanted = change.wanted
    if wanted is None:
        return ()
    carried = to_carry(Described(structure.fields, structure.comments), wanted.fields, wanted)
    decline(ExtensionReason.SCHEMA_CHANGE if carried.clauses else None)
    return carried.left


def require_limit(options: Sequence[Option]) -> None:
    """Raises ``Declined`` where DuckLake may keep rows of the table in the catalog, which a seed of the extension
    ends."""
    decline(None if never_inlines(options) else ExtensionReason.OPTION)


def never_inlines(options: Sequence[Option]) -> bool:
    """Whether DuckLake keeps no rows of the table in the catalog, whatever it is handed."""
    return [option.value for option in options if option.scope == "table" and option.key == INLINING_LIMIT] == ["0"]


def _of_new(change: DestinationChange, reading: Reading) -> tuple[Described, tuple[str, ...]]:
    wanted = change.wanted
    return of_new(Described(without_terms(reading.table.fields)) if wanted is None else wanted)
