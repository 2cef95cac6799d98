"""Which rows of a destination's own table records of other destinations delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.fence import Move
from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.destination.foreign_keys import KeysOfRange
from services.applier.apply.destination.lakes import DestinationLakes
from services.applier.apply.direct.commit import DirectApplier
from services.applier.model.task import Limits, Target
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, SeedMode, WorkItem
from shared.contracts.positions import Vector
from shared.lake.attached.pool import LakePool
from shared.lake.catalog.reader import TableInfo
from shared.lake.direct.lakes import DirectLakes
from shared.lake.sql import path

Run = Callable[[duckdb.DuckDBPyConnection, str], Any]
AT, LATER = Vector.of({0: 5}), Vector.of({0: 9})
WORDS = ("plain", "it's", "'; DROP TABLE events --", "nul\0", "{", "é")
VALUES: dict[str, Any] = {
    "UUID": "0b0e5f8a-0000-0000-0000-000000000001", "BLOB": b"\x00\xff", "DECIMAL(18,3)": "12.345",
    "DATE": "2026-11-26", "TIMESTAMP WITH TIME ZONE": "2026-11-26 12:00:00+02", "BOOLEAN": True, "JSON": '{"a": 1}',
    "DOUBLE": 0.1, "TIME": "12:00:00.000001", "UBIGINT": 2**64 - 1,
}  # fmt: skip


class Own:
    """The lake of the destination of ``a``, whose cursor is at offset 5."""

    def __init__(self, pool: LakePool, folder: Path, direct: DirectApplier | None) -> None:
        self.pool, self.lake = pool, ResolvedLake(f"sqlite:{folder}/a.sqlite", None, str(folder / "a"))
        self.answers = CursorAnswers(DestinationLakes(pool), direct)
        self.destination = Destination(
            pipeline="p", destination="a", generation=1, routing_value="a", state=DesiredState.RUNNING,
            lake=LakeRef(catalog="sqlite:elsewhere"), table="events", seed_mode=SeedMode.REPLAY, revision="1",
        )  # fmt: skip
        item = self.target(Vector(), AT).item
        source = TableInfo("", "topic", 0, "topic id", "cluster", 0, ())
        move = Move(self.destination, item, AT.records, source, 5, through_at=AT.text)
        self.transact(lambda con, alias: fence.create_cursor(con, alias, move))

    def target(self, begin: Vector, end: Vector, generation: int = 1) -> Target:
        item = WorkItem(
            item="i", kind=ItemKind.CHANGES, pipeline="p", destination="a", generation=generation,
            expected=begin.records, expected_at=begin.text, through=end.records, through_at=end.text,
        )  # fmt: skip
        return Target(item, self.destination, self.lake, is_spelled=True)

    def transact(self, run: Run) -> None:
        with self.pool.use(self.lake, read_only=False, create=True) as lake, closing(lake.cursor()) as con:
            lake.begin(con)
            run(con, lake.alias)
            con.execute("COMMIT")

    def hold(self, declared: str, values: Sequence[Any]) -> None:
        """A table of these keys, whose rows are in files."""
        with self.pool.use(self.lake, read_only=False) as lake, closing(lake.cursor()) as con:
            con.execute(f"CALL {path(lake.alias)}.set_option('data_inlining_row_limit', 0)")

        def run(con: duckdb.DuckDBPyConnection, alias: str) -> None:
            table = path(alias, "main", "events")
            con.execute(f"CREATE TABLE {table} (id {declared}, x BIGINT)")
            for each in values:
                con.execute(f"INSERT INTO {table} VALUES (?, 1)", [each])

        self.transact(run)

    def left(self, keys: KeysOfRange, target: Target | None = None) -> list[Any]:
        found = self.answers.foreign_keys(target or self.target(AT, LATER), keys)
        return sorted((each["k0"] for each in found.to_pylist()), key=repr)


def keys_of(declared: str, owners: Sequence[tuple[Any, str | None]], *, harmless: bool = True) -> KeysOfRange:
    with closing(duckdb.connect()) as con:
        con.execute(f"CREATE TABLE t (k0 {declared}, owner VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?, ?)", [list(each) for each in owners])
        return KeysOfRange(con.execute("SELECT * FROM t").to_arrow_table(), ("id",), (declared,), (harmless,))


NUMBERS = keys_of("BIGINT", [(1, "b"), (2, "a"), (3, None), (4, "b"), (5, None)])


@pytest.fixture(params=["extension", "direct"])
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Own]:
    with closing(LakePool(4, "1GB")) as pool:
        if request.param == "extension":
            yield Own(pool, tmp_path, None)
            return
        with closing(DirectApplier(DirectLakes(pool.connections, 4), Limits())) as direct:
            yield Own(pool, tmp_path, direct)


def test_only_keys_of_its_rows_that_end_elsewhere_are_left(own: Own) -> None:
    own.hold("BIGINT", [1, 2, 3, 9])
    assert own.left(NUMBERS) == [1, 3]
    assert own.left(replace(NUMBERS, rows=NUMBERS.rows.slice(0, 0))) == []


@pytest.mark.parametrize("own", ["direct"], indirect=True)
def test_no_lake_is_attached_where_none_is_left(own: Own) -> None:
    """Rows that have died are none."""
    own.hold("BIGINT", [1, 2, 7])
    own.transact(lambda con, alias: con.execute(f"DELETE FROM {path(alias, 'main', 'events')} WHERE id = 1"))
    own.pool.evict_of(own.lake, read_only=False)
    assert own.left(NUMBERS) == []
    assert len(own.pool) == 0
    own.transact(lambda con, alias: con.execute(f"INSERT INTO {path(alias, 'main', 'events')} VALUES (3, 1)"))
    assert own.left(NUMBERS) == [3]


def test_where_there_is_no_row_or_no_table_none_is_left(own: Own) -> None:
    assert own.left(NUMBERS) == []
    own.hold("BIGINT", [])
    assert own.left(NUMBERS) == []


@pytest.mark.parametrize(
    ("begin", "end", "generation"),
    [(Vector(), LATER, 1), (Vector.of({0: 6}), LATER, 1), (Vector(), AT, 1), (AT, LATER, 2)],
)
def test_a_table_that_is_elsewhere_leaves_no_key_out(own: Own, begin: Vector, end: Vector, generation: int) -> None:
    own.hold("BIGINT", [9])
    assert own.left(NUMBERS, own.target(begin, end, generation)) == [1, 3, 4, 5]


def test_texts_are_compared_as_they_are_and_are_no_text_of_a_query(own: Own) -> None:
    own.hold("VARCHAR", WORDS[:-1])
    keys = keys_of("VARCHAR", [(each, "b") for each in WORDS] + [("other {AUTHOR}", "b")], harmless=False)
    assert own.left(keys) == sorted(WORDS[:-1], key=repr)


def test_keys_of_any_type_are_found(own: Own) -> None:
    def run(con: duckdb.DuckDBPyConnection, alias: str) -> None:
        table = path(alias, "main", "events")
        con.execute(f"CREATE TABLE {table} ({', '.join(f'c{n} {each}' for n, each in enumerate(VALUES))})")
        con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(VALUES))})", list(VALUES.values()))

    own.transact(run)
    types, names = tuple(VALUES), tuple(f"c{n}" for n in range(len(VALUES)))
    with closing(duckdb.connect()) as con:
        shown = ", ".join(f"CAST(? AS {each}) AS k{n}" for n, each in enumerate(types))
        rows = con.execute(f"SELECT {shown}, 'b' AS owner", list(VALUES.values())).to_arrow_table()
    keys = KeysOfRange(rows, names, types, (True,) * len(types))
    assert own.answers.foreign_keys(own.target(AT, LATER), keys).num_rows == 1
    for place in range(len(types)):
        alone = replace(keys, rows=rows.select([place, len(types)]).rename_columns(["k0", "owner"]),
                        names=names[place : place + 1], types=types[place : place + 1], harmless=(True,))  # fmt: skip
        assert own.answers.foreign_keys(own.target(AT, LATER), alone).num_rows == 1, types[place]


def test_a_table_whose_column_is_still_narrower_is_searched_too(own: Own) -> None:
    own.hold("INTEGER", [1, 7])
    assert own.left(NUMBERS) == [1]


def test_several_columns_make_a_key(own: Own) -> None:
    own.hold("BIGINT", [1, 2])
    rows = pa.table({"k0": [1, 1, 2], "k1": [1, 2, 1], "owner": ["b", "b", None]})
    keys = KeysOfRange(rows, ("x", "id"), ("BIGINT", "BIGINT"), (True, True))
    found = own.answers.foreign_keys(own.target(AT, LATER), keys).to_pylist()
    assert sorted(found, key=repr) == [{"k0": 1, "k1": 1}, {"k0": 1, "k1": 2}]
