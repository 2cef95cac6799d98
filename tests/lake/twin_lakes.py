"""Twins as DuckLake's extension shows them, each in an instance of its own, and what has to be equal of them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.field_ids import SNAPSHOT_COLUMN
from tests.lake.rig import ApplyRig
from tests.lake.twins import NESTED, TESTS, VALUES

CATALOG = "__ducklake_metadata_dst.ducklake_"

DRAWN = 6
"""Ranges of the change feed that are drawn beside those between neighbours and the whole."""

FEW = 5
"""Of so many snapshots every two are the ends of a range."""

LOOKS = 3
"""Snapshots whose files are looked at, among them the newest."""

Label = tuple[int, int]
"""The position that a twin had reached, and how many commits of others came since: what twins' snapshots share, whose
numbers are their own."""

Rows = Counter[tuple[int, str]]
"""Row ids with the rows as texts, among which NaN equals itself."""

Images = Counter[tuple[Label | None, tuple[tuple[str, str], ...]]]
"""When, and what the feed tells there of one row id: kinds of changes with the row, so a pair of images is together."""

Files = Counter[tuple[int, int]]
"""Rows of each listed data file that a snapshot sees, and how many of them are deleted."""


class Lake:
    """A twin as DuckLake's extension shows it, in an instance of its own."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def bag(self, query: str) -> list[str]:
        """Rows as texts, among which NaN equals itself."""
        return sorted(map(repr, self._con.execute(query).fetchall()))

    def stamped(self) -> dict[int, int]:
        """Snapshots by the position that they stand for."""
        found = self._con.execute(
            "SELECT json_extract(commit_extra_info, '$.through')::BIGINT, max(snapshot_id) FROM dst.snapshots()"
            " WHERE author = 'viaduck' AND json_extract_string(commit_extra_info, '$.kind') <> 'maintenance' GROUP BY 1"
        ).fetchall()
        return {int(position): int(snapshot) for position, snapshot in found}

    def retained(self) -> dict[Label, int]:
        """The retained snapshots, oldest first; of a lake that still has its first one from the first stamped one on,
        since twins are made in another number of commits."""
        position_of = {snapshot: position for position, snapshot in self.stamped().items()}
        snapshots = self._con.execute("SELECT snapshot_id FROM dst.snapshots() ORDER BY 1").fetchall()
        position, since, found = NOT_SEEDED, 0, dict[Label, int]()
        for (snapshot,) in snapshots:
            since = 0 if snapshot in position_of else since + 1
            position = position_of.get(snapshot, position)
            if position != NOT_SEEDED or snapshots[0] != (0,):
                found[position, since] = int(snapshot)
        return found

    def rows_at(self, snapshot: int) -> Rows:
        found = self._con.execute(f"SELECT rowid, * FROM dst.main.t AT (VERSION => {snapshot})").fetchall()
        return Counter((int(row[0]), repr(row[1:])) for row in found)

    def feed(self, first: int, last: int) -> list[tuple[int, int, str, str]]:
        """What the change feed tells after ``first`` up to ``last``: snapshot, row id, kind and row."""
        found = self._con.execute(f"SELECT * FROM dst.table_changes('t', {first + 1}, {last})").fetchall()
        return [(*row[:3], repr(row[3:])) for row in found]

    def filtered(self) -> list[str]:
        """How many rows filters on each column find, of the least value up, of the greatest down, and of none."""
        parts = []
        for column in ("id", *VALUES):
            parts.append(f"count(*) FILTER ({column} IS NULL)")
            if column not in NESTED:
                asked = f"FROM dst.main.t WHERE NOT contains(CAST({column} AS VARCHAR), chr(0))"  # H16
                parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} <= (SELECT max({column}) {asked}))")
                parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} >= (SELECT min({column}) {asked}))")
            parts.append(f"(SELECT count(*) FROM dst.main.t WHERE {column} IS NULL)")
        return self.bag(f"SELECT {', '.join(parts)} FROM dst.main.t")

    def found_by_stock(self) -> list[int]:
        """How many rows each value finds, by a reader that believes statistics (H1)."""
        self._con.execute("RESET disabled_optimizers")
        return [self._con.execute(f"SELECT count(*) FROM dst.main.t WHERE {test}").fetchall()[0][0] for test in TESTS]

    def cursors(self) -> int:
        ((name,),) = self._con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_viaduck'"
        ).fetchall()
        return len(self.bag(f"SELECT * FROM dst._viaduck.{name}"))

    def counts(self) -> list[tuple[Any, ...]]:
        """What the catalog counts: rows that ever came, and the next row id."""
        return self._con.execute(
            f"SELECT record_count, next_row_id FROM {CATALOG}table_stats"
            f" WHERE table_id IN (SELECT table_id FROM {CATALOG}table WHERE table_name = 't' AND end_snapshot IS NULL)"
        ).fetchall()

    def first_row_ids(self) -> list[str]:
        """What the catalog numbers the rows of each live data file from, and how many they are."""
        return self.bag(
            f"SELECT row_id_start, record_count FROM {CATALOG}data_file WHERE end_snapshot IS NULL AND table_id IN"
            f" (SELECT table_id FROM {CATALOG}table WHERE table_name = 't' AND end_snapshot IS NULL)"
        )

    def deletes(self, at: Mapping[int, Label]) -> list[str]:
        """What the catalog says of living delete files: since when they are there, until when rows of them went."""
        found = self._con.execute(
            f"SELECT begin_snapshot, partial_max, delete_count FROM {CATALOG}delete_file WHERE end_snapshot IS NULL"
            f" AND table_id IN (SELECT table_id FROM {CATALOG}table WHERE table_name = 't' AND end_snapshot IS NULL)"
        ).fetchall()
        return sorted(repr((at.get(begin), at.get(through), count)) for begin, through, count in found)

    def files_at(self, snapshot: int) -> Files:
        """The files that readers are told of are there, of the size that is said, and deletes are of listed files."""
        listed = self._con.execute(
            "SELECT data_file, data_file_size_bytes, delete_file, delete_file_size_bytes"
            f" FROM ducklake_list_files('dst', 't', snapshot_version => {snapshot})"
        ).fetchall()
        found = Files()
        for data, size, deletes, deletes_size in listed:
            assert Path(data).stat().st_size == size, data
            seen = seen_in(data, snapshot)
            gone = set[int]() if deletes is None else deleted_by(deletes, data, deletes_size, snapshot)
            assert gone <= seen, (data, gone - seen)
            found[len(seen), len(gone)] += 1
        return found


