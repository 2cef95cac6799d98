"""Logs of runs against the specification: a right one is explained, each wrong one refused where it goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.contracts.messages import ItemKind, Outcome
from tests.model.judge import judge
from tests.model.trace import Answered, Anything, Committed, Sent, dump, parse

D = "events/a"


def work(item: str, after: int, through: int, kind: ItemKind = ItemKind.CHANGES, *, gen: int = 1) -> Sent:
    return Sent(destination=D, item=item, kind=kind, generation=gen, expected=after, after=after, through=through)


def commit(item: str, after: int, through: int, kind: str = "changes", *, gen: int = 1, token: str = "") -> Committed:
    return Committed.model_validate(
        {"destination": D, "item": item, "kind": kind, "generation": gen, "after": after, "through": through,
         "token": token or f"token of {item}, {gen}"}
    )  # fmt: skip


def says(item: str, outcome: Outcome, position: int | None, *, gen: int = 1, through: int | None = None) -> Answered:
    return Answered(destination=D, item=item, outcome=outcome, generation=gen, position=position, through=through)


SEEDED: list[Anything] = [work("s", -1, 3, ItemKind.SEED), commit("s", -1, 3, "seed")]

RIGHT: list[Anything] = [
    work("p", -1, 0, ItemKind.PROBE),
    says("p", Outcome.ALREADY_APPLIED, -1),
    *SEEDED,
    says("s", Outcome.APPLIED, 3, through=3),
    work("c1", 3, 5),
    commit("c1", 3, 6),  # read up to the head
    says("c1", Outcome.APPLIED, 6, through=6),
    says("c1", Outcome.ALREADY_APPLIED, 6),
    work("late", 3, 9),
    says("late", Outcome.GAP, 6),
    work("none", 6, 7),
    says("none", Outcome.EMPTY, 6, through=8),
    work("ahead", 8, 8, ItemKind.ADVANCE).model_copy(update={"expected": 6}),
    commit("ahead", 8, 8, "advance"),
    commit("nobody has seen this item", 8, 9),
    work("s2", -1, 7, ItemKind.SEED, gen=2),
    commit("s2", 9, 7, "seed", gen=2),  # a rewind: another life may begin earlier
    says("late", Outcome.FENCED, 7, gen=2),
    commit("upkeep", 0, 0, "maintenance", gen=2),
    work("d", -1, 0, ItemKind.DROP, gen=3),
    commit("d", 7, 7, "drop", gen=3),
    says("d", Outcome.APPLIED, -1, gen=3),
    says("s2", Outcome.FENCED, -1, gen=4),  # the first life that may begin
    work("again", -1, 0, ItemKind.DROP, gen=3),
    says("again", Outcome.ALREADY_APPLIED, -1, gen=3),
    work("s4", -1, 9, ItemKind.SEED, gen=4),
    commit("s4", -1, 9, "seed", gen=4),
]

DROPPED: list[Anything] = [*SEEDED, commit("d", 3, 3, "drop", gen=2)]


def direct(
    item: str, after: int, through: int, looked: int, snapshot: int, kind: str = "changes", gen: int = 1
) -> Committed:
    told = {"path": "direct", "looked": looked, "snapshot": snapshot}
    return commit(item, after, through, kind, gen=gen).model_copy(update=told)


def numbered(event: Committed, snapshot: int) -> Committed:
    return event.model_copy(update={"snapshot": snapshot})


MIXED: list[Anything] = [
    numbered(commit("s", -1, 3, "seed"), 4),
    work("c1", 3, 5),
    direct("c1", 3, 5, 4, 5),
    says("c1", Outcome.APPLIED, 5, through=5),
    numbered(commit("c2", 5, 6), 6),
    numbered(commit("upkeep", 6, 6, "maintenance"), 9),  # the owner has committed meanwhile
    direct("c3", 6, 7, 11, 12),
    direct("ahead", 8, 8, 12, 13, "advance"),
    says("c3", Outcome.ALREADY_APPLIED, 8),
    direct("c4", 8, 9, 15, 16).model_copy(update={"looked": None}),  # a stamp need not tell the look
    direct("s2", 9, 4, 16, 17, "seed", gen=2),
]

WRONG: dict[str, tuple[list[Anything], int]] = {
    "changes before the first seed": ([commit("c", -1, 4)], 1),
    "a range that begins before the cursor": ([*SEEDED, commit("c", 2, 5)], 2),
    "a range that another has applied already": ([*SEEDED, commit("c1", 3, 6), commit("c2", 3, 6)], 3),
    "an item that expects another position": ([*SEEDED, work("c", 4, 6), commit("c", 4, 6)], 2),
    "an end before the item's": ([*SEEDED, work("c", 3, 9), commit("c", 3, 6)], 2),
    "a position that stands still": ([*SEEDED, commit("c", 3, 3)], 2),
    "a position that falls": ([*SEEDED, commit("c1", 3, 9), commit("c2", 9, 5)], 3),
    "an item of an older life": ([*SEEDED, commit("s2", 3, 4, "seed", gen=2), commit("c", 4, 6)], 3),
    "a seed that begins no new life": ([*SEEDED, commit("s2", 3, 4, "seed")], 2),
    "a seed of an older life": ([commit("s2", -1, 4, "seed", gen=2), commit("s", 4, 5, "seed")], 2),
    "a seed that replaces another position than there was": ([*SEEDED, commit("s2", 2, 4, "seed", gen=2)], 2),
    "an advance over a range": ([*SEEDED, commit("a", 3, 6, "advance")], 2),
    "a token that was there before": ([*SEEDED, commit("c", 3, 6, token="token of s, 1")], 2),
    "an item that is applied twice": ([*SEEDED, commit("c", 3, 6), commit("c", 6, 7, token="another")], 3),
    "a pinned item that went on": (
        [*SEEDED, work("c", 3, 5).model_copy(update={"pinned": True}), commit("c", 3, 6)], 2),
    "`applied` without a commit": ([*SEEDED, work("c", 3, 6), says("c", Outcome.APPLIED, 6, through=6)], 2),
    "`applied` up to where the commit did not go": (
        [*SEEDED, work("c", 3, 6), commit("c", 3, 6), says("c", Outcome.APPLIED, 7, through=7)], 3),
    "`already_applied` of what is not": ([*SEEDED, work("c", 3, 6), says("c", Outcome.ALREADY_APPLIED, 3)], 2),
    "`already_applied` at a position that never was": (
        [*SEEDED, work("c", 3, 6), commit("c", 3, 6), says("c", Outcome.ALREADY_APPLIED, 7)], 3),
    "`gap` where the item fits": ([*SEEDED, work("c", 3, 6), says("c", Outcome.GAP, 3)], 2),
    "`fenced` by the life that the item is of": ([*SEEDED, work("c", 3, 6), says("c", Outcome.FENCED, 3)], 2),
    "`empty` short of the item's end": ([*SEEDED, work("c", 3, 6), says("c", Outcome.EMPTY, 3, through=5)], 2),
    "a seed of a life that was dropped": ([*DROPPED, commit("late", -1, 4, "seed", gen=1)], 3),
    "changes of what was dropped": ([*DROPPED, commit("c", 3, 6)], 3),
    "a drop of a later life": ([*DROPPED, commit("s3", -1, 5, "seed", gen=3), commit("d2", 5, 5, "drop", gen=2)], 4),
    "a drop of nothing": ([commit("d", -1, 0, "drop")], 1),
    "`applied` of a drop that was none": (
        [*SEEDED, work("d", -1, 0, ItemKind.DROP, gen=2), says("d", Outcome.APPLIED, -1, gen=2)], 2),
    "a direct commit that is not the snapshot after its look": ([*MIXED[:-1], direct("c", 9, 10, 16, 18)], 10),
    "a direct commit on a look from before the last commit": ([*MIXED[:-1], direct("c", 9, 10, 13, 14)], 10),
    "a direct commit on a look from before an upkeep": ([*MIXED[:6], direct("c", 6, 7, 8, 9)], 6),
    "a direct commit below an earlier one": (
        [*MIXED[:-1], direct("c", 9, 10, 13, 14).model_copy(update={"looked": None})], 10),
    "a direct commit of a range that another has applied": ([*MIXED[:-1], direct("c", 6, 9, 16, 17)], 10),
    "a seed by the direct path that begins no new life": ([*MIXED, direct("s3", 4, 5, 17, 18, "seed", gen=2)], 11),
    "a seed by the direct path where a life was dropped": ([*DROPPED, direct("s3", -1, 5, 8, 9, "seed", gen=3)], 3),
    "a drop by the direct path": ([*MIXED[:-1], direct("d", 9, 9, 16, 17, "drop", gen=2)], 10),
    "an upkeep by the direct path": ([*MIXED[:-1], direct("u", 9, 9, 16, 17, "maintenance")], 10),
    "an answer from before the item was sent": (
        [*SEEDED, commit("c", 3, 6), work("d", 6, 9),
         says("d", Outcome.GAP, 3).model_copy(update={"since": 2})], 3),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int | None]:
    """Where each trace is refused: the number of the event, items not counted."""
    refused = judge([RIGHT, MIXED, *(events for events, _ in WRONG.values())], tmp_path_factory.mktemp("tlc"))
    return dict(zip(["right", "mixed", *WRONG], refused, strict=True))


@pytest.mark.parametrize("right", ["right", "mixed"])
def test_a_right_trace_is_explained(right: str, judged: dict[str, int | None]) -> None:
    assert judged[right] is None


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_trace_is_refused_where_it_goes_wrong(wrong: str, judged: dict[str, int | None]) -> None:
    assert judged[wrong] == WRONG[wrong][1]


def test_a_trace_survives_its_file() -> None:
    assert parse(dump([*RIGHT, *MIXED]).splitlines()) == [*RIGHT, *MIXED]


def test_one_id_for_two_items_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="different contents"):
        judge([[work("c", 3, 5), work("c", 3, 6)]], tmp_path)


def test_names_that_tla_can_not_spell_stay_apart(tmp_path: Path) -> None:
    odd = ['say "hi"', "back\\slash", "naïve", "na%C3%AFve"]
    events = [commit(f"item {name}", n, n + 1, "seed", gen=n + 2, token=name) for n, name in enumerate(odd, start=-1)]
    assert judge([events], tmp_path) == [None]
