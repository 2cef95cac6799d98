"""One action for many destinations over REST: those that a filter names, in one transaction, by somebody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.messages import Outcome
from tests.fast.control.examples import at, problem, progress
from tests.fast.control.rig import V1, ControlRig, D


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    """Four destinations, of which two are parked for one reason and one for another."""
    with closing(ControlRig(tmp_path)) as rig:
        for name in ("a", "b", "c", "d"):
            rig.add(name)
        for name, reason in (("a", "access_denied"), ("b", "access_denied"), ("c", "table_mismatch")):
            rig.said(progress(Outcome.PARKED, name, seconds=100, error=problem(reason, retryable=False)))
        rig.now = at(200)
        yield rig


def ask(rig: ControlRig, verb: str, body: dict[str, Any], **headers: str) -> Any:
    answer = rig.http.post(f"{D}:{verb}", body, headers or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(rig: ControlRig) -> dict[str, str]:
    return {each["id"]: each["state"] for each in rig.http.get(D).json()["items"]}


def test_all_that_are_parked_for_one_reason_are_resumed_in_one_transaction(rig: ControlRig) -> None:
    before = rig.registry.destinations()
    said = ask(rig, "resume", {"state": ["parked"], "reason": "access_denied"})
    assert said == {"matched": 2, "changed": 2, "refused": 0, "destinations": ["a", "b"]}
    after = rig.registry.destinations()
    assert {name for name in after if after[name] != before[name]} == {"a", "b"}
    assert after["a"].version == after["b"].version
    assert states(rig)["c"] == "parked"


def test_the_same_again_changes_nothing(rig: ControlRig) -> None:
    which = {"state": ["parked"], "reason": "access_denied"}
    first = ask(rig, "resume", which, **{"Idempotency-Key": "once"})
    held = rig.registry.destinations()
    assert ask(rig, "resume", which, **{"Idempotency-Key": "once"}) == first
    assert ask(rig, "resume", which) == {"matched": 0, "changed": 0, "refused": 0, "destinations": []}
    assert rig.registry.destinations() == held
    assert ask(rig, "stop", {"ids": ["d"]})["changed"] == 1
    assert ask(rig, "stop", {"ids": ["d"]})["changed"] == 0


@pytest.mark.parametrize(
    ("which", "names"),
    [
        ({"ids": ["a", "d", "nobody"]}, ["a", "d"]),
        ({"prefix": "b"}, ["b"]),
        ({"state": ["parked"]}, ["a", "b", "c"]),
        ({"reason": "table_mismatch"}, ["c"]),
        ({"ids": ["a"], "reason": "table_mismatch"}, []),
        ({"every": True}, ["a", "b", "c", "d"]),
    ],
)
def test_a_filter_is_all_of_its_keys(rig: ControlRig, which: dict[str, Any], names: list[str]) -> None:
    assert ask(rig, "pause", which)["destinations"] == names
    assert [name for name, state in states(rig).items() if state == "paused"] == names


def test_one_that_can_not_is_counted_and_keeps_nobody(rig: ControlRig) -> None:
    ask(rig, "stop", {"ids": ["d"]})
    assert ask(rig, "pause", {"every": True}) == {
        "matched": 4, "changed": 3, "refused": 1, "destinations": ["a", "b", "c", "d"],
    }  # fmt: skip


@pytest.mark.parametrize("body", [{}, {"expected": 4}, {"every": False}, {"state": ["gone"]}, {"all": True}, []])
def test_nothing_is_done_to_all_by_leaving_the_filter_out(rig: ControlRig, body: Any) -> None:
    before = rig.registry.destinations()
    answer = rig.http.post(f"{D}:stop", body)
    assert answer.status_code == 422, answer.text
    assert rig.registry.destinations() == before


def test_who_has_seen_other_numbers_changes_nothing(rig: ControlRig) -> None:
    before = rig.registry.destinations()
    refused = rig.http.post(f"{D}:resume", {"state": ["parked"], "expected": 2})
    assert (refused.status_code, "3 destinations match, not 2" in refused.text) == (412, True)
    assert rig.registry.destinations() == before
    assert ask(rig, "resume", {"state": ["parked"], "expected": 3})["changed"] == 3


@pytest.mark.parametrize("verb", ["reseed", "rewind", "drop", "delete", "RESUME", "resume:x", ""])
def test_what_takes_a_scan_or_takes_away_is_for_one_at_a_time(rig: ControlRig, verb: str) -> None:
    assert rig.http.post(f"{D}:{verb}", {"every": True}).status_code in (404, 405, 422)
    assert states(rig) == {"a": "parked", "b": "parked", "c": "parked", "d": "seeding"}


def test_each_change_is_in_the_trail_with_who_made_it(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, token="s3cret")) as rig:
        bearer = {"Authorization": "Bearer s3cret"}
        for name in ("a", "b"):
            body = {"routing_value": name, "catalog": f"sqlite:lakes/{name}.sqlite"}
            assert rig.http.put(f"{D}/{name}?check=false", body, bearer).status_code == 201
        made = rig.http.post("/v1/tokens", {"name": "reader", "scope": "read"}, bearer).json()["token"]
        other = rig.http.post(
            "/v1/tokens", {"name": "other", "scope": "write", "pipelines": ["orders"]}, bearer
        ).json()["token"]
        for token, code in ((made, 403), (other, 404)):
            refused = rig.http.post(f"{D}:stop", {"every": True}, {"Authorization": f"Bearer {token}"})
            assert refused.status_code == code, refused.text
        assert {each.desired.value for each in rig.registry.destinations().values()} == {"running"}
        assert rig.http.post(f"{D}:stop", {"every": True}, bearer).json()["changed"] == 2
        trail = rig.http.get(f"{V1}/audit", headers=bearer).json()["items"]
        assert [(each["destination"], each["author"]) for each in trail[:2]] == [("b", "operator"), ("a", "operator")]