def seen_in(data: str, snapshot: int) -> set[int]:
    """Places of rows of a data file that had come by a snapshot; a merged file says when each did."""
    read = pq.ParquetFile(data)
    if SNAPSHOT_COLUMN not in read.schema_arrow.names:
        return set(range(read.metadata.num_rows))
    since = read.read([SNAPSHOT_COLUMN]).column(0).to_pylist()
    return {place for place, came in enumerate(since) if came <= snapshot}


def deleted_by(deletes: str, data: str, size: int, snapshot: int) -> set[int]:
    assert Path(deletes).stat().st_size == size, deletes
    read = pq.read_table(deletes)
    assert set(read.column("file_path").to_pylist()) == {data}, deletes
    since = read.column(SNAPSHOT_COLUMN).to_pylist() if SNAPSHOT_COLUMN in read.schema.names else [0] * len(read)
    places = [place for place, went in zip(read.column("pos").to_pylist(), since, strict=True) if went <= snapshot]
    assert len(places) == len(set(places)), deletes
    return set(places)


# -- histories --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """What a twin shows of each retained snapshot, and between any two of those that are asked for."""

    rows: Mapping[Label, Rows]
    feeds: Mapping[tuple[Label, Label], Images]
    files: Mapping[Label, Files]
    counts: Sequence[tuple[Any, ...]]
    first_row_ids: Sequence[str]
    deletes: Sequence[str]


