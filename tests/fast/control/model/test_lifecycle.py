"""A destination's lives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.control.model.answers import answer
from services.control.model.lifecycle import (
    Declared,
    OnGap,
    Registered,
    adopt,
    declare,
    drop,
    remove,
    reseed,
    restart,
    resume,
    rewind,
    stop,
)
from services.control.model.reconciliation import reconcile
from shared.contracts.errors import POLICY, ConfigError
from shared.contracts.layout import NO_LAYOUT, TableLayout
from shared.contracts.messages import (
    ADOPTABLE,
    MAX_GENERATION,
    DesiredState,
    Destination,
    ItemKind,
    LakeRef,
    Outcome,
    Progress,
    SeedMode,
)
from shared.contracts.positions import SpelledPosition
from shared.contracts.routed_by import RoutedBy
from tests.fast.control.examples import PIPELINE, by_id, declared, problem, progress, registered, revision

NEW = revision("2", 60)


def test_a_new_destination_begins_with_generation_one() -> None:
    held = declare(None, declared(), "file", NEW)
    assert (held.generation, held.desired, held.replace, held.removed) == (1, DesiredState.RUNNING, False, False)
    assert held.revision == NEW


def test_declaring_the_same_again_changes_nothing() -> None:
    held = registered()
    assert declare(held, declared(), "file", NEW) is held


def test_a_destination_that_comes_back_lives_in_the_next_generation() -> None:
    gone = remove(registered(generation=4), revision("2"))
    back = declare(gone, declared(), "file", revision("3"))
    assert (gone.generation, gone.removed, gone.desired) == (4, True, DesiredState.STOPPED)
    assert (back.generation, back.removed, back.desired) == (5, False, DesiredState.RUNNING)


def test_removing_twice_is_removing_once() -> None:
    gone = remove(registered(), NEW)
    assert remove(gone, revision("3")) is gone


OTHER_CONTENT: list[dict[str, Any]] = [
    {"routing_value": "another"},
    {"schema_name": "elsewhere"},
    {"table": "another"},
    {"identity": "another lake"},
    {"routed_by": RoutedBy(field="country")},
    {"routed_by": RoutedBy(field="company", append_only=True)},
]


@pytest.mark.parametrize("change", OTHER_CONTENT, ids=lambda change: next(iter(change)))
def test_other_content_means_the_next_generation(change: dict[str, Any]) -> None:
    after = declare(registered(generation=2), replace(declared(), **change), "file", NEW)
    assert (after.generation, after.revision) == (3, NEW)


@pytest.mark.parametrize("change", OTHER_CONTENT, ids=lambda change: next(iter(change)))
def test_a_permission_to_replace_does_not_follow_a_destination_to_other_content(change: dict[str, Any]) -> None:
    """Rows of a table that nobody asked to reseed must never be replaced."""
    assert not declare(registered(replace=True), replace(declared(), **change), "file", NEW).replace


SAME_CONTENT: list[dict[str, Any]] = [
    {"seed_mode": SeedMode.LATEST},
    {"name": "a catalog"},
    {"lake": LakeRef(catalog_env="NEW_NAME_OF_THE_SAME_LAKE")},
    {"lake": declared().lake.model_copy(update={"data_path": "s3://elsewhere"})},
    {"lake": declared().lake.model_copy(update={"properties": {"s3_region": "eu"}})},
    {"layout": TableLayout(partitioned_by="year(ts)", encrypted=True)},
]


@pytest.mark.parametrize("change", SAME_CONTENT, ids=lambda change: next(iter(change)))
def test_the_same_content_otherwise_declared_lives_on_with_a_new_revision(change: dict[str, Any]) -> None:
    after = declare(registered(generation=2), replace(declared(), **change), "file", NEW)
    assert (after.generation, after.revision) == (2, NEW)


TENANT, OWN_NAMES = RoutedBy(field="tenant"), frozenset({"tenant", "company"})
"""A routing column that was called company."""


def test_another_name_of_the_routing_column_is_the_same_life() -> None:
    after = declare(registered(generation=2), replace(declared(), routed_by=TENANT), "file", NEW, own_names=OWN_NAMES)
    assert (after.generation, after.revision, after.declared.routed_by) == (2, NEW, TENANT)


@pytest.mark.parametrize("before", [RoutedBy(field="country"), RoutedBy(field="company", append_only=True)], ids=str)
def test_another_routing_column_is_another_life(before: RoutedBy) -> None:
    held = registered(generation=2, declared=replace(declared(), routed_by=before))
    assert declare(held, replace(declared(), routed_by=TENANT), "file", NEW, own_names=OWN_NAMES).generation == 3


@pytest.mark.parametrize("append_only", [False, True])
def test_others_are_told_by_what_a_life_is_routed(append_only: bool) -> None:
    """As it is registered, not by the file that this control has."""
    by = RoutedBy(field="tenant", append_only=append_only)
    said = registered(declared=replace(declared(), routed_by=by)).message(PIPELINE)
    assert Destination.from_bytes(said.to_bytes()).routed_by == by


def test_what_came_over_rest_is_routed_by_the_column_that_the_file_says() -> None:
    other = declared("b", routed_by=RoutedBy(field="country"), left=("set NOT NULL of v",))
    held = by_id([registered(managed_by="api"), registered("b", managed_by="api", declared=other)])
    same, another = reconcile(held, [], NEW, (), TENANT, OWN_NAMES)
    assert [(each.id, each.generation) for each in (same, another)] == [("a", 1), ("b", 2)]
    assert (another.declared.left, same.managed_by, another.managed_by) == ((), "api", "api")
    assert {each.declared.routed_by for each in (same, another)} == {TENANT}
    assert reconcile(by_id([same, another]), [], revision("3"), (), TENANT, OWN_NAMES) == ()


def test_what_is_removed_or_on_its_way_is_not_routed_at_all() -> None:
    gone = registered(managed_by="api", removed=True)
    going = drop(registered("b", managed_by="api", declared=declared("b")), NEW)
    assert reconcile(by_id([gone, going]), [], revision("3"), (), TENANT, OWN_NAMES) == ()


def test_a_password_that_changed_is_a_new_revision_so_that_a_parked_destination_is_tried_again() -> None:
    after = declare(registered(generation=2), declared(), "file", NEW, touched=True)
    assert (after.generation, after.revision) == (2, NEW)


def test_a_variable_that_control_does_not_know_changes_nothing() -> None:
    """Control needs no tenant's credentials; on a machine without them it must not take the lake for another."""
    lake = LakeRef(catalog_env="LAKE_OF_A")
    held = registered(declared=declared(lake=lake, identity="resolved"))
    assert declare(held, declared(lake=lake, identity=None), "file", NEW) is held


