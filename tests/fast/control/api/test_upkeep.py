"""Upkeep over REST: an operation for each destination, its item on the work topic, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.model.lifecycle import resume
from services.control.model.recovery import RememberedPipeline, recall
from services.control.operations.upkeep_service import RESEND_AFTER_S, UpkeepService
from shared.contracts.messages import Destination, ItemKind, Outcome, Progress, WorkItem
from shared.contracts.routed_by import RoutedBy
from shared.contracts.upkeep import StepOutcome, StepResult, UpkeepFigures, UpkeepResult, UpkeepStep
from tests.fast.control.examples import at, problem, progress, revision
from tests.fast.control.fakes import FakeTopic
from tests.fast.control.rig import V1, ControlRig, D

ON = {"upkeep": {"expire_after": "30d", "clean_after": "2d", "every": "1d", "at_once": 2}}


class Kept(ControlRig):
    """A control with upkeep, whose clock the test moves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sent, self.clock_s = FakeTopic("viaduck.work"), 0.0
        self.upkeep = UpkeepService(
            self.reconciler, self.service, self.status_store.view, self.sent, "viaduck.work", lambda: self.now,
            lambda: self.clock_s,
        )  # fmt: skip
        self.handle.upkeep = self.upkeep

    def items(self) -> list[WorkItem]:
        return [WorkItem.from_bytes(value) for _, value in self.sent.sent if value is not None]

    def turn(self, seconds: float = 10.0) -> list[WorkItem]:
        """What was sent in a turn after so many seconds."""
        before = len(self.items())
        self.clock_s += seconds
        self.now += timedelta(seconds=seconds)
        self.service.close_operations()
        self.upkeep.turn()
        return self.items()[before:]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Kept]:
    with closing(Kept(tmp_path)) as rig:
        for name in ("a", "b", "c"):
            rig.add(name)
            rig.applied(name, 1, 5)
        yield rig


def result(*steps: StepResult, dry_run: bool = False) -> UpkeepResult:
    figures = UpkeepFigures(files=9, bytes=90, delete_files=1, snapshots=12, waiting_files=3)
    return UpkeepResult(dry_run=dry_run, before=figures, after=figures, steps=steps)


def step(outcome: StepOutcome = StepOutcome.DONE, name: UpkeepStep = UpkeepStep.COMPACT, **told: Any) -> StepResult:
    return StepResult(step=name, outcome=outcome, **told)


def answer(of: WorkItem, upkeep: UpkeepResult | None = None, **told: Any) -> Progress:
    fields = {"kind": ItemKind.UPKEEP, "item": of.item, "position": 5, "upkeep": upkeep, **told}
    return progress(fields.pop("outcome", Outcome.ALREADY_APPLIED), of.destination, **fields)


def damage(destination: str) -> Progress:
    """What an applier answers where a snapshot shows other rows after an upkeep."""
    error = problem("upkeep_damaged", retryable=False)
    return progress(Outcome.PARKED, destination, kind=ItemKind.UPKEEP, error=error, seconds=100)


def asked(rig: Kept, body: dict[str, Any] | None = None, destination: str = "a") -> dict[str, Any]:
    found = rig.http.post(f"{D}/{destination}:upkeep", body or {})
    assert found.status_code == 202, found.text
    assert found.headers["Location"] == f"{V1}/operations/{found.json()['id']}"
    shown: dict[str, Any] = found.json()
    return shown


def operation(rig: Kept, id: str) -> dict[str, Any]:
    found: dict[str, Any] = rig.http.get(f"{V1}/operations/{id}").json()
    return found


def test_it_becomes_an_item_and_ends_with_what_each_step_came_to(rig: Kept) -> None:
    begun = asked(rig, {"steps": ["clean", "compact"], "dry_run": True})
    assert (begun["kind"], begun["state"], begun["upkeep"]) == ("upkeep", "running", None)
    (sent,) = rig.items()
    assert (sent.kind, sent.destination, sent.generation, sent.attempt) == (ItemKind.UPKEEP, "a", 1, 1)
    assert sent.upkeep is not None
    assert (sent.upkeep.steps, sent.upkeep.dry_run) == ((UpkeepStep.COMPACT, UpkeepStep.CLEAN), True)
    rig.said(answer(sent, result(step(files_removed=8), dry_run=True)))
    ended = operation(rig, begun["id"])
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert ended["upkeep"]["steps"][0]["files_removed"] == 8
    assert ended["upkeep"]["before"]["snapshots"] == 12
    assert ended["finished_at"] is not None
    assert rig.operations.open() == []
    trail = rig.http.get(f"{V1}/audit").json()["items"][0]
    assert (trail["deed"], trail["destination"]) == ("upkeep", "a")


