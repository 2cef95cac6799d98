"""Whether an item that arrived is done now, later, or not at all."""

from __future__ import annotations

import json

import pytest

from services.applier.model.admission import KNOWN_WITHIN_S, Admission, admit
from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import (
    MAX_GENERATION,
    DesiredState,
    Destination,
    ItemKind,
    LakeRef,
    SeedMode,
    WorkItem,
)

ITEM = WorkItem(item="i", kind=ItemKind.PROBE, pipeline="p", destination="d", generation=2, through=1)


def destination(generation: int, state: DesiredState = DesiredState.RUNNING) -> Destination:
    return Destination(
        pipeline="p", destination="d", generation=generation, routing_value="x", state=state,
        lake=LakeRef(catalog="sqlite:x"), table="t", seed_mode=SeedMode.SCAN, revision="1",
    )  # fmt: skip


def test_an_item_of_the_present_life_runs() -> None:
    assert admit(ITEM, destination(2), 0.0) is Admission.RUN


def test_an_item_of_an_earlier_life_is_fenced_without_opening_the_lake() -> None:
    assert admit(ITEM, destination(3), 0.0) is Admission.FENCED


@pytest.mark.parametrize("known", [None, destination(1)])
def test_an_item_that_overtook_its_destination_waits_for_it_but_not_for_ever(known: Destination | None) -> None:
    assert admit(ITEM, known, 0.0) is Admission.HOLD
    assert admit(ITEM, known, KNOWN_WITHIN_S) is Admission.UNKNOWN


@pytest.mark.parametrize("state", [DesiredState.PAUSED, DesiredState.STOPPED])
def test_nothing_is_written_for_a_destination_that_is_switched_off(state: DesiredState) -> None:
    assert admit(ITEM, destination(2, state), 0.0) is Admission.HOLD, "a resume may have been overtaken"
    assert admit(ITEM, destination(2, state), KNOWN_WITHIN_S) is Admission.DROP


def test_of_a_destination_that_is_to_be_dropped_only_that_is_done() -> None:
    gone = destination(2, DesiredState.STOPPED).model_copy(update={"drop": True})
    drop = ITEM.model_copy(update={"kind": ItemKind.DROP})
    assert admit(drop, gone, 0.0) is Admission.RUN
    assert admit(ITEM, gone, KNOWN_WITHIN_S) is Admission.DROP
    assert admit(drop, destination(2, DesiredState.STOPPED), KNOWN_WITHIN_S) is Admission.REFUSED
    assert admit(drop, destination(3, DesiredState.STOPPED), 0.0) is Admission.FENCED


@pytest.mark.parametrize("state", list(DesiredState))
def test_nothing_is_dropped_that_control_does_not_want_dropped(state: DesiredState) -> None:
    drop = ITEM.model_copy(update={"kind": ItemKind.DROP})
    assert admit(drop, destination(2, state), 0.0) is Admission.REFUSED


def test_no_item_is_of_a_life_that_control_has_not_said_anything_of() -> None:
    beyond = ITEM.model_copy(update={"generation": MAX_GENERATION})
    assert admit(beyond, destination(2), KNOWN_WITHIN_S) is Admission.UNKNOWN


@pytest.mark.parametrize("name", ["generation", "through", "after", "expected"])
def test_numbers_that_nobody_reaches_are_no_numbers(name: str) -> None:
    sent = ITEM.model_dump(mode="json") | {name: 2**63 - 1}
    with pytest.raises(UnreadableMessage, match=name):
        WorkItem.from_bytes(json.dumps(sent).encode())