def test_a_lake_that_was_known_is_still_told_from_another_after_it_was_unknown_for_a_while() -> None:
    lake = LakeRef(catalog_env="LAKE_OF_A")
    held = registered(declared=declared(lake=lake, identity="one"))
    unknown = declare(held, declared(lake=lake, identity=None, name="renamed"), "file", NEW)
    assert declare(unknown, declared(lake=lake, identity="two"), "file", NEW).generation == held.generation + 1


def test_another_variable_that_control_does_not_know_is_another_lake() -> None:
    held = registered(declared=declared(lake=LakeRef(catalog_env="ONE"), identity=None))
    after = declare(held, declared(lake=LakeRef(catalog_env="TWO"), identity=None), "file", NEW)
    assert after.generation == held.generation + 1


def test_a_damaged_destination_is_seeded_anew_and_replaced() -> None:
    parked = progress(Outcome.PARKED, error=problem("destination_damaged", retryable=False), generation=3)
    after = answer(registered(generation=3), parked, "park", NEW)
    assert (after.generation, after.replace, after.revision) == (4, True, NEW)


def harmed(seconds: float = 10.0, **changes: Any) -> Progress:
    error = problem("upkeep_damaged", retryable=False)
    return progress(Outcome.PARKED, seconds=seconds, error=error, kind=ItemKind.UPKEEP, **changes)


def test_what_upkeep_damaged_stays_as_it_is_until_an_operator_resumes_it() -> None:
    """To reseed it would take away what shows the fault, and upkeep would go on to the next lake with it."""
    held = answer(registered(), harmed(), "reseed", NEW)
    assert (held.generation, held.is_damaged, held.desired) == (1, True, DesiredState.RUNNING)
    said = held.message("p")
    assert (said.state, said.is_damaged) == (DesiredState.PAUSED, True), "no reader plans anything for it"
    edited = declare(held, replace(declared(), name="another"), "file", revision("3"))
    assert edited.is_damaged
    assert answer(edited, progress(Outcome.APPLIED, seconds=20), "reseed", revision("4")) is edited
    resumed = resume(edited, revision("5"))
    assert (resumed.is_damaged, resumed.message("p").state) == (False, DesiredState.RUNNING)
    assert not restart(stop(edited, revision("5")), revision("6")).is_damaged
    again = reseed(edited, revision("5"))
    assert (again.is_damaged, again.generation, again.message("p").damage) == (False, 2, None)