def test_the_same_again_while_it_runs_is_the_same_operation_and_another_is_refused(rig: Kept) -> None:
    first = asked(rig)
    assert asked(rig)["id"] == first["id"]
    other = rig.http.post(f"{D}/a:upkeep", {"steps": ["clean"]})
    assert (other.status_code, other.json()["title"]) == (409, "Conflict")
    assert len(rig.items()) == 1


def test_what_nobody_answers_is_sent_again_under_another_name(rig: Kept) -> None:
    begun = asked(rig)
    assert rig.turn() == []
    (again,) = rig.turn(RESEND_AFTER_S)
    assert again.item != rig.items()[0].item
    rig.said(answer(again, result(step())))
    assert operation(rig, begun["id"])["state"] == "succeeded"
    assert rig.turn(RESEND_AFTER_S) == []


def test_a_control_that_starts_again_asks_again(rig: Kept) -> None:
    asked(rig)
    rig.upkeep._sent.clear()
    assert len(rig.turn()) == 1


def test_an_answer_to_another_item_ends_nothing(rig: Kept) -> None:
    begun = asked(rig)
    rig.said(progress(Outcome.ALREADY_APPLIED, "a", kind=ItemKind.UPKEEP, item="of-a-reader", position=5))
    rig.said(answer(rig.items()[0].model_copy(update={"item": f"{'0' * 32}.0.{'0' * 8}"}), result(step())))
    assert operation(rig, begun["id"])["state"] == "running"


@pytest.mark.parametrize(
    ("steps", "named", "state"),
    [
        ((step(StepOutcome.FAILED, reason="a conflict"),), None, "failed"),
        ((step(StepOutcome.REFUSED, UpkeepStep.ORPHANS, reason="another lake"),), ["orphans"], "failed"),
        ((step(), step(StepOutcome.REFUSED, UpkeepStep.ORPHANS, reason="another lake")), None, "succeeded"),
        ((step(StepOutcome.OFF, UpkeepStep.CLEAN, reason="it is off"),), ["clean"], "failed"),
    ],
)
def test_a_step_that_was_not_done_fails_it_where_it_was_asked_for(
    rig: Kept, steps: tuple[StepResult, ...], named: list[str] | None, state: str
) -> None:
    begun = asked(rig, {} if named is None else {"steps": named})
    rig.said(answer(rig.items()[0], result(*steps)))
    ended = operation(rig, begun["id"])
    assert ended["state"] == state
    assert ended["finished_at"] is not None
    assert (ended["error"] is not None) == (state == "failed")


def test_a_destination_that_parks_fails_it(rig: Kept) -> None:
    begun = asked(rig)
    rig.said(answer(rig.items()[0], outcome=Outcome.PARKED, error=problem("access_denied", retryable=False)))
    ended = operation(rig, begun["id"])
    assert (ended["state"], ended["error"]["type"]) == ("failed", "access_denied")


def test_a_later_life_supersedes_it(rig: Kept) -> None:
    begun = asked(rig)
    rig.http.post(f"{D}/a:reseed")
    assert operation(rig, begun["id"])["state"] == "superseded"
    rig.service.close_operations()
    assert [each.kind for each in rig.operations.open()] == ["reseed"]


@pytest.mark.parametrize(
    ("body", "path"),
    [({"steps": []}, "steps"), ({"steps": ["rewrite"]}, "steps"), ({"dry_run": "yes"}, "dry_run"), ({"x": 1}, "x"),
     ({"steps": ["clean"] * 5}, "steps")],
)  # fmt: skip
@pytest.mark.parametrize("place", ["/a:upkeep", ":upkeep"])
def test_a_body_that_means_nothing_is_refused(rig: Kept, body: dict[str, Any], path: str, place: str) -> None:
    found = rig.http.post(f"{D}{place}", body)
    assert found.status_code == 422
    assert path in found.json()["fields"][0]["path"]
    assert rig.items() == []


