"""Operations: what they wait for, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.model.lifecycle import drop, remove, reseed
from services.control.operations.long_operations import LongOperation, Operations, begun, look
from services.control.store.database import Database
from services.control.view.observed_state import ObservedLife, after
from shared.contracts.messages import Outcome, Progress
from tests.fast.control.examples import PIPELINE, at, problem, progress, registered, revision
from tests.fast.control.fresh_registry import fresh
from tests.fast.control.rig import V1, ControlRig, D

BEFORE = registered()
LIFE = reseed(BEFORE, revision("2", 5))
RESEED = begun("reseed", LIFE)


def seen(*said: Progress) -> ObservedLife | None:
    found: ObservedLife | None = None
    for each in said:
        found = after(found, each)
    return found


def test_it_runs_until_its_own_life_has_a_position() -> None:
    assert look(RESEED, LIFE, None).state == "running"
    assert look(RESEED, LIFE, seen(progress(position=9))).state == "running"
    assert look(RESEED, LIFE, seen(progress(generation=2, position=-1))).state == "running"
    assert look(RESEED, LIFE, seen(progress(generation=2, position=9))).state == "succeeded"


def test_a_destination_that_parks_fails_it_and_says_why() -> None:
    parked = look(RESEED, LIFE, seen(progress(Outcome.PARKED, generation=2, error=problem("access_denied"))))
    assert (parked.state, parked.error) == ("failed", problem("access_denied"))


def test_a_failure_that_is_tried_again_is_shown_and_ends_nothing() -> None:
    failed = look(RESEED, LIFE, seen(progress(Outcome.FAILED, generation=2, error=problem())))
    assert (failed.state, failed.error) == ("running", problem())


@pytest.mark.parametrize("held", [reseed(LIFE, revision("3")), remove(LIFE, revision("3")), None])
def test_a_later_life_or_none_supersedes_it(held: object) -> None:
    assert look(RESEED, held, None).state == "superseded"  # type: ignore[arg-type]


def test_a_drop_is_over_when_the_destination_is_removed() -> None:
    dropping = drop(BEFORE, revision("2"))
    operation = begun("drop", dropping)
    assert look(operation, dropping, seen(progress(generation=2, position=5))).state == "running"
    assert look(operation, remove(dropping, revision("3")), None).state == "succeeded"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Operations]:
    with closing(Database(fresh(tmp_path / "registry.sqlite"))) as database:
        database.prepare()
        yield Operations(database, PIPELINE)


def add(kept: Operations, *operations: LongOperation) -> None:
    with kept._database.transaction() as con:
        for each in operations:
            kept.add(con, each)


def test_how_it_ended_stays_known(kept: Operations) -> None:
    add(kept, RESEED)
    assert kept.open() == [RESEED] == kept.newest(10, "a")
    failed = look(RESEED, LIFE, seen(progress(Outcome.PARKED, generation=2, error=problem())))
    kept.finish([failed], at(9))
    kept.finish([look(RESEED, None, None)], at(10))
    found = kept.find(RESEED.id)
    assert found is not None
    assert (found.state, found.error, found.finished_at, kept.open()) == ("failed", problem(), at(9), [])


def test_pipelines_do_not_see_each_others(kept: Operations, tmp_path: Path) -> None:
    add(kept, RESEED)
    other = Operations(kept._database, "another")
    assert (other.find(RESEED.id), other.open(), other.newest(10)) == (None, [], [])


def test_they_are_listed_page_by_page_also_those_of_one_moment(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        rig.add("a")
        rig.add("b")
        for number in range(7):
            rig.http.post(f"{D}/{'ab'[number % 2]}/reseed")
            rig.now += timedelta(seconds=number // 3)
        whole = rig.http.get(f"{V1}/operations").json()
        assert (len(whole["items"]), whole["next"]) == (7, None)
        assert [each["id"] for each in pages(rig, "operations")] == [each["id"] for each in whole["items"]]
        of_a = [each["id"] for each in whole["items"] if each["destination"] == "a"]
        assert [each["id"] for each in pages(rig, "operations", "&destination=a")] == of_a


@pytest.mark.parametrize("wrong", ["a", "ImEi", "WzEsImEiXQ", "IidcdTAwMDAi"])
def test_a_cursor_of_another_list_is_refused(tmp_path: Path, wrong: str) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        answer = rig.http.get(f"{V1}/operations?after={wrong}")
        assert (answer.status_code, answer.json()["detail"]) == (422, "after: not a cursor of this list")


def pages(rig: ControlRig, path: str, query: str = "") -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = rig.http.get(f"{V1}/{path}?limit=2{query}{after}").json()
        assert len(page["items"]) <= 2
        yield from page["items"]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"
