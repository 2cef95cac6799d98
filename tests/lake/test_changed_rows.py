"""What files tell of a range of snapshots is what DuckLake's own functions show of it, and all that has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import duckdb
import pytest

from services.applier.apply.source import feed
from shared.contracts.messages import Outcome
from shared.contracts.ranges import Range
from shared.lake.attached.pool import LakePool, OpenLake
from shared.lake.catalog.reader import TableInfo
from shared.lake.changes.changed_rows import ChangedRows, Relation, RowsByFiles, by_functions
from shared.lake.sql import ident
from tests.lake.conftest import MakeRig
from tests.lake.other_program import rewrite
from tests.lake.rig import ApplyRig
from tests.world.history import random_history, strange_history
from tests.world.model import ColumnId
from tests.world.places import Database, Folders, Places
from tests.world.recovery import Recovery
from tests.world.rows import Row
from tests.world.service_view import resolved
from tests.world.source import SourceLake
from tests.world.truth import Truth
from tests.world.upkeep import set_inlining

STEPS, RANGES = 14, 3
"""Of a history, and of each of its states."""

Image = tuple[str | None, ...]
"""Routing value and keys of a row, as text."""


@dataclass
class Comparison:
    """Ranges whose rows the files told, and all others; ``wrong``: what they told otherwise than it was."""

    by_files: int = 0
    by_functions: int = 0
    wrong: list[str] = field(default_factory=list)


@pytest.mark.parametrize("strange", [False, True], ids=["usual", "strange"])
@pytest.mark.parametrize("seed", range(8))
def test_files_tell_no_more_than_ducklake_s_functions_and_all_that_changed(
    world: duckdb.DuckDBPyConnection, tmp_path: Path, seed: int, strange: bool
) -> None:
    compared = _compare(world, Folders(), tmp_path, seed, strange=strange)
    assert not compared.wrong, "\n".join(compared.wrong)
    assert compared.by_files > 0, compared


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_so_they_do_where_the_catalog_is_on_postgres(
    world: duckdb.DuckDBPyConnection, on_postgres: Database, tmp_path: Path, seed: int
) -> None:
    compared = _compare(world, on_postgres, tmp_path, seed, strange=False)
    assert not compared.wrong, "\n".join(compared.wrong)
    assert compared.by_files > 0, compared


def _compare(con: duckdb.DuckDBPyConnection, places: Places, folder: Path, seed: int, *, strange: bool) -> Comparison:
    """Half of the sources inline no rows."""
    rng = Random(seed)
    make = strange_history if strange else random_history
    history = make(rng, steps=STEPS, expire=seed % 3 == 0)
    source = SourceLake(con, places.lake(folder / "source"), history.shape)
    source.create()
    compared = Comparison()
    try:
        if seed % 2:
            con.execute(set_inlining(source.place, 0))
        pool = LakePool(1)
        try:
            for step in history.steps:
                if not isinstance(step, Recovery):
                    source.run(step)
                    _look(source, pool, rng, f"seed {seed} after {step}", compared)
        finally:
            pool.close()
    finally:
        source.close()
        places.clear()
    return compared


def _look(source: SourceLake, pool: LakePool, rng: Random, when: str, compared: Comparison) -> None:
    """At ranges up to the head, as appliers read, and up to snapshots before it, as readers count if no maintenance
    has come since."""
    shape = source.shape
    with pool.use(resolved(source.lake), read_only=True) as lake, _reading(lake) as (con, head):
        table = lake.catalog.source_table(shape.schema, shape.table, head)
        assert table is not None
        oldest = lake.catalog.oldest_since(table.begin_snapshot)
        assert oldest is not None
        for number in range(RANGES):
            after, through = rng.randint(oldest, head), head if number else rng.randint(oldest, head)
            is_kept = lake.catalog.exists(after) and lake.catalog.exists(after + 1) and lake.catalog.exists(through)
            later = lake.catalog.touching(table.table_id, Range(through, head))
            if after < through and is_kept and not any(touch.is_maintenance for touch in later):
                whole = Range(after, through)
                said = _differences(source, lake, con, table, whole, compared)
                compared.wrong += [f"{when}, in {whole}: {each}" for each in said]


def _differences(
    source: SourceLake,
    lake: OpenLake,
    con: duckdb.DuckDBPyConnection,
    table: TableInfo,
    whole: Range,
    compared: Comparison,
) -> Iterator[str]:
    names = [
        column.name
        for name in (source.shape.routing, *source.shape.keys)
        if (column := table.identified_at(name, whole.through)) is not None
    ]
    found = lake.changes.changed(table, names, whole)
    if found is None:
        compared.by_functions += 1
        return
    compared.by_files += 1
    mine = [_images(con, each, names) for each in (found.inserted, found.deleted)]
    for kind, theirs, told in zip(("inserted", "deleted"), _shown(con, table, names, whole), mine, strict=True):
        if told - theirs:
            yield f"{kind}: {told - theirs} is too much"
    if lost := _changed(source, whole) - (mine[0] | mine[1]):
        yield f"{lost} has changed"


@contextmanager
def _reading(lake: OpenLake) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
    """A transaction of the lake's, and the head that it sees."""
    con = lake.cursor()
    con.execute("BEGIN")
    yield con, int(con.execute(f"SELECT id FROM {ident(lake.alias)}.current_snapshot()").fetchall()[0][0])
    con.execute("ROLLBACK")
    con.close()


