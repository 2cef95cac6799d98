"""What steps make of a table's columns, and which rows of the catalog say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lake.columns.evolution import NotFollowed, steps_between
from shared.lake.columns.history import Field, Terms
from shared.lake.direct.columns import Alteration, alter, altered, new_columns, structure_after, with_defaults
from shared.lake.direct.new_table import flat
from shared.lake.direct.structure import Structure

LAST = 40
"""Ids that the destination's table has given, some of them to columns that are gone."""

NAMES = st.sampled_from(["a", "b", "c", "d", "A", "e f", "g"])


def different(fields: Sequence[Field]) -> bool:
    return len({field.name.lower() for field in fields}) == len(fields)


def leaf(column: int, name: str, default: str | None = None) -> Field:
    return Field(column, name, "int32", (), default)


@st.composite
def changes(draw: st.DrawFn) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """The source's columns before and after, of which at least one is still there."""
    then = [leaf(n, name) for n, name in enumerate(draw(st.lists(NAMES, min_size=1, max_size=5)), 100)]
    kept = [replace(field, name=draw(NAMES)) if draw(st.booleans()) else field for field in then]
    kept = [field for n, field in enumerate(kept) if n == 0 or draw(st.booleans())]
    added = [leaf(n, name, draw(st.sampled_from([None, "7"]))) for n, name in enumerate(draw(st.lists(NAMES)), 200)]
    if draw(st.booleans()):
        added.append(Field(300, "nested", "struct", (leaf(301, "x"), Field(302, "l", "list", (leaf(303, "element"),)))))
    return tuple(then), (*kept, *added)


@given(changes())
def test_the_table_is_what_the_source_is_with_ids_of_its_own(both: tuple[tuple[Field, ...], tuple[Field, ...]]) -> None:
    then, now = both
    own = tuple(replace(field, id=n * 3) for n, field in enumerate(then, 1))
    ids = {theirs.id: mine.id for theirs, mine in zip(then, own, strict=True)}
    if not different(then) or not different(now):
        return
    found = altered(own, steps_between(then, now), now, LAST)
    assert found is not None
    assert [(f.name, f.declared, f.default) for f in found.fields] == [(f.name, f.declared, f.default) for f in now]
    for field, theirs in zip(found.fields, now, strict=True):
        assert field.id == ids[theirs.id] if theirs.id in ids else field in found.added
    new = [field.id for field in flat(found.added)]
    assert new == list(range(LAST + 1, LAST + 1 + len(new)))
    gone = {ids[field.id] for field in then} - {field.id for field in found.fields}
    assert found.gone == gone
    names = {field.id: field.name for field in own}
    assert found.renamed == {f.id: f.name for f in found.fields if f.id in names and names[f.id] != f.name}


OWN = (leaf(1, "id"), Field(2, "s", "struct", (leaf(3, "x"),)), leaf(4, "v"))


@pytest.mark.parametrize(
    "now",
    [
        (*OWN[:2], Field(4, "v", "int64", ())),
        (OWN[0], Field(2, "s", "struct", (leaf(3, "x"), leaf(5, "y"))), OWN[2]),
        (OWN[0], Field(2, "s", "struct", (leaf(3, "renamed"),)), OWN[2]),
        (*OWN, leaf(5, "{AUTHOR}")),
        (*OWN, Field(5, "t", "varchar", (), "{DATA_PATH}")),
        (*OWN, Field(5, "t", "varchar", (), "a\x00b")),
        (*OWN, leaf(5, "V")),
    ],
    ids=["wider", "a field more", "a field renamed", "a word", "a word as default", "a NUL", "two of one name"],
)
def test_what_is_left_to_the_extension(now: tuple[Field, ...]) -> None:
    assert altered(OWN, steps_between(OWN, now), now, 4) is None


def test_a_column_that_the_table_does_not_have_is_left_to_the_extension() -> None:
    steps = steps_between(OWN, OWN[:2])
    assert altered(OWN[:2], steps, OWN[:2], 4) is None


