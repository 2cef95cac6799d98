"""Columns in histories: what changes of them show, alone and with rows, and what of that concerns a destination."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

from tests.world.destination import Destination
from tests.world.fields import (
    AddField,
    DropField,
    FieldChange,
    RenameField,
    ReplaceField,
    WidenFields,
    random_change,
)
from tests.world.history import Generator, random_history
from tests.world.holdings import Holdings
from tests.world.identities import Identities
from tests.world.kinds import Declared, Field, Many, Nested, Struct, random_type, structs
from tests.world.lake import Lake
from tests.world.model import Model, Where
from tests.world.rows import Cell, Column, columns_of
from tests.world.shape import random_shape
from tests.world.source import SourceLake
from tests.world.statements import (
    AddColumn,
    ColumnChange,
    Insert,
    RenameColumn,
    Statement,
    Transaction,
    Update,
    WidenColumn,
)
from tests.world.truth import RecordedTruth
from tests.world.upkeep import Chore, Upkeep

PLAIN = (Column("tenant", "VARCHAR"), Column("k", "INTEGER"))
INNER = Struct((Field(2, "b", "INTEGER"), Field(3, "c", "INTEGER")))
KINDS = {
    "struct": (Struct((Field(1, "a", "INTEGER"), Field(4, "s", INNER))), {1: "7", 4: {2: "8", 3: None}}),
    "list": (Many(INNER), [{2: "8", 3: "9"}, None]),
    "map": (Many(INNER, is_map=True), (("x", {2: "8", 3: "9"}),)),
}


def nested(kind: str) -> tuple[Declared, Cell]:
    declared, value = KINDS[kind]
    return Declared.of(declared), Nested.of(declared, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "declared", "shown"),
    [
        ("struct", "STRUCT(a INTEGER, s STRUCT(b INTEGER, c INTEGER))", "{'a': 7, 's': {'b': 8, 'c': NULL}}"),
        ("list", "STRUCT(b INTEGER, c INTEGER)[]", "[{'b': 8, 'c': 9}, NULL]"),
        ("map", "MAP(VARCHAR, STRUCT(b INTEGER, c INTEGER))", "{x={'b': 8, 'c': 9}}"),
    ],
)
def test_a_nested_cell_is_spelled_as_duckdb_spells_it(kind: str, declared: str, shown: str) -> None:
    spelled, cell = nested(kind)
    assert (spelled, cell) == (declared, shown)
    ((found,),) = duckdb.execute(f"SELECT CAST(CAST(? AS {declared}) AS VARCHAR)", [shown]).fetchall()
    assert found == shown


CHANGES: dict[str, list[FieldChange]] = {
    "{'a': 7, 's': {'b': 8, 'c': NULL, 'd': 5}}": [AddField("v", ("s",), Field(5, "d", "INTEGER", "5"))],
    "{'s': {'b': 8, 'c': NULL}}": [DropField("v", (), "a")],
    "{'a': 7, 's': {'z': 8, 'c': NULL}}": [RenameField("v", ("s",), "b", "z")],
    "{'a': 7, 's': {'c': NULL, 'b': NULL}}": [ReplaceField("v", ("s",), Field(5, "b", "INTEGER"))],
    "{'a': 7, 's': {'b': 8, 'c': NULL}}": [WidenFields("v")],
}


@pytest.mark.parametrize("shown", CHANGES)
def test_older_rows_show_what_became_of_their_fields(shown: str) -> None:
    """So does DuckLake's own table, in the histories; here in plain values."""
    declared, cell = nested("struct")
    model = Model((*PLAIN, Column("v", declared)))
    model.insert(("a", "1", cell))
    model.commit()
    for change in CHANGES[shown]:
        change.apply(model)
    assert [*model.live()] == [*model.appended] == [("a", "1", shown)]
    assert ("BIGINT" in model.columns[2].type) is (CHANGES[shown] == [WidenFields("v")])


