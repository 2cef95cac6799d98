"""Which ranges of snapshots are told by the table's files, and which are left to DuckLake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from shared.contracts.ranges import Range
from shared.lake.catalog.reader import CatalogReader
from shared.lake.changes.changed_files import (
    MOST_FILES,
    MOST_INLINED,
    ChangedFiles,
    ChangedFilesReader,
    DeletedPlaces,
    InlinedColumn,
    InlinedRow,
    InsertedFile,
)

Answer = dict[str, Any]

PARTS = (
    "there", "rows", "places", "dead", "newest", "retained", "options", "folders", "names", "begun", "ended",
    "delete_files",
)  # fmt: skip
"""Of the statement's answer, in their order."""

INLINED = frozenset({"ducklake_inlined_data_7_1", "ducklake_inlined_data_70_1"})


class Catalog:
    """Answers each statement, and remembers what tables of the catalog's own it asks."""

    is_on_sqlite = True

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[list[str]] = []

    def named(self, table: str) -> str:
        return table

    def select(self, sql: str, names: Mapping[str, str], **_: Any) -> list[dict[str, str]]:
        tables = {name: own for name, own in names.items() if own.startswith('"')}
        self.asked.append([own for name, own in sorted(tables.items(), reverse=True) if f"{{{name}}}" in sql])
        return [{"found": json.dumps([self._answer[part] for part in PARTS])}]


def usual() -> Answer:
    """A table of one file that was there, one that the range began, and one that it ended."""
    return {
        "there": 0, "rows": [[]], "places": None, "dead": 0, "newest": 9, "retained": 1,
        "options": [["version", "1.0"], ["data_path", "/lake"]],
        "folders": [["t/", 1, "main/", 1]], "names": ["ducklake_inlined_data_7_1"],
        "begun": [[2, "b.parquet", 1, None, None, "parquet", None]],
        "ended": [[3, "c.parquet", 1, None, None, "parquet"]],
        "delete_files": [[1, "a.parquet", 1, None, None, "parquet", "d.parquet", 1, None, "parquet", 4, 1]],
    }  # fmt: skip


def changed(answer: Answer, inlined: list[InlinedColumn] | None = None) -> tuple[ChangedFiles | None, list[list[str]]]:
    catalog = Catalog(answer)
    reader = ChangedFilesReader(cast(CatalogReader, catalog), None, INLINED)
    return reader.changed(7, Range(4, 9), inlined), catalog.asked


def test_files_are_told_by_their_paths() -> None:
    found, asked = changed(usual())
    assert found == ChangedFiles(
        5,
        9,
        9,
        begun=(InsertedFile("/lake/main/t/b.parquet", several=False),),
        ended=("/lake/main/t/c.parquet",),
        deletes=(DeletedPlaces("/lake/main/t/d.parquet", "/lake/main/t/a.parquet", 4),),
    )
    assert asked == [['"ducklake_inlined_data_7_1"']]


def test_a_table_of_deletes_is_asked_once_it_is_known() -> None:
    _, asked = changed(usual() | {"there": 1})
    assert ['"ducklake_inlined_delete_7"' in each for each in asked] == [False, True]


def test_paths_of_their_own_are_kept() -> None:
    answer = usual() | {"folders": [["s3://b/t/", 0, "main/", 1]]}
    answer["ended"] = [[3, "/elsewhere/c.parquet", 0, None, None, "parquet"]]
    found, _ = changed(answer)
    assert found is not None
    assert [found.begun[0].path, *found.ended] == ["s3://b/t/b.parquet", "/elsewhere/c.parquet"]


def test_of_files_of_several_snapshots_rows_are_told_apart() -> None:
    found, _ = changed(usual() | {"begun": [[2, "b.parquet", 1, None, None, "parquet", 6]]})
    assert found is not None
    assert found.begun[0].several


COLUMNS = [InlinedColumn("tenant", is_text=True), InlinedColumn("id", is_text=False)]