def test_fields_go_with_their_column() -> None:
    found = altered(OWN, steps_between(OWN, (OWN[0], OWN[2])), (OWN[0], OWN[2]), 4)
    assert found is not None
    assert (found.gone, dict(found.renamed), found.added) == (frozenset({2, 3}), {}, ())


def test_rows_to_come_may_have_another_default_in_a_new_column_alone() -> None:
    now = (*OWN, leaf(9, "w", "5"))
    found = altered(OWN, steps_between(OWN, now), now, 4)
    assert found is not None
    again = with_defaults(found, {"w": "05"})
    assert again is not None
    assert [(f.default, f.terms.default) for f in (found.added[0], again.added[0])] == [("5", "5"), ("5", "05")]
    assert again.fields[-1] == again.added[0]
    assert with_defaults(found, {"v": "1"}) is None


def structure() -> Structure:
    said = frozenset((field.id, field.name, field.type, 3) for field in flat(OWN))
    declared = ("INTEGER", "STRUCT(x INTEGER)", "INTEGER")
    return Structure(7, 1, 2, ("main/", "t/"), OWN, said, (), ("ducklake_inlined_data_2_1",), (), declared)


def test_the_structure_is_what_a_look_would_find() -> None:
    now = (replace(OWN[0], name="key"), OWN[2], leaf(9, "w"))
    found = altered(OWN, steps_between(OWN, now), now, 4)
    assert found is not None
    after = structure_after(structure(), found, 12, {5: "INTEGER"})
    assert after.schema_version == 8
    assert after.columns == {(1, "key", "int32", 12), (4, "v", "int32", 3), (5, "w", "int32", 12)}
    assert after.declared == ("INTEGER", "INTEGER", "INTEGER")
    assert [(field.id, field.name) for field in after.fields] == [(1, "key"), (4, "v"), (5, "w")]


def test_each_changed_column_ends_once_and_comes_again_only_if_it_stays() -> None:
    alteration = Alteration(OWN, frozenset({2, 3}), {4: "w"}, (leaf(5, "n", "7"),))
    said = list(alter({"": ""}, alteration, 1, 12, 8))
    assert [each.text.split()[:3] for each in said] == [
        ["INSERT", "INTO", "{}ducklake_schema_versions"],
        ["INSERT", "INTO", "{}ducklake_column"],
        ["UPDATE", "{}ducklake_column", "SET"],
        ["INSERT", "INTO", "{}ducklake_column"],
    ]
    assert said[1].values == {"v0_0": 4, "v0_1": "w", "new": 12, "table": 1}
    assert said[2].values == {"id0": 2, "id1": 3, "id2": 4, "new": 12, "table": 1}


def test_a_new_columns_row_tells_both_defaults() -> None:
    column = Field(5, "n", "decimal(18,4)", (), "5.0000", Terms(default="5"))
    values = list(
        new_columns({"": ""}, [(1, (column, Field(6, "l", "list", (leaf(7, "element"),))))], 12).values.values()
    )
    assert values[:11] == [5, 12, 1, 5, "n", "decimal(18,4)", "5.0000", "5", 1, None, "literal"]
    assert values[11:22] == [6, 12, 1, 6, "l", "list", None, "NULL", 1, None, ""]
    assert values[22:] == [7, 12, 1, 7, "element", "int32", None, "NULL", 1, 6, "literal"]


def test_a_circle_of_names_is_one_step_for_each() -> None:
    now = (OWN[0], replace(OWN[1], name="v"), replace(OWN[2], name="s"))
    found = altered(OWN, steps_between(OWN, now), now, 4)
    assert found is not None
    assert (dict(found.renamed), found.gone, found.added) == ({2: "v", 4: "s"}, frozenset(), ())
    with pytest.raises(NotFollowed):
        steps_between(OWN, (OWN[1], OWN[0], OWN[2]))
