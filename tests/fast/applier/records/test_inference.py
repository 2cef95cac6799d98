"""Inferred types are a lattice: neither the order of records nor that of batches makes another table of them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from services.applier.records.inference import InferredKind, join, new_columns

kinds = st.sampled_from(InferredKind)


@given(kinds, kinds, kinds)
def test_the_join_is_associative_commutative_and_idempotent(a: InferredKind, b: InferredKind, c: InferredKind) -> None:
    assert join([a, join([b, c])]) == join([join([a, b]), c])
    assert join([a, b]) == join([b, a])
    assert join([a, a]) == a == join([a, InferredKind.NOTHING])


@given(st.lists(st.lists(kinds)))
def test_a_join_of_batches_is_that_of_their_records(batches: list[list[InferredKind]]) -> None:
    assert join(join(batch) for batch in batches) == join(kind for batch in batches for kind in batch)


@given(st.lists(st.tuples(st.sampled_from(["a", "A", "b", "é", "É", "rowid"]), kinds)), st.integers(0, 3))
def test_new_columns_are_told_apart_by_any_catalog(found: list[tuple[str, InferredKind]], room: int) -> None:
    chosen = new_columns(found, ["b"], room)
    lower = [name.lower() for name, _ in chosen]
    assert len(set(lower)) == len(lower) <= room
    assert not {"b", "rowid"} & set(lower)
    assert set(chosen) <= set(found)
    assert InferredKind.NOTHING not in {kind for _, kind in chosen}


def test_the_first_of_names_that_differ_by_case_counts() -> None:
    fold: Callable[[str], str] = str.swapcase
    for name in ("Id", "id"):
        assert new_columns([(name, InferredKind.BIGINT), (fold(name), InferredKind.JSON)], [], 9) == [
            (name, InferredKind.BIGINT)
        ]
