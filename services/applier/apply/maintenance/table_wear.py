"""What a commit leaves of a table that a compaction would replace. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

from services.applier.apply.maintenance.compaction import DEAD_SHARE, SMALL_BYTES
from shared.contracts.upkeep import TableWear
from shared.lake.direct.state import DataFile
from shared.lake.direct.written import Written


def wear_of(files: Sequence[DataFile], written: Written) -> TableWear:
    """``files`` were there before the commit that has ``written`` the others."""
    small = worn = rows = dead_rows = 0
    deleted = {each.data_file_id: each.count for each in written.deletes}
    ended = frozenset(written.ended)
    for file in files:
        if file.id in ended:
            continue
        dead = deleted.get(file.id, file.dead)
        rows += file.records - dead
        if dead > DEAD_SHARE * file.records:
            worn += 1
            dead_rows += dead
        elif not dead and file.bytes <= SMALL_BYTES:
            small += 1
    if written.data is not None:
        rows += written.data.records
        small += written.data.bytes <= SMALL_BYTES
    return TableWear(files=worn + (small if small > 1 else 0), rows=max(0, rows), dead_rows=dead_rows)