def test_what_has_no_table_that_could_be_kept_is_refused(rig: Kept) -> None:
    rig.add("new")
    rig.http.post(f"{D}/b:pause")
    rig.said(progress(Outcome.PARKED, "c", seconds=100, error=problem("access_denied", retryable=False)))
    said = {name: rig.http.post(f"{D}/{name}:upkeep", {}) for name in ("new", "b", "c", "nobody")}
    assert {name: each.status_code for name, each in said.items()} == {"new": 409, "b": 409, "c": 409, "nobody": 404}
    details = [said[name].json()["detail"] for name in ("new", "b", "c")]
    assert details == ["new is not known to be seeded", "b is paused", "c is parked"]
    rig.http.delete(f"{D}/a?data=drop")
    assert rig.http.post(f"{D}/a:upkeep", {}).json()["type"].endswith("#being_removed")
    assert rig.items() == []


def test_no_upkeep_of_the_pipeline_begins_while_one_of_its_destinations_is_damaged_by_it(rig: Kept) -> None:
    generation = rig.http.get(f"{D}/a").json()["generation"]
    rig.said(damage("a"))
    shown = rig.http.get(f"{D}/a").json()
    assert (shown["state"], shown["error"]["type"], shown["generation"]) == ("parked", "upkeep_damaged", generation)
    for name in ("a", "b"):
        refused = rig.http.post(f"{D}/{name}:upkeep", {})
        assert (refused.status_code, refused.json()["title"]) == (409, "Conflict")
        assert refused.json()["detail"] == "upkeep has damaged a, and no other of the pipeline begins"
    many = rig.http.post(f"{D}:upkeep", {}).json()
    assert [each["destination"] for each in many["refused"]] == ["a", "b", "c"]
    assert rig.items() == []
    rig.status_store.note(progress(Outcome.APPLIED, "a", position=6, seconds=200))
    assert rig.http.get(f"{D}/a").json()["state"] == "parked"
    said = rig.published("a")
    assert said is not None
    assert said.is_damaged, "the reader must know, or it would go on"
    assert rig.http.post(f"{D}/a:resume").json()["state"] == "running"
    rig.applied("a", 1, 7)
    assert rig.http.post(f"{D}/b:upkeep", {}).status_code == 202
    assert [each["deed"] for each in rig.http.get(f"{V1}/audit?destination=a").json()["items"]][:2] == [
        "resumed", "damaged by upkeep",
    ]  # fmt: skip


def test_a_registry_that_was_lost_still_knows_the_damage_from_the_topic(rig: Kept) -> None:
    rig.said(damage("a"))
    said = rig.published("a")
    assert said is not None
    memory = RememberedPipeline(said.pipeline)
    memory.note_destination(Destination.from_bytes(said.to_bytes()))
    (back,) = recall(memory, RoutedBy(field="company"), lambda _: None, revision()).destinations
    assert (back.is_damaged, back.desired, resume(back, revision("2")).is_damaged) == (True, "running", False)


def test_many_are_asked_at_once_and_a_lake_once_for_what_is_lake_wide(rig: Kept) -> None:
    rig.add("a2", catalog="sqlite:lakes/a.sqlite", table="other")
    rig.applied("a2", 1, 5)
    rig.http.post(f"{D}/c:pause")
    found = rig.http.post(f"{D}:upkeep", {"steps": ["compact", "expire"]})
    assert found.status_code == 202, found.text
    said = found.json()
    assert said["matched"] == 4
    assert [each["destination"] for each in said["operations"]] == ["a", "a2", "b"]
    assert said["refused"] == [{"destination": "c", "reason": "c is paused"}]
    steps = {each.destination: each.upkeep.steps for each in rig.items() if each.upkeep is not None}
    both = UpkeepStep.COMPACT, UpkeepStep.EXPIRE
    assert steps == {"a": both, "a2": (UpkeepStep.COMPACT,), "b": both}


def test_many_are_chosen_by_state_and_prefix(rig: Kept) -> None:
    assert rig.http.post(f"{D}:upkeep?prefix=b", {}).json()["matched"] == 1
    assert rig.http.post(f"{D}:upkeep?state=parked", {}).json()["matched"] == 0
    assert rig.http.post(f"{D}:upkeep?state=lost", {}).status_code == 422


def test_a_destinations_own_policy_is_put_shown_and_published(rig: Kept) -> None:
    rig.add("own", upkeep={"expire_after": "60d", "whole_lake": True})
    said = rig.published("own")
    assert said is not None
    assert said.upkeep is not None
    assert said.upkeep.expire_after == "60d"
    shown = rig.http.get(f"{D}/own")
    assert shown.json()["upkeep"]["expire_after"] == "60d"
    again = rig.http.put(f"{D}/own?check=false", shown.json())
    assert (again.status_code, again.json()["upkeep"]) == (200, shown.json()["upkeep"])
    assert rig.published("own") == said.model_copy(update=dict(_of_a_change(rig)))
    for wrong in ({"expire_after": "5m"}, {"clean_after": "soon"}, {"keep_snapshots": 0}, {"every": "1d"}):
        refused = rig.http.put(f"{D}/own?check=false", {"routing_value": "x", "catalog": "sqlite:x.sqlite",
                                                        "upkeep": wrong})  # fmt: skip
        assert refused.status_code == 422
        assert refused.json()["fields"][0]["path"].startswith("upkeep")