def test_damage_that_was_looked_at_is_not_found_again_by_the_same_answer() -> None:
    held = resume(answer(registered(), harmed(), "park", NEW), revision("3"))
    repeated = harmed(40.0).model_copy(update={"since": harmed().at})
    assert answer(held, harmed(), "park", revision("4")) is held, "control reads the topic from its beginning"
    assert answer(held, repeated, "park", revision("4")) is held, "a reader says it again"
    assert answer(held, harmed(50.0), "park", revision("4")).is_damaged


def test_damage_of_an_earlier_life_is_gone() -> None:
    held = reseed(registered(), NEW)
    assert answer(held, harmed(), "park", revision("3")) is held
    assert not declare(remove(answer(registered(), harmed(), "park", NEW), NEW), declared(), "file", NEW).is_damaged
    moved = declare(answer(registered(), harmed(), "park", NEW), declared(table="other"), "file", revision("3"))
    assert (moved.generation, moved.is_damaged) == (2, False)


@pytest.mark.parametrize("type", ["history_expired", "source_recreated"])
def test_a_gap_is_seeded_anew_only_where_the_file_says_so(type: str) -> None:
    held, parked = registered(), progress(Outcome.PARKED, error=problem(type, retryable=False))
    assert answer(held, parked, "park", NEW) is held
    after = answer(held, parked, "reseed", NEW)
    assert (after.generation, after.replace) == (2, True)


@given(st.sampled_from(sorted(POLICY)), st.sampled_from([o for o in Outcome if o is not Outcome.FENCED]))
def test_no_other_answer_asks_for_a_new_life(type: str, outcome: Outcome) -> None:
    held = registered()
    after = answer(held, progress(outcome, error=problem(type)), "park", NEW)
    asked = outcome is Outcome.PARKED and type == "destination_damaged"
    assert (after.generation > held.generation) == asked
    assert (after is not held) == (outcome is Outcome.PARKED and type in ("destination_damaged", "upkeep_damaged"))


def test_the_same_answer_twice_asks_for_one_new_life() -> None:
    parked = progress(Outcome.PARKED, error=problem("destination_damaged"))
    once = answer(registered(), parked, "park", NEW)
    assert answer(once, parked, "park", revision("3")) is once


def test_an_answer_to_a_removed_destination_asks_for_nothing() -> None:
    gone = remove(registered(), NEW)
    assert answer(gone, progress(Outcome.FENCED, generation=9), "reseed", NEW) is gone


def test_a_cursor_of_a_later_life_is_adopted() -> None:
    """The registry was lost; the destination's lake remembers how often it lived."""
    after = answer(registered(), progress(Outcome.FENCED, generation=7), "park", NEW)
    assert (after.generation, after.replace) == (7, False)


def test_a_cursor_of_an_older_life_is_not_adopted() -> None:
    held = registered(generation=7)
    assert answer(held, progress(Outcome.FENCED, generation=6), "park", NEW) is held


@given(st.integers())
def test_a_generation_never_shrinks_and_never_becomes_garbage(generation: int) -> None:
    after = adopt(registered(generation=7), generation, NEW)
    assert 7 <= after.generation <= MAX_GENERATION


@given(st.integers(min_value=1, max_value=2**64))
@example(MAX_GENERATION)
@example(ADOPTABLE)
def test_whatever_a_cursor_says_another_life_can_follow_and_be_told_of(generation: int) -> None:
    """A tenant wrote 2**53 into his own cursor and removed his files: no destination of the pipeline was heard of any
    more, since what was to be said of his could not be."""
    held = adopt(registered(), generation, NEW)
    damaged = progress(
        Outcome.PARKED, generation=min(held.generation, MAX_GENERATION), error=problem("destination_damaged")
    )
    for after in (
        answer(held, damaged, "park", NEW),
        reseed(held, NEW),
        rewind(held, SpelledPosition(3), NEW),
        drop(held, NEW),
    ):
        assert after.generation == held.generation + 1
        assert after.message("p").generation == after.generation


