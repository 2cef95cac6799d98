"""What a reader is told at each poll of positions that are not followed is what an applier would say of each."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.evolution import EvolutionPolicy
from shared.lake.columns import followed as followed_columns
from shared.lake.columns import history as column_history
from shared.lake.columns.evolution import NotFollowed, steps_between
from shared.lake.columns.followed import ColumnEvolution, breaks, evolution, named
from shared.lake.columns.history import ColumnVersion, Field, Versions
from shared.lake.columns.identity import Identifying

IDENTIFYING = Identifying("tenant", ("id",))
WIDER = {"int32": "int64", "float32": "float64"}


@st.composite
def histories(draw: st.DrawFn) -> list[ColumnVersion]:
    """A table of four columns, and what becomes of them and of others in a snapshot each."""
    kinds = {"id": "int32", "tenant": "varchar", "i": "int32", "f": "float32"}
    live = {n: ColumnVersion(n, None, name, kind, None, 1, None) for n, (name, kind) in enumerate(kinds.items(), 1)}
    ended, at = list[ColumnVersion](), 1
    for what in draw(st.lists(st.sampled_from(["add", "drop", "rename", "widen"]), max_size=6)):
        at += 1
        chosen = draw(st.sampled_from(sorted(live)))
        old, number = live[chosen], max(*live, *(each.id for each in ended), 4) + 1
        if what == "add":
            name = draw(st.sampled_from(["x", "y", "i", "tenant", "f"]))
            if name not in {each.name for each in live.values()}:
                live[number] = ColumnVersion(number, None, name, "int32", None, at, None)
            continue
        ended.append(replace(old, end=at))
        del live[chosen]
        if what == "rename":
            live[chosen] = replace(old, name=f"r{at}", begin=at)
        elif what == "widen":
            live[chosen] = replace(old, type=WIDER.get(old.type, old.type), begin=at)
        if not live:
            live[number] = ColumnVersion(number, None, "last", "int32", None, at, None)
    return sorted([*ended, *live.values()], key=lambda each: (each.id, each.begin))


def refusal(versions: Versions, position: int, at: int, policy: EvolutionPolicy) -> str | None:
    try:
        evolution(versions, IDENTIFYING, position, at, policy)
    except NotFollowed as why:
        return str(why)
    return None


@given(histories())
def test_breaks_are_where_an_applier_would_refuse(versions: list[ColumnVersion]) -> None:
    at = max(n for each in versions for n in (each.begin, each.end) if n is not None)
    found = breaks(versions, IDENTIFYING, at)
    for position in range(1, at + 1):
        for policy in EvolutionPolicy:
            told = [each.why for each in found if each.refuses(position, policy)]
            wanted = refusal(versions, position, at, policy)
            assert told == ([] if wanted is None else [wanted]), (position, policy)


def test_a_table_that_has_grown_a_thousand_times_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [ColumnVersion(n, None, name, "varchar", None, 1, None) for n, name in enumerate(("id", "tenant"), 1)]
    versions += [ColumnVersion(n, None, f"c{n}", "varchar", None, n, None) for n in range(3, 1_003)]
    compared, looked = Mock(wraps=steps_between), Mock(wraps=column_history.fields_at)
    monkeypatch.setattr(followed_columns, "steps_between", compared)
    monkeypatch.setattr(followed_columns, "fields_at", looked)
    for _ in range(3):
        found = breaks(versions, IDENTIFYING, 1_002)
    assert {each.policy for each in found} == {EvolutionPolicy.FREEZE}
    assert (len(found), compared.call_count, looked.call_count) == (1_000, 0, 1_001)


def field(column: int, name: str) -> Field:
    return Field(column, name, "int32", ())


THEN, NOW = (field(1, "a"), field(2, "b")), (field(1, "b"), field(2, "a"), field(3, "c"))


def test_a_tables_own_columns_are_found_by_the_names_that_the_source_has_by_now() -> None:
    exchanged = ColumnEvolution(THEN, NOW, steps_between(THEN, NOW))
    before, after = (field(7, "a"), field(8, "b")), (field(7, "b"), field(8, "a"), field(9, "c"))
    assert named(before, exchanged, ("a", "B")) == (before[1], before[0])
    assert named(after, exchanged, ("a", "b")) == (after[1], after[0])
    assert named(before, None, ("B",)) == (before[1],)


def test_columns_that_a_table_does_not_have_are_not_found() -> None:
    exchanged = ColumnEvolution(THEN, NOW, steps_between(THEN, NOW))
    assert named((field(7, "a"), field(8, "b")), exchanged, ("c",)) is None
    assert named((field(7, "a"), field(8, "x")), exchanged, ("a",)) is None
    assert named((), None, ("a",)) is None