def _images(con: duckdb.DuckDBPyConnection, rows: Relation, names: Sequence[str]) -> set[Image]:
    texts = ", ".join(f"CAST({ident(name)} AS VARCHAR)" for name in names)
    return set(con.execute(f"SELECT {texts} FROM {rows.scan}", list(rows.values)).fetchall())


def _shown(con: duckdb.DuckDBPyConnection, table: TableInfo, names: Sequence[str], whole: Range) -> list[set[Image]]:
    rows = by_functions("lake", table.called(whole.through), *whole.inclusive())
    return [_images(con, each, names) for each in (rows.inserted, rows.deleted)]


def _changed(source: SourceLake, whole: Range) -> set[Image]:
    """Routing value and keys of all rows that are otherwise at the range's end than before it, in the columns that are
    of one type at both."""
    truth, shape = source.truth, source.shape
    then, now = (dict(zip(truth.ids(at), truth.columns(at), strict=True)) for at in (whole.after, whole.through))
    both = [each for each in then if each in now and then[each].type == now[each].type]
    values = [*shape.tenants, *filter(None, shape.strays)]
    before, at_the_end = (_rows(truth, at, both, values) for at in (whole.after, whole.through))
    ids = {column.name: each for each, column in now.items()}
    places = [both.index(ids[name]) for name in (shape.routing, *shape.keys)]
    return {tuple(row[place] for place in places) for row in (before - at_the_end) + (at_the_end - before)}


def _rows(truth: Truth, at: int, ids: Sequence[ColumnId], values: Sequence[str]) -> Counter[Row]:
    places, found = [truth.ids(at).index(each) for each in ids], Counter[Row]()
    for value in values:
        for row, times in truth.slice(at, value).items():
            found[tuple(row[place] for place in places)] += times
    return found


# -- who reads by files -----------------------------------------------------------------------------------------------

IN_FILES = "CALL src.set_option('data_inlining_row_limit', 0)"

MOVES = (
    "UPDATE src.main.t SET v = 'new' WHERE id < 4",
    "UPDATE src.main.t SET tenant = 'b' WHERE id = 6",
    "DELETE FROM src.main.t WHERE id IN (8, 9)",
    "INSERT INTO src.main.t VALUES (30, 'a', 'late'), (31, 'c', 'of none')",
)


def _must_not_be_called(*_: object) -> None:
    raise AssertionError("DuckLake's functions were called")


def test_an_applier_reads_changes_by_files(rig: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rig.sql(IN_FILES)
    rig.seed()
    rig.sql(*MOVES)
    monkeypatch.setattr(feed, "by_functions", _must_not_be_called)
    assert [said.outcome for said in rig.changes(before)] == [Outcome.APPLIED] * 2
    assert [rig.rows(name) for name in "ab"] == [rig.expected(name) for name in "ab"]


def test_changes_are_read_by_functions_where_maintenance_may_have_come_since_the_head_was_pinned(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.sql(IN_FILES)
    rig.seed()
    rig.sql(*MOVES)
    nothing = Relation("(SELECT NULL::VARCHAR AS tenant, NULL::BIGINT AS id WHERE false)")
    later = ChangedRows(nothing, nothing, rig.head + 1)
    monkeypatch.setattr(RowsByFiles, "changed", lambda *_: later)
    rig.changes(before)
    assert [rig.rows(name) for name in "ab"] == [rig.expected(name) for name in "ab"]


def test_files_that_lost_rows_before_the_range_are_not_opened(rig: ApplyRig) -> None:
    rig.sql(IN_FILES)
    rig.sql("INSERT INTO src.main.t SELECT i, 'a', 'v' FROM range(30, 50) r(i)")
    before = rig.sql("DELETE FROM src.main.t WHERE id = 31")
    old = {path for path in (rig.folder / "source-data").rglob("*.parquet") if _has(rig, path, 31)}
    head = rig.sql("INSERT INTO src.main.t VALUES (60, 'a', 'x')", "UPDATE src.main.t SET v = '' WHERE id = 2")
    whole = Range(before, head)
    with closing(LakePool(1)) as pool:
        shown = _keys_of(rig, pool, whole)
        for path in old:
            path.unlink()
        assert len(old) == 2, "a data file and its delete file"
        assert _keys_of(rig, pool, whole) == shown == ({("a", "60"), ("a", "2")}, {("a", "2")})


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE src.main.t ADD COLUMN k INTEGER DEFAULT 7",
        "ALTER TABLE src.main.t ADD COLUMN k DOUBLE",
        "ALTER TABLE src.main.t ADD COLUMN k STRUCT(a INTEGER)",
    ],
    ids=["a default", "floating numbers", "fields"],
)
def test_ranges_of_columns_that_files_do_not_hold_as_they_are_shown_are_left_to_ducklake(
    rig: ApplyRig, statement: str
) -> None:
    before = rig.sql(IN_FILES, statement)
    whole = Range(before, rig.sql(*MOVES[:3]))
    with closing(LakePool(1)) as pool:
        assert _keys_of(rig, pool, whole, "v") is not None
        assert _keys_of(rig, pool, whole, "k") is None