def history_of(lake: Lake, asked: Iterable[tuple[Label, Label]], looks: Iterable[Label], *, replays: bool) -> History:
    """``replays``: rows with their row ids, and the feed's images of them, must come to the rows later on."""
    retained = lake.retained()
    at = {snapshot: label for label, snapshot in retained.items()}
    rows = {label: lake.rows_at(snapshot) for label, snapshot in retained.items()}
    for label, held in rows.items():
        assert len({row_id for row_id, _ in held}) == held.total(), f"row ids that are not unique at {label}"
    feeds = {}
    for first, last in asked:
        told = lake.feed(retained[first], retained[last])
        feeds[first, last] = paired(told, at)
        assert not replays or replayed(rows[first], told) == rows[last], (first, last)
    files = {label: lake.files_at(retained[label]) for label in looks}
    for label, listed in files.items():
        living = sum((seen - gone) * count for (seen, gone), count in listed.items())
        assert living == rows[label].total(), f"files of {label} hold {living} rows"
    return History(rows, feeds, files, lake.counts(), lake.first_row_ids(), lake.deletes(at))


def paired(told: Iterable[tuple[int, int, str, str]], at: Mapping[int, Label]) -> Images:
    of_row = defaultdict[tuple[int, int], list[tuple[str, str]]](list)
    for snapshot, row_id, kind, row in told:
        of_row[snapshot, row_id].append((kind, row))
    return Counter((at.get(snapshot), tuple(sorted(images))) for (snapshot, _), images in of_row.items())


def replayed(rows: Rows, told: Iterable[tuple[int, int, str, str]]) -> Rows:
    """The rows after what the feed tells: one that it does not name keeps its row id."""
    later = Rows(rows)
    for _, row_id, kind, row in told:
        later[row_id, row] += 1 if kind in ("insert", "update_postimage") else -1
    return Rows({each: count for each, count in later.items() if count})


def drawn_ranges(retained: Mapping[Label, int], rng: random.Random) -> list[tuple[Label, Label]]:
    """Of few snapshots every two; else neighbours, the first with the newest, and some that are drawn. None in which
    snapshots were expired: what the feed tells of those depends on which files were cleaned up."""
    labels = list(retained)
    every = list(combinations(labels, 2))
    if len(labels) > FEW:
        every = [*pairwise(labels), (labels[0], labels[-1]), *rng.sample(every, DRAWN)]
    place = {label: number for number, label in enumerate(labels)}
    return [(first, last) for first, last in every if retained[last] - retained[first] == place[last] - place[first]]


def require_same_histories(lakes: Mapping[str, Lake], judge: str, rng: random.Random, *, replays: bool = False) -> None:
    """Twins equal the one to which the extension commits at each retained snapshot, row ids and all, and between them.

    The format promises that a row which no commit touches keeps its row id, and not which id a new row gets. But the
    twins' commits come in one order and number the same rows, so the ids are the same ones, too.
    """
    retained = lakes[judge].retained()
    asked, labels = drawn_ranges(retained, rng), list(retained)
    looks = [labels[-1], *rng.sample(labels, min(LOOKS - 1, len(labels)))]
    theirs = history_of(lakes[judge], asked, looks, replays=replays)
    for name, lake in lakes.items():
        if name == judge:
            continue
        assert list(lake.retained()) == labels, name
        ours = history_of(lake, asked, looks, replays=replays)
        assert differing(ours.rows, theirs.rows) == {}, name
        assert differing(ours.feeds, theirs.feeds) == {}, name
        assert differing(ours.files, theirs.files) == {}, name
        assert (ours.counts, ours.first_row_ids) == (theirs.counts, theirs.first_row_ids), name
        assert ours.deletes == theirs.deletes, name


def differing(ours: Mapping[Any, Counter[Any]], theirs: Mapping[Any, Counter[Any]]) -> dict[Any, Any]:
    """What is in one only, by where."""
    return {each: (ours[each] - theirs[each], theirs[each] - ours[each]) for each in ours if ours[each] != theirs[each]}


def orphans(rig: ApplyRig, name: str) -> Sequence[tuple[Any, ...]]:
    return rig.look_writing(name, "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)")