@pytest.mark.parametrize("seed", range(6))
def test_a_source_is_what_its_model_says_whatever_its_owner_alters(
    world: duckdb.DuckDBPyConnection, tmp_path: Path, seed: int
) -> None:
    shape = random_shape(Random(seed), append_only=seed == 5)
    generator = Generator(Random(seed), shape, replaces=True)
    source = SourceLake(world, Lake.in_folder(tmp_path), shape)
    source.create()
    try:
        for number in range(12):
            source.run(generator.step() if number < 2 else generator.alteration())
            source.run(Upkeep(Chore.FLUSH) if number % 4 == 3 else generator.step())
            assert columns_of(world, source.place.path) == source.model.columns
            assert source.differences() == []
        source.run(generator.flattening())
        assert not any(isinstance(column.type, Declared) for column in source.model.columns)
        assert source.differences() == []
    finally:
        source.close()


def test_histories_change_columns_alone_and_before_between_and_after_rows() -> None:
    drawn = [random_history(Random(seed), steps=20, replaces=True) for seed in range(60)]
    steps = [step.statements for one in drawn for step in one.steps if isinstance(step, Transaction)]
    shown = {"".join("c" if isinstance(one, ColumnChange) else "r" for one in statements) for statements in steps}
    assert {"c", "cc", "cr", "rc", "rcr", "r"} <= shown


def test_a_history_goes_on_where_one_value_column_is_left() -> None:
    fewest = []
    for seed in range(40):
        generator = Generator(Random(seed), random_shape(Random(seed)))
        for _ in range(12):
            generator.alteration()
            generator.flattening()
            fewest.append(len(generator.model.columns) - len(generator.shape.keys) - 1)
            for _ in range(20 if fewest[-1] == 1 else 1):
                generator.step()
    assert min(fewest) == 1


def test_whatever_becomes_of_fields_no_two_of_a_struct_share_a_name_and_one_is_left() -> None:
    for seed in range(100):
        rng = Random(seed)
        model = Model((*PLAIN, Column("v", random_type(rng))))
        for _ in range(40):
            nested = model.columns[2].type
            assert isinstance(nested, Declared)
            random_change(rng, "v", nested).apply(model)
            for named in each_struct_of(model.columns[2]):
                assert len({*named}) == len(named) > 0


def test_a_struct_within_a_value_keeps_the_field_by_which_it_is_known_to_be_null() -> None:
    """H28."""
    for seed in range(100):
        rng = Random(seed)
        nested = random_type(rng)
        for _ in range(20):
            change = random_change(rng, "v", nested)
            if isinstance(change, DropField | ReplaceField) and change.path:
                first = dict(structs(nested.kind))[change.path].fields[0].name
                assert first != (change.field if isinstance(change, DropField) else change.field.name)


def each_struct_of(column: Column) -> list[list[str]]:
    assert isinstance(column.type, Declared)
    return [[field.name for field in struct.fields] for _, struct in structs(column.type.kind)]


def test_a_transaction_changes_the_fields_of_a_column_once() -> None:
    """The last field dropped and added again leaves a type of the same text (H26: DuckLake can't do two). Widening
    fields that are wide already changes nothing."""
    for seed in range(300):
        generator = Generator(Random(seed), random_shape(Random(seed)))
        for _ in range(12):
            made = generator.alteration()
            changes = [one for one in made.statements if isinstance(one, FieldChange)]
            assert sum(not isinstance(one, WidenFields) for one in changes) <= 1


def test_a_column_with_fields_is_not_renamed_in_the_transaction_that_adds_it() -> None:
    """H29, which leaves a source that cannot be read any more."""
    added = 0
    for seed in range(300):
        generator = Generator(Random(seed), random_shape(Random(seed)))
        for _ in range(12):
            made = generator.alteration().statements
            new = [one.origin for one in made if isinstance(one, AddColumn) and isinstance(one.column.type, Declared)]
            assert not any(isinstance(one, RenameColumn) and one.column in new for one in made)
            added += len(new)
    assert added > 100


