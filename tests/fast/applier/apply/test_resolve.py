"""Touched keys and the end state make the net change: against a dictionary that replays every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.applier.apply.resolve import Image, KeyNotUnique, NetChange, resolve, touched_keys

TENANTS = ("a", "b", None)
KEYS = (None, "", 1, 2)

Table = dict[tuple[object, object], object]
"""(tenant, key) → value: what a source with a real key holds."""

events = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "move", "rekey"]), st.sampled_from(TENANTS), st.sampled_from(KEYS),
              st.sampled_from(TENANTS), st.sampled_from(KEYS), st.integers(0, 3)),
    max_size=12,
)  # fmt: skip
histories = st.lists(events, min_size=1, max_size=4)


def play(
    table: Table, happened: list[tuple[str, object, object, object, object, int]]
) -> tuple[list[Image], list[Image]]:
    """Apply events to ``table``; returns the images that a feed would at least name."""
    inserted, deleted = [], []
    for what, tenant, key, other_tenant, other_key, value in happened:
        here = (tenant, key)
        target = {"move": (other_tenant, key), "rekey": (tenant, other_key)}.get(what, here)
        if what != "put" and here not in table:
            continue
        if here in table:
            deleted.append(Image(*here))
            kept = table.pop(here)
        else:
            kept = value
        if what == "delete":
            continue
        if target in table:
            deleted.append(Image(*target))
        table[target] = value if what == "put" else kept
        inserted.append(Image(*target))
    return inserted, deleted


def slice_of(table: Table, tenant: object) -> dict[object, object]:
    return {key: value for (owner, key), value in table.items() if owner == tenant}


def net(table: Table, inserted: list[Image], deleted: list[Image], tenant: object) -> NetChange:
    state = [(key, {"v": value}) for key, value in slice_of(table, tenant).items()]
    return resolve(touched_keys(inserted, deleted, tenant), state)


def applied(destination: dict[object, object], change: NetChange) -> dict[object, object]:
    kept = {key: value for key, value in destination.items() if key not in change.touched}
    return kept | {key: row["v"] for key, row in change.upserts.items()}


@given(histories)
def test_any_history_ends_equal(history: list[list[tuple[str, object, object, object, object, int]]]) -> None:
    table: Table = {}
    destinations: dict[object, dict[object, object]] = {tenant: {} for tenant in TENANTS}
    for cut in history:
        inserted, deleted = play(table, cut)
        for tenant in TENANTS:
            destinations[tenant] = applied(destinations[tenant], net(table, inserted, deleted, tenant))
            assert destinations[tenant] == slice_of(table, tenant)


@given(events, events)
def test_applying_a_superset_of_what_changed_is_harmless(
    earlier: list[tuple[str, object, object, object, object, int]],
    later: list[tuple[str, object, object, object, object, int]],
) -> None:
    table: Table = {}
    before = play(table, earlier)
    at_middle = slice_of(table, "a")
    after = play(table, later)
    change = net(table, before[0] + after[0], before[1] + after[1], "a")
    assert applied(at_middle, change) == slice_of(table, "a")


@given(events)
def test_applying_twice_changes_nothing(happened: list[tuple[str, object, object, object, object, int]]) -> None:
    table: Table = {}
    change = net(table, *play(table, happened), "a")
    once = applied({}, change)
    assert applied(once, change) == once


def test_a_moved_row_is_touched_in_both_tenants() -> None:
    inserted, deleted = [Image("b", 1)], [Image("a", 1)]
    assert touched_keys(inserted, deleted, "a") == {1}
    assert touched_keys(inserted, deleted, "b") == {1}


def test_two_live_rows_of_one_key_are_refused_with_the_key() -> None:
    with pytest.raises(KeyNotUnique, match="7"):
        resolve([7], [(7, {"v": 1}), (7, {"v": 2})])


def test_null_is_a_key_like_any_other_and_is_not_the_empty_string() -> None:
    change = resolve([None], [(None, {"v": 1}), ("", {"v": 2})])
    assert change.upserts == {None: {"v": 1}}