def test_of_what_the_catalog_holds_rows_and_places_are_told() -> None:
    answer = usual() | {"rows": [[[5, None, "61", 1], [3, 6, None, 2]]]}
    answer["places"] = [[1, "a.parquet", 1, None, None, "parquet", 17]]
    found, asked = changed(answer, COLUMNS)
    assert found is not None
    assert found.rows == (InlinedRow(5, None, ("61", 1)), InlinedRow(3, 6, (None, 2)))
    assert found.places == (("/lake/main/t/a.parquet", 17),)
    assert asked == [['"ducklake_inlined_data_7_1"', '"id"', '"tenant"']]


@pytest.mark.parametrize("more", [0, 1])
def test_many_files_are_left_to_ducklake(more: int) -> None:
    begun = [[number, f"{number}.parquet", 1, None, None, "parquet", None] for number in range(MOST_FILES - 2 + more)]
    found, _ = changed(usual() | {"begun": begun})
    assert (found is None) is bool(more)


@pytest.mark.parametrize("held", ["rows", "places"])
@pytest.mark.parametrize("more", [0, 1])
def test_many_of_them_are_left_to_ducklake(held: str, more: int) -> None:
    rows = [[5, None, "61", number] for number in range(MOST_INLINED + more)]
    places = [[1, "a.parquet", 1, None, None, "parquet", number] for number in range(MOST_INLINED + more)]
    found, _ = changed(usual() | {held: [rows] if held == "rows" else places}, COLUMNS)
    assert (found is None) is bool(more)


def put(part: str, value: Any) -> Callable[[Answer], None]:
    return lambda answer: answer.update({part: value})


def of_row(part: str, place: int, value: Any) -> Callable[[Answer], None]:
    def change(answer: Answer) -> None:
        answer[part][0][place] = value

    return change


LEFT: dict[str, Callable[[Answer], None]] = {
    "rows in the catalog whose columns are not to be shown": put("rows", [[[5, None]]]),
    "a file that ended after rows of it were deleted in the catalog": put("dead", 1),
    "a place in a file of another kind": put("places", [[1, "a.parquet", 1, None, 4, "parquet", 17]]),
    "a snapshot that is gone": put("retained", 0),
    "another version": put("options", [["version", "1.1"], ["data_path", "/lake"]]),
    "no version": put("options", [["data_path", "/lake"]]),
    "an encrypted lake": put("options", [["version", "1.0"], ["encrypted", "true"], ["data_path", "/lake"]]),
    "no data path": put("options", [["version", "1.0"]]),
    "a data path below the working folder": put("options", [["version", "1.0"], ["data_path", "files"]]),
    "a pattern for a data path": put("options", [["version", "1.0"], ["data_path", "/la[k]e"]]),
    "another table of rows": put("names", ["ducklake_inlined_data_7_1", "ducklake_inlined_data_7_2"]),
    "a table of rows that is gone": put("names", None),
    "no folder": put("folders", None),
    "two folders": put("folders", [["t/", 1, "main/", 1], ["u/", 1, "main/", 1]]),
    "a folder that is no text": put("folders", [[None, 1, "main/", 1]]),
    "two delete files of one file": of_row("delete_files", 11, 2),
    **{
        f"{name} of {part}": of_row(part, place, value)
        for part in ("begun", "ended", "delete_files")
        for name, place, value in (
            ("a key", 3, "k"), ("a mapping", 4, 1), ("a kind", 5, "puffin"), ("a pattern", 1, "b*.parquet"),
            ("half a text", 1, "b\x00.parquet"),
        )
    },
    "a key of a delete file": of_row("delete_files", 8, "k"),
    "a kind of a delete file": of_row("delete_files", 9, "puffin"),
    "a pattern for a delete file": of_row("delete_files", 6, "d?.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("change", LEFT.values(), ids=LEFT)
def test_what_files_alone_do_not_tell_is_left_to_ducklake(change: Callable[[Answer], None]) -> None:
    answer = usual()
    change(answer)
    assert changed(answer)[0] is None
