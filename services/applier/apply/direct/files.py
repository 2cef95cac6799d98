"""The files of a direct commit: delete files, then a data file. What an error leaves of them is an orphan."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from services.applier.apply.destination.change import DestinationChange
from services.applier.apply.direct.look import CommitBasis, Declined, decline, keys_of
from services.applier.apply.source.carry import few_rows_of, require_all, rows_of, touched_of
from services.applier.apply.source.reading import Reading
from shared.lake.direct import files, positions, store
from shared.lake.direct.eligibility import ExtensionReason
from shared.lake.direct.lakes import DirectLake
from shared.lake.direct.structure import Structure
from shared.lake.direct.written import NewDataFile, Written


def write(lake: DirectLake, change: DestinationChange, look: CommitBasis, structure: Structure) -> Written:
    """Write delete files, then a data file; where that one fails, the delete files are taken away again. What an error
    leaves of the delete files themselves is an orphan, as after a crash. TLA: ``WriteFiles``.

    Keys are looked for in the columns that were looked at; ``structure`` has those that rows are written in.
    """
    reading = change.reading
    if reading is None:
        return Written()
    if change.counts.touched or change.counts.upserts:
        files.make_folder(look.folder)
    written = _write_deletes(lake, change, reading, look)
    try:
        return replace(written, data=write_rows(lake, change, reading, structure, look.folder))
    except BaseException:
        store.remove(lake.lake, look.folder, written.names)
        raise


def write_over(lake: DirectLake, change: DestinationChange, look: CommitBasis) -> Written:
    """Write the rows of a seed, which replace all that the table holds. TLA: ``WriteFiles``."""
    reading = change.reading
    assert reading is not None  # noqa: S101 - a seed always carries the rows that it found, if only none
    files.make_folder(look.folder)
    data = write_rows(lake, change, reading, look.structure, look.folder)
    there = look.state.files
    live = sum(file.records - file.dead for file in there)
    return Written(data, ended=tuple(file.id for file in there), deleted_rows=live)


def write_rows(
    lake: DirectLake, change: DestinationChange, reading: Reading, structure: Structure, folder: str
) -> NewDataFile | None:
    """Write the rows that are to be inserted to a data file, if there are any; after an error it is taken away again.
    TLA: ``WriteFiles``."""
    if not change.counts.upserts:
        return None
    few = few_rows_of(reading, change.number, change.counts.upserts)
    data = None if few is None else files.write_few(lake.con, folder, few, structure.fields)
    if data is None:
        with rows_of(lake.con, reading, change.number, change.counts.upserts, few) as rows:
            data = files.write_data(lake.con, folder, rows, structure.fields, reading.row_bytes)
    try:
        require_all(data.records, change.counts.upserts, "rows")
        _require_values(change, reading, structure, data)
        if few is not None:
            _remember(lake, few, reading, structure, folder + data.name)
    except BaseException:
        store.remove(lake.lake, folder, (data.name,))
        raise
    return data


def _require_values(change: DestinationChange, reading: Reading, structure: Structure, data: NewDataFile) -> None:
    """Raises ``Declined`` where a NOT NULL column of a file has a NULL: the extension refuses it, or allows it
    first. Of some types the file's statistics don't tell."""
    nulls = {column.column_id: column.nulls for column in data.columns}
    unsure = [field.name for field in structure.fields if field.terms.required and nulls.get(field.id) != 0]
    decline(ExtensionReason.NOT_NULL if any(reading.nulls(change.number, unsure)) else None)


def _write_deletes(lake: DirectLake, change: DestinationChange, reading: Reading, look: CommitBasis) -> Written:
    keys = keys_of(look.structure, change)
    if not keys or not look.files:
        return Written()
    with touched_of(lake.con, reading, change.number, change.counts.touched) as touched:
        found = positions.find_positions(look.files, touched, keys, lake.known, nulls=reading.null_keys)
    if found and reading.only_inserts:
        raise Declined(ExtensionReason.DOUBLED_KEY)
    where = files.TableFiles(look.folder, look.data_path)
    return files.write_deletes(lake.con, where, look.files, found, look.state.snapshot.id + 1, lake.known)


def _remember(lake: DirectLake, rows: pa.Table, reading: Reading, structure: Structure, path: str) -> None:
    """The next apply of the worker need not read the keys of this one's file, which was written of ``rows``."""
    if reading.keys:
        fields = {field.name.lower(): field for field in structure.fields}
        wanted = [fields[name.lower()] for name in reading.keys]
        positions.keep_keys(rows, path, wanted, lake.known)