SHARED = {"catalog": "sqlite:lakes/shared.sqlite"}


def test_a_policy_that_contradicts_another_destinations_of_the_lake_is_refused_by_its_key(rig: Kept) -> None:
    rig.add("one", **SHARED, table="one", upkeep={"expire_after": "30d"})
    body = {"routing_value": "two", **SHARED, "table": "two", "upkeep": {"expire_after": "60d"}}
    refused = rig.http.put(f"{D}/two?check=false", body)
    assert refused.status_code == 422
    (fault,) = refused.json()["fields"]
    assert fault["path"] == "upkeep.expire_after"
    assert fault["message"] == "differs from that of one, which is in the same lake; write the same for both"
    assert "two" not in rig.registry.destinations()
    assert rig.http.put(f"{D}/two?check=false", {**body, "upkeep": {"expire_after": "720h"}}).status_code == 201
    again = rig.http.put(f"{D}/one?check=false", {**body, "routing_value": "value of one", "table": "one"})
    assert [each["path"] for each in again.json()["fields"]] == ["upkeep.expire_after"]


def test_the_policy_of_a_lake_is_changed_by_one_request_for_all_its_destinations(rig: Kept) -> None:
    for age in ("30d", "60d"):
        entry = {**SHARED, "upkeep": {"expire_after": age}}
        done = rig.http.post(
            f"{D}:import", [{"id": name, "routing_value": name, "table": name, **entry} for name in ("one", "two")]
        )
        assert done.json()["failed"] == 0, done.text
    assert {rig.registry.destinations()[name].declared.upkeep.expire_after for name in ("one", "two")} == {"60d"}  # type: ignore[union-attr]


def _of_a_change(rig: Kept) -> Iterator[tuple[str, Any]]:
    now = rig.published("own")
    assert now is not None
    yield from (("revision", now.revision), ("version", now.version))


class TestSchedule:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Kept]:
        with closing(Kept(tmp_path, sections=ON)) as rig:
            for name in ("a", "b", "c"):
                rig.add(name)
                rig.applied(name, 1, 5)
            rig.now = at(1_000)
            yield rig

    def test_every_lake_has_its_turn_a_few_at_once_and_again_after_every(self, rig: Kept) -> None:
        first = rig.turn()
        assert [each.destination for each in first] == ["a", "b"], "at_once"
        assert first[0].upkeep is not None
        assert first[0].upkeep.steps == (UpkeepStep.EXPIRE, UpkeepStep.CLEAN)
        assert rig.turn() == []
        for each in first:
            rig.said(answer(each, result(step())))
        (third,) = rig.turn()
        assert third.destination == "c"
        rig.said(answer(third, result(step())))
        assert rig.turn(3_600) == []
        assert len(rig.turn(86_400)) == 2

    def test_nothing_begins_outside_the_hours_or_while_a_destination_is_damaged(self, tmp_path: Path) -> None:
        folder = tmp_path / "other"
        folder.mkdir()
        with closing(Kept(folder, sections={"upkeep": {**ON["upkeep"], "hours": "22:00-05:00"}})) as rig:
            rig.add("a")
            rig.applied("a", 1, 5)
            rig.now = at(12 * 3_600)
            assert rig.turn() == []
            rig.now = at(23 * 3_600)
            rig.said(damage("a"))
            assert rig.turn() == []
            rig.applied("a", 1, 6)
            assert rig.turn() == [], "a reader that starts again moves it, and says so"
            assert rig.http.post(f"{D}/a:resume").status_code == 200
            rig.applied("a", 1, 7)
            assert len(rig.turn()) == 1

    def test_paused_ones_and_those_whose_steps_are_off_are_left_alone(self, rig: Kept) -> None:
        rig.http.post(f"{D}/a:pause")
        rig.add("b", upkeep={"expire_after": "off", "clean_after": "off"})
        rig.applied("b", 1, 5)
        assert [each.destination for each in rig.turn()] == ["c"]
