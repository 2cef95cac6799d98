"""A registry that was lost."""

from __future__ import annotations

from dataclasses import replace

from services.control.model.lifecycle import declare, drop, pause, remove, rewind
from services.control.model.recovery import RememberedPipeline, recall
from shared.contracts.messages import MAX_GENERATION, Destination, LakeRef, Outcome
from shared.contracts.positions import SpelledPosition
from shared.contracts.routed_by import RoutedBy
from tests.fast.control.examples import PIPELINE, declared, progress, registered, revision

NEW = revision("rebuilt", 100)
COMPANY, REGION = RoutedBy(field="company"), RoutedBy(field="region")


def identity(lake: LakeRef) -> str:
    return f"identity of {lake.catalog}"


def test_what_is_published_is_registered_again_as_it_was() -> None:
    lives = [
        registered("plain", managed_by="api"),
        pause(registered("paused", generation=3), revision("2")),
        rewind(registered("rewound"), SpelledPosition(7, '{"0":7}'), revision("2")),
        drop(registered("dropping"), revision("2")),
    ]
    memory = RememberedPipeline(PIPELINE)
    for each in lives:
        memory.note_destination(each.message(PIPELINE))
    found = recall(memory, COMPANY, identity, NEW)
    assert found.destinations == tuple(replace(each, revision=NEW) for each in lives)
    assert found.forgotten == ()


def test_a_life_is_still_routed_as_it_was_told_though_the_file_changed_since() -> None:
    """Then the file's column begins another one."""
    told = registered("told", managed_by="api").message(PIPELINE)
    older = registered("older", managed_by="api").message(PIPELINE).model_copy(update={"routed_by": None})
    memory = RememberedPipeline(PIPELINE)
    for each in (told, older):
        memory.note_destination(Destination.from_bytes(each.to_bytes()))
    found = recall(memory, REGION, identity, NEW).destinations
    assert {each.id: each.declared.routed_by for each in found} == {"told": COMPANY, "older": REGION}


def test_a_life_that_somebody_spoke_of_is_never_lived_again() -> None:
    memory = RememberedPipeline(PIPELINE)
    memory.note_progress(progress(id="gone", generation=5))
    memory.note_progress(progress(Outcome.FENCED, id="gone", generation=4))
    memory.note_destination(remove(registered("gone", generation=2), revision("2")).message(PIPELINE))
    found = recall(memory, COMPANY, identity, NEW)
    assert found.forgotten == ("gone",)
    assert declare(found.destinations[0], declared("gone"), "api", revision("3")).generation == 6


def test_answers_tell_of_a_later_life_than_the_message_that_was_kept() -> None:
    memory = RememberedPipeline(PIPELINE)
    memory.note_destination(registered(generation=2).message(PIPELINE))
    memory.note_progress(progress(generation=4))
    memory.note_progress(progress(generation=MAX_GENERATION + 1))
    assert [each.generation for each in recall(memory, COMPANY, identity, NEW).destinations] == [4]