def test_so_are_those_of_a_column_that_was_widened(rig: ApplyRig) -> None:
    rig.sql(IN_FILES, "ALTER TABLE src.main.t ADD COLUMN k INTEGER")
    before = rig.sql("INSERT INTO src.main.t VALUES (50, 'a', 'v', 1)", "ALTER TABLE src.main.t ALTER k TYPE BIGINT")
    whole = Range(before, rig.sql("DELETE FROM src.main.t WHERE id = 50"))
    with closing(LakePool(1)) as pool:
        assert _keys_of(rig, pool, whole, "k") is None


def _has(rig: ApplyRig, path: Path, key: int) -> bool:
    """Whether a data file has a row of that key, or is the delete file of one that has."""
    scan = "read_parquet(?)"
    columns = {name for name, *_ in rig.con.execute(f"DESCRIBE SELECT * FROM {scan}", [str(path)]).fetchall()}
    if "pos" not in columns:
        return bool(rig.con.execute(f"SELECT 1 FROM {scan} WHERE id = ?", [str(path), key]).fetchall())
    of = {str(name) for (name,) in rig.con.execute(f"SELECT DISTINCT file_path FROM {scan}", [str(path)]).fetchall()}
    return any(_has(rig, Path(each), key) for each in of)


def _keys_of(rig: ApplyRig, pool: LakePool, whole: Range, key: str = "id") -> tuple[set[Image], set[Image]] | None:
    """What files tell of a range of the source, if they do."""
    names = "tenant", key
    with pool.use(rig.source, read_only=True) as lake, _reading(lake) as (con, head):
        table = lake.catalog.source_table("main", "t", head)
        assert table is not None
        found = lake.changes.changed(table, names, whole)
        if found is None:
            return None
        return _images(con, found.inserted, names), _images(con, found.deleted, names)


# -- files of other programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [{}, {"id": "number", "pos": "place"}, {"tenant": "whose"}], ids=["no field ids", "keys", "routing"]
)
def test_files_of_other_programs_are_read_by_an_applier(make_rig: MakeRig, names: Mapping[str, str]) -> None:
    rig = _foreign(make_rig)
    before = rig.head
    rig.seed()
    rig.sql(*MOVES)
    rewrite(rig.con, "src", rig.folder / "source-data", names)
    assert [said.outcome for said in rig.changes(before)] == [Outcome.APPLIED] * 2
    assert [rig.rows(name) for name in "ab"] == [rig.expected(name) for name in "ab"]


@pytest.mark.parametrize("names", [{"id": "number", "pos": "place"}, {"tenant": "whose"}], ids=["keys", "routing"])
@pytest.mark.parametrize("turn", [0, 1], ids=["later", "earlier"])
def test_so_they_are_among_files_of_ducklake(make_rig: MakeRig, names: Mapping[str, str], turn: int) -> None:
    """DuckDB would take a column that only some of the files have for NULL in the others."""
    rig = _foreign(make_rig)
    before = rig.head
    rig.seed()
    moves = "INSERT INTO src.main.t VALUES (40, 'a', 'x')", "INSERT INTO src.main.t VALUES (41, 'a', 'x')", *MOVES
    known = set((rig.folder / "source-data").rglob("*.parquet"))
    for number, statement in enumerate(moves):
        rig.sql(statement)
        if number % 2 == turn:
            rewrite(rig.con, "src", rig.folder / "source-data", names, but=known)
        known = set((rig.folder / "source-data").rglob("*.parquet"))
    assert [said.outcome for said in rig.changes(before)] == [Outcome.APPLIED] * 2
    assert [rig.rows(name) for name in "ab"] == [rig.expected(name) for name in "ab"]


def _foreign(make_rig: MakeRig) -> ApplyRig:
    rig = make_rig()
    rig.con.execute("SET enable_external_file_cache = false")  # files are exchanged
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        IN_FILES,
        "INSERT INTO src.main.t SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, 'v' || i FROM range(20) r(i)",
    )
    rig.add("a")
    rig.add("b")
    return rig
