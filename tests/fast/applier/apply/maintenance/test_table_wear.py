"""What of a table a compaction would replace, as the commit that leaves it tells."""

from __future__ import annotations

import pytest

from services.applier.apply.maintenance.compaction import SMALL_BYTES
from services.applier.apply.maintenance.table_wear import wear_of
from shared.contracts.upkeep import TableWear
from shared.lake.direct.state import DataFile, DeleteFile
from shared.lake.direct.written import NewDataFile, NewDeleteFile, Written

NOTHING = Written()


def file(number: int, *, rows: int = 100, size: int = 1_000, dead: int = 0) -> DataFile:
    deletes = (DeleteFile(100 + number, f"{number}-delete", "parquet", dead, 1, None),) if dead else ()
    return DataFile(number, f"{number}", rows, size, True, deletes, ())


def data(rows: int, size: int = 1_000) -> NewDataFile:
    return NewDataFile("new", rows, size, 100, ())


def deletes(of: int, count: int) -> NewDeleteFile:
    return NewDeleteFile("new-delete", of, count, 500, 100, 7)


def told(files: int, rows: int, dead: int = 0) -> TableWear:
    return TableWear(files=files, rows=rows, dead_rows=dead)


@pytest.mark.parametrize(
    ("files", "written", "expected"),
    [
        ([], NOTHING, told(0, 0)),
        ([file(1)], NOTHING, told(0, 100)),
        ([file(1), file(2)], NOTHING, told(2, 200)),
        ([file(1)], Written(data=data(5)), told(2, 105)),
        ([file(1, size=SMALL_BYTES + 1), file(2)], NOTHING, told(0, 200)),
        ([file(1, size=SMALL_BYTES + 1)], Written(data=data(9, SMALL_BYTES + 1)), told(0, 109)),
        ([file(1, dead=4), file(2), file(3)], NOTHING, told(2, 296)),
        ([file(1, dead=5), file(2)], NOTHING, told(1, 195, 5)),
        ([file(1, dead=4)], Written(deletes=(deletes(1, 7),)), told(1, 93, 7)),
        ([file(1), file(2)], Written(ended=(1,)), told(0, 100)),
    ],
    ids=[
        "no table",
        "one file",
        "several small files",
        "the commit's own file",
        "one small file beside a large one",
        "large files",
        "a file with few deleted rows is neither merged nor rewritten",
        "a file that has lost one row in twenty",
        "rows that the commit deletes",
        "a file that the commit ends",
    ],
)
def test_wear_is_what_a_compaction_would_replace(files: list[DataFile], written: Written, expected: TableWear) -> None:
    assert wear_of(files, written) == expected