def test_once_something_is_wider_rows_only_come() -> None:
    """Of H26, which makes the source itself wrong."""
    for seed in range(200):
        for step in random_history(Random(seed), steps=20, replaces=True).steps:
            statements = step.statements if isinstance(step, Transaction) else ()
            wide = [n for n, one in enumerate(statements) if isinstance(one, WidenColumn | WidenFields)]
            if wide:
                assert all(isinstance(one, Insert | ColumnChange) for one in statements[wide[0] :])


def told(*statements: tuple[Statement, ...]) -> Holdings:
    truth, model = RecordedTruth("tenant"), Model(PLAIN)
    for snapshot, made in enumerate(statements, 1):
        model = Transaction(made).effect(model)
        truth.record(snapshot, model)
    return Holdings(destination_of("a"), truth)


def destination_of(value: str, keys: tuple[str, ...] = ()) -> Destination:
    return Destination(lake=Lake("sqlite:nowhere"), table="t", pipeline="p", id="d", value=value, keys=keys)


ROW, COLUMN = Insert((("a", "1"),)), AddColumn(Column("w", "INTEGER"), "5")
KEY = Where.equal(["k"], ["1"])


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        ((COLUMN,), False),
        ((COLUMN, Update(KEY, (("w", "5"),))), False),
        ((COLUMN, Update(KEY, (("w", "6"),))), True),
        ((COLUMN, Insert((("a", "2", "5"),))), True),
        ((COLUMN, Insert((("b", "2", "5"),))), False),
    ],
)
def test_other_columns_alone_change_no_row_and_values_in_them_do(made: tuple[Statement, ...], changes: bool) -> None:
    assert told((ROW,), made).first_change(1, 2) == (2 if changes else None)


def test_another_field_changes_no_row() -> None:
    declared, cell = nested("struct")
    added = AddColumn(Column("v", declared))
    came = (added, Update(KEY, (("v", cell),)))
    altered = (AddField("v", (), Field(5, "d", "INTEGER", "5")), RenameField("v", ("s",), "b", "z"))
    assert told((ROW,), came, altered).first_change(2, 3) is None
    assert told((ROW,), came, (*altered, Update(KEY, (("v", None),)))).first_change(2, 3) == 3


def test_the_last_field_replaced_changes_no_row_but_the_columns_though_their_type_is_spelled_alike() -> None:
    declared, cell = nested("list")
    came = (AddColumn(Column("v", declared)), Update(KEY, (("v", cell),)))
    holdings = told((ROW,), came, (ReplaceField("v", ("element",), Field(4, "c", "INTEGER")),))
    assert holdings.truth.columns(2) == holdings.truth.columns(3)
    assert holdings.truth.slice(2, "a") != holdings.truth.slice(3, "a")
    assert (holdings.first_change(2, 3), holdings.first_lack(2, 3)) == (None, 3)


def test_no_transaction_of_a_history_that_only_alters_changes_a_row() -> None:
    altered = 0
    for seed in range(60):
        shape = random_shape(Random(seed))
        generator, truth = Generator(Random(seed), shape, replaces=True), RecordedTruth(shape.routing)
        due = [Holdings(destination_of(tenant, shape.keys), truth) for tenant in shape.tenants]
        truth.record(0, generator.model)
        for snapshot in range(1, 40):
            made = generator.alteration() if snapshot % 2 else generator.step()
            truth.record(snapshot, generator.model)
            if isinstance(made, Transaction) and all(isinstance(one, ColumnChange) for one in made.statements):
                altered += 1
                assert [each.first_change(snapshot - 1, snapshot) for each in due] == [None] * len(due), made
    assert altered > 100


def test_a_column_is_the_one_that_it_was() -> None:
    known = Identities()
    assert known.take([("k", 0), ("v", 0)], [1, 2]) == []
    assert known.take([("k", 0), ("v", 1)], [1, 3]) == []
    assert known.take([("k", 0)], [1]) == []
    assert len(known.take([("k", 0), ("w", 0)], [1, 2])) == 1  # whatever v was
    assert len(known.take([("k", 0)], [4])) == 1