def test_the_file_takes_over_what_came_over_rest_if_it_is_the_same_table() -> None:
    held = by_id([registered(managed_by="api", generation=3)])
    [after] = reconcile(held, [declared()], NEW)
    assert (after.managed_by, after.generation) == ("file", 3)


@pytest.mark.parametrize("other", [{"table": "another"}, {"identity": "another lake"}], ids=["table", "lake"])
def test_the_file_does_not_take_over_another_table_under_the_same_id(other: dict[str, Any]) -> None:
    held = by_id([registered(managed_by="api")])
    with pytest.raises(ConfigError, match="a came over REST with another lake or table"):
        reconcile(held, [replace(declared(), **other)], NEW)


def test_the_file_can_not_have_a_routing_value_or_table_of_a_destination_that_came_over_rest() -> None:
    held = by_id([registered("b", managed_by="api", declared=declared("b"))])
    with pytest.raises(ConfigError) as caught:
        reconcile(held, [replace(declared("b"), id="a")], NEW)
    value, table = caught.value.mistakes
    assert value.startswith("destinations: a: routing_value: is that of b (over REST) too;")
    assert table.startswith("destinations: a: table: lake and table are those of b (over REST) too;")


def test_what_went_from_the_file_is_removed_and_what_came_over_rest_stays() -> None:
    held = by_id([registered("a"), registered("b", managed_by="api", declared=declared("b"))])
    changed = reconcile(held, [], NEW)
    assert [(each.id, each.removed) for each in changed] == [("a", True)]


def test_two_destinations_may_swap_their_routing_values() -> None:
    held = by_id([registered("a"), registered("b", declared=declared("b"))])
    swapped = [declared("a", routing_value="value of b"), declared("b", routing_value="value of a")]
    assert [each.generation for each in reconcile(held, swapped, NEW)] == [2, 2]


DECLARATIONS = st.builds(
    declared,
    id=st.sampled_from("abc"),
    routing_value=st.sampled_from("xy"),
    identity=st.sampled_from(["one", "two", None]),
    table=st.sampled_from(["t", "u"]),
    name=st.sampled_from(["", "n"]),
)
FILES = st.lists(DECLARATIONS, unique_by=lambda each: each.id, max_size=3)
ANSWERS = st.builds(
    progress,
    outcome=st.sampled_from(Outcome),
    id=st.sampled_from("abc"),
    generation=st.integers(1, 6),
    error=st.none() | st.sampled_from(["destination_damaged", "history_expired", "table_mismatch"]).map(problem),
)


@given(st.lists(st.one_of(FILES, ANSWERS, st.just("stop and start"))), st.sampled_from(["park", "reseed"]))
def test_whatever_happens_generations_only_grow_and_a_new_life_is_a_new_revision(
    history: list[list[Declared] | Progress | str], on_gap: OnGap
) -> None:
    held: dict[str, Registered] = {}
    for number, event in enumerate(history):
        before, held = held, _after(held, event, on_gap, str(number))
        assert before.keys() <= held.keys()
        for was in before.values():
            now = held[was.id]
            assert now.generation >= was.generation
            assert now.generation == was.generation or now.revision != was.revision
            assert not (was.removed and not now.removed) or now.generation > was.generation
            assert now.declared.same_content(was.declared) or now.generation > was.generation


def _after(held: dict[str, Registered], event: Any, on_gap: OnGap, name: str) -> dict[str, Registered]:
    if isinstance(event, list):
        return held | by_id(reconcile(held, event, revision(name)))
    if isinstance(event, Progress) and event.destination in held:
        return held | {event.destination: answer(held[event.destination], event, on_gap, revision(name))}
    return held


@given(FILES)
def test_a_file_that_did_not_change_writes_nothing(file: list[Declared]) -> None:
    held = by_id(reconcile({}, file, revision("1")))
    assert reconcile(held, file, revision("2")) == ()


# -- layouts ----------------------------------------------------------------------------------------------------------

BY_YEAR, BY_ID = TableLayout(partitioned_by="year(ts)"), TableLayout(sorted_by="id")


def layouts(held: Registered) -> tuple[TableLayout | None, TableLayout | None]:
    """What control believes that the table has where that is not what is declared, and what it tells appliers."""
    return held.declared.laid_out, held.message("events").layout


def test_a_layout_is_told_to_appliers_once_something_is_said_of_it() -> None:
    assert layouts(registered()) == (None, None)
    assert layouts(registered(declared=declared(layout=BY_YEAR))) == (None, BY_YEAR)


def test_another_layout_is_no_new_life_and_holds_from_the_next_reseed_on() -> None:
    held = declare(registered(), declared(layout=BY_YEAR), "file", NEW)
    assert (held.generation, held.revision, held.declared.next_layout) == (1, NEW, BY_YEAR)
    assert layouts(held) == (NO_LAYOUT, BY_YEAR)
    again = declare(held, declared(layout=BY_YEAR), "file", revision("3"))
    assert again is held
    assert rewind(held, SpelledPosition(3), NEW).declared.next_layout == BY_YEAR
    assert reseed(held, NEW).declared.next_layout is None


def test_a_layout_that_is_taken_back_leaves_nothing_to_do() -> None:
    held = declare(registered(declared=declared(layout=BY_YEAR)), declared(layout=BY_ID), "file", NEW)
    assert layouts(held) == (BY_YEAR, BY_ID)
    back = declare(held, declared(layout=BY_YEAR), "file", revision("3"))
    assert (layouts(back), back.declared.next_layout) == ((None, BY_YEAR), None)
    none = declare(back, declared(), "file", revision("4"))
    assert layouts(none) == (BY_YEAR, NO_LAYOUT), "an applier that reseeds must hear that no layout is wanted any more"


def test_other_content_begins_with_the_declared_layout() -> None:
    held = declare(registered(declared=declared(layout=BY_YEAR)), declared(layout=BY_ID), "file", NEW)
    after = declare(held, declared(layout=BY_ID, table="another"), "file", revision("3"))
    assert after.declared.next_layout is None


def test_a_table_that_kept_its_layout_says_so() -> None:
    held = registered(declared=declared(layout=BY_YEAR))
    kept = answer(held, progress(kind=ItemKind.SEED, layout=BY_ID), "park", NEW)
    assert (kept.declared.next_layout, kept.revision) == (BY_YEAR, held.revision)
    assert answer(kept, progress(kind=ItemKind.SEED, layout=BY_ID), "park", NEW) is kept
    assert answer(kept, progress(kind=ItemKind.SEED, layout=BY_YEAR), "park", NEW).declared.next_layout is None


def test_a_seed_of_a_layout_that_was_changed_meanwhile_holds_until_the_next() -> None:
    """Control believed that the seed would still find the new one, or the other way round."""
    held = declare(registered(generation=2), declared(layout=BY_YEAR), "file", NEW)
    seeded = answer(held, progress(kind=ItemKind.SEED, generation=2, layout=BY_YEAR), "park", NEW)
    assert seeded.declared.next_layout is None
    assert answer(held, progress(kind=ItemKind.SEED, generation=1, layout=BY_YEAR), "park", NEW) is held


def test_a_life_of_a_topic_begins_where_it_is_told_to_and_the_next_one_where_the_file_says() -> None:
    held = registered(generation=3)
    rewound = rewind(held, SpelledPosition(5, '{"0":3,"1":2}'), NEW)
    said = rewound.message("events")
    assert (said.generation, said.replace, said.seed_at, said.seed_from) == (4, False, 5, '{"0":3,"1":2}')
    assert said.rewound_to is not None
    anew = reseed(rewound, NEW, earliest=True).message("events")
    assert (anew.generation, anew.replace, anew.seed_at, anew.seed_from) == (5, True, None, "earliest")
    assert anew.rewound_to is None
    for after in (reseed(rewound, NEW), drop(rewound, NEW), remove(rewound, NEW)):
        assert (after.seed_at, after.seed_from) == (None, None)


def test_what_a_table_could_not_be_given_is_known_until_it_is_told_otherwise() -> None:
    held = registered()
    lacking = answer(held, progress(kind=ItemKind.CHANGES, left=("not carried: x",)), "park", NEW)
    assert (lacking.declared.left, lacking.revision) == (("not carried: x",), held.revision)
    assert lacking.declared == held.declared, "it is no other declaration"
    again = declare(lacking, replace(held.declared, name="other"), "file", NEW)
    assert again.declared.left == ("not carried: x",)
    assert answer(lacking, progress(kind=ItemKind.CHANGES), "park", NEW) is lacking
    assert answer(lacking, progress(kind=ItemKind.CHANGES, left=()), "park", NEW).declared.left == ()
    assert reseed(lacking, NEW).declared.left == ()
